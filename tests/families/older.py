"""Small random models of the older image-to-text families."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import Prepend, Replace, Sequence
from tokenizers.trainers import BpeTrainer

from tests.image_text_folders import (
    IMAGE,
    LLAMA,
    QFORMER,
    SIZE,
    SQUARE,
    TEXT,
    VISION,
    Parts,
    byte_pairs,
    word_pieces,
)
from tests.tiny import CAPTIONS

T5_NAMES = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
KOSMOS = ["<s>", "<pad>", "</s>", "<unk>"]
KOSMOS_NAMES = {**T5_NAMES, "bos_token": "<s>"}
# Mistral's tokenizer, as Idefics 1 and 2 have it: the unknown token pads.
MISTRAL = ["<unk>", "<s>", "</s>"]
MISTRAL_NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
MISTRAL_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAKE = "<fake_token_around_image>"
END = "<end_of_utterance>"
IDEFICS2_CHAT = (
    "{% for m in messages %}{{ m['role'] | capitalize }}"
    "{% if m['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
    "{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}{% else %}<image>"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
ARIA_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'text' %}{{ c['text'] }}{% else %}<fim_prefix><|img|><fim_suffix>"
    "{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EMU3_CHAT = (
    "{% for m in messages %}{{ m['role'].upper() }}: {% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }} {% endif %}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


def _kosmos_text(size: int) -> dict[str, Any]:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    sizes = {"embed_dim": 32, "layers": 2, "ffn_dim": 48, "attention_heads": 2}
    dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    return {"vocab_size": size, "max_position_embeddings": 256, **sizes, **dropout, **ids}


def _see(projection: Any) -> None:
    """Photos are projected as large as the latent queries beside them, so that they matter."""
    with torch.no_grad():
        projection.dense.weight.normal_(std=2.0)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            getattr(projection.x_attn, name).weight.normal_(std=0.2)


def kosmos_2() -> Parts:
    tokenizer = byte_pairs(KOSMOS, first="<s>", last="</s>", **KOSMOS_NAMES)
    processor = transformers.Kosmos2Processor(
        transformers.CLIPImageProcessor(**SQUARE), tokenizer, num_patch_index_tokens=16
    )
    # The processor writes 64 places for a photo; its folder cannot say another number.
    config = transformers.Kosmos2Config(
        text_config=_kosmos_text(len(processor.tokenizer)),
        vision_config={**VISION, "initializer_range": 0.2},
        latent_query_num=64,
    )
    network = transformers.Kosmos2ForConditionalGeneration(config)
    _see(network.image_to_text_projection)
    return network, processor


PATCHES = {"max_patches": 32, "patch_size": {"height": 8, "width": 8}}


def pix2struct() -> Parts:
    # The processor's 2048 patches win over the image processor's; only its tokenizer's
    # settings win over them.
    tokenizer = byte_pairs(["<pad>", "</s>", "<unk>"], last="</s>", max_patches=32, **T5_NAMES)
    heads = {"hidden_size": 32, "d_kv": 16, "d_ff": 48}
    text = {"vocab_size": len(tokenizer), "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
    vision = {"patch_embed_hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Pix2StructConfig(
        text_config={**text, **heads},
        vision_config={**vision, **heads, "seq_len": 64},
        initializer_range=0.1,
    )
    photos = transformers.Pix2StructImageProcessor(**PATCHES)
    network = transformers.Pix2StructForConditionalGeneration(config)
    return network, transformers.Pix2StructProcessor(photos, tokenizer)


def vision_encoder_decoder() -> tuple[Any, Parts]:
    mark = "<|endoftext|>"
    model = json.loads(byte_pairs([mark]).backend_tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    # GPT-2 has one special token, which starts, ends and pads.
    tokenizer = transformers.GPT2Tokenizer(vocab=model["vocab"], merges=merges, pad_token=mark)
    end = tokenizer.convert_tokens_to_ids(mark)
    ids = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": len(tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**VISION, initializer_range=0.1),
        transformers.GPT2Config(n_positions=64, initializer_range=0.3, **sizes, **dropout, **ids),
        decoder_start_token_id=end,
        **ids,
    )
    photos = transformers.ViTImageProcessor(size=SIZE)
    return transformers.VisionEncoderDecoderModel(config), (photos, tokenizer)


def idefics2() -> Parts:
    tokenizer = byte_pairs(
        [*MISTRAL, FAKE, IMAGE, END],
        first="<s>",
        pad_token="<unk>",
        extra_special_tokens={"image_token": IMAGE, "image_boundary_token": FAKE},
        **MISTRAL_NAMES,
    )
    # Every photo is cut in four, with the whole beside them: five rows of four tokens.
    photos = transformers.Idefics2ImageProcessor(
        size={"shortest_edge": 24, "longest_edge": 64}, do_image_splitting=True
    )
    processor = transformers.Idefics2Processor(
        photos, tokenizer, image_seq_len=4, chat_template=IDEFICS2_CHAT
    )
    text = {**LLAMA, "model_type": "mistral", **MISTRAL_IDS, "vocab_size": len(tokenizer)}
    heads = {"resampler_n_heads": 2, "resampler_head_dim": 16, "num_key_value_heads": 2}
    config = transformers.Idefics2Config(
        text_config=text,
        vision_config={**VISION, "image_size": 64, "initializer_range": 0.2},
        perceiver_config={
            "hidden_size": 32, "resampler_n_latents": 4, "resampler_depth": 2, **heads,
            "initializer_range": 0.2,
        },
        image_token_id=4,
    )  # fmt: skip
    network = transformers.Idefics2ForConditionalGeneration(config)
    network.generation_config = transformers.GenerationConfig(
        bos_token_id=1, eos_token_id=[2, 5], pad_token_id=0
    )
    return network, processor


def aria() -> Parts:
    marks = ["<|im_start|>", "<|im_end|>", "<fim_prefix>", "<fim_suffix>", "<|img|>"]
    tokenizer = byte_pairs(
        [*MISTRAL, *marks],
        pad_token="<unk>",
        extra_special_tokens={"image_token": "<|img|>"},
        **MISTRAL_NAMES,
    )
    processor = transformers.AriaProcessor(
        transformers.AriaImageProcessor(),
        tokenizer,
        chat_template=ARIA_CHAT,
        size_conversion={490: 2, 980: 4},
    )
    experts = {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1}
    config = transformers.AriaConfig(
        text_config={**TEXT, **experts, **MISTRAL_IDS, "vocab_size": len(tokenizer)},
        # The processor knows photos of 490 or 980 pixels alone: 25 large patches.
        vision_config={**VISION, "model_type": "idefics3_vision", "image_size": 980,
                       "patch_size": 196},
        projector_patch_to_query_dict={25: 4},
        image_token_index=7,
    )  # fmt: skip
    return transformers.AriaForConditionalGeneration(config), processor


def udop() -> Parts:
    words = byte_pairs([]).get_vocab()
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    vocab += [(word, -3.0) for word in words if word not in ("▁",)]
    tokenizer = transformers.UdopTokenizer(vocab=vocab)
    photos = transformers.LayoutLMv3ImageProcessor(size=SIZE)
    config = transformers.UdopConfig(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2,
        dropout_rate=0.0, image_size=16, patch_size=8, decoder_start_token_id=0,
    )  # fmt: skip
    network = transformers.UdopForConditionalGeneration(config)
    return network, transformers.UdopProcessor(photos, tokenizer)


def kosmos_2_5() -> Parts:
    places = {"image_token": "<s>", "boi_token": IMAGE, "eoi_token": "</image>"}
    tokenizer = byte_pairs(
        [*KOSMOS, IMAGE, "</image>", "<md>", "<ocr>"],
        extra_special_tokens=places,
        max_patches=32,
        **KOSMOS_NAMES,
    )
    vision = {"hidden_size": 32, "patch_embed_hidden_size": 192, "intermediate_size": 48,
              "head_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
              "max_num_patches": 4096, "initializer_range": 0.2}  # fmt: skip
    config = transformers.Kosmos2_5Config(
        text_config=_kosmos_text(len(tokenizer)), vision_config=vision, latent_query_num=8
    )
    photos = transformers.Kosmos2_5ImageProcessor(**PATCHES)
    processor = transformers.Kosmos2_5Processor(photos, tokenizer, num_image_tokens=8)
    network = transformers.Kosmos2_5ForConditionalGeneration(config)
    _see(network.image_to_text_projection)
    return network, processor


# Convolutions of 32 channels at least, for their norms have 32 groups.
VQ = {"base_channels": 32, "latent_channels": 32, "num_res_blocks": 1}


def chameleon() -> Parts:
    special = ["<s>", "<pad>", "</s>", "<unk>", IMAGE, "<racm3:break>", "<eoss>"]
    # The codes' digits are letters: A is 0.
    names = ["".join(chr(ord("A") + int(digit)) for digit in str(code)) for code in range(16)]
    codes = [f"IMGIMG{name}Z" for name in names]
    tokenizer = byte_pairs(
        [*special, "<reserved08706>", *codes],
        first="<s>",
        sep_token="<reserved08706>",
        extra_special_tokens={
            "image_token": IMAGE, "boi_token": "<racm3:break>", "eoi_token": "<eoss>"
        },
        **KOSMOS_NAMES,
    )  # fmt: skip
    config = transformers.ChameleonConfig(
        **TEXT,
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        vocabulary_map=tokenizer.get_vocab(),
        vq_config={**VQ, "embed_dim": 32, "num_embeddings": 16, "resolution": 64,
                   "channel_multiplier": [1] * 5},
    )  # fmt: skip
    photos = transformers.ChameleonImageProcessor(
        size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}
    )
    processor = transformers.ChameleonProcessor(photos, tokenizer, image_seq_length=16)
    return transformers.ChameleonForConditionalGeneration(config), processor


def emu3() -> Parts:
    places = {
        "image_token": IMAGE, "boi_token": "<|image start|>", "eoi_token": "<|image end|>",
        "image_wrapper_token": "<|image token|>", "eof_token": "<|extra_201|>",
    }  # fmt: skip
    codes = [f"<|visual token {code:06}|>" for code in range(16)]
    special = ["<|endoftext|>", "<|extra_203|>", "<|extra_204|>", "<|extra_200|>"]
    tokenizer = byte_pairs(
        [*special, *places.values(), *codes],
        pad_token="<|endoftext|>",
        bos_token="<|extra_203|>",
        eos_token="<|extra_204|>",
        extra_special_tokens=places,
    )
    text = {
        **TEXT,
        "num_key_value_heads": 1,
        "vocab_size": len(tokenizer),
        "attention_dropout": 0.0,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.Emu3Config(
        text_config={**text, **ids},
        vq_config={**VQ, "latent_channels": 4, "codebook_size": 16, "hidden_size": 32,
                   "channel_multiplier": [1] * 4},
        vocabulary_map=tokenizer.get_vocab(),
    )  # fmt: skip
    # 60x40 is 5 rows of 8 codes, 48x48 is 6 of 6, 200x120 is 5 of 9; a token ends each row.
    photos = transformers.Emu3ImageProcessor(min_pixels=1024, max_pixels=3584)
    processor = transformers.Emu3Processor(photos, tokenizer, chat_template=EMU3_CHAT)
    return transformers.Emu3ForConditionalGeneration(config), processor


def _fuyu_words() -> Any:
    marks = ["|SPEAKER|", "|NEWLINE|", *(f"<0x0{code}>" for code in range(5))]
    trained = Tokenizer(BPE(unk_token="<unk>"))
    trainer = BpeTrainer(
        vocab_size=340,
        special_tokens=MISTRAL,
        initial_alphabet=["▁", "\n", *(chr(code) for code in range(33, 127))],
        show_progress=False,
    )
    trained.train_from_iterator([f"▁{word}" for text in CAPTIONS for word in text.split()], trainer)
    model = json.loads(trained.to_str())["model"]
    # Its marks are words like others, merged letter by letter before all else, so that a space
    # is written even before a text of marks; the processor takes that space off again.
    first = [(mark[:end], mark[end]) for mark in marks for end in range(1, len(mark))]
    vocab = model["vocab"]
    for left, right in first:
        vocab.setdefault(left + right, len(vocab))
    merges = [*dict.fromkeys(first), *(tuple(merge) for merge in model["merges"])]
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    tokenizer.normalizer = Sequence([Prepend("▁"), Replace(" ", "▁")])
    tokenizer.decoder = MetaspaceDecoder()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<unk>", **MISTRAL_NAMES
    )


def fuyu() -> Parts:
    words = _fuyu_words()
    text = {**TEXT, **MISTRAL_IDS, "model_type": "persimmon", "vocab_size": len(words),
            "hidden_dropout": 0.0, "qk_layernorm": True, "hidden_act": "relu2"}  # fmt: skip
    mark = words.convert_tokens_to_ids("|SPEAKER|")
    config = transformers.FuyuConfig(
        text_config=text, patch_size=16, image_size=96, image_token_id=mark
    )
    # 60x40 is 3 rows of 4 patches, 48x48 of 3, 200x120 is 5 rows of 8; a token ends each row.
    photos = transformers.FuyuImageProcessor(
        size={"height": 96, "width": 128}, patch_size={"height": 16, "width": 16}
    )
    return transformers.FuyuForCausalLM(config), transformers.FuyuProcessor(photos, words)


def idefics() -> Parts:
    marks = {"image_token": IMAGE, "image_boundary_token": FAKE}
    tokenizer = byte_pairs(MISTRAL, pad_token="<unk>", extra_special_tokens=marks, **MISTRAL_NAMES)
    vision = {key: value for key, value in VISION.items() if key != "hidden_size"}
    config = transformers.IdeficsConfig(
        **TEXT,
        **MISTRAL_IDS,
        # Two words of its own are embedded beside LLaMA's, and scored after them.
        vocab_size=len(tokenizer) - 2,
        additional_vocab_size=2,
        vision_config={**vision, "embed_dim": 32},
        initializer_range=0.1,
        perceiver_config={"resampler_n_latents": 4, "resampler_depth": 1, "resampler_n_heads": 2,
                          "resampler_head_dim": 16},
        use_resampler=True,
        cross_layer_interval=1,
        # Gates start at zero otherwise: photos would change nothing.
        alpha_initializer="ones",
    )  # fmt: skip
    photos = transformers.IdeficsImageProcessor(image_size=16)
    processor = transformers.IdeficsProcessor(photos, tokenizer, image_size=16)
    return transformers.IdeficsForVisionText2Text(config), processor


def instructblipvideo() -> Parts:
    tokenizer = byte_pairs([*KOSMOS, "<video>"], first="<s>", **KOSMOS_NAMES)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = transformers.InstructBlipVideoConfig(
        vision_config=VISION,
        qformer_config=QFORMER,
        text_config={**LLAMA, **ids, "vocab_size": len(tokenizer)},
        num_query_tokens=4,
        video_token_index=4,
    )
    processor = transformers.InstructBlipVideoProcessor(
        transformers.InstructBlipVideoVideoProcessor(size=SIZE),
        tokenizer,
        word_pieces(),
        num_query_tokens=4,
    )
    return transformers.InstructBlipVideoForConditionalGeneration(config), processor


FAMILIES: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        kosmos_2, pix2struct, vision_encoder_decoder, idefics2, aria, kosmos_2_5, chameleon, emu3,
        fuyu, idefics,
    )
}  # fmt: skip
UNRUN: dict[str, Callable[[], Any]] = {"udop": udop, "instructblipvideo": instructblipvideo}
"""Builders of types that are refused."""
PROMPTS: dict[str, str] = {
    "kosmos_2": "An image of",
    "pix2struct": "A picture of",
    "vision_encoder_decoder": "",
    "udop": "a photo",
    "kosmos_2_5": "<md>",
    "chameleon": "<image>Describe the photo.",
    "fuyu": "Generate a coco-style caption.\n",
    "idefics": "Describe the photo.",
    "instructblipvideo": "Describe the photo.",
}
