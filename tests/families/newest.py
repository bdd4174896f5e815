"""Small random models of the newest families, many of which read documents.

Their templates have the marks of the published ones; the sizes are those of a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers

from tests.image_text_folders import PATCHES, TEXT, Parts, byte_pairs

CHATML = ("<|im_start|>{role}\n", "<|im_end|>\n")
CHATML_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_NAMES = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
QWEN_IDS = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
QWEN = {**TEXT, "num_key_value_heads": 1, "max_position_embeddings": 1024, **QWEN_IDS}


def _chat(
    turn: tuple[str, str],
    photo: str,
    *,
    start: str = "",
    answer: str = "",
    opening: str = "",
    user: str = "user",
    assistant: str = "assistant",
) -> str:
    """A template; ``answer`` stands before an answer, ``opening`` at the prompt's end."""
    head, end = turn
    ask, reply = head.replace("{role}", user), head.replace("{role}", assistant)
    return (
        f"{start}{{% for m in messages %}}{{% if m['role']=='assistant' %}}{reply}{answer}"
        f"{{% else %}}{ask}{{% endif %}}{{% if m['content'] is string %}}{{{{ m['content'] }}}}"
        "{% else %}{% for c in m['content'] %}{% if c['type']=='image' %}"
        f"{photo}{{% else %}}{{{{ c['text'] }}}}{{% endif %}}{{% endfor %}}{{% endif %}}{end}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{reply}{opening}{{% endif %}}"
    )


def _network(kind: str, config: Any, **ids: Any) -> Any:
    network = getattr(transformers, kind)(config)
    network.generation_config = transformers.GenerationConfig(**ids)
    return network


SAM = {
    "hidden_size": 16,
    "output_channels": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "mlp_dim": 24,
    "initializer_range": 0.02,
}
GOT_SPECIAL = [*CHATML_SPECIAL, "<img>", "</img>", "<imgpad>"]
GOT_NAMES = {"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
GOT_IDS = {"eos_token_id": 0, "pad_token_id": 0, "bos_token_id": 0}
GOT_SYSTEM = (
    "<|im_start|>system\nYou should follow the instructions carefully and explain your answers "
    "in detail.<|im_end|>"
)


def _got(vision: dict[str, Any], config: str, tokenizer: Any) -> Any:
    text = {**QWEN, "model_type": "qwen2", "vocab_size": len(tokenizer), "num_key_value_heads": 2}
    made = getattr(transformers, config)(
        vision_config={**SAM, **vision}, text_config={**text, **GOT_IDS}, image_token_index=5
    )
    return _network("GotOcr2ForConditionalGeneration", made, **GOT_IDS)


def got_ocr2() -> Parts:
    tokenizer = byte_pairs(GOT_SPECIAL, **GOT_NAMES)
    # Its processor writes 256 tokens a photo and keeps no other number: the patches are small.
    vision = {"image_size": 64, "patch_size": 1, "window_size": 8, "global_attn_indexes": []}
    network = _got(vision, "GotOcr2Config", tokenizer)
    photos = transformers.GotOcr2ImageProcessor(size={"height": 64, "width": 64})
    return network, transformers.GotOcr2Processor(photos, tokenizer)


def pp_chart2table() -> Parts:
    tokenizer = byte_pairs(GOT_SPECIAL, **GOT_NAMES)
    vision = {"image_size": 64, "patch_size": 4, "window_size": 8, "global_attn_indexes": [1]}
    network = _got(vision, "PPChart2TableConfig", tokenizer)
    # The template writes all tokens of the photo, and one question whatever is asked.
    photo = f"<img>{'<imgpad>' * 16}</img>\nChart to table"
    template = _chat(("<|im_start|>{role}\n", "<|im_end|>"), photo, start=GOT_SYSTEM)
    question = "{% else %}{% if m['role']=='assistant' %}{{ c['text'] }}{% endif %}{% endif %}"
    template = template.replace("{% else %}{{ c['text'] }}{% endif %}", question)
    photos = transformers.PPChart2TableImageProcessor(size={"height": 64, "width": 64})
    return network, transformers.PPChart2TableProcessor(photos, tokenizer, chat_template=template)


def qianfan_ocr() -> Parts:
    special = [*CHATML_SPECIAL, "<img>", "</img>", "<IMG_CONTEXT>"]
    marks = dict(zip(("start", "end", "context"), special[3:], strict=True))
    named = {f"{name}_image_token": mark for name, mark in marks.items()}
    tokenizer = byte_pairs(special, **QWEN_NAMES, extra_special_tokens=named)
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "image_size": 64, "patch_size": 16, "drop_path_rate": 0.0}
    config = transformers.QianfanOCRConfig(
        vision_config=vision,
        text_config={**QWEN, "model_type": "qwen3", "head_dim": 16, "vocab_size": len(tokenizer)},
        image_token_id=5,
        image_seq_length=4,
    )
    # Tiles are chosen by the sides' ratio alone: of two at most, 60x40 takes one.
    size = {"height": 64, "width": 64}
    photos = transformers.GotOcr2ImageProcessor(size=size, crop_to_patches=True, max_patches=2)
    processor = transformers.QianfanOCRProcessor(
        photos, tokenizer, image_seq_length=4, chat_template=_chat(CHATML, "<image>\n")
    )
    ids = {"eos_token_id": 2, "pad_token_id": 0}
    return _network("QianfanOCRForConditionalGeneration", config, **ids), processor


def _grid_words(special: list[str], names: dict[str, str], image: str, **more: str) -> Any:
    return byte_pairs(special, **names, extra_special_tokens={"image_token": image, **more})


MLA = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
MOE = {"moe_intermediate_size": 24, "n_routed_experts": 4, "num_experts_per_tok": 2}


def kimi_k25() -> Parts:
    roles = ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"]
    media = ["<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|media_pad|>"]
    special = ["[PAD]", "[BOS]", "[EOS]", *roles, *media, "<|kimi_k25_video_placeholder|>"]
    special += ["<think>", "</think>"]
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "bos", "eos")}
    tokenizer = byte_pairs(special, **names)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 7}
    text = {**TEXT, **MLA, **MOE, **ids, "model_type": "deepseek_v3", "n_shared_experts": 1}
    text |= {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_key_value_heads": 2}
    vision = {"patch_size": 4, "pos_emb_height": 8, "pos_emb_width": 8, "num_attention_heads": 2}
    vision |= {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48}
    config = transformers.Kimi_K25Config(
        text_config={**text, "vocab_size": len(tokenizer)},
        vision_config=vision,
        projection_hidden_size=32,
        image_token_id=11,
        video_token_id=12,
        vision_start_token_id=8,
        vision_end_token_id=10,
        tie_word_embeddings=False,
    )
    photo = "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\n"
    turn = ("<|im_{role}|>{role}<|im_middle|>", "<|im_end|>")
    template = _chat(turn, photo, answer="<think></think>", opening="<think>")
    # 60x40 has 2x2 tokens, 200x120 3x2: sides are padded to whole tokens.
    sizes = {"size": {"max_height": 5, "max_width": 5}, "patch_size": 4, "max_patches": 16}
    processor = transformers.Kimi_K25Processor(
        transformers.Kimi_K25ImageProcessor(**sizes),
        tokenizer,
        transformers.Kimi_K25VideoProcessor(patch_size=4),
        chat_template=template,
    )
    return _network("Kimi_K25ForConditionalGeneration", config, **ids), processor


OCR_SPECIAL = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<image>"]
OCR_NAMES = dict(zip(("bos_token", "eos_token", "pad_token"), OCR_SPECIAL, strict=False))
OCR_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
OCR_TEXT = {**TEXT, **MOE, **OCR_IDS, "num_key_value_heads": 2, "n_shared_experts": 1}


def deepseek_ocr2() -> Parts:
    tokenizer = byte_pairs(OCR_SPECIAL, first=OCR_SPECIAL[0], **OCR_NAMES)
    sam = {**SAM, "image_size": 24, "patch_size": 2, "window_size": 8, "global_attn_indexes": [1]}
    encoder = {**TEXT, "num_key_value_heads": 1, "vocab_size": 1}
    vision = {"sam_config": {**sam, "downsample_channels": [8, 32]}, "encoder_config": encoder}
    text = {**OCR_TEXT, "mlp_layer_types": ["dense", "sparse"], "vocab_size": len(tokenizer)}
    config = transformers.DeepseekOcr2Config(
        vision_config=vision,
        text_config={**text, "max_position_embeddings": 1024},
        image_token_id=3,
    )
    # A view has 144 tokens whatever its size: so many queries are in the vision model.
    photos = transformers.DeepseekOcr2ImageProcessor(
        size={"height": 24, "width": 24}, tile_size=24
    )
    processor = transformers.DeepseekOcr2Processor(photos, tokenizer, patch_size=1, downsample_ratio=2)
    return _network("DeepseekOcr2ForConditionalGeneration", config, **OCR_IDS), processor


def minimax_m3_vl() -> Parts:
    turns = ["]~b]", "[e~[", "]~!b[", "<mm:think>", "</mm:think>"]
    image = ["]<]image[>[", "]<]video[>[", "]<]start of image[>[", "]<]end of image[>["]
    special = [*turns, *image]
    tokenizer = byte_pairs(special, bos_token="]~!b[", eos_token="[e~[", pad_token="[e~[")
    ids = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 1}
    text = {**TEXT, **ids, "num_key_value_heads": 1, "head_dim": 16, "rotary_dim": 8}
    text |= {"num_experts_per_tok": 2, "num_local_experts": 4, "shared_intermediate_size": 24}
    text |= {"dense_intermediate_size": 48, "mlp_layer_types": ["dense", "sparse"]}
    text |= {"layer_types": ["full_attention", "minimax_m3_sparse"], "index_n_heads": 1}
    text |= {"index_head_dim": 16, "index_block_size": 8, "index_topk_blocks": 2}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "image_size": 64, "patch_size": 4}
    config = transformers.MiniMaxM3VLConfig(
        text_config={**text, "vocab_size": len(tokenizer)},
        vision_config=vision,
        image_token_index=5,
        video_token_index=6,
        projector_hidden_size=32,
    )
    template = _chat(
        ("]~b]{role}\n", "[e~[\n"),
        image[0],
        start="]~!b[",
        answer="</mm:think>",
        opening="<mm:think>",
        assistant="ai",
    )
    edges = {"shortest_edge": 64, "longest_edge": 1024}
    processor = transformers.MiniMaxM3VLProcessor(
        transformers.MiniMaxM3VLImageProcessor(size=edges, patch_size=4),
        tokenizer,
        transformers.MiniMaxM3VLVideoProcessor(patch_size=4),
        chat_template=template,
    )
    return _network("MiniMaxM3SparseForConditionalGeneration", config, **ids), processor


def step3p7() -> Parts:
    special = ["<｜▁pad▁｜>", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<im_patch>"]
    special += ["<im_start>", "<im_end>", "<patch_start>", "<patch_end>", "<patch_newline>"]
    special += ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    names = {"pad_token": special[0], "eos_token": "<|im_end|>", "bos_token": special[2]}
    tokenizer = byte_pairs(special, **names)
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": [1, 10]}
    text = {**TEXT, **MOE, **ids, "num_key_value_heads": 1, "head_dim": 16, "share_expert_dim": 24}
    text |= {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 16}
    text |= {"mlp_layer_types": ["dense", "sparse"], "vocab_size": len(tokenizer)}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 1.5}
    vision |= {"image_size": 96, "patch_size": 8, "max_position_embeddings": 144}
    config = transformers.Step3p7Config(
        text_config=text, vision_config=vision, image_token_id=3
    )
    # 60x40 fits the view of the whole; 200x120 has 3x2 windows beside it.
    photos = transformers.Step3p7ImageProcessor(
        size={"height": 96, "width": 96}, patch_size=64, vision_patch_size=8
    )
    template = _chat(CHATML, "<im_patch>", start=special[2], opening="<think>\n")
    processor = transformers.Step3p7Processor(photos, tokenizer, chat_template=template)
    return _network("Step3p7ForConditionalGeneration", config, **ids), processor


def hyperclovax_vision_v2() -> Parts:
    pads = ["<|IMAGE_PAD|>", "<|VIDEO_PAD|>", "<|image_start|>", "<|image_end|>"]
    special = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<|endofturn|>", *pads]
    special += ["<|mime_start|>", "<|mime_end|>", "<|endoftext|>", "<|stop|>", "<think>", "</think>"]
    names = {"pad_token": "<|pad|>", "eos_token": "<|endofturn|>", "bos_token": "<|endoftext|>"}
    tokenizer = _grid_words(special, names, pads[0], video_token=pads[1])
    ids = {"pad_token_id": 0, "bos_token_id": 10, "eos_token_id": [3, 11, 2]}
    vision = {"depth": 2, "num_heads": 2, "hidden_size": 32, "patch_size": 4, "window_size": 16}
    vision |= {"out_hidden_size": 32, "intermediate_size": 48, "fullatt_block_indexes": [1]}
    text = {**TEXT, "model_type": "hyperclovax", "num_key_value_heads": 1}
    config = transformers.HyperCLOVAXVisionV2Config(
        text_config={**text, **ids, "vocab_size": len(tokenizer)},
        vision_config={**vision, "model_type": "qwen2_5_vl_vision"},
        image_token_id=4,
        video_token_id=5,
        tie_word_embeddings=False,
    )
    photo = (
        '<|mime_start|>{"id": "image_00", "type": "image/jpeg", "filename": "a.jpg"}<|mime_end|>\n'
        "<|image_start|><|IMAGE_PAD|><|image_end|>\n"
    )
    template = _chat(CHATML, photo, opening="<think>\n\n</think>\n\n")
    processor = transformers.HyperCLOVAXVisionV2Processor(
        transformers.Qwen2VLImageProcessor(size={"shortest_edge": 64, "longest_edge": 1024}, **PATCHES),
        tokenizer,
        transformers.Qwen2VLVideoProcessor(**PATCHES),
        chat_template=template,
    )
    return _network("HyperCLOVAXVisionV2ForConditionalGeneration", config, **ids), processor


PROMPTS: dict[str, str] = {
    "got_ocr2": f"{GOT_SYSTEM}<|im_start|>user\n<img><imgpad></img>\n OCR: <|im_end|>"
    "<|im_start|>assistant\n",
    "deepseek_ocr2": "<image>\nFree OCR.",
}
REASONS: dict[str, str] = {}
FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function for function in (
        got_ocr2, pp_chart2table, qianfan_ocr, kimi_k25, deepseek_ocr2, minimax_m3_vl, step3p7,
        hyperclovax_vision_v2,
    )
}
