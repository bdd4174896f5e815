"""Transformers' decoders under search: what the tree remembers is what each hypothesis has read."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel
from transformers.modeling_outputs import BaseModelOutput

from captioning.decoding.beam import BeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.machine import build_machine
from captioning.decoding.settings import SearchRequest
from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.models.layers.bart_stepper import BartStepper
from captioning.models.layers.hypothesis_tree import HypothesisTree
from captioning.runtime.model_folder import memory_key

VOCABULARY, IMAGES, WORDS = 40, 3, 6
START, END, PAD = 2, 2, 1


@pytest.fixture(scope="module")
def bart() -> BartForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    inner = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=VOCABULARY, **sizes, **heads, **inner, forced_eos_token_id=None)
    )
    with torch.no_grad():
        for parameter in bart.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.4)
    return bart.eval()


@pytest.fixture(scope="module")
def images(bart: BartForConditionalGeneration) -> tuple[Tensor, Tensor]:
    """Encoded images ``(I, S, D)`` and where they exist ``(I, S)``; the last one is shorter."""
    states = torch.randn(IMAGES, WORDS, bart.config.d_model)
    exist = torch.ones(IMAGES, WORDS, dtype=torch.bool)
    exist[-1, 4:] = False
    return states, exist


@dataclass(frozen=True)
class Histories(AbstractDecoderState):
    """The image ``(G,)`` and all tokens ``(G, t)`` of each hypothesis."""

    image: Tensor
    tokens: Tensor

    def select(self, index: Tensor) -> Histories:
        return Histories(self.image[index], self.tokens[index])


class FromScratch(AbstractStepper):
    """Reads each hypothesis anew at every step, with BART's own ``forward``."""

    def __init__(self, bart: BartForConditionalGeneration, images: tuple[Tensor, Tensor]) -> None:
        self.bart, self.images = bart, images

    def start(self) -> Histories:
        rows = torch.arange(IMAGES)
        return Histories(rows, rows.new_zeros(IMAGES, 0))

    def step(self, tokens: Tensor, state: Histories) -> tuple[Tensor, Histories]:
        tokens = torch.cat([state.tokens, tokens[:, None]], 1)
        states, exist = (part[state.image] for part in self.images)
        logits = self.bart(
            encoder_outputs=(states,), attention_mask=exist.long(), decoder_input_ids=tokens
        ).logits
        return logits[:, -1].log_softmax(-1), Histories(state.image, tokens)


def walk(
    stepper: AbstractStepper, state: AbstractDecoderState, choices: list[Tensor], words: Tensor
) -> list[Tensor]:
    """Log-probabilities of steps with the rows of ``choices`` selected between them."""
    outputs, last = [], torch.full((IMAGES,), START)
    for number, rows in enumerate(choices):
        log_probs, state = stepper.step(last, state)
        outputs.append(log_probs)
        state, last = state.select(rows), words[number, : len(rows)]
    return outputs


# One image's two rows after the other's; rows repeat, change places and die; images are dropped.
CHOICES = [
    [0, 0, 1, 1, 2, 2],
    [1, 0, 2, 2, 5, 4],
    [0, 0, 0, 2, 3, 2, 5, 5, 4],
    [0, 1, 8, 7],
    [3, 3, 2],
    [0, 1, 2],
]


@torch.no_grad()
def test_each_hypothesis_is_continued_from_its_own_words_and_image(bart, images):
    choices = [torch.tensor(rows) for rows in CHOICES]
    words = torch.randint(3, VOCABULARY, (len(choices), 9))
    stepper, plain = BartStepper(bart), FromScratch(bart, images)
    actual = walk(stepper, stepper.start(*images), choices, words)
    expected = walk(plain, plain.start(), choices, words)
    for step, (one, other) in enumerate(zip(actual, expected, strict=True)):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4, msg=f"step {step}")
    assert len(actual[-1].unique(dim=0)) == 3


@torch.no_grad()
def test_a_state_can_be_stepped_again(bart, images):
    stepper = BartStepper(bart)
    words = torch.randint(3, VOCABULARY, (4, IMAGES))
    _, first = stepper.step(torch.full((IMAGES,), START), stepper.start(*images))
    before, one = stepper.step(words[0], first)
    stepper.step(words[1], first)  # takes the same room
    after, _ = stepper.step(words[2], one)
    _, fresh = stepper.step(torch.full((IMAGES,), START), stepper.start(*images))
    again, fresh = stepper.step(words[0], fresh)
    torch.testing.assert_close(before, again)
    torch.testing.assert_close(after, stepper.step(words[2], fresh)[0])


@torch.no_grad()
def test_reordering_moves_no_keys_and_images_are_kept_once(bart, images):
    stepper = BartStepper(bart)
    _, state = stepper.step(torch.full((IMAGES,), START), stepper.start(*images))
    wide = state.select(torch.arange(IMAGES).repeat_interleave(4))
    _, state = stepper.step(torch.arange(12) + 3, wide)
    other = state.select(torch.arange(12).view(IMAGES, 4).flip(1).flatten())
    for one, two in zip(state.layers, other.layers, strict=True):
        assert one.keys.data_ptr() == two.keys.data_ptr()
        assert one.keys.shape == (IMAGES, 2, 1 + 4, 8)
    assert {keys.shape for keys, _ in other.image_pairs} == {(IMAGES, 2, WORDS, 8)}
    assert other.select(torch.tensor([8, 9])).image_pairs[0][0].shape[0] == 1


def search(bart: BartForConditionalGeneration, images: tuple[Tensor, Tensor], **options):
    stepper = BartStepper(bart)
    request = SearchRequest(num_images=IMAGES, bos_id=START, eos_id=END, pad_id=PAD)
    return BeamSearch.with_settings(**options)(stepper, stepper.start(*images), request)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@torch.no_grad()
def test_captions_are_those_of_transformers(bart, images, penalty, monkeypatch):
    # Ends are probable, so that all captions end: cut-off ones are ranked differently there.
    bias = torch.zeros(1, VOCABULARY)
    bias[0, END] = 3.0
    monkeypatch.setitem(bart._buffers, "final_logits_bias", bias)
    states, exist = images
    expected = bart.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        attention_mask=exist.long(),
        num_beams=4,
        max_new_tokens=30,
        min_new_tokens=1,
        bad_words_ids=[[PAD]],
        early_stopping=False,
        length_penalty=penalty,
        num_return_sequences=4,
        output_scores=True,
        return_dict_in_generate=True,
    )
    options = {"beam_size": 4, "max_length": 30, "min_length": 2, "num_captions": 4, "exact": False}
    result = search(bart, images, length_penalty=penalty, **options)
    captions = [
        [token for token in row[1:] if token not in (END, PAD)]
        for row in expected.sequences.tolist()
    ]
    assert [
        [token for token in row if token not in (END, PAD)]
        for row in result.tokens.flatten(0, 1).tolist()
    ] == captions
    torch.testing.assert_close(result.scores.flatten(), expected.sequences_scores)
    assert 2 <= result.lengths.min() < result.lengths.max() < 30


@torch.no_grad()
def test_constrained_search_goes_through_the_tree(bart, images):
    stepper, plain = BartStepper(bart), FromScratch(bart, images)
    machines = [build_machine([[(5,)], [(7, 9)], [(11,), (12, 13)]], required=2)] * 2
    machines.append(build_machine([]))
    special = {"bos_id": START, "eos_id": END, "pad_id": PAD}
    request = SearchRequest(num_images=IMAGES, machines=machines, **special)
    search = ConstrainedBeamSearch.with_settings(beam_size=3, max_length=8, num_captions=2)
    result = search(stepper, stepper.start(*images), request)
    expected = search(plain, plain.start(), request)
    assert result.tokens.tolist() == expected.tokens.tolist()
    torch.testing.assert_close(result.scores, expected.scores, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_decoder_without_images_reads_a_prompt_and_then_hypotheses():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    gpt = GPT2LMHeadModel(config).eval()
    prompt = torch.randint(3, VOCABULARY, (IMAGES, 4))
    start = HypothesisTree.start(num_layers=2, num_images=IMAGES)
    state = start.read_prompt(4)
    gpt(prompt, **{memory_key(): state.cache()})
    state = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    words = torch.randint(3, VOCABULARY, (2, 6))
    for number in range(2):
        state = state.grown()
        place = torch.full((1, 2), state.length - 1)
        logits = gpt(
            words[number].view(IMAGES, 2),
            attention_mask=state.mask(torch.float32),
            position_ids=place,
            **{memory_key(): state.cache()},
        ).logits.flatten(0, 1)
        if not number:
            state = state.select(torch.tensor([1, 0, 2, 3, 5, 4]))
    first = words[0][[1, 0, 2, 3, 5, 4]]
    full_texts = torch.cat([prompt.repeat_interleave(2, 0), first[:, None], words[1][:, None]], 1)
    torch.testing.assert_close(logits, gpt(full_texts).logits[:, -1], atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="a prompt must come first: got 6 tokens before it"):
        state.read_prompt(2)
