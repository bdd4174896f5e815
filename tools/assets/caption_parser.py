"""Train the caption parser: ``python -m tools.assets caption-parser parses=FILE``.

A tagger and a parser over one small convolutional network learn from captions that a spaCy 2 model
has parsed (`tools/assets/annotate_spacy2.py`), with its known faults repaired
(`tools.assets.parser_repairs`). Settings are in ``configs/caption_parser.yaml``, all steps in
``docs/text.md``.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import spacy
from omegaconf import DictConfig, OmegaConf
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import fix_random_seed  # pyright: ignore[reportPrivateImportUsage]

from captioning.results.versions import versions
from captioning.runtime.files import write_json
from captioning.text.lemmas import learn_lemmas, save_lemmas
from captioning.text.parser import LEMMAS_FILE, SpacyParser, content_hash, fast_arrays
from captioning.types import Parse
from tools.assets.parser_accuracy import accuracy, read_parses
from tools.assets.parser_repairs import repair

log = logging.getLogger(__name__)

Captions = Sequence[tuple[str, Parse]]
# Parses from which the network learns the set of labels.
MIN_PARSES_SHOWN = 20_000
ATTRIBUTES = ("NORM", "PREFIX", "SUFFIX", "SHAPE")


def build_pipeline(settings: DictConfig) -> Any:
    """An untrained pipeline: hashed word features, convolutions, tagger, transition-based parser.

    Args:
        settings: the group ``network`` of ``configs/caption_parser.yaml``.
    """
    nlp = spacy.blank("en")
    width = settings.width
    encoder = {
        "@architectures": "spacy.Tok2Vec.v2",
        "embed": {
            "@architectures": "spacy.MultiHashEmbed.v2",
            "width": width,
            "attrs": list(ATTRIBUTES),
            "rows": list(settings.rows),
            "include_static_vectors": False,
        },
        "encode": {
            "@architectures": "spacy.MaxoutWindowEncoder.v2",
            "width": width,
            "window_size": 1,
            "maxout_pieces": 3,
            "depth": settings.depth,
        },
    }
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": width, "upstream": "*"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": listener, "nO": None}
    parser = {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "parser",
        "extra_state_tokens": False,
        "hidden_width": settings.hidden_width,
        "maxout_pieces": 2,
        "use_upper": True,
        "tok2vec": listener,
        "nO": None,
    }
    nlp.add_pipe("tok2vec", config={"model": encoder})
    nlp.add_pipe("tagger", config={"model": tagger})
    nlp.add_pipe("parser", config={"model": parser, "min_action_freq": settings.min_action_freq})
    return nlp


def to_example(nlp: Any, parse: Parse, *, lower: bool = False, stop: bool = True) -> Example:
    """A parse as spaCy wants it.

    Args:
        lower: write it in lower case.
        stop: keep a full stop at the end.
    """
    tokens = parse
    if not stop and len(parse) > 1 and parse[-1].text == ".":
        heads = {token.head for token in parse[:-1]}
        tokens = parse if len(parse) - 1 in heads else parse[:-1]
    words = [token.text.lower() if lower else token.text for token in tokens]
    reference = Doc(
        nlp.vocab,
        words=words,
        tags=[token.tag for token in tokens],
        deps=[token.dep for token in tokens],
        heads=[token.head for token in tokens],
    )
    return Example(Doc(nlp.vocab, words=words), reference)


def examples(
    nlp: Any, parses: Sequence[Parse], *, settings: DictConfig, rng: np.random.Generator
) -> Iterator[list[Example]]:
    """One pass over the parses in random order, in batches, some written in another way."""
    order = rng.permutation(len(parses))
    for start in range(0, len(order), settings.batch_size):
        chosen = order[start : start + settings.batch_size]
        draws = rng.random((len(chosen), 2))
        yield [
            to_example(
                nlp, parses[i], lower=a < settings.lower_case, stop=b >= settings.without_full_stop
            )
            for i, (a, b) in zip(chosen, draws, strict=True)
        ]


def with_every_tag(parses: Sequence[Parse], *, min_parses: int) -> list[Parse]:
    """The first ``min_parses`` parses, and later ones with a tag that no earlier parse has."""
    seen: set[str] = set()
    selected = []
    for number, parse in enumerate(parses):
        tags = {token.tag for token in parse}
        if number < min_parses or not tags <= seen:
            selected.append(parse)
        seen |= tags
    return selected


def fit(nlp: Any, train: Captions, *, settings: DictConfig, seed: int) -> Any:
    """Train a pipeline in place; returns the optimizer, which holds the averaged weights."""
    fix_random_seed(seed)
    rng = np.random.default_rng(seed)
    parses = [parse for _, parse in train]
    selected = with_every_tag(parses, min_parses=MIN_PARSES_SHOWN)
    nlp.initialize(lambda: [to_example(nlp, parse) for parse in selected])
    optimizer = nlp.create_optimizer()
    per_epoch = -(-len(parses) // settings.batch_size)
    total, step = per_epoch * settings.num_epochs, 0
    for epoch in range(settings.num_epochs):
        losses: dict[str, float] = {}
        for batch in examples(nlp, parses, settings=settings, rng=rng):
            # Up to the highest rate in a tenth of the way, then down in a straight line.
            share = step / total
            optimizer.learn_rate = settings.lr * min(share / 0.1, (1.001 - share) / 0.9)
            nlp.update(batch, sgd=optimizer, losses=losses, drop=settings.dropout)
            step += 1
            if step % 100 == 0:
                log.info(f"epoch {epoch + 1}, step {step} of {total}: {_rounded(losses)}")
                losses = {}
    return optimizer


def _rounded(losses: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.0f}" for name, value in losses.items())


def save(nlp: Any, optimizer: Any, train: Captions, folder: Path) -> None:
    """Write the pipeline with averaged weights, no more words than it needs, and the lemmas."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    with nlp.use_params(optimizer.averages):
        nlp.to_disk(part)
    words = ((t.text, t.tag, t.lemma) for _, parse in train for t in parse)
    save_lemmas(learn_lemmas(words), part / LEMMAS_FILE)
    if folder.exists():
        shutil.rmtree(folder)
    part.rename(folder)


def evaluate(parser: SpacyParser, captions: Captions) -> dict[str, float]:
    """Accuracy on the captions as they were written."""
    scores = accuracy(parser.parse([caption for caption, _ in captions]), [p for _, p in captions])
    return {name: round(value, 4) for name, value in scores.items()}


def train_caption_parser(config: DictConfig) -> dict[str, Any]:
    """Train as the config says, and write the pipeline with a card beside it.

    Returns:
        The card: settings, data, versions and accuracy.

    Raises:
        FileNotFoundError, ValueError: parses that cannot be read, or none to train on.
    """
    parses = read_parses(config.parses, "train")
    if not parses:
        raise ValueError(f"{config.parses} has no lines with split=train")
    order = np.random.default_rng(config.seed).permutation(len(parses))[: config.limit_captions]
    train = [(caption, repair(parse)) for caption, parse in (parses[i] for i in order)]
    log.info(f"{len(train)} captions to train on")
    folder = Path(config.out)
    with fast_arrays():
        nlp = build_pipeline(config.network)
        optimizer = fit(nlp, train, settings=config.training, seed=config.seed)
        save(nlp, optimizer, train, folder)
    return write_card(config, len(train))


def write_card(config: DictConfig, num_captions: int) -> dict[str, Any]:
    """Measure the pipeline at ``config.out`` and write what it is into a file beside it."""
    folder = Path(config.out)
    parser = SpacyParser(folder=folder, name=folder.name, num_processes=1)
    scores = {}
    for split in config.held_out:
        held_out = read_parses(config.parses, split)
        scores[f"{split}, teacher as it is"] = evaluate(parser, held_out)
        scores[f"{split}, teacher mended"] = evaluate(parser, [(c, repair(p)) for c, p in held_out])
    if config.gold is not None:
        scores["checked by hand"] = evaluate(parser, read_parses(config.gold))
    card = {
        "what": "tagger and parser of captions, taught by a spaCy 2 model (docs/text.md)",
        "captions": num_captions,
        "network": OmegaConf.to_container(config.network),
        "training": {**config.training, "seed": config.seed},
        "versions": versions() | {"spacy": version("spacy"), "command": _command(sys.argv[1:])},
        "accuracy": scores,
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "content_hash": content_hash(folder),
    }
    write_json(folder.with_suffix(".json"), card)
    return card


def _command(overrides: Sequence[str]) -> str:
    """The command without the paths of files, which are of no use on another machine."""
    remaining = [text for text in overrides if text.split("=")[0] not in ("parses", "out", "gold")]
    return " ".join(["python -m tools.assets", *remaining])
