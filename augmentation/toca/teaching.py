"""Fine-tune a language model on a corpus: ``captioning augment teach out=FOLDER``.

The paper prompts a model of 7B parameters with examples (section 3.2). A small one is taught it
here, on nothing else than the corpus that the sentence templates are made of: given some words of a
caption it writes the caption. Settings are in ``configs/teaching.yaml``; docs/cards/toca.md says
how the taught model is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt, Lt
from rich.progress import track
from torch import Tensor, nn

from augmentation.toca.joined_words import join_word_parts
from augmentation.toca.prompt_writer import PromptWriter
from augmentation.toca.template_sampling import SentenceTemplate, as_template, with_some_words
from augmentation.toca.templates import deconstruct
from augmentation.training.identity import training_identity
from augmentation.training.loop import AbstractLoopSettings, LoopPrecision, TrainingLoop
from augmentation.training.weights_card import write_card
from augmentation.writing.causal_writer import LINE_END, padded_left
from captioning.config.build import build_part
from captioning.config.ranges import (
    Device,
    Fraction,
    Name,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.config.tasks import recorded
from captioning.data.roster import Roster
from captioning.runtime.devices import chosen_device
from captioning.text.causal import causal_source, imported, leading_ids, load_causal
from captioning.text.entities import as_sentence
from captioning.text.tagger import CaptionTagger, Tagged
from captioning.training.rosters import read_corpus
from captioning.training.settings import Corpus, Data, Part, Paths
from captioning.types import Mean

NUM_NEAR_BATCHES = 8  # a batch is drawn of so many batches of captions of about its length
NUM_LONGEST = 100  # captions of most letters, among which the longest in tokens is found
IGNORED = -100  # label of the question's tokens


class Lessons:
    """Training data: captions with prompts; each draw makes new prompts.

    Args:
        captions: pairs of a caption and its own sentence template.
        prompts: the style of the questions, without examples.
        tokenizer: tokenizer of the language model.
        full_template_share: share of prompts with the complete template; other prompts have
            some of its lexical words, see `with_some_words`.
    """

    def __init__(
        self,
        captions: Sequence[tuple[str, SentenceTemplate]],
        *,
        prompts: PromptWriter,
        tokenizer: Any,
        full_template_share: float,
    ) -> None:
        self._captions = sorted(captions, key=lambda pair: len(pair[0]))
        self._prompts, self._tokenizer, self._full_template_share = (
            prompts,
            tokenizer,
            full_template_share,
        )
        self._leading = leading_ids(tokenizer)

    def __len__(self) -> int:
        return len(self._captions)

    def longest(self) -> int:
        """Number of tokens of the longest prompt and answer, among the longest captions."""
        draws, longest = np.random.default_rng(0), 0
        for caption, template in self._captions[-NUM_LONGEST:]:
            longest = max(longest, sum(map(len, self._pair(caption, template, draws))))
        return longest

    def draw(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw prompts with answers, from captions of similar length.

        Returns:
            ``(B, T) int64`` tokens, padded on the left, their mask, and the labels to be learned:
            the answers' tokens, `IGNORED` elsewhere.
        """
        draws = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        start = draws.integers(len(self._captions))
        near = draws.choice(NUM_NEAR_BATCHES * number, number, replace=False)
        rows = [self._row(int(start + n) % len(self._captions), draws) for n in near]
        tokens, mask = padded_left([prompt + answer for prompt, answer in rows])
        labels, _ = padded_left([[IGNORED] * len(prompt) + answer for prompt, answer in rows])
        return tokens, mask, labels.masked_fill(mask == 0, IGNORED)

    def _row(self, place: int, draws: np.random.Generator) -> tuple[list[int], list[int]]:
        """Tokens of a prompt and of its answer."""
        caption, template = self._captions[place]
        if draws.random() >= self._full_template_share:
            template = with_some_words(template, len(template.words), draws)
        return self._pair(caption, template, draws)

    def _pair(
        self, caption: str, template: SentenceTemplate, draws: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        (prompt,) = self._prompts.prompts([template], draws)
        # tokenised in parts, as a writer does
        opening = [*self._leading, *self._ids(prompt.opening())]
        prompt_ids = [*opening, *self._ids(prompt.ending())]
        return prompt_ids, self._ids(f" {caption}{LINE_END}")

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]


def with_templates(
    captions: Sequence[str], tagged: Iterable[Tagged]
) -> Iterator[tuple[str, SentenceTemplate]]:
    """Captions as sentences with their own templates; captions without a template are skipped."""
    for caption, tags in zip(captions, tagged, strict=True):
        parts = deconstruct(join_word_parts(caption, tags))
        if parts.problem:
            continue
        slots = iter(parts.words)
        tokens = [
            next(slots) if part.startswith("[") else (part, "")
            for part in parts.structure.split(" ")
        ]
        yield as_sentence(caption), as_template(parts.structure, tokens)


def mean_loss_of(
    network: nn.Module, tokens: Tensor, mask: Tensor, labels: Tensor, *, half: bool
) -> Tensor:
    """Mean cross-entropy of the answers' tokens, computed in bfloat16 if ``half``."""
    device = next(network.parameters()).device
    tokens, mask, labels = tokens.to(device), mask.to(device), labels.to(device)
    # answers stand at the end; what comes before them needs no logits
    longest = int((labels != IGNORED).sum(1).max())
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
        logits = network(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            logits_to_keep=longest + 1,
            use_cache=False,
        ).logits[:, :-1]
    labels = labels[:, -longest:]
    return nn.functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED
    )


@dataclass(frozen=True, kw_only=True)
class TeachingSettings(AbstractLoopSettings):
    """Config ``training``; ``num_steps=null`` trains for ``num_epochs``."""

    num_steps: PositiveInt | None


def teach(
    *,
    paths: Paths | None = None,
    data: Data | None = None,
    corpus: Corpus,
    name: Name,
    seed: Seed = 0,
    threads: NumThreads | None = None,
    device: Device = "auto",
    precision: LoopPrecision = "float32",
    first_images: PositiveInt | None = None,
    tagger: Part,
    prompts: Part,
    full_template_share: Fraction = 0.25,
    num_epochs: PositiveFloat = 2,
    training: TeachingSettings,
    val_share: Annotated[float, Gt(0), Lt(1)] = 0.02,
    val_batches: PositiveInt = 4,
    out: Name,
    checkpoint: Name,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Fine-tune a language model on a corpus, and write a folder in the format of transformers.

    Args:
        paths: folders, for the card alone.
        data: the dataset that ``corpus=own`` refers to, for the card alone.
        corpus: captions.
        name: folder or hub name of a causal language model.
        seed: seed of all draws.
        threads: threads of torch; None: its own choice.
        device: device of the training.
        precision: precision of the model's products.
        first_images: images of the corpus that are read; None: all.
        tagger: finds the captions' lexical words.
        prompts: the style of the questions, without examples.
        full_template_share: see `Lessons`.
        num_epochs: passes over the captions.
        training: settings of the loop.
        val_share: share of the captions that are held out.
        val_batches: number of validation batches to score.
        out: the folder.
        checkpoint: file that a killed training resumes from.
        plugins: packages of the parts, for the card alone.

    Returns:
        The card, which is also in the folder: settings, corpus, versions and losses.

    Raises:
        ValueError: no such device, fewer than two captions that can be taken apart, captions longer
            than the model takes, or a folder of another training.
        OSError, ModuleNotFoundError: files that cannot be read or written, see `load_causal`.
    """
    settings = recorded(locals())
    if threads:
        torch.set_num_threads(threads)
    place, roster = chosen_device(device), read_corpus(corpus, number=first_images)
    tokenizer = imported("transformers").AutoTokenizer.from_pretrained(**causal_source(name))
    tagged = with_templates(*_tagged(roster, build_part(tagger)))
    options = {"tokenizer": tokenizer, "full_template_share": full_template_share}
    lessons = {
        part: Lessons(captions, prompts=build_part(prompts), **options)
        for part, captions in split(roster.name, [*tagged], val_share=val_share, seed=seed).items()
    }
    network: Any = load_causal(name)
    check_length(network, max(split_lessons.longest() for split_lessons in lessons.values()))
    # dropout draws from a generator that a killed run could not restore
    network.to(place).eval()
    # words that the corpus has not keep their meaning beside those that it has
    network.get_input_embeddings().requires_grad_(False)
    identity = training_identity(settings, {"corpus": roster}, starts={"name": name})
    if identity["prompts"]["_target_"] == f"{PromptWriter.__module__}.{PromptWriter.__name__}":
        del identity["prompts"]["_target_"]  # checkpoints of before it could be chosen have none
    options = {"precision": precision, "num_epochs": num_epochs, "val_batches": val_batches}
    options |= {"seed": seed, "checkpoint": Path(checkpoint), "identity": identity}
    before, history = fit(network, lessons, training, **options)
    save_causal(network, tokenizer, Path(out))
    return write_card(
        Path(out),
        description=f"{name}, taught to write captions from some of their words",
        rosters={"corpus": roster},
        settings=settings,
        captions={part: len(split_lessons) for part, split_lessons in lessons.items()},
        before=before,
        history=history,
    )


def fit(
    network: nn.Module,
    lessons: Mapping[str, Lessons],
    training: TeachingSettings,
    *,
    precision: LoopPrecision,
    num_epochs: float,
    val_batches: int,
    seed: int,
    checkpoint: Path,
    identity: Mapping[str, Any],
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Train on ``lessons["train"]``, or resume a killed training with the same identity.

    Args:
        network: is trained in place.
        lessons: ``train`` and ``val``.
        training, precision, num_epochs, val_batches, seed, checkpoint: see `teach`.
        identity: see `TrainingLoop`.

    Returns:
        The loss of ``lessons["val"]`` before, and losses of both with their ``step``.

    Raises:
        ValueError: see `TrainingLoop`.
    """
    size, half = training.batch_size, precision == "bf16-mixed"

    def loss_of(_: int, generator: torch.Generator) -> Mean:
        tokens, mask, labels = lessons["train"].draw(size, generator)
        value = mean_loss_of(network, tokens, mask, labels, half=half)
        return Mean(value=value, number=int((labels != IGNORED).sum()))

    @torch.inference_mode()
    def validate(_: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(seed)
        drawn = [lessons["val"].draw(size, generator) for _ in range(val_batches)]
        losses = [mean_loss_of(network, *lesson, half=half) for lesson in drawn]
        return {"val loss": float(torch.stack(losses).mean())}

    step_size = size * training.accumulate  # captions of an update
    loop = TrainingLoop(
        model=network,
        settings=training,
        num_steps=training.num_steps or math.ceil(num_epochs * len(lessons["train"]) / step_size),
        checkpoint=checkpoint,
        seed=seed,
        identity=identity,
    )
    return validate(0), loop.run(loss_of, validate)


def check_length(network: nn.Module, longest: int) -> None:
    """Raise ValueError if the language model reads fewer than ``longest`` tokens."""
    max_length = getattr(network.config, "max_position_embeddings", longest)
    if longest > max_length:
        raise ValueError(
            f"captions with their prompts have up to {longest} tokens, but the language model "
            f"reads at most {max_length}: choose another language model (name)"
        )


def _tagged(roster: Roster, tagger: CaptionTagger) -> tuple[list[str], Iterable[Tagged]]:
    """Captions of a corpus, and their words with part-of-speech tags."""
    texts = [sample.caption for sample in roster.samples]
    description = f"reading {roster.name}"
    tagged = track(tagger.tag(texts), total=len(texts), description=description, transient=True)
    return texts, tagged


def split(
    name: str,
    captions: Sequence[tuple[str, SentenceTemplate]],
    *,
    val_share: float,
    seed: int,
) -> dict[str, list[tuple[str, SentenceTemplate]]]:
    """Split a corpus' captions into ``train`` and a held-out share, ``val``.

    Args:
        name: name of the corpus.
        captions: captions with their templates.
        val_share: share of all.
        seed: the draw's seed.

    Raises:
        ValueError: fewer than two captions have lexical words.
    """
    if len(captions) < 2:
        raise ValueError(
            f"{name}: training a language model needs at least two captions with lexical words: "
            f"got {len(captions)}"
        )
    order = np.random.default_rng(seed).permutation(len(captions)).tolist()
    num_val = max(1, round(val_share * len(captions)))
    parts = {"train": order[num_val:], "val": order[:num_val]}
    return {part: [captions[place] for place in places] for part, places in parts.items()}


def save_causal(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model's folder; quantised models are written in single precision."""
    config = network.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = imported("transformers").AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(network.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
