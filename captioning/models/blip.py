"""BLIP: a text decoder with cross-attention to the image (Li et al., ICML 2022).

It has either the published weights, by hub name or folder, fine-tuned as the authors do, or any
other size, trained from scratch on pixels or on cached features. The backbone
(`captioning.vision.blip`) reads pixels; this file has the decoder and its losses.
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
from transformers import BlipForConditionalGeneration
from transformers.models.blip.configuration_blip import BlipConfig, BlipTextConfig
from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel

from captioning.config.ranges import DropRate, PositiveInt
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.blip_decoder import BlipDecoder
from captioning.models.layers.caption_places import CaptionPlaces
from captioning.models.layers.cross_entropy import caption_losses
from captioning.models.layers.hypothesis_tree import HypothesisTree
from captioning.models.layers.low_rank import merged_low_rank
from captioning.runtime.sample_dropout import by_caption
from captioning.types import Batch, CaptionLosses
from captioning.vision.blip import MEAN, STD, BlipVision, load_blip, with_positions_of

if TYPE_CHECKING:
    from captioning.models.layers.onnx_form import OnnxForm


class Blip(AbstractCaptioner[HypothesisTree]):
    """A BERT with cross-attention on the image's states.

    Args:
        feature_size: D of the image's states.
        hidden_size: of the decoder; states of another size are projected to it and normalised.
        num_layers: of the decoder.
        num_heads: of its attentions.
        intermediate_size: of its feed-forward layers.
        max_positions: longest text in tokens, prompt and end included.
        dropout: of states and of attention.
        label_smoothing: of the loss that is back-propagated; .1 in the authors' code.
        prompt: words before every caption, such as ``"a picture of"``; they are neither part of
            the caption nor of the loss.
        checkpointing: less memory for more time, see `BlipDecoder`.
        pretrained: hub name or folder of a BLIP captioner with the decoder to use; None for one of
            the sizes above with random weights.
        **captioner: see `AbstractCaptioner`.

    Raises:
        ValueError: words of the prompt that the vocabulary lacks, or a decoder of another
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
                f"the decoder knows {text.config.vocab_size} tokens, the tokenizer "
                f"{len(self.tokenizer)}: give the tokenizer that belongs to its weights"
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
        """Write the captioner in transformers' format, with a processor if tokens are sub-words.

        Low-rank additions (``model.lora``) are merged into the written weights, and positions are
        those of the size of the captioner's photos.

        Raises:
            ValueError: the image encoder is not BLIP's own, or the decoder has a projection before
                it: transformers has no place for them.
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
        """What prepares photos and prompts for transformers as they are prepared here."""
        transformers: Any = importlib.import_module("transformers")
        tokenizer, names = Tokenizer.from_str(definition), self.tokenizer
        marks = {"pad": names.pad_id, "unk": names.unk_id, "sep": names.eos_id, "eos": names.eos_id}
        tokens = {f"{n}_token": str(tokenizer.id_to_token(number)) for n, number in marks.items()}
        # What stands there is replaced by the decoder's begin token.
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
        """The networks of `save_pretrained` by what stands before their names there."""
        networks: dict[str, nn.Module] = {"text_decoder.": self.decoder.text}
        if isinstance(self.backbone, BlipVision):
            networks["vision_model."] = self.backbone.network
        return networks

    def _prompt_ids(self, prompt: str) -> Tensor:
        ids = [] if not prompt.split() else self.tokenizer.encode(prompt)[1:-1]
        if self.tokenizer.unk_id in ids:
            raise ValueError(
                f"model.module.prompt={prompt!r} has words that the vocabulary lacks; choose "
                "other words, or none: model.module.prompt="
            )
        return torch.tensor(ids, dtype=torch.long)

    def _images(self, batch: Batch) -> Tensor:
        """States ``(I, S, D)`` of the images."""
        states = self._regions(batch).to(self.decoder.text.cls.predictions.bias.dtype)
        return states if self.project is None else self.project(states)

    def losses(self, batch: Batch) -> CaptionLosses:
        """Cross-entropy of each next token given the true previous ones; the prompt has none."""
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
        """Compile the image encoder, and the decoder's layers over complete captions."""
        super().compile_networks()
        self.decoder.compile_layers()
        self.compiled = True
        return True

    def start(self, batch: Batch) -> HypothesisTree:
        """The memory before the first token; images are read once."""
        return self.decoder.start(self._images(batch), batch.region_mask)

    def step(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """Log-probabilities of the next token; after the first one the prompt is read."""
        logits, state = self.next_logits(tokens, state)
        return functional.log_softmax(logits, dim=-1), state

    def next_logits(self, tokens: Tensor, state: HypothesisTree) -> tuple[Tensor, HypothesisTree]:
        """As `step`, before the softmax."""
        return self._read_on(tokens, state, None)

    def attend_step(
        self, tokens: Tensor, state: HypothesisTree
    ) -> tuple[Tensor, HypothesisTree, Tensor]:
        """As `step`, with the cross-attention ``(G, S)``, a mean over layers and heads."""
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
