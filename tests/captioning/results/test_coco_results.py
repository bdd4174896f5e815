from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.results.coco_results import (
    read_entries,
    read_results,
    write_candidates,
    write_captions,
    write_results,
)
from captioning.runtime.files import write_json
from captioning.types import Prediction, Sample

GOOD = [{"image_id": 9, "caption": "a dog"}, {"image_id": "x", "caption": "", "more": 1}]


def test_ids_become_text_and_empty_captions_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(GOOD))
    assert read_results(path) == {"9": ["a dog"], "x": [""]}
    path.write_text('[{"image_id": 9, "captions": ["a dog", "", "a cat"]}]')
    assert read_results(path) == {"9": ["a dog", "", "a cat"]}


def test_results_as_json_lines_and_answers_of_llava(tmp_path: Path) -> None:
    path = tmp_path / "merge.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in GOOD) + "\n\n")
    assert read_results(path) == {"9": ["a dog"], "x": [""]}
    path.write_text('{"question_id": 9, "prompt": "?", "text": "a dog"}')
    assert read_results(path) == {"9": ["a dog"]}


@given(
    st.dictionaries(
        st.text(max_size=8) | st.integers(0, 10**12).map(str) | st.just("007"),
        st.text(max_size=20),
        min_size=1,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, captions: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.json"
    write_results(path, [Prediction(image_id=i, caption=text) for i, text in captions.items()])
    assert read_results(path) == {image_id: [text] for image_id, text in captions.items()}


def test_several_captions_are_written_best_first(tmp_path: Path) -> None:
    group = [Prediction(image_id="9", caption=text, score=-n) for n, text in enumerate("ab")]
    write_candidates(tmp_path / "c.json", [group])
    assert read_results(tmp_path / "c.json") == {"9": ["a", "b"]}
    assert json.loads((tmp_path / "c.json").read_text())[0]["scores"] == [0, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("{}", "must be a list"),
        ("[]", "a list of at least one"),
        ("[3]", "entry 0: must be an object"),
        ('[{"caption": "a"}]', "entry 0: image_id must be a number or text: got None"),
        ('[{"image_id": true, "caption": "a"}]', "image_id must be .* got True"),
        ('[{"image_id": 1}]', "entry 0: caption must be text: got None"),
        ('[{"image_id": 1, "caption": ["a"]}]', "caption must be text"),
        ('[{"image_id": 1, "captions": "a"}]', "captions must be a list of one or more: got 'a'"),
        ('[{"image_id": 1, "captions": []}]', "captions must be a list of one or more"),
        ('[{"image_id": 1, "captions": ["a", 2]}]', "caption must be text: got 2"),
        (
            '[{"image_id": 1, "caption": "a"}, {"image_id": "1", "caption": "b"}]',
            "entry 1: image_id '1' occurs twice",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as caught:
        read_results(path)
    assert str(path) in str(caught.value)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing.json: no such file"):
        read_results(tmp_path / "nothing.json")


def test_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_json(path, {"CIDEr-D": 0.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"CIDEr-D": float("nan")})
    assert json.loads(path.read_text()) == {"CIDEr-D": 0.5}
    assert list(tmp_path.iterdir()) == [path]


def test_pycocotools_joins_predictions_and_references_of_own_photos(tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco", reason="needs pycocotools")
    ids = ["sub/bob.jpg", "COCO_val2014_9.JPG", "a b.jpeg", "7"]
    samples = [
        Sample(
            row=row,
            sample_id=str(row),
            image_id=image_id,
            image_path=tmp_path / (f"{image_id}.png" if image_id == "7" else image_id),
            caption=f"caption {row}",
        )
        for row, image_id in enumerate([*ids, "sub/bob.jpg", "left out.jpg"])
    ]
    groups = [[Prediction(image_id=image_id, caption=f"said of {image_id}")] for image_id in ids]
    write_captions(tmp_path, groups, samples)
    references = coco.COCO(tmp_path / "references.json")
    results = references.loadRes(str(tmp_path / "predictions.json"))
    said = {i: [entry["caption"] for entry in results.imgToAnns[i]] for i in references.getImgIds()}
    assert said == {i: [f"said of {i}"] for i in ("sub/bob.jpg", *ids[1:3], 7)}
    texts = {i: [a["caption"] for a in references.imgToAnns[i]] for i in references.imgs}
    assert texts["sub/bob.jpg"] == ["caption 0", "caption 4"]
    assert texts[7] == ["caption 3"]
    names = [image["file_name"] for image in references.imgs.values()]
    assert names == [*ids[:3], "7.png"]


def test_captions_of_the_command_line_are_entries(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(
        '[{"file": "s/a.jpg", "caption": "a", "captions": [{"caption": "a", "score": -1.5},'
        ' {"caption": "b", "score": null}]}]'
    )
    (entry,) = read_entries(path)
    assert (entry.image_id, entry.names, entry.captions) == (None, ("s/a.jpg",), ["a", "b"])
    with pytest.raises(ValueError, match="entry 0: image_id must be a number or text: got None"):
        read_results(path)
