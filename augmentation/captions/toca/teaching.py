"""Teach a language model a corpus: ``python -m augmentation.captions.toca.teaching out=FOLDER``.

The paper tells a model of 7B parameters by examples what to write (section 3.2). A small one is
taught it here, on nothing else than the corpus that the sentence templates are made of: given some
words of a caption it writes the caption. Settings are in ``configs/teaching.yaml``; docs/toca.md
says how the taught model is used.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from rich.progress import track
from torch import Tensor, nn

from augmentation.captions.toca.prompts import PromptWriter
from augmentation.captions.toca.sampling import SentenceTemplate, with_some_words
from augmentation.captions.toca.templates import deconstruct, filled, sentence_template
from augmentation.captions.toca.whole_words import whole_words
from augmentation.captions.writing.causal_writer import LINE_END, padded_left
from augmentation.images.training.card import write_card
from augmentation.images.training.loop import TrainingLoop
from captioning.data.roster import Roster
from captioning.text.causal import causal_source, imported, load_causal
from captioning.text.entities import as_sentence
from captioning.text.tagger import CaptionTagger
from captioning.training.inputs import read_corpus
from captioning.training.parts import build_part

log = logging.getLogger(__name__)

NEAR = 8  # batches' worth of captions of about the same length, of which a batch is drawn
IGNORED = -100  # tokens that are given


class Lessons:
    """Captions with the questions that they answer, drawn anew each time.

    Args:
        captions: pairs of a caption and its own sentence template.
        prompts: how it is asked, without examples.
        tokenizer: of the language model.
        whole: share of the questions that give the whole template; the others give some of its
            lexical words, as `with_some_words` does.
    """

    def __init__(
        self,
        captions: Sequence[tuple[str, SentenceTemplate]],
        *,
        prompts: PromptWriter,
        tokenizer: Any,
        whole: float,
    ) -> None:
        self._captions = sorted(captions, key=lambda pair: len(pair[0]))
        self._prompts, self._tokenizer, self._whole = prompts, tokenizer, whole

    def __len__(self) -> int:
        return len(self._captions)

    def draw(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Questions with their answers, the captions of a draw being of about the same length.

        Returns:
            ``(B, T) int64`` tokens, padded on the left, their mask, and what is to be learned of
            them: the answers' tokens, `IGNORED` elsewhere.
        """
        draws = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        start = draws.integers(len(self._captions))
        near = draws.choice(NEAR * number, number, replace=False)
        rows = [self._row(int(start + n) % len(self._captions), draws) for n in near]
        tokens, mask = padded_left([asked + answer for asked, answer in rows])
        labels, _ = padded_left([[IGNORED] * len(asked) + answer for asked, answer in rows])
        return tokens, mask, labels.masked_fill(mask == 0, IGNORED)

    def _row(self, place: int, draws: np.random.Generator) -> tuple[list[int], list[int]]:
        """Tokens of a question and of its answer."""
        caption, template = self._captions[place]
        if draws.random() >= self._whole:
            template = with_some_words(template, len(template.words), draws)
        (prompt,) = self._prompts.prompts([template], draws)
        # in parts, as a writer reads them
        asked = [*self._ids(prompt.opening()), *self._ids(prompt.ending())]
        return asked, self._ids(f" {caption}{LINE_END}")

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]


def read_captions(roster: Roster, tagger: CaptionTagger) -> list[tuple[str, SentenceTemplate]]:
    """Captions as sentences with their own templates; those that have none are left out."""
    captions = [sample.caption for sample in roster.samples]
    tagged = track(
        tagger.tag(captions),
        total=len(captions),
        description=f"reading {roster.name}",
        transient=True,
    )
    return [*_with_templates(captions, map(whole_words, captions, tagged))]


def _with_templates(
    captions: Sequence[str], tagged: Iterator[Any]
) -> Iterator[tuple[str, SentenceTemplate]]:
    for caption, tags in zip(captions, tagged, strict=True):
        parts = deconstruct(tags)
        if parts.problem:
            continue
        words = tuple(word for word, _ in parts.words)
        slots = iter(parts.words)
        tokens = [
            next(slots) if part.startswith("[") else (part, "")
            for part in parts.structure.split(" ")
        ]
        text = sentence_template([*filled(parts.structure, words)])
        yield (
            as_sentence(caption),
            SentenceTemplate(
                structure=parts.structure, words=words, text=text, tokens=tuple(tokens)
            ),
        )


def mean_loss_of(
    network: nn.Module, tokens: Tensor, mask: Tensor, labels: Tensor, *, half: bool
) -> Tensor:
    """Mean cross-entropy of the answers' tokens, computed in bfloat16 where ``half``."""
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


def teach(config: DictConfig) -> dict[str, Any]:
    """Teach as the config says, and write a folder in the format of transformers.

    Returns:
        The card, which lies in the folder too: settings, corpus, versions and losses.

    Raises:
        ValueError: wrong settings, or fewer than two captions that can be taken apart.
        OSError, ModuleNotFoundError: files that cannot be read or written, see `load_causal`.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    roster = read_corpus(config)
    tokenizer = imported("transformers").AutoTokenizer.from_pretrained(**causal_source(config.name))
    lessons = read_lessons(roster, tokenizer, config)
    network = load_causal(config.name)
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    # dropout draws from a generator that a killed run could not go on with
    network = network.to(device).eval()
    # words that the corpus has not keep their meaning beside those that it has
    network.get_input_embeddings().requires_grad_(False)
    size, half = config.training.batch_size, config.precision == "bf16-mixed"

    def loss_of(_: int, generator: torch.Generator) -> Tensor:
        return mean_loss_of(network, *lessons["train"].draw(size, generator), half=half)

    @torch.inference_mode()
    def validate(_: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(config.seed)
        drawn = [lessons["val"].draw(size, generator) for _ in range(config.val_batches)]
        losses = [mean_loss_of(network, *lesson, half=half) for lesson in drawn]
        return {"val loss": float(torch.stack(losses).mean())}

    whole = math.ceil(config.num_epochs * len(lessons["train"]) / size)
    loop = TrainingLoop(
        model=network,
        settings=OmegaConf.merge(
            config.training, {"num_steps": config.training.num_steps or whole}
        ),
        checkpoint=Path(config.checkpoint),
        seed=config.seed,
    )
    before, history = validate(0), loop.run(loss_of, validate)
    save_causal(network, tokenizer, Path(config.out))
    return write_card(
        Path(config.out),
        what=f"{config.name}, taught to write captions from some of their words",
        rosters={"corpus": roster},
        config=config,
        captions={part: len(those) for part, those in lessons.items()},
        before=before,
        history=history,
    )


def read_lessons(roster: Roster, tokenizer: Any, config: DictConfig) -> dict[str, Lessons]:
    """A corpus' captions, ``train``, and a share of them, ``val``, drawn by the seed.

    Raises:
        ValueError: fewer than two captions can be taken apart.
    """
    captions = read_captions(roster, build_part(config.tagger))
    if len(captions) < 2:
        raise ValueError(
            f"{roster.name}: a language model is taught by captions with lexical words, at least "
            f"two: got {len(captions)}"
        )
    order = np.random.default_rng(config.seed).permutation(len(captions)).tolist()
    num_val = max(1, round(config.val_share * len(captions)))
    parts = {"train": order[num_val:], "val": order[:num_val]}
    return {
        part: Lessons(
            [captions[place] for place in places],
            prompts=PromptWriter(**config.prompts),
            tokenizer=tokenizer,
            whole=config.whole,
        )
        for part, places in parts.items()
    }


def save_causal(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model's folder; one that was read from few bits is written in single precision."""
    config = network.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = imported("transformers").AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(network.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@hydra.main(version_base="1.3", config_path="../../../configs", config_name="teaching")
def main(config: DictConfig) -> None:
    """Teach, and say in one line what was wrong, if something was."""
    try:
        card = teach(config)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"teaching: {error}")
    log.info(f"{config.out}: before {card['before']}, after {card['history'][-1]}")


if __name__ == "__main__":
    main()
