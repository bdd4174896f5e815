"""Gemma, Mistral and Cohere: small image-to-text models of random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from tests.image_text_folders import TEXT, VISION, Parts, byte_pairs

GEMMA_SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
GEMMA_NAMES = {f"{name}_token": f"<{name}>" for name in ("pad", "bos", "eos", "unk")}
GEMMA_IDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
TURNS = ["<start_of_turn>", "<end_of_turn>"]
# One layer looks back over a window, as five of six layers of Gemma do.
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24}
HEADS = {"num_key_value_heads": 1, "head_dim": 16}
SIGLIP = {**VISION, "model_type": "siglip_vision_model", "image_size": 32, "vision_use_head": False}


def _gemma_chat(photo: str, turns: list[str], opening: str = "") -> str:
    start, end = turns
    return (
        "{{ bos_token }}{% for m in messages %}" + start
        + "{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
        "{% if m['content'] is string %}{{ m['content'] | trim }}{% else %}"
        "{% for c in m['content'] %}{% if c['type'] == 'image' %}" + photo
        + "{% else %}{{ c['text'] | trim }}{% endif %}{% endfor %}{% endif %}" + end
        + "\n{% endfor %}{% if add_generation_prompt %}" + start + "model\n" + opening
        + "{% endif %}"
    )  # fmt: skip


def _gemma_tokenizer(marks: dict[str, str], turns: list[str]) -> Any:
    special = [*GEMMA_SPECIAL, *turns, *marks.values()]
    names = {**GEMMA_NAMES, "padding_side": "left", "extra_special_tokens": marks}
    return byte_pairs(special, first="<bos>", **names)


def _ids(tokenizer: Any, marks: dict[str, str], suffix: str = "_id") -> dict[str, int]:
    return {name + suffix: tokenizer.convert_tokens_to_ids(mark) for name, mark in marks.items()}


def _ended(network: Any, eos: int | list[int], **ids: int) -> Any:
    """The network, with the published kind of ends of an answer."""
    network.generation_config = transformers.GenerationConfig(eos_token_id=eos, **ids)
    return network


GEMMA3_MARKS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}


def _gemma3() -> tuple[Any, Any, Any]:
    tokenizer = _gemma_tokenizer(GEMMA3_MARKS, TURNS)
    text = {**TEXT, **HEADS, **LAYERS, **GEMMA_IDS, "vocab_size": len(tokenizer)}
    config = transformers.Gemma3Config(
        text_config={**text, "query_pre_attn_scalar": 16},
        vision_config=SIGLIP,
        mm_tokens_per_image=4,
        **_ids(tokenizer, GEMMA3_MARKS, "_index"),
    )
    network = transformers.Gemma3ForConditionalGeneration(config)
    # transformers starts this projection at zero, under which no photo reaches the text.
    torch.nn.init.normal_(network.model.multi_modal_projector.mm_input_projection_weight, std=0.5)
    photos = transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32})
    return _ended(network, [1, 5], pad_token_id=0, bos_token_id=2), photos, tokenizer


def gemma3() -> Parts:
    network, photos, tokenizer = _gemma3()
    chat = _gemma_chat("<start_of_image>", TURNS)
    processor = transformers.Gemma3Processor(
        photos, tokenizer, image_seq_length=4, chat_template=chat
    )
    return network, processor


GEMMA4_TURNS = ["<|turn>", "<turn|>"]
GEMMA4_MARKS = {
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "image_token": "<|image|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "audio_token": "<|audio|>",
    "video_token": "<|video|>",
}
# The fewest soft tokens a photo that the processor allows, whatever the size of the photo.
SOFT = {"patch_size": 2, "max_soft_tokens": 70, "pooling_kernel_size": 3}


def _gemma4(kind: str, opening: str, text: dict[str, Any], **sides: Any) -> Parts:
    channel = ["<|channel>", "<channel|>", "<|tool_response>"]
    tokenizer = _gemma_tokenizer(GEMMA4_MARKS, GEMMA4_TURNS + channel)
    processor = getattr(transformers, f"{kind}Processor")(
        getattr(transformers, f"{kind}AudioFeatureExtractor")(),
        getattr(transformers, f"{kind}ImageProcessor")(**SOFT),
        tokenizer,
        getattr(transformers, f"{kind}VideoProcessor")(**SOFT),
        image_seq_length=70,
        chat_template=_gemma_chat("<|image|>", GEMMA4_TURNS, opening),
    )
    ids = _ids(tokenizer, GEMMA4_MARKS)
    ids["eoa_token_index"] = ids.pop("eoa_token_id")
    shared = {**TEXT, **HEADS, **LAYERS, **GEMMA_IDS, "final_logit_softcapping": 30.0}
    size = {"vocab_size": len(tokenizer), "global_head_dim": 32}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**shared, **size, **text}, **sides, **ids
    )
    network = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    # Else a photo's tokens hardly differ from one another, and an answer not by its photo.
    for name, weight in network.model.named_parameters():
        if name.endswith(("position_embedding_table", "embed_vision.embedding_projection.weight")):
            torch.nn.init.normal_(weight, std=0.1)
    ends = tokenizer.convert_tokens_to_ids(["<eos>", "<turn|>", "<|tool_response>"])
    return _ended(network, ends, pad_token_id=0, bos_token_id=2), processor


GEMMA4_VISION = {
    **VISION,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 2,
    "pooling_kernel_size": 3,
    "position_embedding_size": 128,
}


def gemma4() -> Parts:
    """As E2B and E4B: embeddings by layer, later layers without keys of their own, sound."""
    text = {
        "num_hidden_layers": 4,
        "layer_types": LAYERS["layer_types"] * 2,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 340,
    }
    sound = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sound |= {"subsampling_conv_channels": [8, 4], "output_proj_dims": 32}
    vision = {**GEMMA4_VISION, "use_clipped_linears": True}
    return _gemma4("Gemma4", "", text, vision_config=vision, audio_config=sound)


THOUGHT = "<|channel>thought\n<channel|>"
GEMMA4_LARGE = {
    "use_bidirectional_attention": "vision",
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
}


def gemma4_26b() -> Parts:
    """As 26B-A4B: experts, and tokens of a photo that see each other."""
    text = {**GEMMA4_LARGE, "hidden_size_per_layer_input": 0, "enable_moe_block": True}
    text |= {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16}
    vision = {**GEMMA4_VISION, "standardize": True}
    return _gemma4("Gemma4", THOUGHT, text, vision_config=vision, audio_config=None)


def gemma4_unified() -> Parts:
    vision = {"patch_size": 2, "pooling_kernel_size": 3, "mm_embed_dim": 32, "output_proj_dims": 32}
    vision["mm_posemb_size"] = 80
    sound = {"audio_embed_dim": 32}
    return _gemma4("Gemma4Unified", THOUGHT, GEMMA4_LARGE, vision_config=vision, audio_config=sound)


def gemma3n() -> Parts:
    vision = {"eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    sound = {"eoa_token": "<end_of_audio>", "audio_token": "<audio_soft_token>"}
    first = {"boi_token": "<start_of_image>", "boa_token": "<start_of_audio>"}
    # The tokenizer adds the other marks after its words: tables of their own embed those.
    marks = {**first, **vision, **sound}
    names = {**GEMMA_NAMES, "padding_side": "left", "extra_special_tokens": marks}
    tokenizer = byte_pairs([*GEMMA_SPECIAL, *TURNS, *first.values()], first="<bos>", **names)
    words = len(tokenizer) - 4
    text = {**TEXT, **HEADS, **GEMMA_IDS, "num_hidden_layers": 4, "num_kv_shared_layers": 2}
    text |= {"layer_types": LAYERS["layer_types"] * 2, "sliding_window": 24, "laurel_rank": 8}
    text |= {"hidden_size_per_layer_input": 8, "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0]}
    conformer = {"conf_num_hidden_layers": 1, "conf_num_attention_heads": 2, "hidden_size": 32}
    config = transformers.Gemma3nConfig(
        text_config={**text, "vocab_size": words + 4, "vocab_size_per_layer_input": words},
        vision_config={
            "model_type": "gemma3n_vision",
            "architecture": "test_efficientnet_ln",
            "hidden_size": 256,
            "vocab_offset": words,
            "vocab_size": 2,
        },
        audio_config={
            **conformer,
            "sscp_conv_channel_size": [8, 4],
            "vocab_offset": words + 2,
            "vocab_size": 2,
        },
        vision_soft_tokens_per_image=4,
        audio_soft_tokens_per_image=4,
        **_ids(tokenizer, marks),
    )
    network = transformers.Gemma3nForConditionalGeneration(config)
    # This scale starts at zero, under which the embeddings by layer do nothing.
    for layer in network.model.language_model.layers:
        torch.nn.init.normal_(layer.altup.correct_output_scale)
    processor = transformers.Gemma3nProcessor(
        transformers.Gemma3nAudioFeatureExtractor(),
        transformers.SiglipImageProcessor(size={"height": 64, "width": 64}),
        tokenizer,
        chat_template=_gemma_chat("<image_soft_token>", TURNS),
        audio_seq_length=4,
        image_seq_length=4,
    )
    return _ended(network, [1, 5], pad_token_id=0, bos_token_id=2), processor


def t5gemma2() -> Parts:
    """Pretrained only: a prompt, no chat."""
    tokenizer = _gemma_tokenizer(GEMMA3_MARKS, TURNS)
    text = {**TEXT, **HEADS, **LAYERS, **GEMMA_IDS, "vocab_size": len(tokenizer)}
    text |= {"query_pre_attn_scalar": 16}
    ids = _ids(tokenizer, GEMMA3_MARKS, "_index")
    encoder = {"text_config": text, "vision_config": SIGLIP, "mm_tokens_per_image": 4, **ids}
    config = transformers.T5Gemma2Config(
        encoder=encoder, decoder=text, image_token_index=ids["image_token_index"]
    )
    network = transformers.T5Gemma2ForConditionalGeneration(config)
    projector = network.model.encoder.multi_modal_projector
    torch.nn.init.normal_(projector.mm_input_projection_weight, std=0.5)
    _ended(network, 1, pad_token_id=0, bos_token_id=2, decoder_start_token_id=2)
    photos = transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32})
    return network, transformers.Gemma3Processor(photos, tokenizer, image_seq_length=4)


PIXTRAL = {**VISION, "model_type": "pixtral", "image_size": 96, "patch_size": 6}
PIXTRAL |= {"hidden_act": "silu", "initializer_range": 0.1}
MISTRAL_CHAT = (
    "{{ bos_token }}[SYSTEM_PROMPT]You are Mistral.[/SYSTEM_PROMPT]{% for m in messages %}"
    "{% if m['role'] == 'user' %}[INST]{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for c in m['content'] %}{% if c['type'] == 'image' %}[IMG]"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}[/INST]"
    "{% elif m['content'] is string %}{{ m['content'] + eos_token }}"
    "{% else %}{{ m['content'][0]['text'] + eos_token }}{% endif %}{% endfor %}"
)


def _mistral(kind: str, text: dict[str, Any]) -> Parts:
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>", "[IMG]", "[IMG_BREAK]"]
    special += ["[IMG_END]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = byte_pairs(special, first="<s>", **names)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 5}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**TEXT, **ids, "vocab_size": len(tokenizer), **text},
        vision_config=PIXTRAL,
        image_token_index=6,
        spatial_merge_size=2,
        tie_word_embeddings=False,
    )
    network = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    photos = transformers.PixtralImageProcessor(size={"longest_edge": 96}, patch_size=6)
    processor = transformers.PixtralProcessor(
        photos, tokenizer, patch_size=6, spatial_merge_size=2, chat_template=MISTRAL_CHAT
    )
    return _ended(network, 2, bos_token_id=1, pad_token_id=5), processor


def mistral3() -> Parts:
    return _mistral("Mistral3", {**HEADS, "model_type": "mistral", "sliding_window": None})


LATENT = {
    "num_key_value_heads": 2,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}


def mistral_small4() -> Parts:
    """As Mistral Small 4: model type mistral3, whose text model is of type mistral4."""
    return _mistral("Mistral3", {**LATENT, "model_type": "mistral4", "q_lora_rank": 16})


def mistral_large4() -> Parts:
    # With few heads of the index many scores tie at zero, and padding decides which are kept.
    sparse = {"index_topk": 16, "index_head_dim": 16, "index_n_heads": 16}
    return _mistral("MistralLarge4", {**LATENT, **sparse, "no_rope_layers": [1, 0]})


QWEN_OCR_CHAT = (
    "<|im_start|>system<|im_end|>\n{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|image_pad|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def lighton_ocr() -> Parts:
    marks = {
        "image_token": "<|image_pad|>",
        "image_break_token": "<|vision_pad|>",
        "image_end_token": "<|vision_end|>",
    }
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks.values()]
    names = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    tokenizer = byte_pairs(special, **names, extra_special_tokens=marks)
    ids = {"eos_token_id": 2, "pad_token_id": 0}
    config = transformers.LightOnOcrConfig(
        text_config={**TEXT, **HEADS, **ids, "model_type": "qwen3", "vocab_size": len(tokenizer)},
        vision_config=PIXTRAL,
        image_token_id=3,
        spatial_merge_size=2,
    )
    network = transformers.LightOnOcrForConditionalGeneration(config)
    # The rows of patches that one token reads are whole: the patch here is both patches' side.
    photos = transformers.PixtralImageProcessor(size={"longest_edge": 96}, patch_size=12)
    processor = transformers.LightOnOcrProcessor(
        photos, tokenizer, patch_size=6, spatial_merge_size=2, chat_template=QWEN_OCR_CHAT
    )
    return _ended(network, 2, pad_token_id=0), processor


def _cohere_chat(photo: str, opening: str, before: str = "") -> str:
    turn, end = "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"
    chatbot = turn + "<|CHATBOT_TOKEN|>"
    answer = "{{ m['content'] if m['content'] is string else m['content'][0]['text'] }}"
    return (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}" + turn
        + "<|USER_TOKEN|>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
        "{% for c in m['content'] %}{% if c['type'] == 'image' %}" + photo
        + "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
        "{% else %}" + chatbot + opening + before + answer
        + ("<|END_RESPONSE|>" if opening + before else "")
        + "{% endif %}" + end + "{% endfor %}"
        "{% if add_generation_prompt %}" + chatbot + opening + "{% endif %}"
    )  # fmt: skip


COHERE_SPECIAL = ["<PAD>", "<UNK>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"]
COHERE_SPECIAL += ["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"]
COHERE_SPECIAL += ["<|START_RESPONSE|>", "<|END_RESPONSE|>"]
COHERE_NAMES = {
    "pad_token": "<PAD>",
    "unk_token": "<UNK>",
    "bos_token": "<BOS_TOKEN>",
    "eos_token": "<|END_OF_TURN_TOKEN|>",
    "padding_side": "left",
}
COHERE_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
COHERE2 = {**TEXT, **LAYERS, **COHERE_IDS, "model_type": "cohere2", "num_key_value_heads": 1}
# Sixteen patches a tile, of which four tokens come: a photo of 60x40 is one tile.
TILE = {"height": 64, "width": 64}
TILE_VISION = {**SIGLIP, "image_size": 64, "patch_size": 16}


def aya_vision() -> Parts:
    tiles = ["TILE_GLOBAL", *(f"TILE_{number}" for number in range(1, 13))]
    special = [*COHERE_SPECIAL, "<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>"]
    special += ["<|IMG_LINE_BREAK|>", *tiles]
    tokenizer = byte_pairs(special, first="<BOS_TOKEN>", **COHERE_NAMES)
    config = transformers.AyaVisionConfig(
        text_config={**COHERE2, "vocab_size": len(tokenizer)},
        vision_config=TILE_VISION,
        image_token_index=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"),
    )
    network = transformers.AyaVisionForConditionalGeneration(config)
    # The ratio alone chooses the tiles: of up to twelve, as published, 60x40 would take six.
    photos = transformers.GotOcr2ImageProcessor(size=TILE, crop_to_patches=True, max_patches=2)
    chat = _cohere_chat("<image>", "<|START_RESPONSE|>")
    processor = transformers.AyaVisionProcessor(
        photos, tokenizer, patch_size=32, img_size=64, chat_template=chat
    )
    return _ended(network, 3, bos_token_id=2, pad_token_id=0), processor


def cohere2_vision() -> Parts:
    marks = {
        "boi_token": "<|START_OF_IMG|>",
        "eoi_token": "<|END_OF_IMG|>",
        "img_line_break_token": "<|IMG_LINE_BREAK|>",
        "image_token": "<|IMG_PATCH|>",
    }
    special = [*COHERE_SPECIAL, *marks.values()]
    names = {**COHERE_NAMES, "extra_special_tokens": marks}
    tokenizer = byte_pairs(special, first="<BOS_TOKEN>", **names)
    config = transformers.Cohere2VisionConfig(
        text_config={**COHERE2, "vocab_size": len(tokenizer)},
        vision_config=TILE_VISION,
        image_token_id=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"),
        alignment_intermediate_size=64,
    )
    network = transformers.Cohere2VisionForConditionalGeneration(config)
    # This patch_size counts the tokens of a tile's side, as 16 does of 512 pixels as published.
    photos = transformers.Cohere2VisionImageProcessor(size=TILE, patch_size=2)
    chat = _cohere_chat("<|IMG_PATCH|>", "", "<|START_RESPONSE|>")
    processor = transformers.Cohere2VisionProcessor(photos, tokenizer, chat_template=chat)
    return _ended(network, 3, bos_token_id=2, pad_token_id=0), processor


def cohere_compass() -> Parts:
    marks = ["<|VISION_START|>", "<|VISION_END|>", "<|IMAGE_PAD|>", "<|VIDEO_PAD|>"]
    tokenizer = byte_pairs([*COHERE_SPECIAL, *marks], first="<BOS_TOKEN>", **COHERE_NAMES)
    start, end, photo, film = tokenizer.convert_tokens_to_ids(marks)
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
    config = transformers.CohereCompassConfig(
        text_config={
            **TEXT,
            **COHERE_IDS,
            "vocab_size": len(tokenizer),
            "num_key_value_heads": 1,
            **LAYERS,
            "rope_parameters": {"sliding_attention": rope, "full_attention": None},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": 8,
            "out_hidden_size": 32,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=photo,
        video_token_id=film,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    network = transformers.CohereCompassForConditionalGeneration(config)
    pixels = {"patch_size": 8, "size": {"shortest_edge": 256, "longest_edge": 8192}}
    processor = transformers.CohereCompassProcessor(
        transformers.CohereCompassImageProcessor(**pixels),
        tokenizer,
        transformers.CohereCompassVideoProcessor(**pixels),
        chat_template=_cohere_chat("<|VISION_START|><|IMAGE_PAD|><|VISION_END|>", ""),
    )
    return _ended(network, 3, bos_token_id=2, pad_token_id=0), processor


FAMILIES: dict[str, Callable[[], Parts]] = {
    function.__name__: function
    for function in (
        gemma3, gemma4, gemma3n, mistral3, aya_vision, cohere2_vision, gemma4_unified, lighton_ocr,
        t5gemma2, mistral_large4, cohere_compass,
    )
}  # fmt: skip
# Published models of a type above whose config differs where it matters to training.
VARIANTS: dict[str, Callable[[], Parts]] = {
    function.__name__: function for function in (gemma4_26b, mistral_small4)
}
# Families without a chat template, with the prompt to give them.
PROMPTS: dict[str, str] = {"t5gemma2": "<start_of_image> a photo of"}
