"""A small GPT-2 with byte pairs, in the layout of the hub's."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from captioning.text.causal import DOCUMENT_BREAK
from tests.tiny import CAPTIONS

POSITIONS = 48


def byte_pairs() -> Tokenizer:
    """A few hundred pairs; every text can be written, as all bytes are there."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=[DOCUMENT_BREAK],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [*CAPTIONS, *(caption.capitalize() for caption in CAPTIONS)]
    tokenizer.train_from_iterator([*texts, "There are something, in image."] * 3, trainer)
    return tokenizer


def save_causal(folder: Path, *, positions: int = POSITIONS) -> Path:
    """Network and tokenizer as transformers saves them."""
    tokenizer = byte_pairs()
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=positions,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    network = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.4)
    network.save_pretrained(folder)
    ends = {"bos_token": DOCUMENT_BREAK, "eos_token": DOCUMENT_BREAK}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(folder)
    return folder
