"""Language models of transformers with prompts as vectors, against their own ``forward``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from captioning.models.layers.causal_stepper import CausalStepper

VOCABULARY, SIZE = 30, 16


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=SIZE, n_layer=2, n_head=2, n_positions=16)
    )


def llama() -> nn.Module:
    """Turned positions, and fewer heads for keys than for queries, as SmolLM2 has."""
    sizes = {"hidden_size": SIZE, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads, max_position_embeddings=16)
    )


def spread(network: nn.Module) -> nn.Module:
    """Weights large enough to tell words apart."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return network.eval()


@pytest.fixture(params=[gpt2, llama], ids=["gpt2", "llama"])
def stepper(request: pytest.FixtureRequest) -> CausalStepper:
    return CausalStepper(spread(request.param()))


def plainly(stepper: CausalStepper, vectors: Tensor) -> Tensor:
    """Log-probabilities ``(V,)`` behind vectors ``(N, D)``, without cache or padding."""
    return stepper.network(inputs_embeds=vectors[None]).logits[0, -1].log_softmax(-1)


@torch.no_grad()
def test_hypotheses_of_prompts_of_any_length_read_what_they_have_read(
    stepper: CausalStepper,
) -> None:
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randn(3, 5, SIZE, generator=generator)
    lengths = torch.tensor([5, 2, 3])
    state = stepper.start(prompts, lengths)
    log_probs, state = stepper.step(torch.zeros(3, dtype=torch.long), state)
    histories = [(image, []) for image in range(3)]
    for number in range(4):
        for row_log_probs, (image, tokens) in zip(log_probs, histories, strict=True):
            words = stepper.words(torch.tensor(tokens, dtype=torch.long))
            vectors = torch.cat([prompts[image, : lengths[image]], words])
            torch.testing.assert_close(
                row_log_probs, plainly(stepper, vectors), atol=1e-5, rtol=1e-5
            )
        # reorder within blocks; in the third step the second image is dropped
        block = len(histories) // len({image for image, _ in histories})
        images = [0, 2] if number == 2 else sorted({image for image, _ in histories})
        first = {image: at for at, (image, _) in reversed(list(enumerate(histories)))}
        parents = [
            first[image] + pick
            for image in images
            for pick in torch.randint(block, (2,), generator=generator).tolist()
        ]
        chosen = torch.randint(VOCABULARY, (len(parents),), generator=generator)
        histories = [
            (histories[parent][0], [*histories[parent][1], token])
            for parent, token in zip(parents, chosen.tolist(), strict=True)
        ]
        log_probs, state = stepper.step(chosen, state.select(torch.tensor(parents)))


@torch.no_grad()
def test_hypotheses_may_be_multiplied_before_the_first_word(stepper: CausalStepper) -> None:
    prompts, lengths = torch.randn(2, 4, SIZE), torch.tensor([4, 3])
    state = stepper.start(prompts, lengths).select(torch.tensor([0, 0, 1, 1]))
    log_probs, _ = stepper.step(torch.zeros(4, dtype=torch.long), state)
    for row, image in enumerate((0, 0, 1, 1)):
        expected = plainly(stepper, prompts[image, : lengths[image]])
        torch.testing.assert_close(log_probs[row], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_stepping_a_state_leaves_it_as_it_was(stepper: CausalStepper) -> None:
    state = stepper.start(torch.randn(1, 3, SIZE), torch.tensor([3]))
    _, state = stepper.step(torch.tensor([0]), state)
    first_log_probs, _ = stepper.step(torch.tensor([4]), state)
    stepper.step(torch.tensor([9]), state)
    again, _ = stepper.step(torch.tensor([4]), state)
    assert torch.equal(first_log_probs, again)


def test_what_is_behind_padding_changes_nothing_before_it(stepper: CausalStepper) -> None:
    vectors = torch.randn(2, 6, SIZE)
    other = vectors.clone()
    other[:, 4:] = 1e3
    torch.testing.assert_close(stepper.read(vectors)[:, :4], stepper.read(other)[:, :4])


def test_a_text_longer_than_the_context_is_refused(stepper: CausalStepper) -> None:
    with pytest.raises(ValueError, match="have 17 tokens, more than the language model's context"):
        stepper.read(torch.randn(1, 17, SIZE))
    with pytest.raises(ValueError, match="context of 16"):
        stepper.start(torch.randn(1, 17, SIZE), torch.tensor([17]))
    state = stepper.start(torch.randn(1, 16, SIZE), torch.tensor([16]))
    _, state = stepper.step(torch.tensor([0]), state)
    with pytest.raises(ValueError, match="prompt and caption have 17 tokens"):
        stepper.step(torch.tensor([1]), state)


def test_plain_models_pass_the_check_and_others_do_not(stepper: CausalStepper) -> None:
    stepper.network.train()
    stepper.check()
    assert stepper.network.training
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    sizes = {"hidden_size": SIZE, "intermediate_size": 24, "num_hidden_layers": 1}
    capped = Gemma2Config(
        vocab_size=VOCABULARY, **sizes, **heads, final_logit_softcapping=0.05, pad_token_id=0
    )
    with pytest.raises(ValueError, match="predicts different words step by step"):
        CausalStepper(spread(Gemma2ForCausalLM(capped))).check()
    sloped = BloomConfig(vocab_size=VOCABULARY, hidden_size=SIZE, n_layer=1, n_head=2)
    with pytest.raises(ValueError, match="Bloom"):
        CausalStepper(spread(BloomForCausalLM(sloped))).check()
