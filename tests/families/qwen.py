"""Small random models of Qwen's and GLM's image-to-text families, and EXAONE 4.5.

All of them read a photo as a grid of patches; a larger photo is a larger grid, never tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers

from tests.image_text_folders import TEXT, Parts, byte_pairs

# A token of a photo is 16 pixels wide: 60x40 gives 8 of them, 48x48 gives 9, 200x120 gives 40.
PATCHES = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
EDGES = {"shortest_edge": 256, "longest_edge": 48 * 256}
SIGHT = {
    "depth": 2,
    "num_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "out_hidden_size": 32,
    "patch_size": 8,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
HEADS = {"num_key_value_heads": 1, "head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
INTERLEAVED = {"mrope_section": [3, 3, 2], "mrope_interleaved": True, "rope_theta": 1e6}


def _chat(
    user: str,
    assistant: str,
    photo: str,
    end: str = "",
    *,
    start: str = "",
    answer: str = "",
    opened: str = "",
) -> str:
    """Turns; ``answer`` is written before an answer that is there, ``opened`` before a new one."""
    return (
        start + "{% for m in messages %}{% if m['role']=='assistant' %}" + assistant + answer
        + "{% elif m['role']=='system' %}" + user.replace("user", "system")
        + "{% else %}" + user + "{% endif %}"
        "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
        "{% if c['type']=='image' %}" + photo + "{% else %}{{ c['text'] }}{% endif %}"
        "{% endfor %}{% endif %}" + end + "{% endfor %}"
        "{% if add_generation_prompt %}" + assistant + opened + "{% endif %}"
    )  # fmt: skip


def _choice(without: str, default: str) -> str:
    """What is opened for an answer where the caller turned thoughts off, and else."""
    off = "{% if enable_thinking is defined and not enable_thinking %}"
    return off + without + "{% else %}" + default + "{% endif %}"


# Empty thoughts stand before the last answer alone, and an answer begins inside of thoughts.
NO_THOUGHT = "<think>\n\n</think>\n\n"
THOUGHTS = {
    "answer": "{% if loop.last %}" + NO_THOUGHT + "{% endif %}",
    "opened": _choice(NO_THOUGHT, "<think>\n"),
}
QWEN_PHOTO = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_TURNS = ("<|im_start|>user\n", "<|im_start|>assistant\n")


def _tokenizer(words: list[str], known: dict[str, str], thinks: bool, **names: str) -> Any:
    tokenizer = byte_pairs(words, **names, extra_special_tokens=known)
    if thinks:
        # Not special: a decoded text has them. Two ends of line are one token, so that the tokens
        # of empty thoughts do not start with those of opened ones, though their characters do.
        tokenizer.add_tokens(["<think>", "</think>", "\n\n"])
    return tokenizer


def _network(kind: str, config: Any, **ids: int | list[int]) -> Any:
    network = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    network.generation_config = transformers.GenerationConfig(**ids)
    return network


QWEN_NAMES = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
QWEN_IDS = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}


def _qwen(kind: str, text: dict[str, Any], vision: dict[str, Any], thinks: bool = False) -> Parts:
    """Qwen3-VL and what came of it: all have Qwen3-VL's processor."""
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]
    words += ["<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    known = {
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_start_token": "<|vision_start|>",
        "vision_end_token": "<|vision_end|>",
    }
    tokenizer = _tokenizer(words, known, thinks, **QWEN_NAMES)
    base = {**TEXT, **HEADS, "rope_parameters": INTERLEAVED, **QWEN_IDS}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**base, "vocab_size": len(tokenizer), **text},
        vision_config={**SIGHT, "num_position_embeddings": 16, **vision},
        vision_start_token_id=3,
        vision_end_token_id=4,
        image_token_id=5,
        video_token_id=6,
    )
    processor = transformers.Qwen3VLProcessor(
        transformers.Qwen2VLImageProcessor(size=EDGES, **PATCHES),
        tokenizer,
        transformers.Qwen3VLVideoProcessor(**PATCHES),
        chat_template=_chat(
            *QWEN_TURNS, QWEN_PHOTO, "<|im_end|>\n", **(THOUGHTS if thinks else {})
        ),
    )
    return _network(kind, config, **QWEN_IDS | {"eos_token_id": [2, 0]}), processor


DEEP = {"deepstack_visual_indexes": [0]}
# A layer of a recurrent state, then one of keys and values, which turns a quarter of each head.
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 32,
    "rope_parameters": {**INTERLEAVED, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25},
}
SHARED_EXPERT = {**EXPERTS, "shared_expert_intermediate_size": 24}


def qwen3_vl() -> Parts:
    return _qwen("Qwen3VL", {}, DEEP)


def qwen3_vl_moe() -> Parts:
    return _qwen("Qwen3VLMoe", EXPERTS, DEEP)


def qwen3_5() -> Parts:
    return _qwen("Qwen3_5", LINEAR, {}, thinks=True)


def qwen3_5_moe() -> Parts:
    return _qwen("Qwen3_5Moe", {**LINEAR, **SHARED_EXPERT}, {}, thinks=True)


def qwen4_exp() -> Parts:
    ngrams = {
        "ple_layer_ids": [1],
        "ple_embed_dim": 32,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 64,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 2,
    }
    indexer = {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 128,
        "indexer_compress_ratio": 4,
    }
    streams = {"hc_count": 2, "hc_lowrank": 8}
    text = {**LINEAR, **SHARED_EXPERT, **ngrams, **indexer, **streams}
    return _qwen("Qwen4Exp", text, {}, thinks=True)


GLM_WORDS = ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"]
GLM_WORDS += ["<|observation|>", "<|begin_of_image|>", "<|end_of_image|>", "<|image|>"]
GLM_WORDS += ["<|begin_of_video|>", "<|end_of_video|>", "<|video|>"]
GLM_SIGHT = {**SIGHT, "image_size": 32}
GLM_ROPE = {"mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5, "rope_theta": 1e4}


def _glm(
    kind: str,
    text: dict[str, Any],
    photos: Any,
    videos: Any,
    reader: Any,
    config_class: str = "",
    vision: dict[str, Any] | None = None,
    **forms: str,
) -> Parts:
    """No mark ends an answer: the next turn's <|user|> does, and is one of the ends.

    ``forms`` are what a chat writes around an answer.
    """
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    tokenizer = _tokenizer(GLM_WORDS, {}, True, **names)
    ids = {"pad_token_id": 0, "eos_token_id": [0, 4, 6]}
    base = {**TEXT, **HEADS, "rope_parameters": GLM_ROPE, **ids}
    config = getattr(transformers, config_class or f"{kind}Config")(
        text_config={**base, "vocab_size": len(tokenizer), **text},
        vision_config={**GLM_SIGHT, **(vision or {})},
        image_start_token_id=7,
        image_end_token_id=8,
        image_token_id=9,
        video_start_token_id=10,
        video_end_token_id=11,
        video_token_id=12,
    )
    photo = "<|begin_of_image|><|image|><|end_of_image|>"
    user, assistant = forms.pop("user", "<|user|>\n"), forms.pop("assistant", "<|assistant|>")
    chat = _chat(user, assistant, photo, start="[gMASK]<sop>", **forms)
    processor = reader(photos, tokenizer, videos, chat_template=chat)
    return _network(kind, config, **ids), processor


# GLM counts a photo's pixels once a frame, and a photo has two frames.
GLM_EDGES = {name: 2 * pixels for name, pixels in EDGES.items()}
# An end of line right after a block of a template is not written, one of an expression is.
LINES = {
    "answer": "\n<think></think>\n",
    "opened": _choice("{{ '\n' }}<think></think>", ""),
}


def glm4v() -> Parts:
    photos = transformers.Glm4vImageProcessor(size=GLM_EDGES, **PATCHES)
    videos = transformers.Glm4vVideoProcessor(**PATCHES)
    reader = transformers.Glm4vProcessor
    return _glm("Glm4v", {}, photos, videos, reader, assistant="<|assistant|>\n")


def glm4v_moe() -> Parts:
    photos = transformers.Glm4vImageProcessor(size=GLM_EDGES, **PATCHES)
    videos = transformers.Glm4vVideoProcessor(**PATCHES)
    text = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    return _glm("Glm4vMoe", text, photos, videos, transformers.Glm4vProcessor, **LINES)


def _glm46v_parts() -> tuple[Any, Any, Any]:
    photos = transformers.Glm46VImageProcessor(size=GLM_EDGES, **PATCHES)
    return photos, transformers.Glm46VVideoProcessor(**PATCHES), transformers.Glm46VProcessor


def glm46v() -> Parts:
    return _glm("Glm46V", {}, *_glm46v_parts(), **LINES)


def glm_ocr() -> Parts:
    return _glm("GlmOcr", {}, *_glm46v_parts(), assistant="<|assistant|>\n")


def glmga() -> Parts:
    photos = transformers.GlmgaImageProcessor(size=GLM_EDGES, **PATCHES)
    videos = transformers.GlmgaVideoProcessor(**PATCHES)
    reader = transformers.Glm46VProcessor
    return _glm("Glm46V", {}, photos, videos, reader, config_class="GlmgaConfig", **LINES)


def glm5_next() -> Parts:
    photos = transformers.Glm5NextImageProcessor(min_image_tokens=1, max_image_tokens=48, **PATCHES)
    videos = transformers.Glm5NextVideoProcessor(**PATCHES)
    reader = transformers.Glm5NextProcessor
    latent = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
    indexer = {"index_topk": 128, "index_head_dim": 16, "index_n_heads": 2, "index_kpool": 4}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    text = {
        "num_key_value_heads": 2,
        "rope_parameters": None,  # it knows order by its recurrent layers alone
        "layer_types": ["linear_attention", "indexed_attention"],
        "mlp_layer_types": ["dense", "sparse"],
        "linear_head_dim": 16,
        "linear_num_heads": 2,
        "hc_mult": 2,
    }
    forms = {"user": "<|user|>", "answer": "</think>", "opened": _choice("</think>", "<think>")}
    text = {**text, **latent, **indexer, **experts}
    vision = {"projection_intermediate_size": 48}
    return _glm("Glm5Next", text, photos, videos, reader, vision=vision, **forms)


EXAONE_WORDS = ["<unk>", "<|endoftext|>", "[BOS]", "[PAD]", "<|user|>", "<|assistant|>"]
EXAONE_WORDS += ["<|system|>", "<|endofturn|>", "<vision>", "</vision>"]
EXAONE_WORDS += ["<|image_pad|>", "<|video_pad|>"]


def exaone4_5() -> Parts:
    names = {"unk_token": "<unk>", "bos_token": "[BOS]", "pad_token": "[PAD]"}
    known = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    tokenizer = _tokenizer(EXAONE_WORDS, known, True, eos_token="<|endofturn|>", **names)
    ids = {"bos_token_id": 2, "eos_token_id": 7, "pad_token_id": 3}
    # One layer looks back over a window, as three of four layers do; the other has no positions.
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24}
    text = {**TEXT, **HEADS, **layers, **ids, "vocab_size": len(tokenizer)}
    windows = {"window_size": 32, "fullatt_block_indexes": [1], "num_key_value_heads": 1}
    config = transformers.Exaone4_5_Config(
        text_config={"model_type": "exaone4", **text},
        vision_config={**SIGHT, **windows},
        image_token_id=10,
        video_token_id=11,
    )
    processor = transformers.Exaone4_5_Processor(
        transformers.Qwen2VLImageProcessor(size=EDGES, **PATCHES),
        tokenizer,
        transformers.Qwen2VLVideoProcessor(**PATCHES),
        chat_template=_chat(
            "<|user|>\n",
            "<|assistant|>\n",
            "<vision><|image_pad|></vision>",
            "<|endofturn|>\n",
            **THOUGHTS,
        ),
    )
    return _network("Exaone4_5_", config, **ids), processor


EARS = {
    "num_mel_bins": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "d_model": 32,
    "output_dim": 32,
    "n_window": 50,
}


def _omni(
    kind: str,
    words: list[str],
    text: dict[str, Any],
    vision: dict[str, Any],
    audio: dict[str, Any],
    start: str = "",
    suffix: str = "_id",
) -> Parts:
    """The part of a speaking model that reads; ``words`` are its marks of vision and sound."""
    roles = ("image", "audio", "video", "vision_bos", "vision_eos", "audio_bos", "audio_eos")
    known = {f"{role}_token": word for role, word in zip(roles, words, strict=True)}
    first = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = _tokenizer([*first, *words], known, False, **QWEN_NAMES)
    base = {**TEXT, **HEADS, **QWEN_IDS, "vocab_size": len(tokenizer)}
    config = getattr(transformers, f"{kind}ThinkerConfig")(
        text_config={**base, **text},
        vision_config={**SIGHT, **vision},
        audio_config={**EARS, **audio},
        **{f"{role}_token{suffix}": 3 + place for place, role in enumerate(roles[:3])},
        vision_start_token_id=6,  # no field of the config class, and read by the network
        audio_start_token_id=8,
        user_token_id=tokenizer.convert_tokens_to_ids("u"),
    )
    photo = words[3] + words[0] + words[4]
    processor = getattr(transformers, f"{kind}Processor")(
        transformers.Qwen2VLImageProcessor(size=EDGES, **PATCHES),
        transformers.Qwen2VLVideoProcessor(**PATCHES),
        transformers.WhisperFeatureExtractor(feature_size=16),
        tokenizer,
        chat_template=_chat(*QWEN_TURNS, photo, "<|im_end|>\n", start=start),
    )
    return _network(f"{kind}Thinker", config, **QWEN_IDS), processor


def qwen2_5_omni_thinker() -> Parts:
    words = ["<|IMAGE|>", "<|AUDIO|>", "<|VIDEO|>"]
    words += ["<|vision_bos|>", "<|vision_eos|>", "<|audio_bos|>", "<|audio_eos|>"]
    text = {"rope_parameters": {"mrope_section": [2, 3, 3], "rope_theta": 1e6}}
    windows = {"window_size": 32, "fullatt_block_indexes": [1]}
    polite = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    start = "{% if messages[0]['role']!='system' %}" + polite + "{% endif %}"
    return _omni("Qwen2_5Omni", words, text, windows, {}, start, suffix="_index")


def qwen3_omni_moe_thinker() -> Parts:
    words = [f"<|{name}_pad|>" for name in ("image", "audio", "video")]
    words += ["<|vision_start|>", "<|vision_end|>", "<|audio_start|>", "<|audio_end|>"]
    text = {**EXPERTS, "rope_parameters": INTERLEAVED}
    vision = {**DEEP, "num_position_embeddings": 16}
    return _omni("Qwen3OmniMoe", words, text, vision, {"downsample_hidden_size": 8})


FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function
    for function in (
        qwen3_vl, qwen3_5, qwen3_vl_moe, qwen3_5_moe, glm4v, glm46v, glm_ocr,
        qwen2_5_omni_thinker, qwen3_omni_moe_thinker, glm4v_moe, exaone4_5, qwen4_exp,
        glm5_next, glmga,
    )
}  # fmt: skip
