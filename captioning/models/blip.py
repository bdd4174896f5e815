"""BLIP: a text decoder with cross-attention to the image (Li et al., ICML 2022).

It uses the published weights, by hub name or folder, fine-tuned as the authors do; or any
other size, trained from scratch on pixels or cached features. The backbone
(`captioning.vision.blip`) reads pixels; this module has the decoder and its losses.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import BlipForConditionalGeneration
from transformers.models.blip.configuration_blip import BlipConfig, BlipTextConfig
from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel

from captioning.config.ranges import DropRate, PositiveInt
from captioning.models.adapt import merged_low_rank
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.cross_entropy import caption_losses
from captioning.models.layers.hypothesis_tree import HypothesisTree, attention_weights
from captioning.models.layers.packing import CaptionPlaces
from captioning.models.layers.wide_linear import wide_linear
from captioning.runtime.sample_dropout import by_caption, replayed
from captioning.types import Batch, CaptionLosses
from captioning.vision.blip import MEAN, STD, BlipVision, load_blip, with_positions_of

if TYPE_CHECKING:
    from captioning.models.layers.onnx_form import OnnxForm

Pair = tuple[Tensor, Tensor]


class BlipDecoder(nn.Module):
    """BLIP's text decoder, with weights of transformers, for whole captions and single tokens.

    It replaces transformers' ``forward``: an image's keys and values are computed once for all
    captions and hypotheses, attention is fused, and words are predicted only where needed. The
    results are the same.

    Args:
        text: decoder of transformers.
        checkpointing: recompute layers in the backward pass instead of storing their outputs.
    """

    def __init__(self, text: BlipTextLMHeadModel, *, checkpointing: bool = False) -> None:
        super().__init__()
        self.text: Any = text
        self.checkpointing = checkpointing
        self._layer_output: Any = _layer_output

    @property
    def layers(self) -> Any:
        """The decoder's layers, first to last."""
        return self.text.bert.encoder.layer

    def project_images(self, images: Tensor) -> list[Pair]:
        """Return keys and values ``(I, heads, S, d)`` of images ``(I, S, D)`` for each layer."""
        return [_keys_and_values(layer.crossattention.self, images) for layer in self.layers]

    def read(
        self, tokens: Tensor, image_pairs: list[Pair], image_index: Tensor, exist: Tensor | None
    ) -> Tensor:
        """Return the states of captions, with causal attention.

        Args:
            tokens: ``(B, T) int64``; padding at the end gets states, too.
            image_pairs: see `project_images`.
            image_index: ``(B,)`` image of each caption.
            exist: ``(I, S) bool``, False on padding of the images; None: no padding.

        Returns:
            States ``(B, T, D)``.
        """
        hidden = self._embedded(tokens, 0)
        mask = None if exist is None else exist[image_index, None, None]
        for layer, (keys, values) in zip(self.layers, image_pairs, strict=True):
            pair = (keys[image_index], values[image_index])
            if self.checkpointing and torch.is_grad_enabled():
                output = self._layer_output
                options: dict[str, Any] = {"use_reentrant": False, "context_fn": replayed}
                hidden = checkpoint(output, layer, hidden, pair, mask, **options)
            else:
                hidden = self._layer_output(layer, hidden, pair, mask)
        return hidden

    def compile_layers(self) -> None:
        """Compile the layers of `read` with torch; batches may differ in size and length."""
        self._layer_output = torch.compile(_layer_output, dynamic=True)

    def start(self, images: Tensor, exist: Tensor | None = None) -> HypothesisTree:
        """Return the memory before the first token, with the images' keys and values."""
        return HypothesisTree.start(
            num_layers=len(self.layers),
            num_images=len(images),
            image_pairs=self.project_images(images),
            images=images,
            images_exist=exist,
            device=images.device,
        )

    def read_on(
        self, tokens: Tensor, state: HypothesisTree, looks: list[Tensor] | None = None
    ) -> tuple[Tensor, HypothesisTree]:
        """Read one more token ``(G,)`` per hypothesis, and return the states ``(G, D)``.

        Args:
            tokens: ``(G,) int64`` next tokens.
            state: memory before these tokens.
            looks: receives each layer's attention ``(G, S)`` to the image, averaged over heads.
        """
        after = state.grown()
        hidden = self._embedded(tokens.unsqueeze(1), state.length).squeeze(1)
        mask, num_images = after.mask(hidden.dtype), len(state.read)
        for layer, nodes, image_pair in zip(
            self.layers, after.layers, state.image_pairs, strict=True
        ):
            attention = layer.attention.self
            rows = hidden.view(num_images, -1, hidden.shape[-1])
            read = nodes.update(*_keys_and_values(attention, rows))
            rows = _attended(layer.attention, rows, read, mask)
            if looks is not None:
                attention = layer.crossattention.self
                queries = _by_head(attention, attention.query(rows))
                looks.append(attention_weights(queries, image_pair[0], state.images_mask))
            rows = _attended(layer.crossattention, rows, image_pair, state.images_mask)
            hidden = layer.feed_forward_chunk(rows).flatten(0, 1)
        return hidden, after

    def logits(self, states: Tensor) -> Tensor:
        """Return logits ``(M, V)`` of states ``(M, D)``."""
        head = self.text.cls.predictions
        product = functional.linear if torch.is_grad_enabled() else wide_linear
        return product(head.transform(states), head.decoder.weight, head.decoder.bias)

    def _embedded(self, tokens: Tensor, first: int) -> Tensor:
        """Embed tokens ``(B, T)`` at positions starting with ``first``: ``(B, T, D)``."""
        embeddings, last = self.text.bert.embeddings, first + tokens.shape[1]
        limit = embeddings.position_embeddings.num_embeddings
        if last > limit:
            raise ValueError(
                f"a caption of {last} tokens, including prompt and end, exceeds the decoder's "
                f"{limit} positions: lower the maximum length of the tokenizer or the search"
            )
        return embeddings(tokens, position_ids=embeddings.position_ids[:, first:last])


def _layer_output(layer: Any, hidden: Tensor, image_pair: Pair, mask: Tensor | None) -> Tensor:
    """Apply a layer to whole captions."""
    text_pair = _keys_and_values(layer.attention.self, hidden)
    hidden = _attended(layer.attention, hidden, text_pair, None, causal=True)
    return layer.feed_forward_chunk(_attended(layer.crossattention, hidden, image_pair, mask))


def _keys_and_values(attention: Any, states: Tensor) -> Pair:
    """Return keys and values ``(B, heads, T, d)`` of states ``(B, T, D)``."""
    return (
        _by_head(attention, attention.key(states)),
        _by_head(attention, attention.value(states)),
    )


def _by_head(attention: Any, states: Tensor) -> Tensor:
    """Split ``(B, T, D)`` by head: ``(B, heads, T, d)``."""
    heads, size = attention.num_attention_heads, attention.attention_head_size
    return states.view(*states.shape[:-1], heads, size).transpose(1, 2)


def _attended(
    block: Any, hidden: Tensor, read: Pair, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """Attend from ``hidden (B, T, D)`` to keys and values, add the result and normalise."""
    attention = block.self
    attended = functional.scaled_dot_product_attention(
        _by_head(attention, attention.query(hidden)),
        *read,
        attn_mask=mask,
        dropout_p=attention.dropout.p if attention.training else 0.0,
        is_causal=causal,
    )
    return block.output(attended.transpose(1, 2).flatten(2), hidden)


class Blip(AbstractCaptioner[HypothesisTree]):
    """BLIP captioner: a BERT decoder with cross-attention to the image's states.

    Args:
        feature_size: size D of the image's states.
        hidden_size: decoder size; states of another size are projected and normalised.
        num_layers: number of decoder layers.
        num_heads: number of attention heads.
        intermediate_size: hidden size of feed-forward layers.
        max_positions: maximum text length in tokens, including prompt and end.
        dropout: dropout of states and of attention.
        label_smoothing: label smoothing of the training loss; .1 in the authors' code.
        prompt: words before every caption, such as ``"a picture of"``; neither part of
            the caption nor of the loss.
        checkpointing: less memory for more time, see `BlipDecoder`.
        pretrained: hub name or folder of a BLIP captioner whose decoder is used; None: random
            weights of the sizes above.
        **captioner: see `AbstractCaptioner`.

    Raises:
        ValueError: words of the prompt missing in the vocabulary, or a decoder with another
            vocabulary.
    """

    attends = True
    prompt: Tensor

    def __init__(
        self,
        *,
        feature_size: int,
        hidden_size: PositiveInt = 768,
        num_layers: PositiveInt = 12,
        num_heads: PositiveInt = 12,
        intermediate_size: PositiveInt = 3072,
        max_positions: PositiveInt = 512,
        dropout: DropRate = 0.0,
        label_smoothing: DropRate = 0.1,
        prompt: str = "",
        checkpointing: bool = False,
        pretrained: str | None = None,
        **captioner: Any,
    ) -> None:
        super().__init__(**captioner)
        if pretrained is None:
            config = BlipTextConfig(
                vocab_size=len(self.tokenizer),
                hidden_size=hidden_size,
                encoder_hidden_size=hidden_size,
                num_hidden_layers=num_layers,
                num_attention_heads=num_heads,
                intermediate_size=intermediate_size,
                max_position_embeddings=max_positions,
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
                bos_token_id=self.tokenizer.bos_id,
                eos_token_id=self.tokenizer.eos_id,
                pad_token_id=self.tokenizer.pad_id,
                sep_token_id=self.tokenizer.eos_id,
            )
            text = BlipTextLMHeadModel(config)
            self._start_from_word_frequencies(text.cls.predictions.bias)
        else:
            text = load_blip(pretrained).text_decoder
            _set_dropout(text, dropout)
            self.begins_with = pretrained
        if text.config.vocab_size != len(self.tokenizer):
            raise ValueError(
                f"the decoder has {text.config.vocab_size} tokens, but the tokenizer "
                f"{len(self.tokenizer)}: use the tokenizer that belongs to the decoder's weights"
            )
        self.decoder = BlipDecoder(text, checkpointing=checkpointing)
        self.project = None
        if feature_size != text.config.encoder_hidden_size:
            self.project = nn.Sequential(
                nn.Linear(feature_size, text.config.encoder_hidden_size),
                nn.LayerNorm(text.config.encoder_hidden_size),
            )
        self.label_smoothing = label_smoothing
        self.register_buffer("prompt", self._prompt_ids(prompt), persistent=False)
        self.prompt_ids = tuple(self.prompt.tolist())

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the captioner in transformers' format, with a processor for subword tokens.

        LoRA weights (``model.lora``) are merged into the weights, and position embeddings match
        the size of the captioner's photos.

        Raises:
            ValueError: the image encoder is not BLIP's, or the decoder has an input projection:
                transformers' format cannot hold either.
        """
        if not isinstance(self.backbone, BlipVision) or self.project is not None:
            raise ValueError(
                "transformers' BLIP has its own image encoder: only a captioner that was trained "
                "with features=blip can be saved for it"
            )
        text: Any = merged_low_rank(self.decoder.text)
        vision: Any = merged_low_rank(self.backbone.network)
        with_positions_of(vision, self.backbone.image_size)
        config = BlipConfig(
            text_config=text.config.to_dict(), vision_config=vision.config.to_dict()
        )
        with torch.device("meta"):
            network: Any = BlipForConditionalGeneration(config)
        network.text_decoder, network.vision_model = text, vision
        network.save_pretrained(folder)
        definition = self.tokenizer.state().get("definition")
        if definition is not None:
            self._processor(definition, self.backbone.image_size).save_pretrained(folder)

    def _processor(self, definition: str, side: int) -> Any:
        """Return a transformers processor that prepares photos and prompts as this project does."""
        transformers: Any = importlib.import_module("transformers")
        tokenizer, names = Tokenizer.from_str(definition), self.tokenizer
        marks = {"pad": names.pad_id, "unk": names.unk_id, "sep": names.eos_id, "eos": names.eos_id}
        tokens = {f"{n}_token": str(tokenizer.id_to_token(number)) for n, number in marks.items()}
        # The decoder's begin token replaces the processor's.
        begin = "[CLS]" if tokenizer.token_to_id("[CLS]") is not None else tokens["pad_token"]
        end = tokens["sep_token"]
        tokenizer.post_processor = TemplateProcessing(
            single=f"{begin} $A {end}",
            special_tokens=[(begin, tokenizer.token_to_id(begin)), (end, names.eos_id)],
        )
        size = {"height": side, "width": side}
        photos = transformers.BlipImageProcessor(
            size=size, image_mean=list(MEAN), image_std=list(STD)
        )
        options: dict[str, Any] = {**tokens, "cls_token": begin}
        options["model_input_names"] = ["input_ids", "attention_mask"]
        words = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)
        return transformers.BlipProcessor(photos, words)

    def transformers_parts(self) -> dict[str, nn.Module]:
        """Return the networks that `save_pretrained` writes, by name prefix."""
        networks: dict[str, nn.Module] = {"text_decoder.": self.decoder.text}
        if isinstance(self.backbone, BlipVision):
            networks["vision_model."] = self.backbone.network
        return networks

    def _prompt_ids(self, prompt: str) -> Tensor:
        ids = [] if not prompt.split() else self.tokenizer.encode(prompt)[1:-1]
        if self.tokenizer.unk_id in ids:
            raise ValueError(
                f"model.module.prompt={prompt!r} has words missing in the vocabulary; choose "
                "other words, or no prompt: model.module.prompt="
            )
        return torch.tensor(ids, dtype=torch.long)

    def _images(self, batch: Batch) -> Tensor:
        """Return the states ``(I, S, D)`` of the images."""
        states = self._regions(batch).to(self.decoder.text.cls.predictions.bias.dtype)
        return states if self.project is None else self.project(states)

    def losses(self, batch: Batch) -> CaptionLosses:
        """Compute the cross-entropy of each next token, except in the prompt."""
        prompt = self.prompt.expand(len(batch), -1)
        captions, _ = batch.caption_tokens()
        places = CaptionPlaces.of(batch)
        tokens = torch.cat([captions[:, :1], prompt, captions[:, 1:-1]], dim=1)
        image_pairs = self.decoder.project_images(self._images(batch))
        with nullcontext() if self.compiled else by_caption(batch):
            states = self.decoder.read(tokens, image_pairs, batch.image_index, batch.region_mask)
        logits = self.decoder.logits(places.pack(states[:, self.prompt.numel() :]))
        return caption_losses(logits, batch, places, self.label_smoothing)

    def onnx_form(self) -> OnnxForm:
        """See `AbstractCaptioner.onnx_form`."""
        from captioning.models.layers.onnx_form import blip_form

        return blip_form(self)

    def compile_networks(self) -> bool:
        """Compile the image encoder, and the decoder's layers for whole captions."""
        super().compile_networks()
        self.decoder.compile_layers()
        self.compiled = True
        return True

    def start(self, batch: Batch) -> HypothesisTree:
        """Encode the images, and return the memory before the first token."""
        return self.decoder.start(self._images(batch), batch.region_mask)

    def step(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Return log-probabilities of the next token; the first call also reads the prompt."""
        logits, state = self.next_logits(tokens, state)
        return functional.log_softmax(logits, dim=-1), state

    def next_logits(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Return logits instead of log-probabilities; otherwise as `step`."""
        return self._read_on(tokens, state, None)

    def attend_step(
        self, tokens: Tensor, state: HypothesisTree
    ) -> tuple[Tensor, HypothesisTree, Tensor]:
        """Make a `step`, with the cross-attention ``(G, S)`` averaged over layers and heads."""
        looks: list[Tensor] = []
        logits, state = self._read_on(tokens, state, looks)
        return functional.log_softmax(logits, dim=-1), state, torch.stack(looks).mean(0)

    def _read_on(
        self, tokens: Tensor, state: HypothesisTree, looks: list[Tensor] | None
    ) -> tuple[Tensor, HypothesisTree]:
        prompt_tokens = self.prompt.unbind() if not state.length else ()
        for token in prompt_tokens:
            _, state = self.decoder.read_on(tokens, state)
            tokens = token.expand(len(tokens))
        states, state = self.decoder.read_on(tokens, state, looks)
        return self.decoder.logits(states).to(torch.float32), state


def _set_dropout(text: BlipTextLMHeadModel, share: float) -> None:
    for module in text.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
