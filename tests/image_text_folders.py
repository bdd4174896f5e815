"""Small image-to-text models of random weights, in the layout of the hub's folders.

Each function makes network and processor of one family, in the sizes of a test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from tests.tiny import CAPTIONS

Parts = tuple[Any, Any]
SIZE = {"height": 16, "width": 16}
SQUARE = {"size": {"shortest_edge": 16}, "crop_size": SIZE}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
VISION = {**SIZES, "image_size": 16, "patch_size": 8}
TEXT = {**SIZES, "max_position_embeddings": 256}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
QFORMER = {
    **SIZES,
    **NO_DROPOUT,
    "encoder_hidden_size": 32,
    "vocab_size": 120,
    "cross_attention_frequency": 1,
}
LLAMA = {**TEXT, "model_type": "llama", "num_key_value_heads": 2}
IMAGE = "<image>"
PLAIN_CHAT = (
    "{% for m in messages %}{{ m['role'].upper() }}:{% for c in m['content'] %}"
    "{% if c['type']=='image' %} <image>{% else %} {{ c['text'] }}{% endif %}{% endfor %}"
    "{% if m['role']=='assistant' %}</s>{% else %}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
SMOL_CHAT = (
    "<|im_start|>{% for m in messages %}{{ m['role'] | capitalize }}"
    "{% if m['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
    "{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}{% else %}<image>"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
QWEN_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
    "{% if c['type']=='image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_pairs(special: list[str], **names: Any) -> Any:
    """A tokenizer of byte pairs; ``bos`` and ``end`` are written around each text."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        ByteLevel(add_prefix_space=False),
        ByteLevelDecoder(),
    )
    trainer = BpeTrainer(
        vocab_size=340,
        special_tokens=special,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(list(CAPTIONS) * 3, trainer)
    around = (names.pop("first", ""), names.pop("last", ""))
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in around if mark]
    if marks:
        pattern = " ".join(filter(None, (around[0], "$A", around[1])))
        tokenizer.post_processor = TemplateProcessing(single=pattern, special_tokens=marks)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def word_pieces() -> Any:
    """BERT's kind of tokenizer."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]"]
    trainer = WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(list(CAPTIONS) * 3, trainer)
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def git() -> Parts:
    tokenizer = word_pieces()
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    config = transformers.GitConfig(
        vision_config=VISION, vocab_size=len(tokenizer), **TEXT, **NO_DROPOUT, **ids
    )
    photos = transformers.CLIPImageProcessor(**SQUARE)
    return transformers.GitForCausalLM(config), transformers.GitProcessor(photos, tokenizer)


def blip() -> Parts:
    tokenizer = word_pieces()
    ids = {"bos_token_id": 5, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0}
    text = {**TEXT, "vocab_size": len(tokenizer), "encoder_hidden_size": 32, **NO_DROPOUT, **ids}
    config = transformers.BlipConfig(text_config=text, vision_config=VISION, projection_dim=16)
    photos = transformers.BlipImageProcessor(size=SIZE)
    network = transformers.BlipForConditionalGeneration(config)
    return network, transformers.BlipProcessor(photos, tokenizer)


def blip2_opt() -> Parts:
    ends = {"bos_token": "</s>", "eos_token": "</s>"}
    special = ["<pad>", "</s>", "<unk>", IMAGE]
    tokenizer = byte_pairs(special, first="</s>", pad_token="<pad>", unk_token="<unk>", **ends)
    text = {
        **TEXT,
        "model_type": "opt",
        "ffn_dim": 48,
        "word_embed_proj_dim": 32,
        "vocab_size": len(tokenizer),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "dropout": 0.0,
    }
    return _blip2(tokenizer, text)


def blip2_t5() -> Parts:
    special = ["<pad>", "</s>", "<unk>", IMAGE]
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = byte_pairs(special, last="</s>", **names)
    text = {
        "model_type": "t5",
        "vocab_size": len(tokenizer),
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.0,
    }
    return _blip2(tokenizer, text)


def _blip2(tokenizer: Any, text: dict[str, Any]) -> Parts:
    config = transformers.Blip2Config(
        vision_config=VISION,
        qformer_config=QFORMER,
        text_config=text,
        num_query_tokens=4,
        image_token_index=3,
    )
    photos = transformers.BlipImageProcessor(size=SIZE)
    processor = transformers.Blip2Processor(photos, tokenizer, num_query_tokens=4)
    return transformers.Blip2ForConditionalGeneration(config), processor


LLAMA_SPECIAL = ["<pad>", "</s>", "<s>", "<unk>", IMAGE]
LLAMA_NAMES = {
    "pad_token": "<pad>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
LLAMA_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}


def instructblip() -> Parts:
    tokenizer = byte_pairs(LLAMA_SPECIAL, first="<s>", **LLAMA_NAMES)
    config = transformers.InstructBlipConfig(
        vision_config=VISION,
        qformer_config=QFORMER,
        text_config={**LLAMA, **LLAMA_IDS, "vocab_size": len(tokenizer)},
        num_query_tokens=4,
        image_token_index=4,
    )
    photos = transformers.BlipImageProcessor(size=SIZE)
    processor = transformers.InstructBlipProcessor(
        photos, tokenizer, word_pieces(), num_query_tokens=4
    )
    return transformers.InstructBlipForConditionalGeneration(config), processor


def llava() -> Parts:
    marks = {"extra_special_tokens": {"image_token": IMAGE}}
    tokenizer = byte_pairs(LLAMA_SPECIAL, first="<s>", **LLAMA_NAMES, **marks)
    config = transformers.LlavaConfig(
        vision_config={**VISION, "model_type": "clip_vision_model"},
        text_config={**LLAMA, **LLAMA_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        vision_feature_layer=-1,
    )
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(**SQUARE),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=PLAIN_CHAT,
    )
    return transformers.LlavaForConditionalGeneration(config), processor


def paligemma() -> Parts:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", IMAGE]
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "bos", "eos", "unk")}
    marks = {"extra_special_tokens": {"image_token": IMAGE}}
    tokenizer = byte_pairs(special, first="<bos>", **names, **marks)
    photos = transformers.SiglipImageProcessor(size=SIZE)
    photos.image_seq_length = 4
    processor = transformers.PaliGemmaProcessor(photos, tokenizer)
    size = len(processor.tokenizer)
    vision = {"model_type": "siglip_vision_model", "projection_dim": 32, "vision_use_head": False}
    text = {"model_type": "gemma", "vocab_size": size, "num_key_value_heads": 1, "head_dim": 16}
    config = transformers.PaliGemmaConfig(
        vision_config={**VISION, **vision},
        text_config={**TEXT, **text, **LLAMA_IDS},
        image_token_index=4,
        projection_dim=32,
        hidden_size=32,
        vocab_size=size,
    )
    return transformers.PaliGemmaForConditionalGeneration(config), processor


def _idefics(kind: str) -> Parts:
    marks = ["<fake_token_around_image>", "<global-img>"]
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    special = ["<pad>", "<|im_start|>", "<end_of_utterance>", "<unk>", IMAGE, *marks, *tiles]
    names = {
        "pad_token": "<pad>",
        "bos_token": "<|im_start|>",
        "eos_token": "<end_of_utterance>",
        "unk_token": "<unk>",
    }
    known = {
        "image_token": IMAGE,
        "fake_image_token": marks[0],
        "global_image_token": marks[1],
        "end_of_utterance_token": "<end_of_utterance>",
    }
    tokenizer = byte_pairs(special, **names, extra_special_tokens=known)
    photos = getattr(transformers, f"{kind}ImageProcessor")(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 16}, do_image_splitting=True
    )
    videos = {} if kind == "Idefics3" else {"video_processor": transformers.SmolVLMVideoProcessor()}
    processor = getattr(transformers, f"{kind}Processor")(
        photos, tokenizer, image_seq_len=1, chat_template=SMOL_CHAT, **videos
    )
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(
        vision_config=VISION,
        text_config={**LLAMA, **ids, "vocab_size": len(processor.tokenizer)},
        image_token_id=4,
        scale_factor=2,
        pad_token_id=0,
    )
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config), processor


def idefics3() -> Parts:
    return _idefics("Idefics3")


def smolvlm() -> Parts:
    pytest.importorskip("num2words", reason="SmolVLM's processor needs num2words")
    return _idefics("SmolVLM")


PATCHES = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}


def _qwen(kind: str, vision: dict[str, Any]) -> Parts:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]
    special += ["<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<unk>"]
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    marks = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    tokenizer = byte_pairs(
        special, **names, extra_special_tokens={**marks, "vision_start": "<|vision_start|>"}
    )
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
    ids = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
    text = {**TEXT, "num_key_value_heads": 1, "rope_parameters": rope, **ids}
    shared = {"depth": 2, "num_heads": 2, "hidden_size": 32, "patch_size": 4}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**text, "vocab_size": len(tokenizer)},
        vision_config={**shared, "spatial_merge_size": 2, "temporal_patch_size": 2, **vision},
        image_token_id=5,
        video_token_id=6,
        vision_start_token_id=3,
        vision_end_token_id=4,
    )
    edges = {"shortest_edge": 64, "longest_edge": 1024}
    processor = getattr(transformers, f"{kind}Processor")(
        transformers.Qwen2VLImageProcessor(size=edges, **PATCHES),
        tokenizer,
        transformers.Qwen2VLVideoProcessor(**PATCHES),
        chat_template=QWEN_CHAT,
    )
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config), processor


def qwen2_vl() -> Parts:
    return _qwen("Qwen2VL", {"embed_dim": 32, "mlp_ratio": 2})


def qwen2_5_vl() -> Parts:
    windows = {"window_size": 16, "fullatt_block_indexes": [1]}
    return _qwen("Qwen2_5_VL", {"out_hidden_size": 32, "intermediate_size": 48, **windows})


def florence2() -> Parts:
    special = ["<s>", "<pad>", "</s>", "<unk>", IMAGE]
    tokenizer = byte_pairs(
        special,
        first="<s>",
        last="</s>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens={"image_token": IMAGE},
    )
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 48))
    }
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    text = {"model_type": "bart", "vocab_size": len(tokenizer), "d_model": 32, "dropout": 0.0}
    vision = {
        "embed_dim": [16, 16],
        "depths": [1, 1],
        "num_heads": [2, 2],
        "num_groups": [2, 2],
        "patch_size": [3, 3],
        "patch_stride": [4, 2],
        "patch_padding": [1, 1],
        "patch_prenorm": [False, True],
        "window_size": 2,
        "projection_dim": 32,
        "drop_path_rate": 0.0,
    }
    config = transformers.Florence2Config(
        text_config={**text, **sides, **ids, "max_position_embeddings": 256},
        vision_config=vision,
        image_token_id=4,
        is_encoder_decoder=True,
    )
    photos = transformers.CLIPImageProcessor(size=SIZE, do_center_crop=False)
    photos.image_seq_length = 5
    processor = transformers.Florence2Processor(photos, tokenizer, num_additional_image_tokens=1)
    return transformers.Florence2ForConditionalGeneration(config), processor


FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function
    for function in (
        git, blip, blip2_opt, blip2_t5, instructblip, florence2, paligemma, idefics3, smolvlm,
        llava, qwen2_vl, qwen2_5_vl,
    )
}  # fmt: skip


# One of each kind of decoder and prompt.
FEW = ("git", "blip2_t5", "paligemma", "qwen2_vl")


def with_long(families: Iterable[str], few: Collection[str] = FEW) -> list[Any]:
    """Values of a test's parameter; those of other families than these few are long."""
    marks = pytest.mark.long
    return [pytest.param(name, marks=() if name in few else marks) for name in families]


@functools.cache
def _built(family: str) -> Parts:
    torch.manual_seed(0)
    return FAMILIES[family]()


def save_image_text(folder: Path, family: str) -> Path:
    """The folder, with network and processor as transformers saves them."""
    network, processor = _built(family)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
