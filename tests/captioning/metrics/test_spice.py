from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from captioning.metrics import spice
from captioning.metrics.coco import evaluate_captions
from captioning.metrics.java import JavaError
from captioning.metrics.spice import (
    CORENLP_JARS,
    NASHORN_JARS,
    missing_jars,
    prepare_spice,
    score_spice,
    spice_folder,
)

Install = Callable[[str], None]
GOLDEN = Path(__file__).parent / "golden.json"
JARS = sorted(CORENLP_JARS | NASHORN_JARS)
# answers every image with its number of references / 10, last image first
ANSWER = """
printf '%s\\n' "$@" > ARGUMENTS
for last; do case "$previous" in -out) target="$last";; edu*) source="$last";; esac
previous="$last"; done
python3 - "$source" "$target" <<'PYTHON'
import json, sys
items = json.load(open(sys.argv[1]))
scores = [{"image_id": i["image_id"], "scores": {"All": {"f": len(i["refs"]) / 10}}} for i in items]
json.dump(scores[::-1], open(sys.argv[2], "w"))
PYTHON
"""


def make_jar(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "spice"
    for name in JARS:
        make_jar(folder / name)
    return folder


@pytest.fixture
def package_without_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pycocoevalcap to which nobody has added jars."""
    monkeypatch.setattr(spice, "_package_folder", lambda: tmp_path / "package")


def install_mvn(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "mvn").write_text("#!/bin/sh\n" + script)
    (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_absent_jars_are_named_and_spice_is_missing(
    fake_java: Install, package_without_jars: None, tmp_path: Path
) -> None:
    fake_java("exit 1")
    result = evaluate_captions(
        {"1": "a dog"},
        {"1": ["a dog"]},
        metrics=["SPICE", "BLEU"],
        tokenizer="python",
        spice_folder=tmp_path,
    )
    assert "SPICE" not in result.corpus
    assert "SPICE" not in result.per_image["1"]
    assert "stanford-corenlp-3.6.0.jar and 7 further files" in result.missing["SPICE"]
    assert "captioning prepare metrics" in result.missing["SPICE"]


def test_nashorn_is_needed_from_java_15(package_without_jars: None, tmp_path: Path) -> None:
    assert missing_jars(tmp_path, "1.8.0_402") == list(CORENLP_JARS)
    assert missing_jars(tmp_path, "14.0.2") == list(CORENLP_JARS)
    assert set(missing_jars(tmp_path, "15")) == set(JARS)


def test_truncated_jar_counts_as_missing(
    package_without_jars: None, jars: Path, tmp_path: Path
) -> None:
    assert missing_jars(jars, "17.0.1") == []
    (jars / JARS[0]).write_bytes((jars / JARS[0]).read_bytes()[:20])
    assert missing_jars(jars, "17.0.1") == [JARS[0]]


def test_scores_stand_with_their_images(
    fake_java: Install, jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(ANSWER.replace("ARGUMENTS", str(tmp_path / "arguments")))
    references = [["a"] * 3, ["a"], ["a"] * 2]
    mean, scores = score_spice(["z", "b", "10"], ["a"] * 3, references, folder=jars, timeout=60)
    assert scores == [0.3, 0.1, 0.2]
    assert mean == pytest.approx(0.2)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert "--add-opens=java.base/java.lang=ALL-UNNAMED" in arguments
    assert str(jars / "parses") in arguments


def test_captions_that_come_again_are_parsed_once(
    fake_java: Install, jars: Path, tmp_path: Path
) -> None:
    kept = f'cp "$source" {tmp_path}/asked-$(ls {tmp_path} | grep -c asked).json\n'
    fake_java(ANSWER.replace("ARGUMENTS", "/dev/null").replace("python3", kept + "python3"))
    candidates = [f"dog {number % 99}" for number in range(200)] + [""]
    references = [["a dog", "", "a cat"]] * len(candidates)
    ids = [str(number) for number in range(len(candidates))]
    assert score_spice(ids, candidates, references, folder=jars, timeout=60)[1] == [0.3] * 201
    parsed, scored = (json.loads((tmp_path / f"asked-{n}.json").read_text()) for n in (0, 1))
    texts = [text for item in parsed for text in (item["test"], *item["refs"])]
    assert sorted(texts) == sorted({*candidates, "a dog", "a cat"} - {""})
    assert [item["test"] for item in scored] == candidates


def test_caption_beyond_the_parsers_means_is_named(fake_java: Install, jars: Path) -> None:
    fake_java("exit 1")
    references = [["a dog"], ["a cat"]]
    with pytest.raises(JavaError, match="at most 100 words: one of image 'b' has 10000"):
        score_spice(["a", "b"], ["a dog", "dog " * 10_000], references, folder=jars)
    result = evaluate_captions(
        {"b": "dog " * 10_000}, {"b": ["a dog"]}, metrics=["SPICE", "BLEU"], spice_folder=jars
    )
    assert "has 10000" in result.missing["SPICE"]
    assert result.corpus["BLEU-1"] > 0


def test_second_try_leaves_the_shared_cache_alone(
    fake_java: Install, jars: Path, tmp_path: Path
) -> None:
    log = tmp_path / "caches"
    script = f'for a; do [ "$last" = -cache ] && echo "$a" >> {log}; last="$a"; done; exit 1'
    fake_java(script)
    with pytest.raises(JavaError, match="status 1"):
        score_spice(["a"], ["a dog"], [["a dog"]], folder=jars, timeout=30)
    first, second = log.read_text().splitlines()
    assert first == str(jars / "parses")
    assert not second.startswith(str(jars))


def test_digits_are_those_of_pycocoevalcap(real_java: str) -> None:
    if missing := missing_jars(spice_folder(), real_java):
        pytest.skip(f"needs {missing[0]}: run `captioning prepare metrics`")
    golden = json.loads(GOLDEN.read_text("utf-8"))
    ids = list(golden["candidates"])
    result = evaluate_captions(golden["candidates"], golden["references"], metrics=["SPICE"])
    assert result.missing == {}
    assert result.corpus["SPICE"] == pytest.approx(golden["corpus"]["SPICE"], rel=1e-13)
    for image_id in ids:
        assert result.per_image[image_id]["SPICE"] == golden["per_image"][image_id]["SPICE"]
    assert result.per_image["perfect"]["SPICE"] == 1
    assert result.per_image["100000"]["SPICE"] == 0


def test_number_where_the_jars_are_and_none_when_they_are_taken_away(
    real_java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := missing_jars(spice_folder(), real_java):
        pytest.skip(f"needs {missing[0]}: run `captioning prepare metrics`")
    golden = json.loads(GOLDEN.read_text("utf-8"))
    # texts of the test above: parses are kept, and the parser takes seconds to load
    captions, references = {"7": golden["candidates"]["7"]}, golden["references"]
    options = {"metrics": ["SPICE", "BLEU"], "tokenizer": "ptb"}
    result = evaluate_captions(captions, references, **options)
    assert result.corpus["SPICE"] == golden["per_image"]["7"]["SPICE"] > 0
    monkeypatch.setattr(spice, "_package_folder", lambda: tmp_path / "package")
    without = evaluate_captions(captions, references, spice_folder=tmp_path, **options)
    assert without.missing.keys() == {"SPICE"}
    assert "captioning prepare metrics" in without.missing["SPICE"]
    assert without.corpus == {n: s for n, s in result.corpus.items() if n != "SPICE"}


def test_two_processes_do_not_share_the_cache(jars: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with spice._cache(jars, str(tmp_path), 0) as first:
        assert first == jars / "parses"
        with spice._cache(jars, str(tmp_path / "a"), 0.3) as private:
            assert private == tmp_path / "a" / "parses"
    with spice._cache(jars, str(tmp_path), 0) as again:
        assert again == first


def test_second_process_waits_for_the_parses_of_the_first(jars: Path, tmp_path: Path) -> None:
    released = threading.Event()

    def hold() -> None:
        with spice._cache(jars, str(tmp_path), 0):
            held.set()
            released.wait(0.5)
            released.set()

    held = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    with spice._cache(jars, str(tmp_path), 20) as second:
        assert released.is_set()
        assert second == jars / "parses"
    thread.join()


def test_folder_that_cannot_be_written_gets_a_throw_away_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with spice._cache(tmp_path / "file", str(tmp_path), 0) as cache:
        assert cache == tmp_path / "parses"


def test_prepare_fetches_what_is_missing_with_maven(
    fake_java: Install, package_without_jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java("exit 1")
    source, folder = tmp_path / "all", tmp_path / "spice"
    for name in JARS:
        make_jar(source / name)
        digest = hashlib.sha256((source / name).read_bytes()).hexdigest()
        monkeypatch.setitem(spice.SHA256, name, digest)
    make_jar(folder / "asm-7.3.1.jar")
    monkeypatch.setenv("SOURCE", str(source))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    script = """
for a; do case "$a" in -Dartifact=*) echo "$a" >> $LOG;; -DoutputDirectory=*) out="${a#*=}";; esac
done
cp $SOURCE/*.jar $out
"""
    install_mvn(tmp_path / "bin", script, monkeypatch)
    fetched = prepare_spice(folder)
    assert sorted(path.name for path in fetched) == sorted(set(JARS) - {"asm-7.3.1.jar"})
    assert missing_jars(folder, "17.0.1") == []
    assert sorted(path.name for path in folder.iterdir()) == JARS
    commands = (tmp_path / "log").read_text()
    assert "-Dartifact=edu.stanford.nlp:stanford-corenlp:3.6.0:jar:models\n" in commands
    assert "asm:7.3.1\n" not in commands.replace("asm-", "")
    assert prepare_spice(folder) == []


def test_prepare_refuses_other_jars(
    fake_java: Install, package_without_jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java("exit 1")
    for name in JARS:
        make_jar(tmp_path / "all" / name)
    monkeypatch.setenv("SOURCE", str(tmp_path / "all"))
    script = """
for a; do case "$a" in -DoutputDirectory=*) out="${a#*=}";; esac
done
cp $SOURCE/*.jar $out
"""
    install_mvn(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(FileNotFoundError, match=r"mvn for asm-7\.3\.1\.jar: .*expected 2f67e11c"):
        prepare_spice(tmp_path / "spice")
    assert list((tmp_path / "spice").iterdir()) == []


def test_prepare_says_which_files_to_put_where(
    fake_java: Install, package_without_jars: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java("exit 1")
    install_mvn(tmp_path / "bin", "echo no route to host; exit 1\n", monkeypatch)
    with pytest.raises(FileNotFoundError) as caught:
        prepare_spice(tmp_path / "spice")
    message = str(caught.value)
    assert all(name in message for name in JARS)
    assert str(tmp_path / "spice") in message
    assert "edu.stanford.nlp:stanford-corenlp:3.6.0:jar:models" in message
    assert "no route to host" in message
    assert list((tmp_path / "spice").iterdir()) == []


def test_prepare_without_java_says_so(no_java: None, tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="apt-get install"):
        prepare_spice(tmp_path)
