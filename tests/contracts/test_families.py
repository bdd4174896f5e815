"""Every image-to-text family of transformers is trained and searched as by its own code.

Small networks of random weights in the hub's format. What is expected comes from transformers
alone: a family's own forward pass on what its own processor makes of the whole text, and its own
``generate``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as MAPPING,
)

from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.constraints import constrain
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.search import AbstractSearch
from captioning.models.adapt import add_low_rank
from captioning.models.layers import cross_entropy
from captioning.models.layers.image_states import ImageStates, unfit
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.vlm import Vlm
from captioning.runtime.processors import PHOTOS_ALONE, load_processor, model_kind
from captioning.text.prompts import chat_template
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.training.objectives.rewards import BleuReward
from captioning.training.objectives.self_critical import (
    SelfCritical,
    described,
    drawn_captions,
)
from captioning.types import Batch
from captioning.vision.prompt_tensors import PHOTO_KEYS, PromptedProcessor
from tests import image_text_folders
from tests.families.registry import FAMILIES, PROMPTS, VARIANTS, family_folder
from tests.image_text_folders import with_long

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
# One of each kind that product code tells apart; `make families` tries all of them.
KINDS = (
    *("gemma3", "paligemma", "molmo2", "qwen2_vl", "qwen3_5", "lfm2_vl", "granite4_vision"),
    *("internvl", "minicpmv4_6", "kosmos_2", "pix2struct", "vision_encoder_decoder", "blip2_opt"),
    *("blip", "git", "florence2", "t5gemma2", "minimax_m3_vl", "perception_lm", "cosmos3_edge"),
    *("unlimited_ocr", "pp_formulanet"),
)
EVERY = (*FAMILIES, *VARIANTS) if os.environ.get("EVERY_FAMILY") == "1" else KINDS
# Module scope keeps the tests of a family together, so that it is built once.
# One of each kind of decoder, prompt and photo tensors.
FEW = ("gemma3", "molmo2", "qwen2_vl", "kosmos_2", "git", "blip2_opt", "florence2")
every_family = pytest.mark.parametrize("family", with_long(EVERY, FEW), scope="module")
# Of other lengths, so that a batch pads them; several of a photo, so that they share its prompt.
CAPTIONS = ("a dog runs on the grass", "two dogs", "a ball", "a dog near a tall tree", "a red ball")
INDEX = (0, 0, 1, 2, 2)
SIZES = ((60, 40), (48, 48), (200, 120))
# A text's answer has other token types than its prompt there.
ANSWERS = {"paligemma": {"token_type_ids": 1}}
LENGTH = 5
# Parts of them compute in float32 alone.
SINGLE = (
    *("kosmos_2", "kosmos_2_5", "nemotron_h_omni", "inkling2", "inkling2_loop", "dots3_note"),
)
# A photo's or a caption's own results depend on what else is in the batch, in transformers too.
ONE_BY_ONE = ("emu3", "minimax_m3_vl")
# Their own beams fail, or read other patches than their photo's.
OWN_BEAMS = ("llama4", "fuyu")
# Versions of transformers in which a family's own forward pass fails.
BROKEN = {"5.24.0": {"llama4": "its own forward pass raises in transformers 5.24.0"}}
ASKED = {"cosmos3_edge": {"return_mm_token_type_ids": True}}
# Begun by transformers with weights so small that photos hardly matter.
LARGE = (*image_text_folders.FAMILIES,)


def photos() -> list[Image.Image]:
    """Noise of three sizes, the last of which is tiled where a family tiles."""
    rng = np.random.default_rng(0)
    shapes = [(height, width, 3) for width, height in SIZES]
    return [Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)) for shape in shapes]


class Case:
    """A family's captioner, and its own network and processor with the same weights."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.folder = family_folder(family)
        name = str(self.folder)
        self.prompt = PROMPTS.get(family, "Describe it.")
        if model_kind(self.folder) in PHOTOS_ALONE:
            self.prompt = ""
        self.dtype = torch.float32 if family in SINGLE else torch.float64
        self.atol = 2e-5 if family in SINGLE else 1e-6
        self.processor = PromptedProcessor(pretrained=name, prompt=self.prompt)
        self.tokenizer = ImageTextTokenizer.of_model(name=name, prompt=self.prompt)
        self.model = Vlm(
            pretrained=name,
            tokenizer=self.tokenizer,
            search=BeamSearch.with_settings(beam_size=3, max_length=LENGTH),
        )
        if family in LARGE:
            generator = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for parameter in self.model.network.parameters():
                    parameter.normal_(0, 0.3, generator=generator)
        self.model.network = widened(self.model.network).to(self.dtype)
        self.model.eval()
        self.own = AutoModelForImageTextToText.from_pretrained(self.folder)
        self.own.load_state_dict(self.model.network.state_dict())
        self.own = widened(self.own).to(self.dtype).eval()
        self.own_processor = load_processor(self.folder)

    def batch(
        self, captions: tuple[str, ...], index: tuple[int, ...], pictures: list[Image.Image]
    ) -> Batch:
        rows = [torch.tensor(self.tokenizer.encode(caption)) for caption in captions]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
        extras = self.processor.joined([self.processor.read_photo(photo) for photo in pictures])
        return Batch(
            rows=torch.arange(len(rows)),
            sample_ids=tuple(f"s{number}" for number in range(len(rows))),
            image_ids=tuple(f"i{number}" for number in range(len(pictures))),
            image_index=torch.tensor(index),
            tokens=padded.clamp(min=0).masked_fill(padded < 0, self.tokenizer.pad_id),
            token_mask=padded >= 0,
            extras={n: self.typed(v) for n, v in extras.items()},
        )

    def batches(self, pictures: list[Image.Image]) -> list[Batch]:
        """All captions in one batch, or each in its own where the family needs that."""
        if self.family not in ONE_BY_ONE:
            return [self.batch(CAPTIONS, INDEX, pictures)]
        pairs = zip(CAPTIONS, INDEX, strict=True)
        return [self.batch((caption,), (0,), [pictures[photo]]) for caption, photo in pairs]

    def inputs(self, photo: Image.Image, more: str = "") -> dict[str, Any]:
        """What the family's own processor makes of one photo and a text."""
        words = {} if self.model.parts.kind in PHOTOS_ALONE else {"text": [self.text + more]}
        words |= ASKED.get(self.family, {})
        begin = self.own_processor.tokenizer.bos_token
        if chat_template(self.own_processor) and begin and self.text.startswith(begin):
            words["add_special_tokens"] = False  # as apply_chat_template does
        outputs = self.own_processor(images=[photo], return_tensors="pt", **words)
        named = {n: v for n, v in outputs.items() if n not in ("labels", "num_crops")}
        tensors = {n: v if isinstance(v, list) else torch.as_tensor(v) for n, v in named.items()}
        return {n: v if isinstance(v, list) else self.typed(v) for n, v in tensors.items()}

    def typed(self, value: Tensor) -> Tensor:
        """In the type of the weights."""
        return value.to(self.dtype) if value.is_floating_point() else value

    @property
    def tokenizer_begin(self) -> str:
        return self.own_processor.tokenizer.bos_token or ""

    @property
    def text(self) -> str:
        return self.processor.format.text

    def own_loss(self, photo: Image.Image, caption: str) -> Tensor:
        """The mean over the caption's tokens and its end, the prompt at -100."""
        ids = torch.tensor([self.tokenizer.encode(caption)[1:]])
        logits = self._own_logits(self.inputs(photo), ids)
        return functional.cross_entropy(logits[0].double(), ids[0])

    def _own_logits(self, inputs: dict[str, Any], ids: Tensor) -> Tensor:
        number, starts = ids.shape[1], self.model.parts.speaker.start_ids
        if starts:
            begun = torch.cat([torch.tensor([starts]), ids[:, :-1]], dim=1)
            return self.own(**inputs, decoder_input_ids=begun).logits[:, -number:]
        if self.model.parts.kind in ("git", "blip"):
            length = inputs["input_ids"].shape[1]
            inputs = {
                n: v[:, :-1] if v.dim() == 2 and v.shape[1] == length else v
                for n, v in inputs.items()
            }
        if self.family == "blip":
            inputs["input_ids"][:, 0] = self.own.config.text_config.bos_token_id
        length = inputs["input_ids"].shape[1]
        fills = {"attention_mask": 1, **ANSWERS.get(self.family, {})}
        for name, value in list(inputs.items()):
            if name == "input_ids":
                inputs[name] = torch.cat([value, ids[:, :-1]], dim=1)
            elif name in BY_TOKEN and value.dim() >= 2 and value.shape[1] == length:
                last = torch.full_like(value[:, -1:], fills[name]) if name in fills else None
                last = (
                    (value[:, -1:] if name in REPEATED else torch.zeros_like(value[:, -1:]))
                    if last is None
                    else last
                )
                inputs[name] = torch.cat([value, last.repeat_interleave(number - 1, 1)], dim=1)
        return self.own(**inputs).logits[:, -number:]

    def own_tokens(self, photo: Image.Image, num_beams: int) -> tuple[list[int], float]:
        """Tokens of the family's own search for one photo by itself, and their score."""
        inputs, kind = self.inputs(photo), self.model.parts.kind
        starts = self.model.parts.speaker.start_ids
        if starts:
            inputs["decoder_input_ids"] = torch.tensor([starts])
        elif kind == "git":
            inputs = {n: v[:, :-1] if v.dim() == 2 else v for n, v in inputs.items()}
        marks = {
            "eos_token_id": [self.tokenizer.eos_id, *self.tokenizer.further_ends],
            "pad_token_id": self.tokenizer.pad_id,
        }
        self.own.generation_config.forced_eos_token_id = None  # Florence-2, at the greatest length
        outputs = self.own.generate(
            **inputs,
            **({} if kind == "blip" else marks),
            max_new_tokens=LENGTH,
            num_beams=num_beams,
            do_sample=False,
            early_stopping="never" if num_beams > 1 else None,
            length_penalty=0.0,
            repetition_penalty=1.0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        read = len(starts) or inputs["input_ids"].shape[1] - (kind == "blip")
        ids = outputs.sequences[0, read:]
        score = getattr(outputs, "sequences_scores", None)
        return ids.tolist(), None if score is None else float(score)


# Inputs with a place for each token, by the families' own documentation.
BY_TOKEN = (
    *("attention_mask", "token_type_ids", "mm_token_type_ids", "image_embeds_position_mask"),
    *("cross_attention_mask", "image_attention_mask", "moe_mm_token_type_ids", "position_ids"),
)
REPEATED = ("cross_attention_mask", "image_attention_mask")


def widened(network: Any) -> Any:
    """The network, its experts in a form that computes in float64."""
    if getattr(network, "set_experts_implementation", None) is not None:
        try:
            network.set_experts_implementation("eager")
        except (ValueError, AttributeError):
            return network
    return network


def listed() -> set[str]:
    """Families and forms of families that the installed transformers has."""
    kinds = {kind.replace("-", "_").replace(".", "_") for kind in MAPPING}
    return kinds | {"blip2_opt", "blip2_t5", *VARIANTS}


_cases: dict[str, Case] = {}


def case_of(family: str) -> Case:
    """Kept for the tests of one family, which follow one another."""
    if family not in listed():
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    if reason := BROKEN.get(transformers.__version__, {}).get(family):
        pytest.skip(reason)
    if family not in _cases:
        _cases.clear()
        _cases[family] = Case(family)
    return _cases[family]


@every_family
def test_losses_are_the_familys_own(family: str) -> None:
    """Of captions by themselves, padded in a batch, and sharing the prompt of a photo."""
    case, pictures = case_of(family), photos()
    own = torch.stack([case.own_loss(pictures[i], c) for i, c in zip(INDEX, CAPTIONS, strict=True)])
    with torch.no_grad():
        alone = [
            case.model.losses(case.batch((c,), (0,), [pictures[i]])).per_sample
            for i, c in zip(INDEX, CAPTIONS, strict=True)
        ]
        torch.testing.assert_close(torch.cat(alone), own, rtol=0, atol=case.atol, check_dtype=False)
        if family in ONE_BY_ONE:
            return
        some = (0, 2, 3)
        padded = case.model.losses(
            case.batch(tuple(CAPTIONS[i] for i in some), (0, 1, 2), pictures)
        ).per_sample
        torch.testing.assert_close(
            padded, own[list(some)], rtol=0, atol=case.atol, check_dtype=False
        )
        shared = case.model.losses(case.batch(CAPTIONS, INDEX, pictures)).per_sample
        torch.testing.assert_close(shared, own, rtol=0, atol=case.atol, check_dtype=False)


@every_family
@torch.no_grad()
def test_draws_are_as_likely_as_the_familys_own_forward_pass_says(family: str) -> None:
    """Two a photo, drawn in one batch; token by token, and as the search adds them up."""
    case, pictures = case_of(family), photos()
    number = 1 if family in ONE_BY_ONE else len(pictures)
    batch = case.batch(CAPTIONS[:number], tuple(range(number)), pictures[:number])
    search = SelfCritical(reward=BleuReward(), num_samples=2)._sampling(case.model, (0, 0))
    drawn = drawn_captions(case.model, batch, search)
    captions = described(batch, drawn, case.tokenizer.bos_id, by_token=True)
    found = case.model.losses(captions).token_nll
    lengths = drawn.lengths.flatten().tolist()
    for row, length in enumerate(lengths):
        ids = drawn.tokens.flatten(0, 1)[row : row + 1, :length]
        logits = case._own_logits(case.inputs(pictures[row // 2]), ids)
        own = functional.cross_entropy(logits[0].double(), ids[0], reduction="none")
        torch.testing.assert_close(
            found[row, :length], own, rtol=0, atol=10 * case.atol, check_dtype=False
        )
    scores = [p.score for group in case.model.candidates(batch, search=search) for p in group]
    torch.testing.assert_close(
        -found.sum(1).float(), torch.tensor(scores), rtol=1e-4, atol=1e-4, check_dtype=False
    )


@every_family
def test_prompts_are_read_as_by_the_processors_own_chat(family: str) -> None:
    """Token by token from the first one, up to what a template writes before an answer."""
    case, photo = case_of(family), photos()[0]
    template = chat_template(case.own_processor)
    if template is None:
        pytest.skip(f"{family} has no chat template")
    content = [{"type": "image", "image": photo}, {"type": "text", "text": case.prompt}]
    processor: Any = case.own_processor
    outputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        chat_template=template,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    own = outputs["input_ids"][0].tolist()
    mine = case.processor.read_photo(photo)["prompt.input_ids"][0].tolist()
    # The last token may differ: a blank before the answer is the caption's, and a thought that
    # the question leaves open is none or an empty one.
    shorter = min(len(mine), len(own)) - 1
    assert mine[:shorter] == own[:shorter]


@every_family
def test_gradients_are_the_familys_own(family: str) -> None:
    """Those of the mean over all captions' tokens, some of which share a photo's prompt."""
    case, pictures = case_of(family), photos()
    lengths = [len(case.tokenizer.encode(caption)) - 1 for caption in CAPTIONS]
    case.model.train()
    case.model.zero_grad()
    case.own.zero_grad()
    for batch in case.batches(pictures):
        number = int(batch.token_mask[:, 1:].sum())
        (case.model.losses(batch).total * number / sum(lengths)).backward()
    case.model.eval()
    for photo, caption, length in zip(INDEX, CAPTIONS, lengths, strict=True):
        loss = case.own_loss(pictures[photo], caption)
        (loss * length / sum(lengths)).backward()
    check_gradients(case)


def check_gradients(case: Case) -> None:
    """Those of the captioner against the network's own."""
    expected = {n: p.grad for n, p in case.own.named_parameters() if p.grad is not None}
    assert expected
    found = {n: p.grad for n, p in case.model.network.named_parameters() if p.grad is not None}
    whole = float(torch.stack([gradient.norm() for gradient in expected.values()]).norm())
    for name, gradient in expected.items():
        mine = found.get(name, torch.zeros_like(gradient))
        # Some compute rotations and norms in single precision.
        most = 1e-3 * float(gradient.norm()) + 10 * case.atol * whole
        assert float((mine - gradient).norm()) <= most, name


# Also those whose figures docs/results/vlm.md gives.
SHOWN = ("smolvlm", "qwen3_vl", "llava_onevision")


@pytest.mark.parametrize(
    "family", with_long(dict.fromkeys((*SHOWN, *EVERY)), (*SHOWN, *FEW)), scope="module"
)
def test_short_cuts_of_training_change_neither_losses_nor_gradients(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photo by photo, the head in chunks, and kept states of a frozen image encoder."""
    case, pictures = case_of(family), photos()
    model, number = case.model, len(case.tokenizer)
    monkeypatch.setattr(cross_entropy, "CHUNK", 3 * 4 * number)
    monkeypatch.setattr(model, "positions_at_once", 1)
    batches = case.batches(pictures)
    with text_alone(model), text_alone(case):
        if not unfit(model.parts):
            states = ImageStates(model.network, num_photos=3, room=float("inf"))
            monkeypatch.setattr(model, "_states", states)
            batches = [kept(case, batch, states) for batch in batches]
        model.train().zero_grad()
        case.own.zero_grad()
        lengths = [len(case.tokenizer.encode(caption)) - 1 for caption in CAPTIONS]
        found = []
        for batch in batches:
            losses = model.losses(batch)
            share = int(batch.token_mask[:, 1:].sum()) / sum(lengths)
            (losses.total * share).backward()
            found.append(losses.per_sample)
        model.eval()
        own = [case.own_loss(pictures[i], c) for i, c in zip(INDEX, CAPTIONS, strict=True)]
        torch.testing.assert_close(
            torch.cat(found), torch.stack(own), rtol=0, atol=case.atol, check_dtype=False
        )
        for loss, length in zip(own, lengths, strict=True):
            (loss * length / sum(lengths)).backward()
        check_gradients(case)


@contextmanager
def text_alone(owner: Any) -> Iterator[None]:
    """Within, the layers of the language model train alone."""
    parts = ImageTextParts(owner.network if isinstance(owner, Vlm) else owner.own)
    layers = set(parts.language_layers(parts.network))
    wanted = {parameter: parameter.requires_grad for parameter in parts.network.parameters()}
    for name, module in parts.network.named_modules():
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(name in layers)
    try:
        yield
    finally:
        for parameter, trains in wanted.items():
            parameter.requires_grad_(trains)


def kept(case: Case, batch: Batch, states: ImageStates) -> Batch:
    """The same photos, whose pixels are known by now, but for the second one's."""
    keys = torch.arange(1, 1 + len(batch.image_ids))
    case.model.losses(replace(batch, extras={**batch.extras, PHOTO_KEYS: keys}))
    pictures = photos() if len(keys) > 1 else []
    known = [states.prompts[int(key)] for key in keys]
    if pictures:
        known[1] = {n: case.typed(v) for n, v in case.processor.read_photo(pictures[1]).items()}
    extras = {n: case.typed(v) for n, v in case.processor.joined(known).items()}
    return replace(batch, extras={**extras, PHOTO_KEYS: keys})


@every_family
@pytest.mark.parametrize("num_beams", [1, 3])
def test_searches_are_the_familys_own(family: str, num_beams: int) -> None:
    """Of three photos in one batch, against ``generate`` for each photo by itself."""
    case, pictures = case_of(family), photos()
    settings = {"max_length": LENGTH, "special_tokens": True}
    if num_beams > 1 and family in OWN_BEAMS:
        pytest.skip(f"{family}: its own beams fail, or read other patches")
    search: AbstractSearch = BeamSearch.with_settings(beam_size=num_beams, **settings)
    if num_beams == 1:
        search = GreedySearch.with_settings(**settings)
    batches = [case.batch(CAPTIONS[:3], (0, 1, 2), pictures)]
    if family in ONE_BY_ONE:
        batches = [case.batch(CAPTIONS[:1], (0,), [picture]) for picture in pictures]
    found = [group for b in batches for group in case.model.candidates(b, search=search)]
    for (mine, *_), photo in zip(found, pictures, strict=True):
        tokens, score = case.own_tokens(photo, num_beams)
        assert mine.caption == case.tokenizer.decode(tokens)
        if score is not None:
            assert mine.score == pytest.approx(score, abs=1e-4)


@every_family
def test_constrained_search_says_the_words(family: str) -> None:
    case = case_of(family)
    constraints = constrain(
        (("ball",), ("tree",)),
        case.tokenizer.spellings,
        continues=case.tokenizer.continuing(),
        missing="error",
    )
    batch = case.batch(CAPTIONS[:2], (0, 1), photos()[:2])
    search = ConstrainedBeamSearch.with_settings(beam_size=2, max_length=12)
    machines = [constraints.machine] * 2
    for prediction in case.model.generate(batch, search=search, machines=machines):
        assert "ball" in prediction.caption.lower()
        assert "tree" in prediction.caption.lower()


@every_family
@torch.no_grad()
def test_a_photo_matters_to_its_own_captions_alone(family: str) -> None:
    case, pictures = case_of(family), photos()
    before = case.model.losses(case.batch(CAPTIONS, INDEX, pictures)).per_sample
    changed = [*pictures[:1], ImageOps.invert(pictures[1]), *pictures[2:]]
    after = case.model.losses(case.batch(CAPTIONS, INDEX, changed)).per_sample
    differs = ~torch.isclose(before, after, rtol=1e-7, atol=1e-9)
    assert differs.tolist() == [photo == 1 for photo in INDEX]


@every_family
def test_low_rank_additions_go_to_the_language_model(family: str) -> None:
    pytest.importorskip("peft", reason="needs peft")
    case = case_of(family)
    name = str(case.folder)
    model = Vlm(pretrained=name, tokenizer=case.tokenizer, search=case.model.search)
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": None, "within": None}
    add_low_rank(model, **lora)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert len(trained) >= 4
    assert not [n for n in trained if "vision" in n or "visual" in n or "image_encoder" in n]
    assert not [n for n in trained if "lm_head" in n]
    pixels = {
        n: v.float()
        for n, v in case.batch(CAPTIONS, INDEX, photos()).extras.items()
        if v.is_floating_point()
    }
    batch = case.batch(CAPTIONS, INDEX, photos())
    batch = replace(batch, extras={**batch.extras, **pixels})
    model.losses(batch).total.backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not without


@every_family
def test_captions_hold_no_text_of_templates(family: str) -> None:
    """A caption's tokens decode to it, and the prompt holds what a template writes before it."""
    case = case_of(family)
    for caption in CAPTIONS:
        ids = case.tokenizer.encode(caption)
        assert ids[-1] in (case.tokenizer.eos_id,)
        assert case.tokenizer.decode(ids) == caption
    chat = getattr(case.own_processor, "chat_template", None)
    if chat is None:
        return
    content: list[dict[str, str]] = [{"type": "image"}, {"type": "text", "text": case.prompt}]
    answer = [{"type": "text", "text": CAPTIONS[0]}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
    whole = case.own_processor.apply_chat_template(messages, tokenize=False)
    form = case.processor.format
    assert CAPTIONS[0] in whole
    told = whole.partition(CAPTIONS[0])[0]
    told = told.removeprefix(case.tokenizer_begin)
    # All that stands before an answer is in the prompt, in other blanks at most.
    asked = f"{form.text}{form.before}".removeprefix(case.tokenizer_begin)
    assert asked.split()[: len(told.split())] == told.split()
    assert (asked[-1:] == " ") == (told[-1:] == " ")
