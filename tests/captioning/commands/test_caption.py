"""The command ``captioning caption``, with a small run, its export and models of transformers."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from captioning import CaptionedPhoto, Captioner
from captioning.commands.caption import find_photos, json_table, table_lines
from captioning.commands.main import main
from captioning.data.readers.own.own import read_own
from captioning.data.steps.take_detections import detection_line
from captioning.decoding.beam import BeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.sampling import Sampling
from captioning.export.export import export
from captioning.inference import captioner as reading
from captioning.inference import loading
from captioning.inference.captioner import chosen_search, words_machine
from captioning.results.coco_results import read_entries
from captioning.types import Prediction, Region
from tests.matching_folders import save_blip_captioner
from tests.run_calls import train
from tests.tiny import tokenizer
from tests.tiny_vlm import model_folder
from tools.assets import captioner as shipping
from tools.assets.__main__ import main as make


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs by name; each run is made once."""
    return {"": tmp_path_factory.mktemp("runs")}


@pytest.fixture
def run(trained_once) -> Path:
    return trained_once("num_epochs=1", "curation=none", "optimizer.lr=0.01")


@pytest.fixture
def bundle(run: Path, made) -> Path:
    """The run's export, which has the weights of its backbone: a run of a test draws new ones."""
    if "bundle" not in made:
        made["bundle"] = export(run, made[""] / "bundle")
    return made["bundle"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photos, one of them below, and what is no photo."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "below").mkdir()
    rng = np.random.default_rng(0)
    for name in ("b.png", "a.jpg", "below/c.PNG", ".hidden.png"):
        pixels = rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "notes.txt").write_text("no photo")
    return folder


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_many_threads_read_in_order(bundle, tmp_path, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    photos = [tmp_path / f"{number}.png" for number in range(40)]
    for photo in photos:
        Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)).save(photo)
    captioner = Captioner.load(bundle, device="cpu")
    expected = captioner.caption(photos, batch_size=3)
    monkeypatch.setattr(reading, "by_device", lambda device, *, processor, gpu: gpu)
    monkeypatch.setattr(reading, "num_cores", lambda: 8)
    found = captioner.caption(photos, batch_size=3)
    assert [photo.photo for photo in found] == list(map(str, photos))
    assert found == expected


def test_folders_are_walked_in_order_and_captioned(bundle, folder, capsys) -> None:
    asked = [str(folder), str(folder / "b.png"), "--model", str(bundle), "--batch-size", "2"]
    assert main(["caption", *asked]) == 0
    rows = lines(capsys.readouterr().out)
    names = ["a.jpg", "b.png", "below/c.PNG"]
    assert [file for file, _ in rows] == [str(folder / name) for name in names]
    captioner = Captioner.load(bundle, device="cpu")
    photos = [folder / names[0], Image.open(folder / names[1]), folder / names[0]]
    results = captioner.caption(photos)
    assert [result.caption for result in results] == [rows[0][1], rows[1][1], rows[0][1]]
    assert results[0].captions[0].score == results[0].score < 0


def test_formats_hold_the_same(bundle, folder, tmp_path, capsys) -> None:
    asked = ["caption", str(folder), "--model", str(bundle), "--n-best", "2"]
    assert main(asked) == 0
    text = lines(capsys.readouterr().out)
    assert main([*asked, "--format", "csv"]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [[row["file"], row["caption"]] for row in table] == text
    output = tmp_path / "new" / "captions.json"
    assert main([*asked, "--format", "json", "--out", str(output)]) == 0
    assert capsys.readouterr().out == ""
    entries = json.loads(output.read_text())
    assert [(e["file"], e["caption"]) for e in entries] == [(f, c) for f, c in text[::2]]
    assert [len(entry["captions"]) for entry in entries] == [2, 2, 2]
    assert entries[0]["captions"][0]["score"] == entries[0]["score"] == float(table[0]["score"])
    assert sorted(path.name for path in output.parent.iterdir()) == ["captions.json"]


@pytest.mark.parametrize("number", ["1", "3"])
def test_its_json_is_read_where_captions_are(bundle, folder, tmp_path, number) -> None:
    root = tmp_path / "set"
    shutil.copytree(folder, root)
    output = root / "captions.json"
    asked = ["caption", str(root), "--model", str(bundle), "--n-best", number]
    assert main([*asked, "--format", "json", "--out", str(output)]) == 0
    entries = json.loads(output.read_text())
    expected = {
        entry["file"]: [one["caption"] for one in entry.get("captions", [entry])]
        for entry in entries
    }
    assert [len(captions) for captions in expected.values()] == [int(number)] * 3
    roster = read_own(name="x", folder=root)
    found: dict[str, list[str]] = {}
    for sample in roster.samples:
        found.setdefault(str(sample.image_path), []).append(sample.caption)
    assert found == expected
    assert {e.names[0]: e.captions for e in read_entries(output)} == expected
    if number != "1":  # another caption beside a list is not taken for one of it
        entries[1]["caption"] = "something else"
        output.write_text(json.dumps(entries))
        with pytest.raises(ValueError, match=r"needs exactly one of the keys .* caption_columns"):
            read_own(name="x", folder=root)


def test_a_run_captions_photos(run, folder, capsys) -> None:
    asked = ["caption", str(folder / "a.jpg"), str(folder / "b.png"), "--model", str(run)]
    assert main(asked) == 0
    assert len(lines(capsys.readouterr().out)) == 2


def test_networks_compute_in_half_precision_where_it_is_asked(bundle, folder, capsys) -> None:
    asked = ["caption", str(folder), "--model", str(bundle), "--format", "csv"]
    tables = []
    for precision in ("float32", "auto", "bfloat16"):  # auto: single precision on a processor
        assert main([*asked, "--device", "cpu", "--precision", precision]) == 0
        tables.append(list(csv.DictReader(io.StringIO(capsys.readouterr().out))))
    single, auto, half = ([float(row["score"]) for row in table] for table in tables)
    assert single == auto
    assert half != single
    assert half == pytest.approx(single, rel=0.05)
    captioner = Captioner.load(bundle, device="cpu", precision="bfloat16")
    assert captioner.config.features.precision == "bfloat16"
    with pytest.raises(ValueError, match="precision must be auto or one of"):
        Captioner.load(bundle, precision="half")  # pyright: ignore[reportArgumentType]


def test_broken_photos_are_named_and_left_out(run, folder, tmp_path, capsys) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes((folder / "a.jpg").read_bytes()[:300])
    missing = tmp_path / "missing.jpg"
    asked = [str(broken), str(folder / "a.jpg"), str(missing), "--model", str(run)]
    assert main(["caption", *asked]) == 1
    output = capsys.readouterr()
    assert [file for file, _ in lines(output.out)] == [str(folder / "a.jpg")]
    assert f"caption: {broken}: photo is truncated or damaged" in output.err
    assert f"caption: {missing}: no such photo" in output.err
    assert "2 of 3 photos left out" in output.err
    assert main(["caption", str(broken), "--model", str(run), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


def test_captions_hold_given_words_and_lengths(bundle, folder, capsys) -> None:
    asked = ["caption", str(folder), "--model", str(bundle)]
    known = Captioner.load(bundle, device="cpu").model.tokenizer.words or ()
    word = next(word for word in known[10:] if word.isalpha())
    assert main([*asked, "--must-include", f"{word},unheardof", "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert all(entry["has_words"] and word in entry["caption"].split() for entry in entries)
    assert main([*asked, "--must-include", "unheardof"]) == 1
    assert "does not know the word 'unheardof'" in capsys.readouterr().err
    assert main([*asked, "--min-length", "3", "--max-length", "4"]) == 0
    assert {len(text.split()) for _, text in lines(capsys.readouterr().out)} <= {3, 4}


def test_diverse_captions_go_by_the_seed(bundle, folder, capsys) -> None:
    def drawn(seed: int) -> str:
        asked = ["--model", str(bundle), "--diverse", "--n-best", "4", "--seed", str(seed)]
        assert main(["caption", str(folder), *asked]) == 0
        return capsys.readouterr().out

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(lines(drawn(1))) > 3


def test_wrong_usage_ends_in_a_line(run, folder, tmp_path, capsys, monkeypatch) -> None:
    def refused(*asked: str) -> str:
        assert main(["caption", *asked]) == 1
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        return message

    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "nothing")
    assert "this version ships no captioner: name it" in refused(str(folder))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert f"{empty}: no photos here or below" in refused(str(empty))
    photo = str(folder / "a.jpg")
    assert "holds no captioner: it has neither" in refused(photo, "--model", str(empty))
    assert "no such folder" in refused(photo, "--model", str(tmp_path / "none"))
    assert "applies to transformers models only" in refused(
        photo, "--model", str(run), "--prompt", "a"
    )
    boxes = tmp_path / "boxes.jsonl"
    boxes.write_text('{"detector": "test"}\n')
    asked = (photo, "--model", str(run), "--boxes", str(boxes))
    assert "has no line with the image_id 'a.jpg'" in refused(*asked)
    boxes.write_text(boxes.read_text() + detection_line("a", "a.jpg", (80, 60), ()) + "\n")
    assert "reads whole photos: leave boxes out" in refused(*asked)
    assert "is a folder; name a file" in refused(photo, "--out", str(empty))
    with pytest.raises(SystemExit) as ended:
        main(["caption", photo, "--beam", "0"])
    assert ended.value.code == 2


def test_boxes_are_looked_at(small, folder, tmp_path, capsys) -> None:
    pooled = ("features.kind=regions", "+features.max_boxes=4", "curation=none", "num_epochs=1")
    train(small(*pooled))
    boxes = tmp_path / "boxes.jsonl"
    region = Region(box=(1.0, 2.0, 30.0, 40.0), label="dog", score=0.9)
    boxes.write_text('{"detector": "test"}\n' + detection_line("a.jpg", "", (80, 60), [region]))
    asked = ["caption", str(folder / "a.jpg"), "--model", str(tmp_path / "run")]
    capsys.readouterr()  # of the training
    assert main([*asked, "--boxes", str(boxes), "--format", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["boxes"] == [[1.0, 2.0, 30.0, 40.0]]
    assert main(asked) == 1
    assert "this captioner reads regions" in capsys.readouterr().err


def test_models_of_transformers_caption(folder, tmp_path, capsys) -> None:
    blip = save_blip_captioner(tmp_path / "blip")
    asked = ["caption", str(folder), "--model", str(blip), "--max-length", "6"]
    assert main(asked) == 0
    assert len(lines(capsys.readouterr().out)) == 3
    asked = [str(folder), "--model", str(model_folder("llava")), "--max-length", "6"]
    assert main(["caption", *asked, "--beam", "2", "--prompt", "What is it?"]) == 0
    assert len(lines(capsys.readouterr().out)) == 3
    loaded = loading.load_captioner(model_folder("llava"), device="cpu", precision="bfloat16")
    assert loaded.config.model.prompt == loading.REQUEST
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.bfloat16}


@pytest.mark.long
@pytest.mark.parametrize("bits", ["8", "16"])
def test_the_shipped_captioner_is_a_run_in_fewer_bits(
    run, folder, tmp_path, capsys, monkeypatch, bits
) -> None:
    (tmp_path / "terms.txt").write_text("Captions are under their owners' terms.\n")
    out = tmp_path / "weights" / "captioner"
    asked = [str(run), "--out", str(out), "--photos", "4", "--evaluation", str(run)]
    asked += ["--bits", bits]
    assert make(["captioner", *asked, "--terms", str(tmp_path / "terms.txt")]) == 0
    card = json.loads((out / "card.json").read_text())
    assert card["precision"]["photos"] == 4
    stored = load_file(out / "model.safetensors")
    matrices = {str(t.dtype) for n, t in stored.items() if n.endswith("language.weight")}
    assert matrices == {"torch.int8" if bits == "8" else "torch.float16"}
    assert card["scores"]["CIDEr-D"] >= 0
    readme = (out / "README.md").read_text()
    assert "Captions are under their owners' terms." in readme
    assert '.load("captioner")' in readme
    assert (out / "model.safetensors").stat().st_size == card["bytes"]
    monkeypatch.setattr(loading, "SHIPPED", out)
    capsys.readouterr()
    assert main(["caption", str(folder)]) == 0
    assert len(lines(capsys.readouterr().out)) == 3
    assert make(["captioner", *asked]) == 1
    assert "is there already" in capsys.readouterr().err
    with (out / "config.yaml").open("a") as file:
        file.write("# changed\n")
    assert main(["caption", str(folder)]) == 1
    assert "config.yaml: differs from" in capsys.readouterr().err
    monkeypatch.setattr(shipping, "MOST_BYTES", 1000)
    asked = [str(run), "--out", str(tmp_path / "large"), "--photos", "2"]
    assert make(["captioner", *asked]) == 1
    assert "at most 0 are shipped" in capsys.readouterr().err
    assert not (tmp_path / "large").exists()


def test_searches_keep_the_captioners_settings() -> None:
    own = BeamSearch.with_settings(beam_size=2, max_length=8, length_penalty=0.7)
    assert chosen_search(own) == own
    assert chosen_search(own, num_captions=4).settings.beam_size == 4
    assert chosen_search(own, beam_size=3, max_words=3).settings.max_length == 4
    assert chosen_search(own, max_words=3).settings.must_end  # three words at most, cut off or not
    assert not chosen_search(own, min_words=3).settings.must_end
    drawn = chosen_search(own, diverse=True, seed=5, num_captions=3)
    assert isinstance(drawn, Sampling)
    assert (drawn.settings.max_length, drawn.settings.seed) == (8, 5)
    greedy = GreedySearch.with_settings(max_length=8)
    assert chosen_search(greedy, beam_size=3) == BeamSearch.with_settings(beam_size=3, max_length=8)
    assert chosen_search(own, min_words=9).settings.max_length > 10
    with pytest.raises(ValueError, match="does not use beam_size"):
        chosen_search(own, diverse=True, beam_size=3)
    with pytest.raises(ValueError, match="required words need beam search"):
        chosen_search(own, diverse=True, constrained=True)
    with pytest.raises(ValueError, match="min_words must be at most max_words"):
        chosen_search(own, min_words=4, max_words=3)
    with pytest.raises(ValueError, match="write \\[dog\\]"):
        words_machine("dog", tokenizer())


def test_lines_stay_lines_and_scores_numbers() -> None:
    photo = CaptionedPhoto(
        photo="a\tb\n.jpg",
        captions=(Prediction(image_id="", caption='a "dog", and', score=float("-inf")),),
    )
    assert table_lines(photo, "text") == 'a\\tb\\n.jpg\ta "dog", and\n'
    assert table_lines(photo, "csv") == 'a\\tb\\n.jpg,"a ""dog"", and",\n'
    assert json.loads(json_table([photo], num_captions=1))[0]["score"] is None


def test_photos_that_cannot_be_opened_are_listed_too(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.HEIC", "notes.txt", "._b.HEIC"):
        (tmp_path / name).touch()
    assert [Path(name).name for name in find_photos([tmp_path])] == ["a.jpg", "b.HEIC"]


def test_a_named_file_needs_no_suffix(tmp_path: Path) -> None:
    assert find_photos([tmp_path / "photo", str(tmp_path / "photo")]) == [str(tmp_path / "photo")]
