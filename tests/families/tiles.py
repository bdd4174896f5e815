"""Small random models of families that cut a larger photo into tiles, and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from tests.image_text_folders import IMAGE, QFORMER, SIZES, TEXT, VISION, Parts, byte_pairs

WIDE = {"initializer_range": 0.2}
HEADS = {"num_key_value_heads": 1, "head_dim": 16}
EXPERTS = {"num_experts_per_tok": 1, "num_local_experts": 4}
IM_TURNS = ("<|im_start|>", "\n", "<|im_end|>\n")
GRANITE_TURNS = ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n")


def _chat(
    turns: tuple[str, str, str],
    photo: str,
    *,
    start: str = "",
    answer: str = "",
    opened: str = "",
) -> str:
    """Turns: ``turns`` stand before and after a role and after a text.

    ``answer`` is written before an answer that is there, ``opened`` before a new one.
    """
    before, after, end = turns
    return (
        start + "{% for m in messages %}" + before + "{{ m['role'] }}" + after
        + "{% if m['role']=='assistant' %}" + answer + "{% endif %}"
        "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
        "{% if c['type']=='image' %}" + photo + "{% else %}{{ c['text'] }}{% endif %}"
        "{% endfor %}{% endif %}" + end + "{% endfor %}"
        "{% if add_generation_prompt %}" + before + "assistant" + after + opened + "{% endif %}"
    )  # fmt: skip


def _ended(network: Any, tokenizer: Any, *ends: str) -> Any:
    """The network, which stops at ``ends``."""
    ids = tokenizer.convert_tokens_to_ids(list(ends))
    network.generation_config = transformers.GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ids[0] if len(ids) == 1 else ids,
        pad_token_id=tokenizer.pad_token_id,
    )
    return network


def _ids(tokenizer: Any) -> dict[str, int]:
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {name: getattr(tokenizer, name) for name in names}


QWEN_WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_NAMES = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


def internvl() -> Parts:
    known = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    words = [*QWEN_WORDS, *known.values()]
    tokenizer = byte_pairs(words, **QWEN_NAMES, extra_special_tokens=known)
    config = transformers.InternVLConfig(
        vision_config={**VISION, "image_size": 56, "patch_size": 14},
        text_config={
            **TEXT,
            **_ids(tokenizer),
            "model_type": "qwen2",
            "num_key_value_heads": 1,
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": True,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    # The rule looks at the shape of a photo alone: with up to twelve tiles 60x40 has six.
    photos = transformers.GotOcr2ImageProcessor(
        size={"height": 56, "width": 56}, crop_to_patches=True, max_patches=4
    )
    processor = transformers.InternVLProcessor(
        photos,
        tokenizer,
        transformers.InternVLVideoProcessor(size={"height": 56, "width": 56}),
        image_seq_length=4,
        chat_template=_chat(IM_TURNS, "<IMG_CONTEXT>\n"),
    )
    network = transformers.InternVLForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|im_end|>"), processor


def lfm2_vl() -> Parts:
    known = {
        "image_token": IMAGE,
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail": "<|img_thumbnail|>",
    }
    tiles = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5)]
    words = ["<|pad|>", "<|startoftext|>", "<|im_start|>", "<|im_end|>", *known.values(), *tiles]
    names = {"pad_token": "<|pad|>", "bos_token": "<|startoftext|>", "eos_token": "<|im_end|>"}
    tokenizer = byte_pairs(words, first="<|startoftext|>", **names, extra_special_tokens=known)
    config = transformers.Lfm2VlConfig(
        vision_config={**VISION, "num_patches": 16, "vision_use_head": False},
        text_config={
            **TEXT,
            **_ids(tokenizer),
            "model_type": "lfm2",
            "num_key_value_heads": 1,
            "layer_types": ["conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
            "vocab_size": len(tokenizer),
        },
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        projector_hidden_size=32,
    )
    photos = transformers.Lfm2VlImageProcessor(
        encoder_patch_size=8, tile_size=64, min_image_tokens=4, max_image_tokens=16, max_tiles=4
    )
    processor = transformers.Lfm2VlProcessor(
        photos, tokenizer, chat_template=_chat(IM_TURNS, IMAGE, start="{{ bos_token }}")
    )
    network = transformers.Lfm2VlForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|im_end|>"), processor


# The photo stands before all turns, and nothing is written after an answer: its end, which is
# also what a text starts with, comes with the next question alone.
MOLMO_CHAT = (
    "{% for m in messages if m['content'] is not string %}{% for c in m['content'] %}"
    "{% if c['type']=='image' %}<|image|>{% endif %}{% endfor %}{% endfor %}"
    "{% for m in messages %}{% if m['role']=='user' and not loop.first %}<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] if c['type']=='text' %}{{ c['text'] }}{% endfor %}{% endif %}"
    "{% if m['role']=='user' %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def molmo2() -> Parts:
    tokenizer = byte_pairs(QWEN_WORDS, **QWEN_NAMES, bos_token="<|im_end|>")
    words = len(tokenizer)
    # Behind the words: the marks of a photo have embeddings, and no logits.
    marks = ["<im_start>", "<im_end>", "<im_patch>", "<im_col>", "<low_res_im_start>"]
    marks += ["<|image|>", "<im_low>", "<frame_start>", "<frame_end>", "<|video|>"]
    tokenizer.add_tokens(marks, special_tokens=True)
    mark = dict(zip(marks, tokenizer.convert_tokens_to_ids(marks), strict=True))
    heads = {"num_key_value_heads": 2, "head_dim": 16}
    config = transformers.Molmo2Config(
        # Wider weights: a photo is added to the embeddings, and would not be seen at all.
        vision_config={**SIZES, **heads, **WIDE, "image_size": [64, 64], "patch_size": 16},
        adapter_config={
            **heads,
            **WIDE,
            "vision_feature_layer": [1, 0],
            "hidden_size": 32,
            "num_attention_heads": 2,
            "intermediate_size": 48,
            "text_hidden_size": 32,
        },
        text_config={
            **TEXT,
            **HEADS,
            **_ids(tokenizer),
            "vocab_size": words,
            "additional_vocab_size": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
        },
        image_start_token_id=mark["<im_start>"],
        image_end_token_id=mark["<im_end>"],
        image_patch_id=mark["<im_patch>"],
        low_res_image_start_token_id=mark["<low_res_im_start>"],
        frame_start_token_id=mark["<frame_start>"],
        frame_end_token_id=mark["<frame_end>"],
    )
    photos = transformers.Molmo2ImageProcessor(
        size={"height": 64, "width": 64}, patch_size=16, overlap_margins=[1, 1], max_crops=6
    )
    videos = transformers.Molmo2VideoProcessor(size={"height": 64, "width": 64}, patch_size=16)
    processor = transformers.Molmo2Processor(photos, videos, tokenizer, chat_template=MOLMO_CHAT)
    network = transformers.Molmo2ForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|im_end|>"), processor


GRANITE_WORDS = ["<|pad|>", "<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|unk|>"]
GRANITE_NAMES = {
    "pad_token": "<|pad|>",
    "bos_token": "<|end_of_text|>",
    "eos_token": "<|end_of_text|>",
    "unk_token": "<|unk|>",
}
GRANITE_SCALES = {
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.0625,
    "logits_scaling": 4.0,
    # Without it a photo would hardly be seen beside the multiplied embeddings.
    "initializer_range": 0.1,
}


def granite4_vision() -> Parts:
    known = {"image_token": IMAGE}
    tokenizer = byte_pairs([*GRANITE_WORDS, IMAGE], **GRANITE_NAMES, extra_special_tokens=known)
    grids = [[64, 64], [64, 128], [128, 64], [128, 128], [128, 192]]
    form = {"patch_size": 16, "vision_feature_select_strategy": "full", "downsample_rate": "2/4"}
    shared = {"image_grid_pinpoints": grids, "downsample_rate": form["downsample_rate"]}
    config = transformers.Granite4VisionConfig(
        # The projectors have a head for each 64 dimensions of sight.
        vision_config={
            **VISION,
            **WIDE,
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "image_size": 64,
            "patch_size": 16,
            "vision_use_head": False,
        },
        text_config={
            **TEXT,
            **GRANITE_SCALES,
            **_ids(tokenizer),
            "num_hidden_layers": 6,
            "num_key_value_heads": 1,
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": True,
        },
        qformer_config={
            **QFORMER,
            **WIDE,
            "model_type": "blip_2_qformer",
            "num_hidden_layers": 1,
            "use_qformer_text_input": False,
        },
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=4,
        vision_feature_select_strategy="full",
        deepstack_layer_map=[[-2, 1], [-1, 0]],
        spatial_target_layers=[2, 3, 4, 5],
        projector_dropout=0.0,
        tie_word_embeddings=True,
        **shared,
    )
    photos = transformers.LlavaNextImageProcessor(
        size={"height": 64, "width": 64},
        crop_size={"height": 64, "width": 64},
        image_grid_pinpoints=grids,
    )
    processor = transformers.Granite4VisionProcessor(
        photos, tokenizer, chat_template=_chat(GRANITE_TURNS, IMAGE + "\n"), **form
    )
    network = transformers.Granite4VisionForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|end_of_text|>"), processor


# Empty thoughts stand before each answer; with thoughts an answer begins inside of them.
NO_THOUGHT = "<think>\n\n</think>\n\n"
THINKING = (
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% else %}"
    + NO_THOUGHT + "{% endif %}"
)  # fmt: skip
LINEAR = {
    "num_key_value_heads": 1,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 32,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
        "partial_rotary_factor": 0.25,
    },
}


def _minicpm(kind: str, sight: str, mode: str = "16x", **more: Any) -> Parts:
    known = {
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "image_start_token": IMAGE,
        "image_end_token": "</image>",
        "slice_start_token": "<slice>",
        "slice_end_token": "</slice>",
        "image_id_start_token": "<image_id>",
        "image_id_end_token": "</image_id>",
    }
    words = [*QWEN_WORDS, *known.values()]
    tokenizer = byte_pairs(words, **QWEN_NAMES, extra_special_tokens=known)
    tokenizer.add_tokens(["<think>", "</think>", "\n\n"])
    marks = {
        f"{mark}_id": tokenizer.convert_tokens_to_ids(known[f"{mark}_token"])
        for mark in ("image_start", "image_end", "slice_start", "slice_end")
    }
    marks["newline_id"] = tokenizer.convert_tokens_to_ids("Ċ")
    config = getattr(transformers, f"{kind}Config")(
        vision_config={**VISION, "image_size": 64, "num_hidden_layers": 3},
        text_config={
            **TEXT,
            **LINEAR,
            **_ids(tokenizer),
            "model_type": "qwen3_5_text",
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": True,
        },
        insert_layer_id=1,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        downsample_mode=mode,
        tie_word_embeddings=True,
        **(marks if kind == "MiniCPMV4_7" else {}),
    )
    shared = {"scale_resolution": 64, "patch_size": 8, "downsample_mode": mode, **more}
    processor = getattr(transformers, f"{kind}Processor")(
        getattr(transformers, f"{sight}ImageProcessor")(**shared),
        getattr(transformers, f"{sight}VideoProcessor")(**shared),
        tokenizer,
        chat_template=_chat(IM_TURNS, "<|image_pad|>\n", answer=NO_THOUGHT, opened=THINKING),
    )
    network = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    return _ended(network, tokenizer, "<|im_end|>"), processor


def minicpmv4_6() -> Parts:
    return _minicpm("MiniCPMV4_6", "MiniCPMV4_6")


def minicpmv4_7() -> Parts:
    return _minicpm("MiniCPMV4_7", "MiniCPMV4_6")


LLAMA4_WORDS = ["<|finetune_right_pad|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eom|>"]
LLAMA4_WORDS += ["<|eot|>", "<|header_start|>", "<|header_end|>", "<|image_start|>"]
LLAMA4_WORDS += ["<|image_end|>", "<|image|>", "<|patch|>", "<|tile_x_separator|>"]


def llama4() -> Parts:
    words = [*LLAMA4_WORDS, "<|tile_y_separator|>"]
    tokenizer = byte_pairs(
        words,
        first="<|begin_of_text|>",
        pad_token="<|finetune_right_pad|>",
        bos_token="<|begin_of_text|>",
        eos_token="<|eot|>",
    )
    rope = {"rope_type": "default", "rope_theta": 5e5}
    config = transformers.Llama4Config(
        vision_config={
            **VISION,
            "image_size": 64,
            "patch_size": 16,
            "intermediate_size": 128,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "vision_output_dim": 32,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        text_config={
            **TEXT,
            **HEADS,
            **EXPERTS,
            **_ids(tokenizer),
            "intermediate_size_mlp": 48,
            "no_rope_layers": [1, 0],
            "attention_chunk_size": 24,
            "rope_parameters": rope,
            "vocab_size": len(tokenizer),
        },
        boi_token_index=tokenizer.convert_tokens_to_ids("<|image_start|>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<|image_end|>"),
        image_token_index=tokenizer.convert_tokens_to_ids("<|patch|>"),
    )
    turns = ("<|header_start|>", "<|header_end|>\n\n", "<|eot|>")
    processor = transformers.Llama4Processor(
        transformers.Llama4ImageProcessor(size={"height": 64, "width": 64}, max_patches=4),
        tokenizer,
        patch_size=16,
        chat_template=_chat(turns, "<|image|>", start="{{ bos_token }}"),
    )
    network = transformers.Llama4ForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|end_of_text|>", "<|eom|>", "<|eot|>"), processor


def mllama() -> Parts:
    words = ["<|finetune_right_pad_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>"]
    words += ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"]
    tokenizer = byte_pairs(
        words,
        first="<|begin_of_text|>",
        pad_token=words[0],
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
    )
    size = len(tokenizer)
    # Behind the words, where it has an embedding and no logit.
    tokenizer.add_tokens(["<|image|>"], special_tokens=True)
    config = transformers.MllamaConfig(
        vision_config={
            **SIZES,
            "attention_heads": 2,
            "num_global_layers": 1,
            "intermediate_layers_indices": [0],
            "vision_output_dim": 64,
            "image_size": 64,
            "patch_size": 16,
        },
        text_config={
            **TEXT,
            **_ids(tokenizer),
            "num_key_value_heads": 1,
            "cross_attention_layers": [1],
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
            "vocab_size": size,
        },
        image_token_index=size,
    )
    turns = ("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>")
    processor = transformers.MllamaProcessor(
        transformers.MllamaImageProcessor(size={"height": 64, "width": 64}, max_image_tiles=4),
        tokenizer,
        chat_template=_chat(turns, "<|image|>", start="{{ bos_token }}"),
    )
    network = transformers.MllamaForConditionalGeneration(config)
    with torch.no_grad():
        # New gates are closed: no photo would be seen.
        for name, gate in network.named_parameters():
            if name.endswith("gate"):
                gate.fill_(0.5)
    return _ended(network, tokenizer, "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"), processor


def ovis2() -> Parts:
    marks = ["<IMG_ATOM>", "<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"]
    tokenizer = byte_pairs([*QWEN_WORDS, IMAGE, *marks], **QWEN_NAMES)
    atom, *others = tokenizer.convert_tokens_to_ids(marks)
    config = transformers.Ovis2Config(
        vision_config={
            **VISION,
            "image_size": 64,
            "patch_size": 16,
            "hidden_stride": 2,
            "vocab_size": 40,
        },
        text_config={
            **TEXT,
            **_ids(tokenizer),
            "model_type": "qwen2",
            "num_key_value_heads": 1,
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": True,
        },
        image_token_id=atom,
        visual_indicator_token_ids=others,
        vocab_size=len(tokenizer),
        hidden_size=32,
    )
    photos = transformers.Ovis2ImageProcessor(
        size={"height": 64, "width": 64}, crop_to_patches=True, max_patches=4
    )
    start = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    processor = transformers.Ovis2Processor(
        photos,
        tokenizer,
        image_seq_length=4,
        chat_template=_chat(IM_TURNS, IMAGE + "\n", start=start),
    )
    network = transformers.Ovis2ForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|im_end|>"), processor


def minicpm_ocr() -> Parts:
    # Its way of "adaptive" needs OpenCV; "always" is the default.
    return _minicpm("MiniCPMOcr", "MiniCPMOcr", "4x", max_slice_nums=4)


def lfm3_vl() -> Parts:
    marks = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    names = ("vision_start_token", "vision_end_token", "image_token", "video_token")
    words = ["<|pad|>", "<|startoftext|>", "<|im_start|>", "<|im_end|>", *marks]
    tokenizer = byte_pairs(
        words,
        first="<|startoftext|>",
        pad_token="<|pad|>",
        bos_token="<|startoftext|>",
        eos_token="<|im_end|>",
        extra_special_tokens=dict(zip(names, marks, strict=True)),
    )
    patches = {"patch_size": 8, "temporal_patch_size": 2}
    config = transformers.Lfm3VlConfig(
        vision_config={
            **SIZES,
            **patches,
            "num_key_value_heads": 1,
            "spatial_merge_size": 2,
            "layer_types": ["conv", "full_attention"],
        },
        text_config={
            **TEXT,
            **HEADS,
            **_ids(tokenizer),
            "model_type": "lfm3",
            "num_hidden_layers": 3,
            "layer_types": ["conv", "sliding_attention", "full_attention"],
            "sliding_window": 16,
            "vocab_size": len(tokenizer),
        },
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        vision_start_token_id=tokenizer.vision_start_token_id,
        vision_end_token_id=tokenizer.vision_end_token_id,
        projector_hidden_size=32,
    )
    edges = {"shortest_edge": 256, "longest_edge": 48 * 256}
    processor = transformers.Lfm3VlProcessor(
        transformers.Qwen2VLImageProcessor(size=edges, merge_size=2, **patches),
        tokenizer,
        transformers.Qwen3VLVideoProcessor(merge_size=2, **patches),
        chat_template=_chat(
            IM_TURNS, "<|vision_start|><|image_pad|><|vision_end|>", start="{{ bos_token }}"
        ),
    )
    network = transformers.Lfm3VlForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|im_end|>"), processor


def granite_docling() -> Parts:
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    marks = [IMAGE, "<fake_token_around_image>", "<global-img>", *tiles]
    tokenizer = byte_pairs(
        [*GRANITE_WORDS, *marks], **GRANITE_NAMES, extra_special_tokens={"image_token": IMAGE}
    )
    config = transformers.GraniteDoclingConfig(
        vision_config={
            **VISION,
            **WIDE,
            "image_size": 64,
            "patch_size": 16,
            "num_hidden_layers": 3,
            "out_hidden_size": 32,
            "scale_factor": 2,
            "deepstack_visual_indexes": [0, 1],
        },
        text_config={
            **TEXT,
            **GRANITE_SCALES,
            **_ids(tokenizer),
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "vocab_size": len(tokenizer),
        },
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        pad_token_id=tokenizer.pad_token_id,
    )
    photos = transformers.GraniteDoclingImageProcessor(
        size={"height": 64, "width": 64}, max_patches=4
    )
    processor = transformers.GraniteDoclingProcessor(
        photos, tokenizer, image_seq_len=4, chat_template=_chat(GRANITE_TURNS, IMAGE)
    )
    network = transformers.GraniteDoclingForConditionalGeneration(config)
    return _ended(network, tokenizer, "<|end_of_text|>"), processor


def nemotron_h_omni() -> Parts:
    words = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", IMAGE, "<video>"]
    words += ["<img>", "</img>", "<so_embedding>", "<so_start>", "<so_end>"]
    tokenizer = byte_pairs(
        words, pad_token="<pad>", bos_token="<s>", eos_token="<|im_end|>", unk_token="<unk>"
    )
    tokenizer.add_tokens(["<think>", "</think>"])
    sight = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "mlp_ratio": 1.5,
        "patch_size": 16,
        "image_size": 64,
        "max_img_size": 256,
        "num_cls_tokens": 2,
        "num_registers": 2,
        "video_temporal_patch_size": 2,
    }
    text = {
        **_ids(tokenizer),
        **HEADS,
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "layers_block_type": ["linear_attention", "full_attention", "moe"],
        "num_attention_heads": 2,
        "max_position_embeddings": 256,
        "ssm_state_size": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "chunk_size": 16,
        "n_routed_experts": 4,
        "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 24,
    }
    config = transformers.NemotronH_Omni_Reasoning_V3_Config(
        vision_config=sight,
        text_config={"model_type": "nemotron_h", **text},
        vision_hidden_size=32,
        projector_hidden_size=48,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
        audio_token_id=tokenizer.convert_tokens_to_ids("<so_embedding>"),
    )
    processor = transformers.NemotronH_Omni_Reasoning_V3Processor(
        transformers.NemotronH_Omni_Reasoning_V3ImageProcessor(
            min_num_patches=16, max_num_patches=192, max_model_len=64
        ),
        transformers.NemotronH_Omni_Reasoning_V3VideoProcessor(video_target_num_patches=16),
        tokenizer,
        transformers.ParakeetFeatureExtractor(),
        chat_template=_chat(
            IM_TURNS,
            IMAGE + "\n",
            start="<|im_start|>system\n<|im_end|>\n",
            answer="<think></think>",
            opened="{% if enable_thinking is defined and not enable_thinking %}<think></think>"
            "{% else %}<think>\n{% endif %}",
        ),
    )
    network = transformers.NemotronH_Omni_Reasoning_V3(config)
    return _ended(network, tokenizer, "</s>", "<|im_end|>"), processor


FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function
    for function in (
        internvl, lfm2_vl, molmo2, granite4_vision, minicpmv4_6, llama4, mllama, ovis2,
        minicpmv4_7, minicpm_ocr, lfm3_vl, granite_docling, nemotron_h_omni,
    )
}  # fmt: skip
