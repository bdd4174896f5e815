"""A small GIT of random weights in the hub's format, to try everything without a hub.

python examples/small_git.py FOLDER CAPTIONS   (a new folder; a text file with a caption a line)
"""

import sys
from pathlib import Path

import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def word_pieces(captions: list[str]) -> transformers.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=4000, special_tokens=MARKS, show_progress=False)
    tokenizer.train_from_iterator(captions, trainer)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def main(folder: str, captions: str, side: int = 96, hidden: int = 192, layers: int = 4) -> None:
    tokenizer = word_pieces(Path(captions).read_text(encoding="utf-8").splitlines())
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 48,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    vision = {**sizes, "image_size": side, "patch_size": 16}
    config = transformers.GitConfig(vision_config=vision, vocab_size=len(tokenizer), **sizes, **ids)
    transformers.GitForCausalLM(config).save_pretrained(folder)
    photos = transformers.CLIPImageProcessor(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side}
    )
    transformers.GitProcessor(photos, tokenizer).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:3])
