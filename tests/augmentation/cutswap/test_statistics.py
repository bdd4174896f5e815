"""Objects before and after, and what was swapped."""

from __future__ import annotations

import tracemalloc

import pytest

from augmentation.cutswap.statistics import (
    compare,
    mention_statistics,
    swap_statistics,
    write_statistics,
)
from augmentation.cutswap.text import CaptionSwap
from captioning.runtime.files import read_json


@pytest.fixture
def counted(parser, object_words):
    def count(*captions: tuple[str, str]):
        parses = parser.parse([caption for _, caption in captions])
        triples = [(*pair, parse) for pair, parse in zip(captions, parses, strict=True)]
        return mention_statistics(triples, object_words=object_words)

    return count


def swapped(new: str, attribute: str = "") -> CaptionSwap:
    return CaptionSwap(
        sample_id="1",
        caption="",
        old_object="dog",
        new_object=new,
        plural=False,
        old_attribute="black",
        new_attribute=attribute,
        spans=(),
    )


def test_objects_are_counted_by_caption_and_by_photo(counted):
    statistics = counted(("1", "A black dog runs ."), ("1", "Dogs run ."), ("2", "A black cat ."))
    assert (statistics.num_images, statistics.num_captions, statistics.num_mentions) == (2, 3, 3)
    assert statistics.objects == {"cat": 1, "dog": 2}
    assert statistics.image_share == {"cat": 0.5, "dog": 0.5}
    assert (statistics.attributes, statistics.num_pairs) == ({"black": 2}, 2)


@pytest.mark.long
def test_counting_many_takes_no_more_memory_than_few(parser, object_words):
    (parse,) = parser.parse(["A black dog runs ."])

    def peak(number: int) -> int:
        captions = ((f"photo{n}", "A black dog runs .", parse) for n in range(number))
        tracemalloc.start()
        statistics = mention_statistics(captions, object_words=object_words)
        swaps = swap_statistics(swapped("cat") for _ in range(number))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert statistics.num_images == swaps.num_swaps == number
        return peak_bytes

    peak(4000)  # fills caches and lists of free tuples
    assert peak(4000) < peak(100) + 20_000


def test_data_sets_are_compared_by_the_share_of_photos(counted):
    before = counted(("1", "A dog runs ."), ("2", "A dog runs ."), ("3", "A cat sits ."))
    after = counted(("1", "A dog runs ."), ("2", "A horse runs ."), ("3", "A cat sits ."))
    statistics = compare(before, after)
    assert (statistics.new_objects, statistics.lost_objects) == (("horse",), ())
    assert statistics.mean_difference == pytest.approx((0 + 1 / 3 + 1 / 3) / 3)
    assert {name for name, *_ in statistics.largest[:2]} == {"dog", "horse"}
    assert compare(before, before).correlation == pytest.approx(1)


def test_no_objects_at_all_are_refused(counted):
    nothing = counted(("1", "It rains ."))
    with pytest.raises(ValueError, match="no caption mentions a listed object"):
        compare(nothing, nothing)


def test_shares_of_what_changed():
    statistics = swap_statistics(
        [swapped("cat", "black"), swapped("cat", "red"), swapped("dog", "red")]
    )
    assert statistics.changed_objects == pytest.approx(2 / 3)
    assert statistics.changed_attributes == pytest.approx(2 / 3)
    assert list(statistics.changes.items()) == [("dog > cat", 2), ("dog > dog", 1)]
    tied = swap_statistics([swapped("horse"), swapped("cat")], num=1)
    assert tied.changes == {"dog > cat": 1}
    with pytest.raises(ValueError, match="swaps must not be empty"):
        swap_statistics([])


def test_statistics_are_written_as_json_and_pictures(counted, tmp_path):
    before, after = counted(("1", "A dog runs .")), counted(("1", "A cat runs ."))
    names = write_statistics(
        tmp_path,
        before=before,
        after=after,
        swaps=swap_statistics([swapped("cat")]),
        similarities=[0.1, 0.2, 0.3],
        threshold=0.2,
        space="joint-space",
    )
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    content = read_json(tmp_path / "statistics.json")
    assert content["similarities"]["share_kept"] == pytest.approx(2 / 3)
    assert content["comparison"]["new_objects"] == ["cat"]
    assert write_statistics(tmp_path, before=before, after=after) == names[:2]
