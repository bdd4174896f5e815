"""``captioning convert`` on files as their authors publish them, up to captions of photos."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.commands.main import run
from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.evaluation.photo_captioners import ImageTextCaptioner
from captioning.runtime.files import read_json, write_json
from captioning.text.tokenizers.sentences import SentenceTokenizer
from tests.captioning.data.features.layouts import write_tsv
from tests.causal_folder import save_causal
from tests.clip_folder import hub_clip_folder
from tests.papers.stand_ins import SPLITS, random_regions, write_karpathy
from tests.parity import blip_plain, test_cos_cvae, test_viecap
from tests.parity.updown_restated import Baseline

FORMS = ("a {} runs", "the {} sits", "one {}", "a red {}", "two {}")
MIN_LENGTH = "search.min_length=3"
TEST_PHOTOS = SPLITS.count("test")
# What the files of BLIP before fine-tuning hold beside a captioner, of several sizes.
PRETRAINING = {
    **dict.fromkeys(("visual_encoder_m.cls_token", "vision_proj.weight", "vision_proj_m.weight")),
    **dict.fromkeys(("text_encoder.embeddings.word_embeddings.weight", "text_encoder_m.pooler")),
    **dict.fromkeys(("text_proj.weight", "itm_head.weight", "temp", "image_queue", "ptr_queue")),
}


def store_features(size: int) -> str:
    """Bottom-up features of the photos, imported; the override that names them."""
    photos = {str(number): random_regions(number, size) for number in range(len(SPLITS))}
    write_tsv(Path("regions.tsv"), photos)
    assert run(["import-features", "regions.tsv", "--folder", "store"]) == 0
    return "features.imported=store"


def converted(kind: str, state: object, *options: str) -> Path:
    """The folder that the command makes of a file."""
    torch.save(state, f"{kind}.pth")
    assert run(["convert", kind, f"{kind}.pth", *options, "--to", kind]) == 0
    assert len((Path(kind) / "keys.tsv").read_text(encoding="utf-8").splitlines()) > 1
    return Path(kind)


def captions_of(folder: Path) -> list[str]:
    return [prediction["caption"] for prediction in read_json(folder / "predictions.json")]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Jürgen's photos (1), new={2}"  # folders are named by people
    folder.mkdir()
    monkeypatch.chdir(folder)
    words = ("dog", "cat", "bird")
    write_karpathy(Path("data/coco"), "dataset_coco.json", words, forms=FORMS, photos="val2014")


@pytest.mark.long
def test_viecap_names_its_words_of_photos() -> None:
    gpt2 = save_causal(Path("gpt2"), positions=96)
    stop = SentenceTokenizer.of_causal(name=str(gpt2)).eos_id
    clip = hub_clip_folder(Path("clip"), dim=test_viecap.EMBEDDING)
    overrides = (f"features.encoder.name={clip}", "features.encoder.weights=null")
    state = test_viecap.random_state(gpt2, stop)
    base = ("--base", str(gpt2.resolve()))
    folder = converted("viecap", state, *overrides, *base, "search.max_length=8")
    evaluated = ["evaluate", f"run={folder}", "metrics=fast", "out=scores"]
    assert run(evaluated) == 0
    captions = captions_of(Path("scores"))
    assert len(captions) == TEST_PHOTOS
    assert all(captions)


def test_cos_cvae_draws_captions_of_regions() -> None:
    words, regions = Path("words.json"), store_features(test_cos_cvae.D)
    write_json(words, test_cos_cvae.WORDS)
    overrides = ("data=coco_karpathy", "features=bottom_up", regions)
    state = test_cos_cvae.published_state()
    folder = converted("cos_cvae", state, *overrides, "--vocabulary", str(words))
    drawn = ["diverse-captions", f"run={folder}", "search=latents_published", "numbers=[3]"]
    small = ["metrics=fast", "oracle=[BLEU]", "rerank.num_neighbours=2", "num_best=2", "out=scores"]
    assert run([*drawn, *small]) == 0
    assert read_json(Path("scores/diverse.json"))["oracle"]["3"]["BLEU-1"] > 0


def test_updown_says_words_of_its_vocabulary() -> None:
    words = ["dog", "cat", "bird", "runs", "a", "the", "red"]
    vocabulary = Path("vocabulary")
    vocabulary.mkdir()
    lines = "\n".join(["@@UNKNOWN@@", "@@BOUNDARY@@", *words, ""])
    (vocabulary / "tokens.txt").write_text(lines, encoding="utf-8")
    torch.manual_seed(0)
    theirs = Baseline(vocabulary=2 + len(words), features=8, tied=False)
    overrides = ("data=coco_karpathy", "features=bottom_up", store_features(8), MIN_LENGTH)
    state = {"model": theirs.state_dict(), "optimizer": {}}
    folder = converted("updown_baseline", state, *overrides, "--vocabulary", str(vocabulary))
    evaluated = ["evaluate", f"run={folder}", "metrics=fast", "out=scores"]
    assert run(evaluated) == 0
    said = [caption.split() for caption in captions_of(Path("scores"))]
    assert len(said) == TEST_PHOTOS
    assert all(caption and set(caption) <= {*words, "@@UNKNOWN@@"} for caption in said)


def pretrained(state: dict[str, Tensor], further: Iterable[str]) -> dict[str, object]:
    """As the file of a training that goes on."""
    return {"model": state | {name: torch.ones(2) for name in further}, "epoch": 19}


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "further"),
    [
        ({}, ()),  # model_base_caption_capfilt_large.pth
        ({}, PRETRAINING),  # model_base.pth, model_base_14M.pth, model_base_capfilt_large.pth
        ({"vision_layers": 4, "side": 4}, ()),  # model_large_caption.pth
        ({"vision_layers": 4, "side": 3}, PRETRAINING),  # model_large.pth
    ],
    ids=["base caption", "base", "large caption", "large"],
)
def test_blip_of_all_published_sizes_captions_photos(sizes, further) -> None:
    Path("vocab.txt").write_text("\n".join(blip_plain.WORDS) + "\n", encoding="utf-8")
    state = blip_plain.random_state(**sizes)
    state["text_decoder.cls.predictions.bias"][[0, 1, 2, 4, -2, -1]] -= 20  # words alone are said
    overrides = ("features.backbone.image_size=32", "--vocabulary", "vocab.txt")
    folder = converted("blip", pretrained(state, further), *overrides)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["vision_config"]["num_hidden_layers"] == sizes.get("vision_layers", 2)
    assert config["vision_config"]["image_size"] == 32
    lengths = {"max_length": 12, "min_length": 8, "count_prompt": True}
    search = TransformersBeamSearch.with_settings(beam_size=3, **lengths)
    captioner = ImageTextCaptioner(name=str(folder), search=search, prompt="a dog", device="cpu")
    photos = sorted(Path("data/coco/val2014").iterdir())[:3]
    captions = captioner.write_captions(photos, keys=[photo.stem for photo in photos])
    assert all(caption for group in captions for caption in group)
    assert sum(map(len, captions)) == 3
