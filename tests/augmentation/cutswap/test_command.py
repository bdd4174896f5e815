"""CutSwap's settings by the command line: the vectors of object words, and the thesis' values."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn.functional import normalize

from augmentation.cutswap.embeddings import embed_words
from augmentation.regions.reranking import known_threshold
from augmentation.run import augment, without_execution_keys
from captioning.config.build import build_part
from captioning.runtime.files import read_json
from captioning.text.sentences import build_sentence_encoder
from captioning.text.word_tables import GloveVectors, build_token_table
from captioning.vision.backbones import build_backbone
from captioning.vision.clip import build_clip
from captioning.vision.joint_space import build_joint_space
from tests.augmentation.regions.scenes import photo
from tests.augmentation.test_main import CONFIGS, config_of
from tests.clip_folder import clip_folder
from tests.task_calls import call

WORDS = ("bird", "cat", "dog")
GLOVE = {"bird": (0, 0, 1), "cat": (1, 0, 0), "dog": (0, 1, 0), "zebra": (9, 9, 9)}
# Choices of vectors, with the file or folder that they are of.
CHOICES = {
    "sentences": ("by_texts", None),
    "joint_space": ("by_texts", None),
    "clip": ("by_texts", "method.embed.encoder.name"),
    "tokens": ("by_word_vectors", None),
    "glove": ("by_word_vectors", "method.embed.vectors.path"),
}

# Values that the thesis states (Hahn, 2022), with the section.
STATED = {
    "method.min_uses": 5,  # 3.2.1: attributes occurring less than five times are filtered out
    "method.rules.one_object": True,  # 3.2.2: only one of the objects
    "method.rules.draw_by": "uniform",  # 3.2.2: randomly selected
    "method.areas.smallest": 0.1,  # 3.2.3
    "method.areas.largest": 0.7,  # 3.2.3
    "format.blending.max_omitted": 0.5,  # 3.2.3
    "method.clustering.method": "agglomerative",  # 4.4.1
    "method.clustering.num_clusters": 122,  # 4.4.1
    "method.embed._target_": "augmentation.cutswap.embeddings.by_texts",  # 4.4.1
    "method.embed.encoder.name": "ViT-B-32",  # 4.4.1, of the CLIP that ranks
    "method.encoder.name": "ViT-B-32",  # 4.4.2
    "method.encoder.weights": "openai",  # 4.1: the official implementation
    "method.rules.num_captions": 32,  # 4.6: n_p
    "method.num_patches": 4,  # 4.6: n_i
    "method.keep": 3,  # 4.6
    "method.all_captions": True,  # Figures 4.6, A1 and A2
    "method.rules.correct_articles": False,  # Figure A2: "An long park table"
    "method.rules.mentions.closed_classes": False,  # 4.4.2: next, same, another are attributes
    "method.rules.mentions.whole_compounds": False,  # Figure A2: "a bed phone lamp"
}
SAME = ("method.rules.one_object", "method.rules.draw_by")  # as in method=cutswap
# Checks of this framework, off.
OFF = {
    "method.min_mentions": 1,
    "method.match_descriptions": False,
    "method.rules.match_grammar": False,
    "method.rules.match_slots": False,
    "method.rules.match_pronouns": False,
    "method.rules.allow_repeats": True,
    "method.areas.one_colour": False,
    "method.areas.separate_groups": False,
    "method.areas.max_occluded": 1.0,
    "method.areas.max_overlaid": 1.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of cats beside birds and of dogs, as ``data=jsonl``."""
    root = tmp_path_factory.mktemp("data")
    (root / "images").mkdir()
    lines = []
    for n in range(6):
        cat = [("cat", (4 + n, 4, 34 + n, 34)), ("bird", (40, 40, 60, 60))]
        dog = [("dog", (10, 10 + n, 40, 42 + n))]
        texts = "A white cat sits beside a bird.", "A black dog sits beside a bird."
        for name, boxes, text in (("cat", cat, texts[0]), ("dog", dog, texts[1])):
            path = photo(root / "images" / f"{name}{n}.png", boxes, ground=100 + n)
            regions = [{"label": label, "box": box} for label, box in boxes]
            line = {"image": path.name, "image_id": path.stem, "caption": text, "regions": regions}
            lines.append(json.dumps(line))
    (root / "train.jsonl").write_text("\n".join(lines))
    return root


def choice_options(choice: str, folder: Path) -> list[str]:
    """Options for a choice, with small files and models where it needs some."""
    key = CHOICES[choice][1]
    options = [f"embed@method.embed={choice}", *([] if key is None else [f"{key}={folder}"])]
    if choice == "glove":
        lines = (" ".join(map(str, (word, *values))) for word, values in GLOVE.items())
        folder.write_text("\n".join(lines) + "\n")
    if choice == "clip":
        clip_folder(folder)
        options.append("method.embed.encoder.weights=null")
    return options


def pairs(tmp_path: Path, folder: Path, *options: str) -> dict:
    few = ("method.keep=null", "method.min_uses=2", "method.rules.num_captions=2", "max_pairs=2")
    fixed = ("method=cutswap", "data=jsonl", f"data.root={folder}", *few)
    return call(augment, config_of(tmp_path, *fixed, "method.clustering.num_clusters=1", *options))


def expected(choice: str, path: Path) -> Tensor:
    """The words' vectors by the encoder itself."""
    if choice == "sentences":
        return build_sentence_encoder().embed_texts(WORDS)
    if choice == "joint_space":
        encoder = build_joint_space(
            backbone=build_backbone(name="efficientnet_lite0"), sentences=build_sentence_encoder()
        )
        return encoder.embed_texts(WORDS)
    if choice == "clip":
        return build_clip(name=str(path), weights=None).embed_texts(WORDS)
    table = build_token_table() if choice == "tokens" else GloveVectors(path=path)
    return table.vectors(WORDS)


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES)
def test_words_have_the_vectors_that_were_chosen(choice: str, folder: Path, tmp_path: Path) -> None:
    options = choice_options(choice, tmp_path / choice)
    config = config_of(tmp_path, "method=cutswap", *options)
    embeddings = embed_words(WORDS, build_part(config.method.embed))
    np.testing.assert_allclose(
        embeddings.vectors, normalize(expected(choice, tmp_path / choice)), atol=1e-6
    )
    assert config.method.embed._target_.rpartition(".")[2] == CHOICES[choice][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "other"),
    [("tokens", "sentences"), pytest.param("sentences", "tokens", marks=pytest.mark.long)],
)
def test_a_set_keeps_the_vectors_that_were_chosen(
    choice: str, other: str, folder: Path, tmp_path: Path
) -> None:
    options = choice_options(choice, tmp_path / choice)
    config = config_of(tmp_path, "method=cutswap", *options)
    card = pairs(tmp_path, folder, *options)
    assert card["counts"]["pictures"] > 0
    settings = read_json(tmp_path / "out" / "settings.json")
    chosen = OmegaConf.to_container(config.method.embed, resolve=True)
    assert card["config"]["method"]["embed"] == chosen
    # so that sets which were begun before this setting go on
    assert "max_augmented" not in settings
    # a set may be continued with another cache
    assert settings["method"] == without_execution_keys(card["config"])["method"]
    assert chosen["_target_"].rpartition(".")[2] == CHOICES[choice][0]
    with pytest.raises(ValueError, match="differs in (files, )?method"):
        pairs(tmp_path, folder, *choice_options(other, tmp_path / other))


@pytest.mark.long
@pytest.mark.slow
def test_other_contents_of_files_are_refused_the_folder(folder: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("glove", "objects")}
    options = [*choice_options("glove", files["glove"]), f"method.objects={files['objects']}"]
    files["objects"].write_text("\n".join(WORDS))
    card = pairs(tmp_path, folder, *options)
    assert card["files"].keys() == {"objects", "embed.vectors.path"}
    assert pairs(tmp_path, folder, *options)["files"] == card["files"]
    for changed in files.values():
        text = changed.read_text()
        changed.write_text(text + "\n")
        with pytest.raises(ValueError, match=r"settings.json differs in files\)"):
            pairs(tmp_path, folder, *options)
        changed.write_text(text)


@pytest.mark.long
def test_a_set_of_so_many_augmented_captions_is_a_set_of_its_own(
    folder: Path, tmp_path: Path
) -> None:
    options = ("max_pairs=null", "max_augmented=3")
    card = pairs(tmp_path, folder, *options)
    lines = (tmp_path / "out" / "provenance.jsonl").read_text().splitlines()
    photos = [json.loads(line)["target"]["image_id"] for line in lines]
    assert len(set(photos)) == 3  # one caption of each
    assert card["config"]["max_augmented"] == 3
    assert pairs(tmp_path, folder, *options)["method"] == card["method"]
    with pytest.raises(ValueError, match=r"settings.json differs in max_augmented\)"):
        pairs(tmp_path, folder, "max_pairs=null", "max_augmented=4")


@pytest.mark.parametrize("method", ["ssa", "toca"])
def test_only_pictures_are_counted_as_augmented(method: str, folder: Path, tmp_path: Path) -> None:
    options = (f"method={method}", "data=jsonl", f"data.root={folder}", "max_augmented=3")
    with pytest.raises(ValueError, match="max_augmented=3 works only for methods that make images"):
        call(augment, config_of(tmp_path, *options))


def test_the_thesis_has_its_values(tmp_path: Path) -> None:
    lines = (CONFIGS / "method" / "cutswap_thesis.yaml").read_text().splitlines()
    head = " ".join(line.strip("# \\") for line in lines if line.startswith("#"))
    command = head[head.index("captioning augment") : head.index(" out=FOLDER")]
    config = config_of(tmp_path, *shlex.split(command)[2:])
    # NeuralBabyTalk's list has rare objects, which Visual Genome's has not: papers/cutswap
    for key, value in (STATED | OFF | {"method.min_mentions": 5}).items():
        assert OmegaConf.select(config, key, throw_on_missing=True) == value, key
    # by the threshold that is known of a space (4.4.2)
    name = f"{config.method.encoder.name}/{config.method.encoder.weights}"
    assert config.method.similarity is None
    assert known_threshold(name).value == 0.28
    assert config.method.areas.behind_share > 1
    assert config.method.objects == "coco_class_name.txt"


def test_the_thesis_differs_from_the_default_in_what_is_said_to_be_ours(tmp_path: Path) -> None:
    plain, thesis = (
        OmegaConf.to_container(config_of(tmp_path, f"method={name}").method, resolve=True)
        for name in ("cutswap", "cutswap_thesis")
    )
    differing = {
        f"method.{part}{key}"
        for part, own, other in [
            ("", plain, thesis),
            *((f"{name}.", plain[name], thesis[name]) for name in ("rules", "areas")),
            ("rules.mentions.", plain["rules"]["mentions"], thesis["rules"]["mentions"]),
        ]
        for key in own
        if not isinstance(own[key], dict) and own[key] != other[key]
    }
    readings = {key for key in STATED if "rules" in key and key not in SAME}
    readings -= {"method.rules.num_captions"}
    assert differing == {*OFF, *readings, "method.areas.behind_share", "method.all_captions"}
    assert plain["embed"] == thesis["embed"]
