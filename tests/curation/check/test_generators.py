"""Folders from which image generators are fine-tuned: each fault is found, and only there."""

from __future__ import annotations

import csv
import json
import random
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from curation.check import check, generators
from curation.check.check_files import export_cleaned
from curation.check.checks import GENERATOR_CHECKS
from curation.check.generator_folder import Purpose, found_trigger, is_odd, place_of, style_of
from curation.check.generators import edits, usual_terms
from curation.check.result import CheckResult
from curation.export.tool_files import Style

PLACES = ("a red sofa", "the beach", "an old chair", "a street", "the grass", "a boat", "a hill")
DOINGS = ("sits on", "runs over", "sleeps near", "jumps over", "looks at", "walks to")
LOOKS = ("wet", "happy", "tired", "small", "fast", "calm", "curious", "young", "proud", "quiet")


def captions(number: int = 24) -> list[str]:
    """Sentences that differ, without a word that most of them share beside articles."""
    draw = random.Random(0)
    every = [f"{look}, {doing} {place}" for look in LOOKS for doing in DOINGS for place in PLACES]
    return draw.sample(every, number)


def write(root: Path, texts: Mapping[str, str | None], size: tuple[int, int] = (600, 520)) -> Path:
    """A photo of noise for each text; None: without one."""
    for name, text in texts.items():
        path, number = root / name, zlib.crc32(name.encode())
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (9, 11, 3), np.uint8)
        Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST).save(
            path.with_suffix(".png")
        )
        if text is not None:
            path.with_suffix(".txt").write_text(text, encoding="utf-8")
    return root


def folder(root: Path, number: int = 24, **changed: str | None) -> Path:
    """kohya's folder of captions that begin with ``ohwx dog``; some are changed by number."""
    texts = {f"10_ohwx dog/p{n}": f"ohwx dog, {c}" for n, c in enumerate(captions(number))}
    return write(root, texts | {f"10_ohwx dog/{name}": text for name, text in changed.items()})


def run(root: Path, generator: Purpose | bool | None = None, **options: object) -> CheckResult:
    return check(root, space="none", quiet=True, generator=generator, **options)  # type: ignore[arg-type]


def flagged(result: CheckResult, name: str) -> set[str]:
    rows = np.flatnonzero(result.flags[name])
    return {result.roster.samples[row].image_path.stem for row in rows}


def notes(result: CheckResult) -> dict[str, str]:
    return {note.name: note.said for note in result.notes}


def left_out(result: CheckResult) -> dict[str, str]:
    return {Path(d.item).name: d.rule for d in result.roster.dropped}


def test_nothing_is_flagged_in_a_sound_folder(tmp_path: Path) -> None:
    result = run(folder(tmp_path))
    assert not result.flagged.any()
    assert notes(result)["trigger"] == "'ohwx', as found: in 24 of 24 captions"
    assert notes(result)["repeats"] == "an epoch has 240 captions (10_ohwx dog: 24 x 10)"
    assert "fused_words" not in notes(result)
    assert "constant_words" not in notes(result)


def test_ordinary_sets_get_no_more_checks(tmp_path: Path) -> None:
    texts = [f"A dog that is {c}." for c in captions()]
    result = run(write(tmp_path, {f"photos/{n}": text for n, text in enumerate(texts)}))
    assert not {c.name for c in GENERATOR_CHECKS} & set(result.scores)
    assert "same_caption" in result.scores
    assert not result.notes
    as_asked = run(tmp_path, True)
    assert {c.name for c in GENERATOR_CHECKS} <= set(as_asked.scores)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ("a dog at night, beside a lamp", "trigger_missing"),
        ("ohwxx dog, at night beside a lamp", "trigger_misspelt"),
        ("ohxw dog, at night beside a lamp", "trigger_misspelt"),
        ("oh wx dog, at night beside a lamp", "trigger_misspelt"),
        ("OHWX dog, at night beside a lamp", "trigger_misspelt"),
        ("at night beside a lamp, ohwx dog", "trigger_not_first"),
        ("ohwx dog, night, lamp, street, no humans, solo", "mixed_style"),
        ("ohwx dog, " + "at night in front of a very old lamp, " * 9, "long_for_clip"),
    ],
)
def test_one_fault_is_one_flag(tmp_path: Path, changed: str, name: str) -> None:
    result = run(folder(tmp_path, p7=changed), skip=["too_long", "repetition"])
    found = {check: flagged(result, check) for check in result.scores if flagged(result, check)}
    assert found == {name: {"p7"}}


def test_a_trigger_that_is_given(tmp_path: Path) -> None:
    texts = {f"p{n}": f"a photo of zelda, {c}" for n, c in enumerate(captions())}
    texts |= {"p3": "a photo of zleda, at night", "p5": "a photo, at night", "p6": "zelda at night"}
    result = run(write(tmp_path, texts), Purpose(trigger="zelda", class_words=("photo",)))
    assert flagged(result, "trigger_misspelt") == {"p3"}
    assert flagged(result, "trigger_missing") == {"p5"}
    assert flagged(result, "class_missing") == {"p6"}
    # most captions begin otherwise: that is how this folder is written
    assert not flagged(result, "trigger_not_first")
    assert "do not begin with it" in result.scores["trigger_not_first"].note


def test_words_of_english_are_no_slips_of_a_short_trigger(tmp_path: Path) -> None:
    texts = {f"p{n}": f"sks, {c}" for n, c in enumerate(captions())}
    texts |= {
        "p1": "sks, below a blue sky",
        "p2": "sky dog, in the snow",
        "p3": "skss, in the snow",
    }
    result = run(write(tmp_path, texts), Purpose(trigger="sks"))
    assert flagged(result, "trigger_misspelt") == {"p2", "p3"}
    assert not flagged(result, "trigger_missing")


@pytest.mark.long
def test_each_folder_of_kohya_has_its_own_trigger(tmp_path: Path) -> None:
    folder(tmp_path, 10)
    write(tmp_path, {f"5_zkp1 cat/{n}": f"zkp1 cat, {c}" for n, c in enumerate(captions(10))})
    write(tmp_path, {f"1_dog/r{n}": None for n in range(12)})  # pictures of the class
    result = run(tmp_path)
    assert not flagged(result, "trigger_missing")
    # their captions are their folder's; it is less than half of the set, and what kohya trains on
    assert flagged(result, "shared_caption") == {f"r{n}" for n in range(12)}
    assert not result.flagged.any()
    told = [note.said for note in result.notes if note.name == "trigger"]
    assert told == [
        "'ohwx', as found: in 10 of 10 captions",
        "'zkp1', as found: in 10 of 10 captions",
    ]
    given = run(tmp_path, Purpose(trigger="ohwx"))
    assert not flagged(given, "trigger_missing")


@pytest.mark.parametrize(
    ("repeats", "folders"),
    [(1, {"10_ohwx dog", "3_zkp1 cat", "1_photos"}), (7, {"7_photos"})],
)
def test_repeats_are_kept_in_kohyas_form(tmp_path: Path, repeats: int, folders: set[str]) -> None:
    folder(tmp_path / "set", 6)
    write(
        tmp_path / "set", {f"3_zkp1 cat/{n}": f"zkp1 cat, {c}" for n, c in enumerate(captions(6))}
    )
    write(tmp_path / "set", {"other/x": "ohwx dog, at night"})
    result, out = run(tmp_path / "set"), tmp_path / "out"
    style = Style(form="kohya", repeats=repeats)
    export_cleaned(result, out, format="text_files", style=style, held_out=0)
    assert {path.parent.name for path in out.rglob("*.png")} == folders
    again = read_own(name="set", folder=out)
    assert sorted(s.caption for s in again.samples) == sorted(
        s.caption for s in result.roster.samples
    )


def test_words_that_nearly_every_caption_has(tmp_path: Path) -> None:
    texts = {f"p{n}": f"ohwx, {c}, soft light, masterpiece" for n, c in enumerate(captions())}
    texts["p4"] = "ohwx, hazy, at night, a lamp, masterpiece"
    result = run(write(tmp_path, texts))
    assert notes(result)["constant_words"].endswith("'masterpiece' (24 of 24)")
    assert "'soft light' (23 of 24)" in notes(result)["fused_words"]
    assert "'light'" not in notes(result)["fused_words"]  # a part of it
    assert not result.flagged.any()


def test_terms() -> None:
    own = ["sks dog, a red scarf, long_hair", "sks dog with a red scarf", "sks dog, a red hat", "x"]
    assert usual_terms(own, {"sks", "dog"}) == [("red", 3), ("red scarf", 2)]


def test_captions_that_repeat_others(tmp_path: Path) -> None:
    draw = captions()
    long = "ohwx dog, one two three four five six seven eight nine ten dogs lie on sand by the sea"
    result = run(
        folder(tmp_path, p3=f"ohwx dog, {draw[9]}", p5=long, p6=long.replace("sea", "lake"))
    )
    assert flagged(result, "repeated_caption") == {"p3", "p9"}
    assert flagged(result, "alike_caption") == {"p5", "p6"}


def test_a_folder_of_bare_triggers_is_a_habit(tmp_path: Path) -> None:
    result = run(write(tmp_path, {f"10_ohwx dog/{n}": "ohwx dog" for n in range(20)}))
    assert not result.flagged.any()
    assert "only trigger and class" in notes(result)["bare"]


def test_default_captions(tmp_path: Path) -> None:
    folder(tmp_path, p30=None, p31=None)
    (tmp_path / "default_caption.txt").write_text("ohwx dog")
    result = run(tmp_path)
    assert flagged(result, "shared_caption") == {"p30", "p31"}
    assert not left_out(result)


def test_photos_and_texts_without_each_other(tmp_path: Path) -> None:
    inside = folder(tmp_path, p1=None, p2=" \n") / "10_ohwx dog"
    (inside / "gone.txt").write_text("ohwx dog, away")
    (inside / "README.txt").write_text("how it was made")
    (inside / "bad.txt").write_bytes(b"ohwx caf\xe9")
    Image.new("RGB", (600, 600), "red").save(inside / "bad.png")
    found = left_out(run(tmp_path))
    assert found.pop("bad.txt").startswith("line 1: not UTF-8")
    assert found == {
        "p1.png": "photo without caption",
        "p2.png": "text is empty",
        "bad.png": "photo without caption",
        "gone.txt": "text without photo",
    }


def test_captions_in_a_tree_of_their_own(tmp_path: Path) -> None:
    apart = {f"p{n}": f"ohwx dog, {c}" for n, c in enumerate(captions())}
    write(tmp_path / "images", dict.fromkeys(apart))
    (tmp_path / "captions").mkdir()
    for name, text in apart.items():
        (tmp_path / "captions" / f"{name}.txt").write_text(text)
    (tmp_path / "captions" / "gone.txt").write_text("ohwx dog, away")
    result = run(tmp_path, True)
    assert len(result.roster) == 24
    assert left_out(result) == {"gone.txt": "text without photo"}


def test_a_second_set_of_captions_is_no_orphan(tmp_path: Path) -> None:
    folder(tmp_path)
    second = tmp_path / "cap_kohya" / "10_ohwx dog"
    second.mkdir(parents=True)
    for number in range(24):
        (second / f"p{number}.txt").write_text("ohwx dog, other")
    result = run(tmp_path)
    assert not left_out(result)
    assert notes(result)["second_captions"].startswith("cap_kohya/ has a second caption of 24")


@pytest.mark.long
def test_photos_below_the_bucket(tmp_path: Path) -> None:
    write(folder(tmp_path) / "10_ohwx dog", {"p2": "ohwx dog, at night"}, size=(700, 300))
    assert flagged(run(tmp_path), "small_photo") == {"p2"}
    assert not flagged(run(tmp_path, Purpose(bucket=256)), "small_photo")
    # a bucket above all photos is the bucket's fault
    large = run(tmp_path, Purpose(bucket=1024))
    assert not flagged(large, "small_photo")
    assert "25 of 25" in large.scores["small_photo"].note or "24 of 24" in (
        large.scores["small_photo"].note
    )
    assert flagged(run(tmp_path, thresholds={"small_photo": 521}), "small_photo") == set()


def test_files_of_a_folder(tmp_path: Path) -> None:
    inside = folder(tmp_path) / "10_ohwx dog"
    (inside / "Thumbs.db").touch()
    Image.new("RGB", (600, 600), "blue").save(inside / "p3.png", "JPEG")
    (inside / "p4.png").rename(inside / "über p4.png")
    (inside / "p4.txt").rename(inside / "über p4.txt")
    (inside / "p5.txt").write_text("\ufeffohwx dog, at night", encoding="utf-8")
    (tmp_path / "val.txt").write_text("10_ohwx dog/p1.png\nnot_there.png\n")
    found = notes(run(tmp_path))
    assert found["system_files"] == "1 files of an operating system (10_ohwx dog/Thumbs.db)"
    assert "10_ohwx dog/p3.png" in found["wrong_endings"]
    assert "über p4.png" in found["names"]
    assert "p5.txt" in found["byte_order_marks"]
    assert found["lists"] == "val.txt names 1 missing photos, such as not_there.png"
    assert "2 sizes" in found["sizes"]


def test_lengths_by_a_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "ohwx dog, " + " ".join(
        f"{look} and" for look in LOOKS * 2
    )  # 42 words, over 77 letters
    folder(tmp_path, p7=words)
    result = run(tmp_path)
    assert not flagged(result, "long_for_clip")
    assert "no tokenizer of CLIP is at hand" in result.scores["long_for_clip"].note or (
        generators.clip_counter() is not None
    )
    monkeypatch.setattr(generators, "clip_counter", lambda: lambda text: 2 * len(text.split()))
    counted = run(tmp_path)
    assert flagged(counted, "long_for_clip") == {"p7"}
    assert not counted.scores["long_for_clip"].note


def test_t5_is_counted_where_captions_may_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, p7="ohwx dog, " + "in the sun, " * 60)
    asked = []
    monkeypatch.setattr(
        generators, "t5_counter", lambda: asked.append(1) or (lambda t: len(t) // 2)
    )
    result = run(tmp_path)
    assert asked == [1]
    assert not flagged(result, "long_for_t5")
    assert "1 captions have over 256" in result.scores["long_for_t5"].note


@pytest.mark.parametrize(
    ("caption", "style"),
    [
        ("1girl, solo, long hair, smile", "tags"),
        ("1girl long_hair blue_eyes smile", "tags"),
        ("dog, red collar, grass, outdoors, day", "tags"),
        ("A brown dog runs through the tall grass.", "sentences"),
        ("a man in a red coat, riding a bicycle, on a street", "sentences"),
        ("A man with a red hat, blue coat, black shoes, and a bag.", "sentences"),
        ("1girl, solo, long hair, smile, She is sitting on the edge of a bed.", "both"),
        ("sks dog", ""),
        ("", ""),
    ],
)
def test_tags_and_sentences(caption: str, style: str) -> None:
    assert style_of(caption) == style


def test_sets_of_tags_are_recognised(tmp_path: Path) -> None:
    tags = [f"1girl, {look}, {place.split()[-1]}, solo" for look in LOOKS for place in PLACES[:3]]
    result = run(write(tmp_path, {f"p{n}": text for n, text in enumerate(tags)}))
    assert notes(result)["style"] == "30 lists of tags"
    assert not result.flagged.any()
    assert "trigger" in notes(result)
    assert "none is found" in notes(result)["trigger"]


def test_metadata_with_prompts_is_recognised(tmp_path: Path) -> None:
    write(tmp_path, {f"p{n}": None for n in range(24)})
    rows = [{"file_name": f"p{n}.png", "prompt": f"a {c}"} for n, c in enumerate(captions())]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert "long_for_clip" in run(tmp_path).scores


@pytest.mark.parametrize(
    ("texts", "trigger"),
    [
        ([f"ohwx man {c}" for c in captions()], "ohwx"),
        ([f"Zelda, {c}" for c in captions()], "Zelda"),
        ([f"my_char1, {c}" for c in captions()], "my_char1"),
        ([f"A photo of {c}" for c in captions()], ""),
        ([f"1girl, {c}" for c in captions()], ""),
        (captions(), ""),
        (["ohwx man"] * 2, ""),  # too few to tell
    ],
)
def test_the_trigger_is_found(texts: list[str], trigger: str) -> None:
    assert found_trigger(texts) == trigger


def test_words_and_places() -> None:
    assert place_of("sks dog", "a photo of sks-dog's bowl") == 3
    assert place_of("sks", "asks") is None
    assert place_of("sks", "sks\u72d7\u5728\u8dd1") == 0
    assert [
        word for word in ("ohwx", "dog", "zkp1", "2nd", "1girl", "the", "long_hair") if is_odd(word)
    ] == [
        "ohwx",
        "zkp1",
    ]


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [
        ("ohwx", "ohwx", 0),
        ("ohxw", "ohwx", 1),
        ("ohw", "ohwx", 1),
        ("oxxw", "ohwx", 2),
        ("a", "ohwx", 3),
    ],
)
def test_edits(first: str, second: str, number: int) -> None:
    assert edits(first, second, 2) == edits(second, first, 2) == number


def test_the_command(tmp_path: Path, monkeypatch, capsys) -> None:
    folder(tmp_path / "set", p7="a dog at night, beside a lamp")
    monkeypatch.chdir(tmp_path)
    main(["check", "set", "--space", "none", "--trigger", "ohwx", "--bucket", "640"])
    out = capsys.readouterr().out
    assert "trigger: 'ohwx': in 23 of 24 captions" in out
    assert "small_photo: 24 of 24 captions have a side below 640 pixels" in out
    with open("set-check/issues.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["trigger_missing"] == "1"]
    assert [Path(row["file"]).stem for row in rows] == ["p7"]
    with open("set-check/folder.csv", newline="") as file:
        found = {row["finding"]: row["said"] for row in csv.DictReader(file)}
    assert found["trigger"] == "23 of 24"
    assert found["repeats"] == "24 x 10"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trigger", " ,"], "--trigger ' ,' has no letter or digit"),
        (["--class-word", "!"], "--class-word '!' has no letter or digit"),
        (["--bucket", "0"], "--bucket must be at least 1: got 0"),
        (["--trigger", "x", "--for", "captioner"], "leave them out, or leave out --for captioner"),
        (
            ["--for", "captioner", "--threshold", "small_photo=9"],
            "small_photo checks only folders",
        ),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, capsys, options: list[str], message: str) -> None:
    folder(tmp_path / "set", 6)
    out = ["--space", "none", "--out", str(tmp_path / "out")]
    assert main(["check", str(tmp_path / "set"), *out, *options]) != 0
    assert message in capsys.readouterr().err
