"""Graphs and sentences by models of other people: their lines, their folders, words found again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

from augmentation.ssa import amr_models
from augmentation.ssa.amr_models import (
    SequenceModel,
    SequenceParser,
    SequenceWriter,
    align,
    caption_by_words,
    read_linear,
)
from augmentation.ssa.amr_parser import graph_of
from augmentation.ssa.dependency_parse import parsed_words
from augmentation.ssa.graph import Graph
from augmentation.ssa.penman import read_penman, write_penman
from captioning.text.parser import build_caption_parser
from tests.causal_folder import byte_pairs

LINE = (
    "( ride-01 :ARG0 ( boy :mod ( hat_0 ) ) "
    ":ARG1 ( horse :location ( hat_1 :quant 2 ) :poss boy ) )"
)


def test_a_models_line_is_read() -> None:
    graph = read_linear(LINE)
    assert write_penman(graph) == (
        "(r / ride-01 :ARG0 (b / boy :mod (h / hat) :poss-of (h2 / horse "
        ":location (h3 / hat :quant 2) :ARG1-of r)))"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("( dog", "(d / dog)"),
        ("( dog :mod", "(d / dog)"),
        ("( dog :mod ) :ARG0-of ( run-02 ) ) )", "(d / dog :ARG0-of (r / run-02))"),
        ("dog :mod brown", "(d / dog :mod (b / brown))"),
        ("( dog cat :mod dog )", "(d / dog)"),
        (":ARG0 ( dog )", "(d / dog)"),
        ("( 5 )", "(x / 5)"),
        ("( dog :mod ( _0 ) :ARG0-of ( run-02 ) )", "(d / dog :ARG0-of (r / run-02))"),
        ("_0 ~e.3", None),
        ("( )", None),
        ("", None),
    ],
)
def test_faults_of_a_line_are_passed_over(line: str, expected: str | None) -> None:
    graph = read_linear(line)
    assert (graph and write_penman(graph)) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BART with random weights, as transformers saves it."""
    path, tokenizer = tmp_path_factory.mktemp("bart"), byte_pairs()
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=tokenizer.get_vocab_size(), d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, max_position_embeddings=64, init_std=0.5, pad_token_id=0,
        bos_token_id=0, eos_token_id=0, decoder_start_token_id=0, forced_eos_token_id=0,
    )  # fmt: skip
    BartForConditionalGeneration(config).save_pretrained(path)
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>")
    words.save_pretrained(path)
    return path


def test_a_folder_answers_many_lines_as_one_by_one(folder: Path) -> None:
    settings = {"name": str(folder), "max_length": 12, "num_beams": 2, "device": "cpu"}
    lines = ["A dog runs.", "Two cats sit on a mat.", "x"]
    together = SequenceModel(**settings, batch_size=2).answers(lines)
    assert together == [SequenceModel(**settings).answers([line])[0] for line in lines]
    assert len(set(together)) > 1
    graphs = SequenceParser(**settings).graphs(lines)
    assert [graph is None for graph in graphs] == [read_linear(x) is None for x in together]
    dog = read_penman("(d / dog)")
    (sentence,) = SequenceWriter(**settings).sentences([dog])
    assert (
        sentence
        == next(iter(SequenceModel(**settings).answers(["(d / dog)"])[0].splitlines())).strip()
    )


def test_lines_and_answers_that_are_cut_are_told_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = SequenceModel(name=str(folder), max_length=6, num_beams=1, device="cpu")
    model.answers(["x"])
    assert "(lines)" not in caplog.text
    model.answers(["Two cats sit on a mat by a dog."] * 2)
    told = [record.message for record in caplog.records]
    assert sum("(lines) reads 6 tokens of a text" in text for text in told) == 1
    assert sum("(its own answers) reads 6 tokens" in text for text in told) <= 1
    assert all(text.endswith("raise max_length, or give shorter captions") for text in told)


def test_lines_of_about_one_length_share_a_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SequenceModel(name=str(folder), max_length=12, num_beams=1, device="cpu", batch_size=2)
    lines = ["A dog runs.", "x", "Two cats sit on a mat.", "A dog", "a"]
    expected = [model.answers([line])[0] for line in lines]
    batches: list[list[str]] = []
    real = model._tokenizer

    class Watched:
        batch_decode = real.batch_decode

        def __call__(self, texts: list[str], **options: object) -> object:
            batches.append(texts)
            return real(texts, **options)

    monkeypatch.setattr(model, "_tokenizer", Watched())
    assert model.answers(lines) == expected
    assert batches == [["x", "a"], ["A dog", "A dog runs."], ["Two cats sit on a mat."]]


def test_a_gpu_has_more_lines_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"name": str(folder), "max_length": 12}
    assert SequenceModel(**settings, device="cpu").batch_size == 16
    monkeypatch.setattr(amr_models, "chosen_device", lambda _: torch.device("meta"))
    assert SequenceModel(**settings).batch_size == 256
    assert SequenceModel(**settings, batch_size=3).batch_size == 3


def test_the_same_graph_is_written_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, asked = SequenceWriter(name=str(folder), max_length=12, device="cpu"), []

    def answers(lines: Sequence[str]) -> list[str]:
        asked.extend(lines)
        return [f"{line}!\nmore" for line in lines]

    monkeypatch.setattr(writer.model, "answers", answers)
    texts = ("(d / dog)", "(c / cat)", "(d / dog)")
    assert writer.sentences([read_penman(text) for text in texts]) == [f"{t}!" for t in texts]
    assert asked == ["(d / dog)", "(c / cat)"]
    assert writer.sentences([]) == []


class Killed(Exception):
    """Of a process."""


@pytest.mark.long
def test_a_killed_parser_goes_on_where_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = [f"A dog runs {number}." for number in range(50)]
    settings = {"name": str(folder), "max_length": 12, "num_beams": 1, "batch_size": 1}
    settings |= {"device": "cpu"}
    asked: list[str] = []
    answers = SequenceModel.answers

    def watched(self: SequenceModel, lines: Sequence[str]) -> list[str]:
        if len(asked) >= 32:
            raise Killed
        asked.extend(lines)
        return answers(self, lines)

    monkeypatch.setattr(SequenceModel, "answers", watched)
    with pytest.raises(Killed):
        SequenceParser(**settings, cache_folder=tmp_path).graphs(captions)
    kept = list(asked)
    asked.clear()
    again = SequenceParser(**settings, cache_folder=tmp_path)
    graphs = again.graphs([*captions, captions[0]])
    assert kept + asked == captions
    expected = [read_linear(line) for line in answers(again.model, captions)]
    written = [graph and write_penman(graph) for graph in graphs]
    assert written[:-1] == [graph and write_penman(graph) for graph in expected]
    assert written[-1] == written[0]
    assert any(written)
    # other answers are not taken for these
    for other in ({"max_length": 13}, {"num_beams": 2}, {"precision": "bfloat16"}):
        asked.clear()
        SequenceParser(**settings | other, cache_folder=tmp_path).graphs(captions[:1])
        assert asked == captions[:1]
    assert len(list(tmp_path.glob("*.sqlite"))) == 4


def test_a_cache_knows_the_files_of_its_model(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    settings = {"max_length": 12, "device": "cpu"}
    first = SequenceModel(name=str(folder), **settings).identity()
    assert SequenceModel(name=str(copy), batch_size=3, **settings).identity() == first
    weights = load_file(copy / "model.safetensors")
    torch.save(weights, copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    older = SequenceModel(name=str(copy), **settings).identity()
    changed = {name: tensor + 1 for name, tensor in weights.items()}
    torch.save(changed, copy / "pytorch_model.bin")
    assert len({first, older, SequenceModel(name=str(copy), **settings).identity()}) == 3


def test_a_model_in_half_precision_answers(folder: Path) -> None:
    settings = {"name": str(folder), "max_length": 12, "device": "cpu"}
    for precision in ("bfloat16", "float16"):
        model = SequenceModel(**settings, precision=precision)
        assert len(model.answers(["A dog runs.", "x"])) == 2
    with pytest.raises(ValueError, match=r"precision must be one of .*: got 'half'"):
        SequenceModel(**settings, precision="half")


def test_folders_without_a_model_or_a_tokenizer_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="give a folder of a saved model"):
        SequenceModel(name=str(tmp_path))
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(FileNotFoundError, match="holds no tokenizer"):
        SequenceModel(name=str(bare))
    weights = load_file(bare / "model.safetensors")
    (bare / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no safetensors in it"):
        SequenceModel(name=str(bare), tokenizer=str(folder))
    # as amrlib's folders are; only tensors are read of it
    torch.save(weights, bare / "pytorch_model.bin")
    settings = {"tokenizer": str(folder), "max_length": 12, "device": "cpu"}
    older = SequenceModel(name=str(bare), **settings).answers(["A dog runs."])
    assert older == SequenceModel(name=str(folder), **settings).answers(["A dog runs."])
    torch.save({**weights, "object": Path("x")}, bare / "pytorch_model.bin")
    with pytest.raises(ValueError, match="not plain tensors .* save its state_dict alone"):
        SequenceModel(name=str(bare), **settings)


def read(caption: str):
    (parse,) = build_caption_parser(num_processes=1).parse([caption])
    return parsed_words(caption, parse), graph_of(caption, parse)


def test_words_are_found_again() -> None:
    words, parsed = read("Two young boys sit in front of a red house on the beach.")
    bare = read_penman(write_penman(parsed))
    assert all(node.names[0].token < 0 for node in bare.nodes.values())
    aligned = align(bare, words)
    names = {node.concept: node.names[0] for node in aligned.nodes.values()}
    for node in parsed.nodes.values():
        expected, name = node.names[0], names[node.concept]
        assert (name.token, name.plural, name.noun) == (
            expected.token,
            expected.plural,
            expected.noun,
        )
        assert name.form == expected.form
    assert {name.form for name in names.values()} == {"boys", ""}
    assert said_with(aligned) == said_with(parsed)
    assert ("location", "beach", "on") in {parts[1:] for parts in said_with(parsed)}


def test_plurals_are_as_the_caption_has_them() -> None:
    words, parsed = read("The wolves run past a sports car.")
    aligned = align(read_penman(write_penman(parsed)), words)
    names = {node.concept: node.names[0] for node in aligned.nodes.values()}
    assert names["wolf"].form == "wolves"
    assert names["sport"].form == ""  # "sports" is part of another noun's name


def said_with(graph: Graph) -> set[tuple[str, str, str, str]]:
    """The edges by labels, with their prepositions."""
    label = {variable: node.concept for variable, node in graph.nodes.items()}
    return {(label[e.source], e.role, label[e.target], e.word) for e in graph.edges}


def alike(first: str, second: str) -> float:
    return 0.6 if {first, second} == {"boy", "kid"} else 0.0


SIMILARITY = {"similarity": alike, "min_similarity": 0.5}


def test_a_sentence_names_what_its_graph_has() -> None:
    _, graph = read("A boy rides a brown horse.")
    words, _ = read("The brown horse is ridden by a boy.")
    caption = caption_by_words(graph, "The brown horse is ridden by a boy.", words, **SIMILARITY)
    mentions = [(start, text, graph.nodes[v].concept) for start, text, v in caption.mentions]
    assert mentions == [(0, "The brown horse", "horse"), (29, "a boy", "boy")]
    text = "A boy rides."
    with pytest.raises(ValueError, match=r"omits the words \['horse'\]"):
        caption_by_words(graph, text, read(text)[0], **SIMILARITY)
    text = "A kid rides a horse with a dog."
    caption = caption_by_words(graph, text, read(text)[0], **SIMILARITY)
    mentions = [(text, graph.nodes[v].concept) for _, text, v in caption.mentions]
    assert mentions == [("A kid", "boy"), ("a horse", "horse")]
    assert (caption.nouns, caption.unmatched_nouns) == (("kid", "horse", "dog"), ("dog",))
