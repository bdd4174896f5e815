"""Train the caption parser: ``python -m tools.assets caption-parser parses=FILE``.

A tagger and a parser over one small convolutional network learn from captions that a spaCy 2 model
has parsed (`tools/assets/annotate_spacy2.py`), with its known faults repaired
(`tools.assets.parser_repairs`). Settings are in ``configs/caption_parser.yaml``, all steps in
``docs/cards/caption_parser.md``.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
from annotated_types import MinLen
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import fix_random_seed  # pyright: ignore[reportPrivateImportUsage]

from captioning.config.ranges import (
    DropRate,
    Fraction,
    Name,
    NonNegativeFloat,
    PositiveInt,
    Seed,
)
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


@dataclass(frozen=True, kw_only=True)
class Network:
    """Sizes of the parser's pipeline.

    Attributes:
        width: size of a word's vector.
        depth: number of convolutions.
        rows: sizes of the hashed tables of words, first letters, endings and shapes.
        hidden_width: size of the parser's hidden layer.
        min_action_freq: minimum frequency of a parser action in the training parses.
    """

    width: PositiveInt
    depth: PositiveInt
    rows: Annotated[Sequence[PositiveInt], MinLen(1)]
    hidden_width: PositiveInt
    min_action_freq: PositiveInt


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings for training the pipeline.

    Attributes:
        num_epochs: passes over the captions.
        batch_size: captions per update.
        lr: highest learning rate.
        dropout: dropout probability.
        lower_case: share of training captions put into lower case.
        without_full_stop: share of training captions without their full stop.
    """

    num_epochs: PositiveInt
    batch_size: PositiveInt
    lr: NonNegativeFloat
    dropout: DropRate
    lower_case: Fraction
    without_full_stop: Fraction


def build_pipeline(network: Network) -> Any:
    """Build an untrained pipeline: hashed word features, convolutions, tagger and parser."""
    nlp = spacy.blank("en")
    width = network.width
    encoder = {
        "@architectures": "spacy.Tok2Vec.v2",
        "embed": {
            "@architectures": "spacy.MultiHashEmbed.v2",
            "width": width,
            "attrs": list(ATTRIBUTES),
            "rows": list(network.rows),
            "include_static_vectors": False,
        },
        "encode": {
            "@architectures": "spacy.MaxoutWindowEncoder.v2",
            "width": width,
            "window_size": 1,
            "maxout_pieces": 3,
            "depth": network.depth,
        },
    }
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": width, "upstream": "*"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": listener, "nO": None}
    parser = {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "parser",
        "extra_state_tokens": False,
        "hidden_width": network.hidden_width,
        "maxout_pieces": 2,
        "use_upper": True,
        "tok2vec": listener,
        "nO": None,
    }
    nlp.add_pipe("tok2vec", config={"model": encoder})
    nlp.add_pipe("tagger", config={"model": tagger})
    nlp.add_pipe("parser", config={"model": parser, "min_action_freq": network.min_action_freq})
    return nlp


def to_example(nlp: Any, parse: Parse, *, lower: bool = False, stop: bool = True) -> Example:
    """Convert a parse to spaCy's training format.

    Args:
        lower: put the caption into lower case.
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
    nlp: Any, parses: Sequence[Parse], *, settings: Training, rng: np.random.Generator
) -> Iterator[list[Example]]:
    """Yield batches of one pass over the parses in random order, some in another spelling."""
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
    """First ``min_parses`` parses, and later parses with a new tag."""
    seen: set[str] = set()
    selected = []
    for number, parse in enumerate(parses):
        tags = {token.tag for token in parse}
        if number < min_parses or not tags <= seen:
            selected.append(parse)
        seen |= tags
    return selected


def fit(nlp: Any, train: Captions, *, settings: Training, seed: int) -> Any:
    """Train a pipeline in place; return the optimizer, which holds the averaged weights."""
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
    """Save the pipeline with averaged weights, only the words it needs, and the lemmas."""
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
    """Evaluate accuracy on the captions in their original spelling."""
    scores = accuracy(parser.parse([caption for caption, _ in captions]), [p for _, p in captions])
    return {name: round(value, 4) for name, value in scores.items()}


def train_caption_parser(
    *,
    parses: Name,
    network: Network,
    training: Training,
    out: Name,
    seed: Seed = 0,
    limit_captions: PositiveInt | None = None,
    held_out: Sequence[Name] = (),
    gold: Name | None = None,
) -> dict[str, Any]:
    """Train the parser; write the pipeline and a model card.

    Args:
        parses: JSON Lines of the teacher's parses.
        network: sizes of the pipeline.
        training: settings of the training.
        out: folder of the pipeline.
        seed: seed of order and weights.
        limit_captions: number of random captions to train on; None: all.
        held_out: splits of ``parses`` to evaluate on.
        gold: JSON Lines of manually checked parses to evaluate on; None: none.

    Returns:
        The card: settings, data, versions and accuracy.

    Raises:
        FileNotFoundError, ValueError: parses cannot be read, or there are none to train on.
    """
    taught = read_parses(parses, "train")
    if not taught:
        raise ValueError(f"{parses} has no lines with split=train")
    order = np.random.default_rng(seed).permutation(len(taught))[:limit_captions]
    train = [(caption, repair(parse)) for caption, parse in (taught[i] for i in order)]
    log.info(f"{len(train)} captions to train on")
    folder = Path(out)
    with fast_arrays():
        nlp = build_pipeline(network)
        optimizer = fit(nlp, train, settings=training, seed=seed)
        save(nlp, optimizer, train, folder)
    card = {
        "what": "tagger and parser of captions, taught by a spaCy 2 model "
        "(docs/cards/caption_parser.md)",
        "captions": len(train),
        "network": asdict(network),
        "training": {**asdict(training), "seed": seed},
        "versions": versions() | {"spacy": version("spacy"), "command": _command(sys.argv[1:])},
        "accuracy": _accuracies(folder, parses, held_out, gold),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "content_hash": content_hash(folder),
    }
    write_json(folder.with_suffix(".json"), card)
    return card


def _accuracies(
    folder: Path, parses: str, held_out: Sequence[str], gold: str | None
) -> dict[str, dict[str, float]]:
    """Accuracy of the pipeline in a folder, by reference parses."""
    parser = SpacyParser(folder=folder, name=folder.name, num_processes=1)
    scores = {}
    for split in held_out:
        captions = read_parses(parses, split)
        scores[f"{split}, teacher as it is"] = evaluate(parser, captions)
        scores[f"{split}, teacher mended"] = evaluate(parser, [(c, repair(p)) for c, p in captions])
    if gold is not None:
        scores["checked by hand"] = evaluate(parser, read_parses(gold))
    return scores


def _command(overrides: Sequence[str]) -> str:
    """Command line without paths of files on this machine."""
    remaining = [text for text in overrides if text.split("=")[0] not in ("parses", "out", "gold")]
    return " ".join(["python -m tools.assets", *remaining])
