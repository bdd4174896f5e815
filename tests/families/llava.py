"""Small random models of LLaVA's line, and of families built alike.

Most tile a larger photo; their rows of pixels are then more than their photos.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from tests.image_text_folders import (
    IMAGE,
    LLAMA,
    LLAMA_IDS,
    LLAMA_NAMES,
    LLAMA_SPECIAL,
    SIZE,
    SIZES,
    SQUARE,
    TEXT,
    VISION,
    Parts,
    byte_pairs,
)

CLIP = {**VISION, "model_type": "clip_vision_model"}
SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": None}
QWEN = {**TEXT, "model_type": "qwen2", "num_key_value_heads": 1}
QWEN_IDS = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
QWEN_ENDS = {**QWEN_IDS, "eos_token_id": [2, 0]}
IM_TURNS = ("<|im_start|>{{ m['role'] }}\n", "<|im_start|>assistant\n")
# 60x40 gives 8 tokens of 16 pixels, 48x48 gives 9 and 200x120 40.
EDGES = {"shortest_edge": 256, "longest_edge": 48 * 256}
# 60x40 fits two tiles of 48 pixels and 200x120 four, each with the whole photo before them.
NEXT_GRID = [[48, 96], [96, 48], [96, 96], [144, 48], [48, 144]]
NAMES = ["<unk>", "<s>", "</s>"]
POLITE = (
    "{% if messages[0]['role']!='system' %}<|im_start|>system\nYou are a helpful assistant."
    "<|im_end|>{{ '\\n' }}{% endif %}"
)


def _chat(
    user: str,
    assistant: str,
    photo: str,
    end: str = "",
    *,
    start: str = "",
    answer: str = "",
    finish: str | None = None,
    photos_first: bool = False,
) -> str:
    """``answer`` is written before an answer that is there, ``finish`` after it."""
    text = "{% if c['type']=='text' %}{{ c['text'] }}{% endif %}"
    mark = "{% if c['type']=='image' %}" + photo + "{% endif %}"
    each = "{% for c in m['content'] %}"
    parts = [mark, text] if photos_first else [mark + text]
    content = "".join(f"{each}{part}{{% endfor %}}" for part in parts)
    return (
        start + "{% for m in messages %}{% if m['role']=='assistant' %}" + assistant + answer
        + content + (end if finish is None else finish)
        + "{% else %}" + user + content + end + "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}" + assistant + "{% endif %}"
    )  # fmt: skip


def _network(kind: str, config: Any, **ids: Any) -> Any:
    network = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    network.generation_config = transformers.GenerationConfig(**ids)
    return network


def _llama_words() -> Any:
    marks = {"extra_special_tokens": {"image_token": IMAGE}}
    return byte_pairs(LLAMA_SPECIAL, first="<s>", **LLAMA_NAMES, **marks)


def _qwen_words(*marks: str, **named: str) -> Any:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", *marks]
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    return byte_pairs(special, **names, extra_special_tokens=named)


def llava_next() -> Parts:
    tokenizer = _llama_words()
    config = transformers.LlavaNextConfig(
        vision_config={**CLIP, "image_size": 48, "patch_size": 16},
        text_config={**MISTRAL, **LLAMA_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        image_grid_pinpoints=NEXT_GRID,
        image_seq_length=9,
    )
    side = {"height": 48, "width": 48}
    processor = transformers.LlavaNextProcessor(
        transformers.LlavaNextImageProcessor(
            size={"shortest_edge": 48}, crop_size=side, image_grid_pinpoints=NEXT_GRID
        ),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_chat(
            "[INST] ", "", "<image>\n", " [/INST]", answer=" ", finish="</s> ", photos_first=True
        ),
    )
    return _network("LlavaNext", config, **LLAMA_IDS), processor


def llava_onevision() -> Parts:
    tokenizer = _qwen_words(IMAGE, "<video>", image_token=IMAGE, video_token="<video>")
    grid = [[height, width] for height in (64, 128) for width in (64, 128)]
    config = transformers.LlavaOnevisionConfig(
        vision_config={**SIGLIP, "image_size": 64, "patch_size": 20},
        text_config={**QWEN, **QWEN_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        video_token_index=5,
        image_grid_pinpoints=grid,
    )
    side = {"height": 64, "width": 64}
    turn = "<|im_start|>{{ m['role'] }} "
    # The answer of a conversation follows "assistant \n", a new one "assistant\n".
    chat = _chat(turn, turn, IMAGE, "<|im_end|>", photos_first=True)
    chat = chat.replace("{{ c['text'] }}", "{{ '\\n' + c['text'] }}")
    chat = chat.replace(f"prompt %}}{turn}", f"prompt %}}{IM_TURNS[1]}")
    processor = transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessor(size=side, image_grid_pinpoints=grid),
        tokenizer,
        transformers.LlavaOnevisionVideoProcessor(size=side),
        num_image_tokens=9,
        vision_feature_select_strategy="full",
        chat_template=chat,
    )
    return _network("LlavaOnevision", config, **QWEN_ENDS), processor


def fast_vlm() -> Parts:
    tokenizer = _qwen_words(IMAGE, image_token=IMAGE)
    tower = {"inference_mode": True, "layers": [1] * 5, "embed_dims": [16, 16, 16, 32, 32]}
    config = transformers.FastVlmConfig(
        vision_config={
            "model_type": "timm_wrapper",
            "architecture": "fastvit_mci3",
            "do_pooling": True,
            "hidden_size": 64,
            "model_args": tower,
        },
        text_config={**QWEN, **QWEN_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        image_seq_length=4,
    )
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(
            size={"shortest_edge": 128},
            crop_size={"height": 128, "width": 128},
            image_mean=[0.0] * 3,
            image_std=[1.0] * 3,
        ),
        tokenizer,
        patch_size=64,
        vision_feature_select_strategy="full",
        chat_template=_chat(*IM_TURNS, "<image>\n", "<|im_end|>\n", start=POLITE),
    )
    network = _network("FastVlm", config, **QWEN_ENDS)
    for weight in network.model.vision_tower.parameters():
        if weight.dim() > 1:  # timm's own are so small that no photo is told from another
            torch.nn.init.kaiming_normal_(weight)
    return network, processor


def vipllava() -> Parts:
    tokenizer = _llama_words()
    config = transformers.VipLlavaConfig(
        vision_config=CLIP,
        text_config={**LLAMA, **LLAMA_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        vision_feature_layer=[-1, -2, 1],
        image_seq_length=4,
    )
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(**SQUARE),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_chat("###Human: ", "###Assistant:", "<image>\n", answer=" "),
    )
    return _network("VipLlava", config, **LLAMA_IDS), processor


def video_llama_3() -> Parts:
    marks = ("<image>", "<video>")
    tokenizer = _qwen_words(*marks, image_token=marks[0], video_token=marks[1])
    config = transformers.VideoLlama3Config(
        vision_config={**VISION, "patch_size": 16},
        text_config={**QWEN, **QWEN_IDS, "vocab_size": len(tokenizer)},
        image_token_id=4,
        video_token_id=5,
    )
    processor = transformers.VideoLlama3Processor(
        transformers.VideoLlama3ImageProcessor(size=EDGES, patch_size=16),
        tokenizer,
        transformers.VideoLlama3VideoProcessor(size=EDGES, patch_size=16),
        chat_template=_chat(*IM_TURNS, "<image>\n", "<|im_end|>\n"),
    )
    return _network("VideoLlama3", config, **QWEN_ENDS), processor


def paddleocr_vl() -> Parts:
    marks = ["<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>", "<|begin_of_sentence|>"]
    special = ["<pad>", "<s>", "</s>", "<unk>", *marks]
    tokenizer = byte_pairs(special, **LLAMA_NAMES, extra_special_tokens={"image_token": marks[1]})
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    heads = {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": False}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 5e5}
    text = {**TEXT, **heads, **ids, "rope_parameters": rope, "vocab_size": len(tokenizer)}
    config = transformers.PaddleOCRVLConfig(
        vision_config={**VISION, "patch_size": 8, "spatial_merge_size": 2},
        text_config=text,
        image_token_id=5,
        video_token_id=len(tokenizer) - 1,
        vision_start_token_id=4,
        vision_end_token_id=6,
        tie_word_embeddings=False,
    )
    processor = transformers.PaddleOCRVLProcessor(
        transformers.PaddleOCRVLImageProcessor(size=EDGES, patch_size=8, merge_size=2),
        tokenizer,
        chat_template=_chat(
            "User: ", "Assistant: ", "".join(marks[:3]), "{{ '\n' }}", start=marks[3], finish="</s>"
        ),
    )
    return _network("PaddleOCRVL", config, **ids), processor


def _wide(name: str) -> str:
    return f"<\uff5c{name}\uff5c>"


DEEP_SPECIAL = [
    "<pad>",
    _wide("begin▁of▁sentence"),
    _wide("end▁of▁sentence"),
    "<image_placeholder>",
]
DEEP_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DEEP_LLAMA = {**LLAMA, **DEEP_IDS}


def _deep_words(*marks: str, **named: str) -> Any:
    names = dict(zip(("pad_token", "bos_token", "eos_token"), DEEP_SPECIAL, strict=False))
    named = {"image_token": DEEP_SPECIAL[3], **named}
    special = [*DEEP_SPECIAL, *marks]
    return byte_pairs(special, first=DEEP_SPECIAL[1], **names, extra_special_tokens=named)


def _deep_chat(user: str, assistant: str, start: str = "") -> str:
    """A turn's end is written only where another follows: none after the last answer."""
    more = "{% if not loop.last or add_generation_prompt %}"
    ends = [f"{more}{{{{ '{end}' }}}}{{% endif %}}" for end in ("\\n\\n", DEEP_SPECIAL[2])]
    photo = "<image_placeholder>\n"
    return _chat(user, assistant, photo, ends[0], start=start, answer=" ", finish=ends[1])


def janus() -> Parts:
    ends = {"boi_token": "<begin_of_image>", "eoi_token": "<end_of_image>"}
    tokenizer = _deep_words(*ends.values(), "<|User|>", "<|Assistant|>", **ends)
    drawing = {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1}
    sizes = {"latent_channels": 32, "projection_dim": 32, "image_token_embed_dim": 32}
    config = transformers.JanusConfig(
        vision_config={**VISION, "projection_dim": 32, "num_image_tokens": 4},
        vq_config={**drawing, **sizes, "num_embeddings": 16},
        text_config={**DEEP_LLAMA, "vocab_size": len(tokenizer)},
        image_token_id=3,
        tie_word_embeddings=False,
    )
    processor = transformers.JanusProcessor(
        transformers.JanusImageProcessor(size=SIZE, min_size=4),
        tokenizer,
        chat_template=_deep_chat("<|User|>: ", "<|Assistant|>:"),
        num_image_tokens=4,
    )
    return _network("Janus", config, **DEEP_IDS), processor


DEEP_START = (
    "{% if messages[0]['role']!='system' %}You are a helpful language and vision assistant."
    "{{ '\\n\\n' }}{% endif %}"
)


def deepseek_vl() -> Parts:
    tokenizer = _deep_words()
    config = transformers.DeepseekVLConfig(
        vision_config={**SIGLIP, "image_size": 16, "patch_size": 8},
        text_config={**DEEP_LLAMA, "vocab_size": len(tokenizer)},
        image_token_id=3,
        tie_word_embeddings=False,
    )
    processor = transformers.DeepseekVLProcessor(
        transformers.DeepseekVLImageProcessor(size=SIZE, min_size=4),
        tokenizer,
        chat_template=_deep_chat("User: ", "Assistant:", DEEP_START),
        num_image_tokens=4,
    )
    return _network("DeepseekVL", config, **DEEP_IDS), processor


def perception_lm() -> Parts:
    marks = ["<|image|>", "<|video|>", "<|start_header_id|>", "<|end_header_id|>"]
    special = ["<|finetune_right_pad_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    names = dict(zip(("pad_token", "bos_token", "eos_token"), special, strict=False))
    named = {"image_token": marks[0], "video_token": marks[1]}
    tokenizer = byte_pairs(
        [*special, *marks], first=special[1], **names, extra_special_tokens=named
    )
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    tower = {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": [64, 64], "patch_size": 16}
    tower |= {"global_pool": "", "use_post_transformer_norm": False, "init_values": 0.1}
    config = transformers.PerceptionLMConfig(
        vision_config={
            "model_type": "timm_wrapper",
            "architecture": "vit_pe_core_large_patch14_336",
            "do_pooling": True,
            "model_args": {**tower, "ref_feat_shape": [4, 4]},
        },
        text_config={**LLAMA, **ids, "vocab_size": len(tokenizer)},
        image_token_id=4,
        video_token_id=5,
        projector_pooling_ratio=2,
    )
    turn, end = "<|start_header_id|>{}<|end_header_id|>{{{{ '\n\n' }}}}", special[3]
    processor = transformers.PerceptionLMProcessor(
        transformers.PerceptionLMVideoProcessor(size={"height": 64, "width": 64}),
        # The largest canvas that holds the photo is taken, or the whole photo for one tile where
        # none does: two tiles for 60x40, one for 48x48 and for 200x120.
        transformers.PerceptionLMImageProcessor(tile_size=64, max_num_tiles=2),
        tokenizer,
        patch_size=16,
        pooling_ratio=2,
        chat_template=_chat(
            turn.format("{{ m['role'] }}"),
            turn.format("assistant"),
            marks[0],
            end,
            start=special[1],
        ),
    )
    return _network("PerceptionLM", config, **{**ids, "eos_token_id": [2, 3]}), processor


def hunyuan_vl() -> Parts:
    holders = [_wide(f"hy_place▁holder▁no▁{number}") for number in (2, 3, 100, 101, 102)]
    marks = [_wide("hy_begin▁of▁sentence"), _wide("hy_User"), _wide("hy_Assistant"), *holders]
    tokenizer = byte_pairs(
        [_wide("hy_▁pad▁"), *marks],
        pad_token=_wide("hy_▁pad▁"),
        bos_token=marks[0],
        eos_token=holders[0],
        extra_special_tokens={
            "image_start_token": holders[2],
            "image_end_token": holders[3],
            "image_token": holders[4],
        },
    )
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 4}
    rope = {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 1e4}
    text = {**TEXT, **ids, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": False}
    vision = {**SIZES, "out_hidden_size": 32, "patch_size": 8, "spatial_merge_size": 2}
    config = transformers.HunYuanVLConfig(
        vision_config={**vision, "max_image_size": 128, "img_max_token_num": 64},
        text_config={
            **text,
            "vocab_size": len(tokenizer),
            "rope_parameters": {**rope, "mrope_section": [2, 2, 2, 2]},
        },
        image_token_id=8,
        im_start_id=6,
        im_end_id=7,
        im_newline_id=5,
        tie_word_embeddings=False,
    )
    processor = transformers.HunYuanVLProcessor(
        transformers.HunYuanVLImageProcessor(size=EDGES, patch_size=8, merge_size=2),
        tokenizer,
        # The marks stand after their text: "User" ends a question, "Assistant" an answer.
        chat_template=_chat(
            "", "", holders[2] + holders[4] + holders[3], marks[1], start=marks[0], finish=marks[2]
        ),
    )
    return _network("HunYuanVL", config, **{**ids, "eos_token_id": [3, 4]}), processor


def ernie4_5_vl_moe() -> Parts:
    start, end = "<|begin_of_sentence|>", "<|end_of_sentence|>"
    image = ["<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>"]
    video = ["<|VIDEO_START|>", "<|VIDEO_PLACEHOLDER|>", "<|VIDEO_END|>"]
    names = dict(zip(("pad_token", "bos_token", "eos_token"), NAMES, strict=True))
    kinds = ("{}_start_token", "{}_token", "{}_end_token")
    named = {
        kind.format(name): mark
        for name, marks in (("image", image), ("video", video))
        for kind, mark in zip(kinds, marks, strict=True)
    }
    special = [*NAMES, *image, *video, start, end]
    tokenizer = byte_pairs(special, **names, extra_special_tokens=named)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    rope = {"rope_type": "default", "mrope_section": [3, 3, 2], "rope_theta": 5e5}
    experts = {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": [24, 16]}
    text = {**TEXT, **ids, **experts, "num_key_value_heads": 1, "moe_num_shared_experts": 1}
    sight = {"depth": 2, "num_heads": 2, "hidden_size": 32, "intermediate_size": 48}
    config = transformers.Ernie4_5_VLMoeConfig(
        vision_config={**sight, "patch_size": 8},
        text_config={**text, "rope_parameters": rope, "vocab_size": len(tokenizer)},
        tie_word_embeddings=False,
        **{f"{name}_id": special.index(mark) for name, mark in named.items()},
    )
    chat = _chat(
        "User: ", "Assistant: ", "Picture 1:" + "".join(image), "{{ '\n' }}", start=start,
        finish=end,
    )  # fmt: skip
    off = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    chat = chat.removesuffix("{% endif %}") + off + "{% endif %}"
    processor = transformers.Ernie4_5_VLMoeProcessor(
        transformers.Ernie4_5_VLMoeImageProcessor(size=EDGES, patch_size=8, merge_size=2),
        tokenizer,
        transformers.Ernie4_5_VLMoeVideoProcessor(patch_size=8, merge_size=2, draw_on_frames=False),
        chat_template=chat,
    )
    return _network("Ernie4_5_VLMoe", config, **ids), processor


def _video_words() -> Any:
    marks = {"image_token": IMAGE, "video_token": "<video>"}
    special = [*LLAMA_SPECIAL, "<video>"]
    return byte_pairs(special, first="<s>", **LLAMA_NAMES, extra_special_tokens=marks)


# No end is written after an answer, only the space that is after every text.
VICUNA_CHAT = _chat("USER: ", "ASSISTANT:", "<image>\n", " ", answer=" ", photos_first=True)


def llava_next_video() -> Parts:
    tokenizer = _video_words()
    config = transformers.LlavaNextVideoConfig(
        vision_config={**CLIP, "image_size": 48, "patch_size": 16},
        text_config={**LLAMA, **LLAMA_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        video_token_index=5,
        image_grid_pinpoints=NEXT_GRID,
        image_seq_length=9,
    )
    side = {"size": {"shortest_edge": 48}, "crop_size": {"height": 48, "width": 48}}
    processor = transformers.LlavaNextVideoProcessor(
        transformers.LlavaNextVideoVideoProcessor(**side),
        transformers.LlavaNextImageProcessor(**side, image_grid_pinpoints=NEXT_GRID),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=VICUNA_CHAT,
    )
    return _network("LlavaNextVideo", config, **LLAMA_IDS), processor


def deepseek_vl_hybrid() -> Parts:
    tokenizer = _deep_words()
    sam = {**SIZES, "model_type": "sam_vision_model", "image_size": 64, "patch_size": 16}
    sam |= {"output_channels": 16, "mlp_dim": 48, "window_size": 2, "num_pos_feats": 16}
    config = transformers.DeepseekVLHybridConfig(
        vision_config={**SIGLIP, "image_size": 16, "patch_size": 8},
        high_res_vision_config={**sam, "global_attn_indexes": [1]},
        text_config={**DEEP_LLAMA, "vocab_size": len(tokenizer)},
        image_token_id=3,
        tie_word_embeddings=False,
    )
    high = {"height": 64, "width": 64}
    processor = transformers.DeepseekVLHybridProcessor(
        transformers.DeepseekVLHybridImageProcessor(size=SIZE, min_size=4, high_res_size=high),
        tokenizer,
        chat_template=_deep_chat("User: ", "Assistant:", DEEP_START),
        num_image_tokens=4,
    )
    return _network("DeepseekVLHybrid", config, **DEEP_IDS), processor


def video_llava() -> Parts:
    tokenizer = _video_words()
    config = transformers.VideoLlavaConfig(
        vision_config=CLIP,
        text_config={**LLAMA, **LLAMA_IDS, "vocab_size": len(tokenizer)},
        image_token_index=4,
        video_token_index=5,
        image_seq_length=4,
    )
    processor = transformers.VideoLlavaProcessor(
        transformers.VideoLlavaImageProcessor(**SQUARE),
        transformers.VideoLlavaVideoProcessor(**SQUARE),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=VICUNA_CHAT,
    )
    return _network("VideoLlava", config, **LLAMA_IDS), processor


FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function
    for function in (
        llava_next, llava_onevision, fast_vlm, vipllava, video_llama_3, perception_lm,
        paddleocr_vl, janus, deepseek_vl, hunyuan_vl, ernie4_5_vl_moe, llava_next_video,
        deepseek_vl_hybrid, video_llava,
    )
}  # fmt: skip
