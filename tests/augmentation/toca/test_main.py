"""``captioning augment method=toca`` with a server in this process as the language model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from augmentation.run import augment
from augmentation.toca.corpus_similarity import compare
from captioning.commands.main import main
from captioning.config.compose import compose_config
from captioning.training.rosters import read_corpus
from captioning.training.settings import Corpus
from tests.task_calls import call

ROOT = Path(__file__).resolve().parents[3]


class Handler(BaseHTTPRequestHandler):
    """Gives the words of the template back."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        words = [word for word in question.split() if word.isalpha()]
        text = " ".join(["Here", *words])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": text}}]}).encode())

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


@pytest.mark.parametrize("setting", ["num_captions=null", "batch_size=2.5", "batch_size=null"])
def test_wrong_numbers_of_captions_are_refused(setting: str) -> None:
    key, _, value = setting.partition("=")
    config = compose_config("augmentation", ["method=toca", f"method.pace.{setting}"])
    told = rf"method\.pace\.{key}: must be a whole number of at least 1, got {value}"
    with pytest.raises(ValueError, match=told):
        call(augment, config)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["split=val"], "remove split=val"),
        (
            ["steps=[share_of_photos]", "steps.share_of_photos.share=0.5", "split=test"],
            "share_of_photos, split=test",
        ),
    ],
)
def test_settings_of_photos_are_refused(settings: list[str], named: str, tmp_path: Path) -> None:
    config = compose_config("augmentation", ["method=toca", f"out={tmp_path}", *settings])
    with pytest.raises(
        ValueError, match=f"method=toca reads only the captions of corpus=.*{named}"
    ):
        call(augment, config)


@pytest.mark.parametrize(
    "method", [("method=ssa",), ("method=paraphrase", "writer@method.writer=server")]
)
def test_a_number_of_pairs_is_not_of_methods_that_caption_each_photo(
    method: tuple[str, ...], tmp_path: Path
) -> None:
    config = compose_config("augmentation", [*method, f"out={tmp_path}", "max_pairs=5"])
    with pytest.raises(
        ValueError, match="max_pairs=5 .* remove max_pairs, and limit the photos by first_images="
    ):
        call(augment, config)


def test_the_number_of_a_smoke_test_is_no_setting_of_the_user(monkeypatch, tmp_path: Path) -> None:
    config = compose_config("augmentation", ["method=ssa", f"out={tmp_path}", "max_pairs=24"])
    monkeypatch.setattr("augmentation.run._is_smoke", lambda: True)

    def reached(*_: object) -> None:
        raise ConnectionError("the photos are read")

    monkeypatch.setattr("augmentation.run.read_photos", reached)
    with pytest.raises(ConnectionError, match="the photos are read"):
        call(augment, config)


@pytest.mark.slow
def test_the_command_writes_a_corpus_that_is_read_back(gold, tmp_path: Path, address: str):
    corpus = tmp_path / "captions.json"
    sentences = [{"caption": caption, "video_id": "v"} for caption, _ in gold]
    corpus.write_text(json.dumps({"sentences": sentences}))
    out = tmp_path / "out"
    texts = ["corpus=lines", f"corpus.train.path={corpus}", f"paths.cache={tmp_path / 'cache'}"]
    overrides = [
        "method=toca",
        *texts,
        f"out={out}",
        "writer@method.writer=server",
        f"method.writer.address={address}",
        "corpus.share=0.9",
        "debug=smoke",
    ]
    assert main(["augment", *overrides]) == 0
    card = json.loads((out / "card.json").read_text())
    assert card["data"]["corpus"]["captions"] == 90
    assert card["share"] == {"corpus": 0.9}
    assert card["method"]["corpus"]["captions"] == 90
    captions = (out / "captions.txt").read_text().splitlines()
    assert len(captions) == card["counts"]["captions"] == 24
    config = OmegaConf.load(ROOT / "configs/corpus/lines.yaml")
    config.train.path = str(out / "captions.txt")
    roster = read_corpus(Corpus.of(config))
    assert [sample.caption for sample in roster.samples] == captions
    near = [f"corpus.train.path={out / 'captions.txt'}", f"paths.cache={tmp_path / 'cache'}"]
    target = ["corpus@target=lines", f"target.train.path={corpus}", "figure.ratios=[]"]
    config = compose_config("compare_texts", [*near, *target, f"out={tmp_path / 'near'}"])
    measures = call(compare, config)["likeness"]
    assert 0.6 < measures["token"]["weighted_precision"] < 1  # "here" is not in the corpus
    assert (tmp_path / "near" / "card.json").is_file()
