from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

import captioning.evaluation.predict as training
from captioning.config.compose import compose_config
from captioning.config.plugins import import_plugins
from captioning.data.roster import Roster, build_roster
from captioning.evaluation.run import _coco_names, _joined
from captioning.metrics.java import find_java
from captioning.results.coco_results import read_entries
from captioning.types import Prediction, Sample
from tests.run_calls import evaluate

CAPTIONS = {
    "1": ["A dog runs on the grass.", "A brown dog."],
    "2": ["A man rides a horse."],
    "3": ["Two women sit on a bench."],
}


def small_roster(name: str = "small/test") -> Roster:
    """Three images; the target of the config that the tests use."""
    samples = [
        Sample(row=0, sample_id=f"{i}#{k}", image_id=i, image_path=Path(f"{i}.jpg"), caption=text)
        for i, texts in CAPTIONS.items()
        for k, text in enumerate(texts)
    ]
    return build_roster(name, samples)


@pytest.fixture
def configured(repository: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    def compose(*overrides: str) -> DictConfig:
        return compose_config("evaluate", ["metrics=fast", f"out={tmp_path / 'out'}", *overrides])

    return compose


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    entries = [
        {"image_id": 3, "caption": "two women sit on a bench"},
        {"image_id": 1, "caption": "a dog runs on the grass"},
    ]
    path.write_text(json.dumps(entries))
    return path


DATA = ("+data.name=small", "+data.test._target_=builtins.small_roster")


@pytest.fixture(autouse=True)
def data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    # importmode=importlib gives test modules no importable name
    monkeypatch.setattr("builtins.small_roster", small_roster, raising=False)
    import_plugins(["builtins"])


def test_a_results_file_is_scored_on_exactly_its_images(
    configured: Callable[..., DictConfig],
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = evaluate(configured(f"predictions={results}", *DATA))
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert written["test"]["corpus"] == corpus
    assert set(written["test"]["per_image"]) == {"1", "3"}
    assert written["test"]["per_image"]["3"]["ROUGE-L"] == pytest.approx(1)
    assert written["evaluated"]["data"]["name"] == "small"
    assert {"commit", "date", "command"} <= set(
        json.loads((tmp_path / "out" / "versions.json").read_text())
    )
    assert written["test"]["intervals"].keys() == corpus.keys()
    assert written["test"]["settings"]["bootstrap"]["resamples"] == 1000
    shown = capsys.readouterr().out
    assert "2 of 3 images scored" in shown
    low, high = written["test"]["intervals"]["CIDEr-D"]
    assert f"{low:.4f} to {high:.4f}" in shown
    with (tmp_path / "out" / "per_caption.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image_id"] for row in rows] == ["3", "1"]
    assert float(rows[0]["ROUGE-L"]) == written["test"]["per_image"]["3"]["ROUGE-L"]
    assert (tmp_path / "out" / "per_caption.parquet").is_file()


def test_without_java_the_remedy_stands_below_the_table(
    configured: Callable[..., DictConfig],
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    find_java.cache_clear()
    corpus = evaluate(configured(f"predictions={results}", *DATA, "metrics=standard"))
    find_java.cache_clear()
    assert not {"METEOR", "SPICE"} & corpus.keys()
    below = capsys.readouterr().out.partition("tokenizer: python")[2]
    assert "missing: METEOR, SPICE: Java not found: install Java" in below
    assert "captions were tokenized in Python" in below
    assert "captioning prepare metrics" in below


def test_intervals_can_be_left_out(
    configured: Callable[..., DictConfig], results: Path, tmp_path: Path
) -> None:
    evaluate(configured(f"predictions={results}", *DATA, "resamples=0"))
    assert "intervals" not in json.loads((tmp_path / "out" / "metrics.json").read_text())["test"]


def test_a_run_predicts_and_is_scored(
    configured: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []

    def predict_run(
        folder: Path, data: DictConfig | None, split: str, **options: DictConfig | None
    ) -> tuple[list[list[Prediction]], Roster, dict[str, Any]]:
        chosen = {n: part._target_ for n, part in options.items() if part and "_target_" in part}
        requests.append((folder, data, split, chosen))
        predictions = [
            [Prediction(image_id=i, caption=c) for c in cs] for i, cs in CAPTIONS.items()
        ]
        return predictions, small_roster(), {"search": {"beam_size": 3}}

    monkeypatch.setattr(training, "predict_run", predict_run)
    evaluate(configured(f"run={tmp_path}", "split=val", "out=null"))
    evaluate(
        configured(f"run={tmp_path}", "split=val", "search=greedy", "rerank=consensus", "out=null")
    )
    chosen = {
        "search": "captioning.decoding.greedy.GreedySearch.with_settings",
        "rerank": "captioning.evaluation.rerank.rerank_by_consensus",
    }
    assert requests == [(tmp_path, None, "val", {}), (tmp_path, None, "val", chosen)]
    folder = tmp_path / "evaluation" / "small-test"
    predictions = json.loads((folder / "predictions.json").read_text())
    assert predictions[0] == {"image_id": 1, "caption": "A dog runs on the grass."}
    candidates = json.loads((folder / "candidates.json").read_text())
    assert candidates[0]["captions"] == CAPTIONS["1"]
    references = json.loads((folder / "references.json").read_text())
    assert [image["id"] for image in references["images"]] == [1, 2, 3]
    written = json.loads((folder / "metrics.json").read_text())["val"]
    assert set(written["per_image"]) == set(CAPTIONS)
    assert written["settings"]["decoding"] == {"search": {"beam_size": 3}}
    # a later search with one caption an image leaves none of this one's
    monkeypatch.setitem(CAPTIONS, "1", CAPTIONS["1"][:1])
    evaluate(configured(f"run={tmp_path}", "split=val", "out=null"))
    assert not (folder / "candidates.json").exists()


@pytest.mark.parametrize("search", ["sampling", "nucleus", "latents"])
def test_searches_that_draw_take_the_evaluations_seed(
    configured: Callable[..., DictConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    search: str,
) -> None:
    def predict_run(folder: Path, data: DictConfig | None, **chosen: Any) -> tuple:
        predictions = [[Prediction(image_id=i, caption=c[0])] for i, c in CAPTIONS.items()]
        return predictions, small_roster(), {"seed": chosen["search"].seed}

    monkeypatch.setattr(training, "predict_run", predict_run)
    evaluate(configured(f"run={tmp_path}", f"search={search}", "seed=7"))
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert written["evaluated"]["search"]["seed"] == 7
    assert written["test"]["settings"]["decoding"] == {"seed": 7}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the config of a run that draws captions and held horses out.

    The stubbed predictions tell the search that they were requested from.
    """

    def predict_run(folder: Path, data: DictConfig | None, **chosen: Any) -> tuple:
        assert data is None  # the run reads its own
        search = chosen["search"] or DictConfig({})
        predictions = [[Prediction(image_id=i, caption=t) for t in CAPTIONS["1"]] for i in CAPTIONS]
        return predictions, small_roster(), {"search": OmegaConf.to_container(search)}

    monkeypatch.setattr(training, "predict_run", predict_run)
    reader = {"_target_": "builtins.small_roster"}
    trained = {
        "data": {"name": "small", "train": reader | {"name": "small/train"}, "test": reader},
        "steps": {"hold_out": {"classes": {"horse": ["horse"], "bench": ["bench"]}}},
        "search": {"_target_": "captioning.decoding.sampling.Sampling.with_settings", "seed": 3},
        "paths": {"cache": "cache"},
        "curation": {"name": "none"},
        "monitor": "last",
        "seed": 3,
    }
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps(trained))
    return folder


@pytest.mark.parametrize(
    ("overrides", "seed"),
    [
        ((), None),
        (("seed=0",), 0),
        (("seed=7",), 7),
        (("seed=7", "search=greedy"), None),
        (("search=sampling",), 0),
    ],
)
def test_the_runs_own_draws_take_a_seed_that_is_given(
    configured: Callable[..., DictConfig],
    tmp_path: Path,
    run: Path,
    overrides: tuple[str, ...],
    seed: int | None,
) -> None:
    evaluate(configured(f"run={run}", *overrides))
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    search = written["test"]["settings"]["decoding"]["search"]
    assert search.get("seed") == seed  # none where the run's own search is left as it was trained
    requested = {"seed=0": 0, "seed=7": 7}.get(overrides[0]) if overrides else None
    assert written["evaluated"]["seed"] == requested
    assert written["test"]["settings"]["bootstrap"]["seed"] == (requested or 0)


def test_extra_metrics_may_refer_to_what_the_run_was_trained_on(
    configured: Callable[..., DictConfig], tmp_path: Path, run: Path
) -> None:
    extra = (
        "extra_metrics=[diversity,novel_objects]",
        "extra_metrics.novel_objects.metrics=[BLEU]",
    )
    novelty = "extra_metrics.diversity.training=${data.train}"
    corpus = evaluate(configured(f"run={run}", *extra, novelty))
    assert corpus["novelty"] == 0
    f1 = {name for name in corpus if name.startswith("F1 ")}
    assert f1 == {"F1 horse", "F1 bench", "F1 out-of-domain"}
    evaluated = json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluated"]
    assert not {"data", "steps"} & evaluated.keys()
    chosen = "extra_metrics.novel_objects.classes=[dog]"
    assert "F1 horse" not in evaluate(configured(f"run={run}", *extra, novelty, chosen))


def test_extra_metrics_score_all_captions_of_an_image(
    configured: Callable[..., DictConfig], results: Path, tmp_path: Path
) -> None:
    entries = [{"image_id": int(i), "captions": ["a cat", *texts]} for i, texts in CAPTIONS.items()]
    results.write_text(json.dumps(entries))
    extra = ("extra_metrics=[diversity,oracle,novel_objects]", "metrics=fast")
    settings = (
        "extra_metrics.oracle.metrics=[CIDEr-D]",
        "extra_metrics.novel_objects.classes=[horse]",
        "extra_metrics.novel_objects.metrics=[CIDEr-D]",
        "extra_metrics.diversity.training=${data.test}",
    )
    corpus = evaluate(configured(f"predictions={results}", *DATA, *extra, *settings))
    assert corpus["CIDEr-D"] < corpus["oracle CIDEr-D"]
    assert corpus["novel-sentences"] == 3
    assert corpus["uniqueness"] == 1
    assert corpus["F1 horse"] == 0
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())["test"]
    assert written["corpus"] == corpus
    assert written["settings"]["oracle"]["num_samples"] == 3
    assert written["settings"]["novel_objects"]["truth"] == "references"
    assert {"CIDEr-D", "oracle CIDEr-D", "self-CIDEr"} <= set(written["per_image"]["2"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), "give one of predictions=FILE"),
        (("run=a", "predictions=b"), "give one of predictions=FILE"),
        (("predictions=RESULTS",), "data=NAME is missing"),
        (("predictions=RESULTS", *DATA, "split=val"), "no split 'val'; it has test"),
    ],
)
def test_bad_requests_are_named(
    configured: Callable[..., DictConfig],
    results: Path,
    overrides: tuple[str, ...],
    message: str,
) -> None:
    chosen = [text.replace("RESULTS", str(results)) for text in overrides]
    with pytest.raises(ValueError, match=message):
        evaluate(configured(*chosen))


def test_unknown_images_are_named(
    configured: Callable[..., DictConfig], results: Path, tmp_path: Path
) -> None:
    results.write_text(json.dumps([{"image_id": 77, "caption": "a dog"}]))
    with pytest.raises(ValueError, match="images without references, such as '77'"):
        evaluate(configured(f"predictions={results}", *DATA))
    assert not (tmp_path / "out").exists()


OWN = ("anna.jpg", "sub/bob.jpg", "7.png", "other/bob.jpg", "sub/anna.jpg")


def joined(
    tmp_path: Path, entries: list[dict[str, Any]], names: dict | None = None, **options: bool
) -> dict:
    """Captions of results by the ids of `OWN`, as ``evaluate`` joins them."""
    samples = [
        Sample(row=n, sample_id=i, image_id=i, image_path=tmp_path / "s" / i, caption=i)
        for n, i in enumerate(OWN)
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps([{"caption": f"said {n}"} | e for n, e in enumerate(entries)]))
    found = _joined(read_entries(path), build_roster("own", samples), names or {}, **options)
    return {image_id: captions[0] for image_id, captions in found.items()}


@pytest.mark.parametrize(
    ("entry", "image_id"),
    [
        ({"image_id": "sub/bob.jpg"}, "sub/bob.jpg"),
        ({"image_id": 5, "file_name": "other/bob.jpg"}, "other/bob.jpg"),
        ({"file": "photos/of/sub/anna.jpg"}, "sub/anna.jpg"),
        ({"file": "7.png"}, "7.png"),
        ({"image_id": "0007"}, "7.png"),
        ({"image_id": "7"}, "7.png"),  # text, so that no number can be meant
        ({"image_id": "sub/anna"}, None),
    ],
)
def test_results_are_joined_by_id_or_by_name(tmp_path: Path, entry: dict, image_id) -> None:
    if image_id is None:
        with pytest.raises(ValueError, match="without references, such as 'sub/anna'"):
            joined(tmp_path, [entry])
    else:
        assert joined(tmp_path, [entry]) == {image_id: "said 0"}


def test_results_of_images_without_references_are_left_out_where_asked(tmp_path, capsys) -> None:
    entries = [{"file": "7.png"}, {"file": "gone.jpg"}]
    with pytest.raises(ValueError, match=r"such as 'gone.jpg', .* missing_references=drop"):
        joined(tmp_path, entries)
    assert joined(tmp_path, entries, leave_out=True) == {"7.png": "said 0"}
    assert "captions of 1 images without references, such as 'gone.jpg'" in capsys.readouterr().out
    with pytest.raises(ValueError, match="without references"):  # none is left
        joined(tmp_path, entries[1:], leave_out=True)


def test_results_that_could_be_of_several_photos_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="matches 'other/bob.jpg' and 'sub/bob.jpg': write it"):
        joined(tmp_path, [{"file": "bob.jpg"}])
    with pytest.raises(ValueError, match=r"1 images without references, such as 'gone/carl\.jpg'"):
        joined(tmp_path, [{"file": "7.png"}, {"file": "gone/carl.jpg"}])
    with pytest.raises(ValueError, match="without references, such as '7'"):
        joined(tmp_path, [{"image_id": 7}])  # a number counts images, and is no name
    with pytest.raises(ValueError, match=r"is image '7\.png', for which an earlier entry has"):
        joined(tmp_path, [{"file": "7.png"}, {"file": "s/7.png"}])


def test_numbers_of_a_coco_file_are_joined_by_its_names(tmp_path: Path) -> None:
    images = [{"id": n, "file_name": name} for n, name in enumerate(OWN, start=1)]
    notes = [{"id": n, "image_id": n, "caption": "a"} for n in range(1, 6)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": notes}))
    split = {"_target_": "captioning.data.readers.own.own.read_own", "folder": str(tmp_path)}
    names = _coco_names(OmegaConf.create(split))
    assert names == {str(n): (str(n), name) for n, name in enumerate(OWN, start=1)}
    entries = [{"image_id": 2}, {"image_id": 5}]
    assert joined(tmp_path, entries, names) == {"sub/bob.jpg": "said 0", "sub/anna.jpg": "said 1"}
    assert _coco_names(OmegaConf.create({"_target_": "builtins.small_roster"})) == {}


def test_predictions_are_scored_beside_our_own_coco_export(configured, tmp_path: Path) -> None:
    images = [
        {"id": n, "file_name": name, "roster_id": f"sub/{name}"}
        for n, name in enumerate(("b.jpg", "a.jpg", "2.jpg"), start=1)
    ]
    notes = [{"id": n, "image_id": n, "caption": f"A dog number {n} runs."} for n in (1, 2, 3)]
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "captions.json").write_text(
        json.dumps({"images": images, "annotations": notes})
    )
    data = ("data=own", f"data.root={tmp_path / 's'}", "data.test.part=all")  # it has no photos
    for entries in (
        [{"image_id": "sub/a.jpg"}, {"image_id": "sub/b.jpg"}],
        [{"image_id": 2}, {"image_id": 1}],
        [{"file": "a.jpg"}, {"file": "b.jpg"}],
    ):
        said = ("A dog number 2 runs.", "A dog number 1 runs.")
        path = tmp_path / "results.json"
        path.write_text(
            json.dumps([e | {"caption": c} for e, c in zip(entries, said, strict=True)])
        )
        assert evaluate(configured(f"predictions={path}", *data))["ROUGE-L"] == pytest.approx(1)


def test_command_line_names_the_error_without_a_trace(repository: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(repository / "evaluate.py"), f"predictions={tmp_path / 'no.json'}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "no.json: no such file" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_captions_of_a_file_are_scored_all(configured, results: Path) -> None:
    with pytest.raises(ValueError, match="first_images is for run="):
        evaluate(configured(f"predictions={results}", *DATA, "first_images=1"))
