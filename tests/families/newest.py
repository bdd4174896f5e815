"""Small random models of the newest families, many of which read documents.

Their templates have the marks of the published ones; the sizes are those of a test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import transformers

from tests.image_text_folders import PATCHES, TEXT, Parts, byte_pairs

CHATML = ("<|im_start|>{role}\n", "<|im_end|>\n")
CHATML_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_NAMES = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
QWEN_IDS = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
QWEN = {**TEXT, "num_key_value_heads": 1, "max_position_embeddings": 1024, **QWEN_IDS}

EDGES = {"shortest_edge": 64, "longest_edge": 1024}


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
    ask, asked = (part.replace("{role}", user) for part in turn)
    reply, replied = (part.replace("{role}", assistant) for part in turn)
    end = f"{{% if m['role']=='assistant' %}}{replied}{{% else %}}{asked}{{% endif %}}"
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
    vision = {"patch_size": 8, "pos_emb_height": 8, "pos_emb_width": 8, "num_attention_heads": 2}
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
    # Sides are padded to whole tokens: 4x3 for 60x40, 8x5 for 200x120.
    sizes = {"size": {"max_height": 16, "max_width": 16}, "patch_size": 8, "max_patches": 160}
    processor = transformers.Kimi_K25Processor(
        transformers.Kimi_K25ImageProcessor(**sizes),
        tokenizer,
        transformers.Kimi_K25VideoProcessor(patch_size=8),
        chat_template=template,
    )
    return _network("Kimi_K25ForConditionalGeneration", config, **ids), processor


BAR = "\uff5c"  # DeepSeek's tokens have a wide one
DEEPSEEK = [f"<{BAR}{name}{BAR}>" for name in ("begin▁of▁sentence", "end▁of▁sentence", "▁pad▁")]
OCR_SPECIAL = [*DEEPSEEK, "<image>"]
OCR_NAMES = dict(zip(("bos_token", "eos_token", "pad_token"), OCR_SPECIAL, strict=False))
OCR_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
OCR_TEXT = {**TEXT, **MOE, **OCR_IDS, "num_key_value_heads": 2, "n_shared_experts": 1}


def deepseek_ocr2() -> Parts:
    tokenizer = byte_pairs(OCR_SPECIAL, first=OCR_SPECIAL[0], **OCR_NAMES)
    sam = {**SAM, "image_size": 72, "patch_size": 6, "window_size": 8, "global_attn_indexes": [1]}
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
        size={"height": 72, "width": 72}, tile_size=72, max_patches=2
    )
    processor = transformers.DeepseekOcr2Processor(
        photos, tokenizer, patch_size=2, downsample_ratio=3
    )
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
    text |= {"index_head_dim": 16, "index_block_size": 8, "index_topk_blocks": 16}
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
    processor = transformers.MiniMaxM3VLProcessor(
        transformers.MiniMaxM3VLImageProcessor(size=EDGES, patch_size=4),
        tokenizer,
        transformers.MiniMaxM3VLVideoProcessor(patch_size=4),
        chat_template=template,
    )
    return _network("MiniMaxM3SparseForConditionalGeneration", config, **ids), processor


def step3p7() -> Parts:
    special = [*DEEPSEEK[::-1], "<im_patch>"]
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
    config = transformers.Step3p7Config(text_config=text, vision_config=vision, image_token_id=3)
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
    special += ["<|mime_start|>", "<|mime_end|>", "<|endoftext|>", "<|stop|>"]
    special += ["<think>", "</think>"]
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
        transformers.Qwen2VLImageProcessor(size=EDGES, **PATCHES),
        tokenizer,
        transformers.Qwen2VLVideoProcessor(**PATCHES),
        chat_template=template,
    )
    return _network("HyperCLOVAXVisionV2ForConditionalGeneration", config, **ids), processor


INKLING = ["<|endoftext|>", "<|message_user|>", "<|message_model|>", "<|message_system|>"]
INKLING += ["<|content_text|>", "<|content_image|>", "<|content_model_end_sampling|>"]
INKLING += ["<|content_audio_input|>", "<|end_message|>", "<|unused_200053|>", "<|unused_200054|>"]
INKLING_IDS = {"eos_token_id": 6, "pad_token_id": 0}
INKLING_TEXT = {
    **{name: value for name, value in TEXT.items() if name != "intermediate_size"},
    **MOE,
    **INKLING_IDS,
    "bos_token_id": None,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 1,
    "swa_head_dim": 16,
    "sliding_window_size": 16,
    "d_rel": 4,
    "rel_extent": 32,
    "layer_types": ["hybrid_sliding", "hybrid"],
}
# Each part of a turn is a message of its own, and the model opens its answer by itself.
INKLING_CHAT = (
    "<|message_system|><|content_text|>Thinking effort level: 0.9<|end_message|>"
    "{% for m in messages %}{% set by='model' if m['role']=='assistant' else 'user' %}"
    "{% for c in ([{'type': 'text', 'text': m['content']}] if m['content'] is string "
    "else m['content']) %}<|message_{{ by }}|>{% if c['type']=='image' %}"
    "<|content_image|><|unused_200054|>{% else %}<|content_text|>{{ c['text'] }}{% endif %}"
    "<|end_message|>{% endfor %}{% if by=='model' %}<|content_model_end_sampling|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|message_model|>{% endif %}"
)


def inkling_mm_model() -> Parts:
    tokenizer = byte_pairs(INKLING, pad_token=INKLING[0], eos_token=INKLING[6])
    text = {**INKLING_TEXT, "vocab_size": len(tokenizer) + 3, "unpadded_vocab_size": len(tokenizer)}
    text |= {"intermediate_size": 48, "mlp_layer_types": ["dense", "sparse"], "n_shared_experts": 1}
    text |= {"logits_mup_width_multiplier": 1.0}
    config = transformers.InklingConfig(
        text_config=text,
        vision_config={"patch_size": 24, "hidden_size": 32, "num_hidden_layers": 3},
        audio_config={"n_mel_bins": 4, "mel_vocab_size": 8},
        image_token_id=10,
        audio_token_id=9,
        image_bos_token_id=5,
        audio_bos_token_id=7,
    )
    processor = transformers.InklingProcessor(
        transformers.InklingFeatureExtractor(feature_size=4),
        transformers.InklingImageProcessor(size={"height": 24, "width": 24}),
        tokenizer,
        chat_template=INKLING_CHAT,
    )
    return _network("InklingForConditionalGeneration", config, **INKLING_IDS), processor


def _inkling2(kind: str, **more: Any) -> Parts:
    tokenizer = byte_pairs(INKLING, pad_token=INKLING[0], eos_token=INKLING[6])
    text = {**INKLING_TEXT, "vocab_size": len(tokenizer) + 3, "unpadded_vocab_size": len(tokenizer)}
    text |= {"n_layers_per_attn_res_block": 1, "log_scaling_n_floor": 128, **more}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"posemb_grid_size": 8, "projection_hidden_dim": 32, "text_hidden_size": 32}
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config={**vision, "mlp_ratio": 1.5}, image_token_id=10
    )
    processor = transformers.Inkling2Processor(
        transformers.Inkling2ImageProcessor(), tokenizer, chat_template=INKLING_CHAT
    )
    return _network(f"{kind}ForConditionalGeneration", config, **INKLING_IDS), processor


def inkling2() -> Parts:
    return _inkling2("Inkling2")


def inkling2_loop() -> Parts:
    # The two layers in the middle, one of each type, are passed three times.
    types = ["hybrid_sliding", "hybrid_sliding", "hybrid", "hybrid"]
    loop = {"loop_layer_index_start": 1, "loop_layer_index_end": 3, "loop_gate_rank": 8}
    return _inkling2("Inkling2Loop", num_hidden_layers=4, layer_types=types, **loop)


MUSE = ["<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad|>", "<|start|>"]
MUSE += ["<|message|>", "<|eom|>", "<|eot|>", "<|patch|>", "<|video|>", "<|image_start|>"]
MUSE += ["<|image_end|>", "<|vid_start|>", "<|vid_end|>", "<|vid_frame_separator|>", "<|audio|>"]
MUSE += ["<|soft_audio_start|>", "<|soft_audio_end|>"]
MUSE_NAMES = dict(zip(("bos_token", "eos_token", "pad_token"), MUSE, strict=False))
MUSE_IDS = {"bos_token_id": 0, "eos_token_id": [1, 6], "pad_token_id": 2}
MUSE_CHAT = (
    "<|begin_of_text|>{% for m in messages %}<|start|>{{ m['role'] }}"
    "{% if m['role']=='assistant' %} to=user{% endif %}<|message|>"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type']=='image' %}<|patch|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|eot|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)


def _muse(kind: str, text: dict[str, Any], **more: Any) -> tuple[Any, dict[str, Any]]:
    # The tokenizer writes the begin token a second time before what the template writes.
    tokenizer = byte_pairs(MUSE, first=MUSE[0], **MUSE_NAMES)
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8}
    vision |= {"intermediate_size": 48, "pos_emb_height": 8, "pos_emb_width": 8}
    shared = {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 16, **MUSE_IDS}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**TEXT, **shared, **text, "vocab_size": len(tokenizer)},
        vision_config={**vision, "layer_types": ["window_attention", "full_attention"]},
        image_token_id=7,
        video_token_id=8,
        out_hidden_size=128,
        projector_hidden_size=32,
        **more,
    )
    parts = {
        "image_processor": transformers.MuseGlimmerImageProcessor(
            patch_size=8, max_image_tokens=40
        ),
        "video_processor": transformers.MuseGlimmerVideoProcessor(patch_size=8),
        "tokenizer": tokenizer,
        "chat_template": MUSE_CHAT,
    }
    return _network(f"{kind}ForConditionalGeneration", config, **MUSE_IDS), parts


def muse_glimmer() -> Parts:
    network, parts = _muse("MuseGlimmer", {})
    return network, transformers.MuseGlimmerProcessor(**parts)


def muse_spark() -> Parts:
    text = {"moe_intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2}
    text |= {"moe_hidden_size": 32, "mlp_layer_types": ["dense", "sparse"]}
    audio = {"hidden_sizes": [8, 8], "patch_sizes": [16, 6], "depths": [1, 1]}
    audio |= {"num_hidden_layers": 2, "out_hidden_size": 32}
    network, parts = _muse("MuseSpark", text, audio_config=audio, audio_token_id=14)
    sounds = transformers.MuseSparkFeatureExtractor()
    return network, transformers.MuseSparkProcessor(**parts, feature_extractor=sounds)


def dots3_note() -> Parts:
    special = ["<|endoftext|>", "<|userprompt|>", "<|endofuserprompt|>", "<|response|>"]
    special += ["<|endofresponse|>", "<|img|>", "<|imgpad|>", "<|endofimg|>", "<|video_pad|>"]
    special += ["<|audio_comp_pad|>", "<|pad|>"]
    tokenizer = byte_pairs(special, pad_token="<|pad|>", eos_token="<|endofresponse|>")
    ids = {"pad_token_id": 10, "bos_token_id": 0, "eos_token_id": 4}
    text = {**TEXT, **MLA, **MOE, **ids, "num_key_value_heads": 2, "head_dim": 16}
    text |= {"moe_shared_expert_intermediate_size": 24, "sliding_window": 16}
    text |= {"layer_types": ["indexed_attention", "sliding_attention"], "index_topk": 128}
    text |= {"index_head_dim": 16, "index_n_heads": 2, "swa_num_attention_heads": 2}
    text |= {"swa_num_key_value_heads": 2, "swa_q_lora_rank": 16, "swa_kv_lora_rank": 16}
    text |= {"swa_head_dim": 16, "swa_qk_nope_head_dim": 8, "swa_v_head_dim": 16}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "patch_size": 4, "moe_intermediate_size": 24}
    vision |= {"pyramid_num_routed": [-1, 4], "adapter_in_dim": 32, "adapter_out_dim": 32}
    audio = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    audio |= {"num_attention_heads": 2, "feature_size": 16, "downsample_hidden_size": 8}
    audio |= {"adapter_input_size": 32, "adapter_out_dim": 32}
    patches = {**PATCHES, "temporal_patch_size": 1}
    config = transformers.Dots3NoteConfig(
        text_config={**text, "vocab_size": len(tokenizer)},
        vision_config=vision,
        audio_config=audio,
        image_token_id=6,
        video_token_id=8,
        audio_token_id=9,
    )
    names = {"user": "userprompt", "assistant": "response"}
    template = _chat(("<|{role}|>", "<|endof{role}|>"), "<|img|><|imgpad|><|endofimg|>", **names)
    processor = transformers.Dots3NoteProcessor(
        transformers.Qwen2VLImageProcessor(size=EDGES, **patches),
        tokenizer,
        transformers.Qwen3VLVideoProcessor(**patches),
        transformers.Dots3NoteFeatureExtractor(feature_size=16),
        chat_template=template,
    )
    return _network("Dots3NoteForConditionalGeneration", config, **ids), processor


def unlimited_ocr() -> Parts:
    tokenizer = byte_pairs(OCR_SPECIAL, first=OCR_SPECIAL[0], **OCR_NAMES)
    sam = {**SAM, "image_size": 64, "patch_size": 4, "window_size": 8, "global_attn_indexes": [1]}
    encoder = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    encoder |= {"num_attention_heads": 2, "image_size": 64, "patch_size": 16}
    config = transformers.UnlimitedOcrConfig(
        vision_config={
            "sam_config": {**sam, "downsample_channels": [8, 32]},
            "encoder_config": encoder,
        },
        # Of what is written, a token sees the last four; of the prompt, all.
        text_config={**OCR_TEXT, "sliding_window": 4, "vocab_size": len(tokenizer)},
        image_token_id=3,
    )
    size = {"height": 64, "width": 64}
    photos = transformers.UnlimitedOcrImageProcessor(size=size, tile_size=64, max_patches=2)
    processor = transformers.UnlimitedOcrProcessor(photos, tokenizer, patch_size=4)
    return _network("UnlimitedOcrForConditionalGeneration", config, **OCR_IDS), processor


COSMOS = [*CHATML_SPECIAL, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
COSMOS_IDS = {"image_token_id": 5, "video_token_id": 6}
COSMOS_IDS |= {"vision_start_token_id": 3, "vision_end_token_id": 4}
COSMOS_MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]}
COSMOS_CHAT = _chat(CHATML, "<|vision_start|><|image_pad|><|vision_end|>")


def _cosmos(
    kind: str, text: dict[str, Any], vision: dict[str, Any], **more: Any
) -> tuple[Any, Any]:
    tokenizer = _grid_words(COSMOS, QWEN_NAMES, "<|image_pad|>", video_token="<|video_pad|>")
    shared = {**QWEN, "head_dim": 16, "rope_parameters": COSMOS_MROPE}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**shared, "vocab_size": len(tokenizer), **text},
        vision_config={"hidden_size": 32, "intermediate_size": 48, **vision},
        **COSMOS_IDS,
        **more,
    )
    ids = {"eos_token_id": 2, "pad_token_id": 0}
    return _network(f"{kind}ForConditionalGeneration", config, **ids), tokenizer


def cosmos3_edge() -> Parts:
    vision = {"num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8, "num_patches": 64}
    network, tokenizer = _cosmos("Cosmos3Edge", {}, vision, projector_hidden_size=48)
    size = {"shortest_edge": 256, "longest_edge": 10240}
    processor = transformers.Cosmos3EdgeProcessor(
        transformers.Cosmos3EdgeImageProcessor(size=size, patch_size=8),
        tokenizer,
        transformers.Cosmos3EdgeVideoProcessor(patch_size=8),
        chat_template=COSMOS_CHAT,
    )
    return network, processor


def cosmos3_omni() -> Parts:
    vision = {"depth": 2, "num_heads": 2, "patch_size": 4, "out_hidden_size": 32}
    vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    network, tokenizer = _cosmos("Cosmos3Omni", {"model_type": "qwen3_vl_text"}, vision)
    processor = transformers.Qwen3VLProcessor(
        transformers.Qwen2VLImageProcessor(size=EDGES, **PATCHES),
        tokenizer,
        transformers.Qwen3VLVideoProcessor(**PATCHES),
        chat_template=COSMOS_CHAT,
    )
    return network, processor


TURNS = ("system", "developer", "user", "assistant")
APERTUS = ["<unk>", "<s>", "</s>", "<pad>"]
APERTUS += [f"<|{name}_{place}|>" for name in TURNS for place in ("start", "end")]
APERTUS_MEDIA = {
    "image_token": "<|image|>",
    "audio_token": "<|audio|>",
    "boi_token": "<|img_start|>",
    "eoi_token": "<|img_end|>",
    "image_wrapper_token": "<|img_token_start|>",
    "eol_token": "<|img_end_of_row|>",
    "boa_token": "<|audio_start|>",
    "eoa_token": "<|audio_end|>",
}
APERTUS_NAMES = dict(
    zip(("unk_token", "bos_token", "eos_token", "pad_token"), APERTUS, strict=False)
)
APERTUS_START = (
    "<s><|system_start|>You are Apertus, a helpful assistant.<|system_end|><|developer_start|>"
    "Deliberation: disabled\nTool Capabilities: disabled<|developer_end|>"
)


def apertus1p5() -> Parts:
    tokenizer = byte_pairs(
        [*APERTUS, *APERTUS_MEDIA.values()],
        first="<s>",
        extra_special_tokens=APERTUS_MEDIA,
        **APERTUS_NAMES,
    )
    # Its photos are tokens after the words', which the head cannot write.
    words, codes, sounds = len(tokenizer), 16, 8
    marks = [f"<|visual token {code}|>" for code in range(codes)]
    tokenizer.add_tokens([*marks, *(f"<|audio token {code}|>" for code in range(sounds))], True)
    ids = {"bos_token_id": 1, "eos_token_id": [2, 11], "pad_token_id": 3}
    text = {**TEXT, **ids, "num_key_value_heads": 1, "vocab_size": len(tokenizer)}
    vision = {"codebook_size": codes, "embed_dim": 8, "latent_channels": 8, "base_channels": 32}
    vision |= {"channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1}
    audio = {"num_filters": 4, "upsampling_ratios": [2, 2], "hidden_size": 8, "codebook_dim": 8}
    config = transformers.Apertus1p5Config(
        text_config={**text, "output_vocab_size": words},
        vision_config={**vision, "attn_resolutions": [8], "resolution": 64},
        audio_config={**audio, "codebook_size": sounds, "num_lstm_layers": 1},
        image_token_id=12,
        audio_token_id=13,
        image_token_offset=words,
        audio_token_offset=words + codes,
    )
    turn = ("<|{role}_start|>", "<|{role}_end|>")
    processor = transformers.Apertus1p5Processor(
        # 60x40 is 5 rows of 8 codes, 48x48 is 6 of 6, 200x120 is 5 of 9.
        transformers.Apertus1p5ImageProcessor(
            size={"min_pixels": 1024, "max_pixels": 3584}, spatial_factor=8
        ),
        transformers.WavTokenizerFeatureExtractor(hop_length=4),
        tokenizer,
        chat_template=_chat(turn, "<|image|>", start=APERTUS_START),
    )
    return _network("Apertus1p5ForConditionalGeneration", config, **ids), processor


def _hy(name: str) -> str:
    return f"<{BAR}{name}:opensource{BAR}>"


HY = [_hy(name) for name in ("hy_begin_of_sentence", "hy_pad", "hy_eos", "hy_User", "hy_Assistant")]
HY += [_hy("reasoning_mode"), "<think:opensource>", "</think:opensource>"]
HY += ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
# The last answer's end is written where another question follows it.
HY_CHAT = (
    "{% set effort = reasoning_effort | default('no_think') %}"
    f"{HY[0]}{HY[5]}reasoning_effort:{{{{ effort }}}}"
    f"{{% for m in messages %}}{{% if m['role']=='assistant' %}}{HY[4]}{HY[6]}{HY[7]}"
    f"{{% else %}}{HY[3]}{{% endif %}}{{% if m['content'] is string %}}{{{{ m['content'] }}}}"
    "{% else %}{% for c in m['content'] %}{% if c['type']=='image' %}"
    f"{HY[8]}{HY[10]}{HY[9]}{{% else %}}{{{{ c['text'] }}}}{{% endif %}}{{% endfor %}}{{% endif %}}"
    f"{{% if m['role']=='assistant' and not loop.last %}}{HY[2]}{{% endif %}}{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{HY[4]}{HY[6]}{{% if effort == 'no_think' %}}{HY[7]}"
    "{% endif %}{% endif %}"
)


def hy_v4_vl() -> Parts:
    tokenizer = byte_pairs(HY, bos_token=HY[0], pad_token=HY[1], eos_token=HY[2])
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    text = {**TEXT, **MLA, **MOE, **ids, "n_shared_experts": 1, "max_position_embeddings": 1024}
    text |= {"num_hidden_layers": 3, "index_topk": 128, "index_head_dim": 16, "index_n_heads": 2}
    text |= {"indexer_types": ["full", "full", "shared"], "hc_mult": 2}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "patch_size": 8, "out_hidden_size": 32}
    config = transformers.HYV4VLConfig(
        text_config={
            **text,
            "vocab_size": len(tokenizer),
            "rope_parameters": {"rope_theta": 1e4, "mrope_section": [2, 1, 1]},
        },
        vision_config={**vision, "max_image_size": 128},
        image_token_id=10,
        video_token_id=11,
    )
    processor = transformers.HYV4VLProcessor(
        transformers.HYV4VLImageProcessor(size=EDGES, patch_size=8),
        tokenizer,
        transformers.HYV4VLVideoProcessor(patch_size=8),
        chat_template=HY_CHAT,
    )
    return _network("HYV4VLForConditionalGeneration", config, **ids), processor


def pp_formulanet() -> Parts:
    marks = ["<s>", "<pad>", "</s>", "<unk>", "[START_REF]"]
    model = json.loads(byte_pairs(marks).backend_tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = transformers.NougatTokenizer(vocab=model["vocab"], merges=merges)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    text = {"d_model": 32, "decoder_layers": 2, "decoder_ffn_dim": 48, "decoder_attention_heads": 2}
    text |= {"encoder_layers": 2, "encoder_attention_heads": 2, "max_position_embeddings": 64}
    text |= {"vocab_size": len(tokenizer), "dropout": 0.0, "init_std": 0.3}
    vision = {**SAM, "image_size": 64, "patch_size": 4, "window_size": 8, "initializer_range": 0.2}
    vision |= {"post_conv_in_channels": 8, "post_conv_mid_channels": 24, "decoder_hidden_size": 32}
    vision |= {"post_conv_out_channels": 32, "global_attn_indexes": [1]}
    config = transformers.PPFormulaNetConfig(text_config={**text, **ids}, vision_config=vision)
    photos = transformers.PPFormulaNetImageProcessor(size={"height": 64, "width": 64})
    network = _network("PPFormulaNetForConditionalGeneration", config, **ids)
    return network, transformers.PPFormulaNetProcessor(photos, tokenizer)


PROMPTS: dict[str, str] = {
    "got_ocr2": f"{GOT_SYSTEM}<|im_start|>user\n<img><imgpad></img>\n OCR: <|im_end|>"
    "<|im_start|>assistant\n",
    "deepseek_ocr2": "<image>\nFree OCR.",
    "unlimited_ocr": "<image>document parsing.",
}
FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function for function in (
        got_ocr2, pp_chart2table, qianfan_ocr, kimi_k25, deepseek_ocr2, minimax_m3_vl, step3p7,
        hyperclovax_vision_v2, inkling_mm_model, inkling2, muse_glimmer, muse_spark, dots3_note,
        unlimited_ocr, cosmos3_edge, cosmos3_omni, inkling2_loop, apertus1p5, hy_v4_vl,
        pp_formulanet,
    )
}  # fmt: skip
