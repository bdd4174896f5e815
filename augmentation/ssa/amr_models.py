"""Sequence-to-sequence models that parse or write AMR graphs, such as amrlib's BART and T5.

Captions become lines like ``( ride-01 :ARG0 ( boy ) :ARG1 ( horse ) )``, in which equal labels are
told apart by numbers (``dog_0``, ``dog_1``): the form of amrlib's ``parse_xfm`` models. Writers
read a graph in PENMAN notation in one line, as its ``generate_xfm`` models. Their folders are read
by transformers alone: safetensors, or the tensors of ``pytorch_model.bin``, which amrlib has.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch

from augmentation.ssa.builder import PLURAL_TAGS
from augmentation.ssa.dependency_parse import Words
from augmentation.ssa.graph import Edge, Graph, Name, Node
from augmentation.ssa.lexicon import NUMBERS
from augmentation.ssa.merging import Similarity
from augmentation.ssa.penman import edge_of, node_of, write_penman
from augmentation.ssa.phrases import ARTICLES
from augmentation.ssa.written_captions import Caption
from captioning.config.ranges import ArgumentsOf, Device, PositiveInt
from captioning.runtime.devices import by_device, chosen_device
from captioning.runtime.model_folder import (
    OLDER_FILE,
    damage_named,
    load_network,
    model_folder,
    weights_identity,
)
from captioning.text.causal import imported
from captioning.text.lengths import ReadingLimit
from captioning.text.parse_cache import ParseCache
from captioning.text.phrases import NOUNS

# Alignment of a caption's words with the nodes of a graph from another parser.
#
# Such parsers return graphs without words; grounding, sampling and writing need words. A node gets
# the first unused word whose lemma is its label's: AMR keeps dictionary forms, so most nodes get
# one. Nodes without a word have no boxes and are not nouns.
_SENSE = re.compile(r"-\d\d$")
_BEFORE_NOUNS = ("det", "amod", "nummod", "compound", "poss", "nmod")
# AMR's labels for which captions use other words.
_OTHER_WORDS = {"person": ("people",), "have": ("with",), "wear": ("in",)}


def align(graph: Graph, words: Words) -> Graph:
    """Align a graph to its caption: nodes get words, and edges get prepositions.

    Args:
        graph: labels alone.
        words: words of the caption that was parsed into it, or written for it.
    """
    used: set[int] = set()
    nodes = {}
    for variable, node in graph.nodes.items():
        position = next((i for i in _places(node.concept, words) if i not in used), -1)
        used.add(position)
        name = _name(node.concept, words, position)
        nodes[variable] = replace(node, names=(name,))
    position_of = {variable: node.names[0].token for variable, node in nodes.items()}
    edges = tuple(
        replace(edge, word=_preposition(edge, position_of, words)) for edge in graph.edges
    )
    return Graph(nodes, edges, graph.root)


def caption_by_words(
    graph: Graph, text: str, words: Words, *, similarity: Similarity, min_similarity: float
) -> Caption:
    """Sentence that a model wrote for a graph, with its mentions of nodes.

    Args:
        graph: graph with words and boxes.
        text: the sentence.
        words: its words.
        similarity: similarity of two words.
        min_similarity: similarity that another noun must exceed to name an object.

    Raises:
        ValueError: the sentence omits an object of the graph.
    """
    alignment = align(graph, words)
    position_of = {
        v: alignment.nodes[v].names[0].token
        for v, node in graph.nodes.items()
        if node.names[0].noun
    }
    tokens = words.tokens
    nouns = [i for i, t in enumerate(tokens) if t.pos in NOUNS and t.dep != "compound"]
    missing = {
        v: graph.nodes[v].names[0].word for v, position in position_of.items() if position < 0
    }
    unmatched = {i: tokens[i].lemma for i in nouns if i not in position_of.values()}
    pairs = ((similarity(a, b), v, i) for v, a in missing.items() for i, b in unmatched.items())
    position_of |= _match_words(pair for pair in pairs if pair[0] > min_similarity)
    missing = [word for v, word in missing.items() if position_of[v] < 0]
    if missing:
        raise ValueError(f"the sentence {text!r} omits the words {missing} of its graph")
    mentions = []
    for variable, position in position_of.items():
        start, end = words.spans[position]
        start = min([start, *(words.spans[i][0] for i in words.having(position, *_BEFORE_NOUNS))])
        mentions.append((start, text[start:end], variable))
    unmatched_nouns = tuple(word for i, word in unmatched.items() if i not in position_of.values())
    named = tuple(tokens[i].lemma for i in nouns)
    return Caption(text, tuple(sorted(mentions)), nouns=named, unmatched_nouns=unmatched_nouns)


def _match_words(pairs: Iterable[tuple[float, str, int]]) -> dict[str, int]:
    """Match variables with words, most similar pairs first, each at most once."""
    matches: dict[str, int] = {}
    for _, variable, position in sorted(pairs, key=lambda pair: (-pair[0], *pair[1:])):
        if variable not in matches and position not in matches.values():
            matches[variable] = position
    return matches


def _places(concept: str, words: Words) -> Iterator[int]:
    """Positions of a label's words in the text, exact matches first."""
    label = _SENSE.sub("", concept)
    phrase = label.replace("-", " ")
    verb = {label.split("-")[0]} if label != concept else set()  # "take" of "take-off-01"
    for spellings in ({label, phrase, concept}, verb, set(_OTHER_WORDS.get(label, ()))):
        for i, token in enumerate(words.tokens):
            lemma = token.lemma.lower()
            if (
                lemma in spellings
                or token.text.lower() in spellings
                or NUMBERS.get(lemma) in spellings
            ):
                yield i


def _name(concept: str, words: Words, position: int) -> Name:
    label = _SENSE.sub("", concept)
    if position < 0:
        return Name(concept, "" if _SENSE.search(concept) else label.replace("-", " "))
    token = words.tokens[position]
    determiners = [words.tokens[i].lemma for i in words.having(position, "det")]
    plural = token.tag in PLURAL_TAGS or token.lemma == "people"
    noun = token.pos in NOUNS and token.dep != "compound"
    return Name(
        concept,
        token.lemma,
        plural=plural,
        article=next((ARTICLES[word] for word in determiners if word in ARTICLES), ""),
        token=position,
        noun=noun,
        form=token.text.lower() if plural and noun else "",
    )


def _preposition(edge: Edge, position_of: dict[str, int], words: Words) -> str:
    """Preposition between an edge's words; empty if a node or another word lies between."""
    position = position_of[edge.target]
    if position < 0 or words.tokens[position].dep != "pobj":
        return ""
    head = words.tokens[position].head
    if words.tokens[head].pos != "ADP" or words.tokens[head].head != position_of[edge.source]:
        return ""
    return words.tokens[head].lemma


Precision = Literal["float32", "bfloat16", "float16"]
# Batches between two writes of answers, so the most that a killed process loses.
BATCHES_KEPT_AT_ONCE = 16

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()]+')
_NUMBERED = re.compile(r"_\d+$")
# without one of them transformers makes a tokenizer without words
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model")


class AbstractGraphParser(ABC):
    """Interface of models that parse captions into AMR graphs."""

    @abstractmethod
    def graphs(self, captions: Sequence[str]) -> list[Graph | None]:
        """Return one unaligned graph for each caption, in order; None if parsing fails."""


class AbstractGraphWriter(ABC):
    """Interface of models that write AMR graphs as sentences.

    Attributes:
        lower_case: new captions are in lower case, with the full stops that were written alone;
            else they begin with a capital and end in a full stop.
    """

    lower_case: bool = False

    @abstractmethod
    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        """Return one sentence for each graph, in order; empty if writing fails."""


class SequenceModel:
    """Sequence-to-sequence model of transformers that maps text lines to text lines.

    Args:
        name: its folder, or its name on the hub.
        tokenizer: folder or hub name of its tokenizer, which amrlib's folders lack; None for the
            one beside the weights.
        batch_size: lines at once; None: 256 on a GPU, 16 on a CPU.
        num_beams: number of beams of beam search.
        max_length: tokens of a line and of an answer; longer ones are cut, which is logged once.
        device: ``"auto"`` takes a GPU if there is one.
        precision: precision of the weights. ``"bfloat16"`` or ``"float16"`` halve memory and save
            time on a GPU, and change some answers.

    Raises:
        FileNotFoundError, ConnectionError: the model, tokenizer or weights are missing.
        ValueError: the weights do not fit the model, or ``precision`` is unknown.
    """

    def __init__(
        self,
        *,
        name: str,
        tokenizer: str | None = None,
        batch_size: PositiveInt | None = None,
        num_beams: PositiveInt = 4,
        max_length: PositiveInt = 256,
        device: Device = "auto",
        precision: Precision = "float32",
    ) -> None:
        if precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {get_args(Precision)}: got {precision!r}")
        transformers = imported("transformers")
        folder = _folder(name)
        words = folder if tokenizer is None else _folder(tokenizer)
        if not any((words / file).is_file() for file in _TOKENIZER_FILES):
            raise FileNotFoundError(
                f"{words} holds no tokenizer; set the tokenizer of the base model, such as "
                "tokenizer=facebook/bart-large"
            )
        with damage_named(str(words)):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                words, local_files_only=True, trust_remote_code=False
            )
        network: Any = load_network(
            transformers.AutoModelForSeq2SeqLM,
            folder,
            name=name,
            kind="a sequence model",
            dtype=getattr(torch, precision),
            older_files=True,
        )
        chosen = chosen_device(device)
        self._network = network.to(chosen).eval().requires_grad_(False)
        self.batch_size = batch_size or by_device(chosen, processor=16, gpu=256)
        self._num_beams, self._max_length = num_beams, max_length
        self._folders, self._precision = (folder, words), precision
        remedy = "raise max_length, or give shorter captions"
        self._limit = ReadingLimit(f"{name} (lines)", max_length, remedy)
        self._answers = ReadingLimit(f"{name} (its own answers)", max_length, remedy)

    def identity(self) -> str:
        """Hash of files, search settings and library, 32 hexadecimal digits."""
        digest = hashlib.sha256()
        settings = self._num_beams, self._max_length, self._precision
        digest.update(f"{settings} {imported('transformers').__version__}".encode())
        for folder in self._folders:
            digest.update(weights_identity(folder).encode())
            if (folder / OLDER_FILE).is_file():
                with (folder / OLDER_FILE).open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:32]

    @torch.inference_mode()
    def answers(self, lines: Sequence[str]) -> list[str]:
        """Return the most probable answer to each line, in order."""
        # A batch takes as long as its longest answer, and long lines have long answers: those of
        # about one length share a batch.
        order = sorted(range(len(lines)), key=lambda place: len(lines[place]))
        answers = [""] * len(lines)
        for start in range(0, len(lines), self.batch_size):
            places = order[start : start + self.batch_size]
            inputs = self._tokenizer(
                [lines[place] for place in places],
                padding=True,
                truncation=True,
                max_length=self._max_length,
                return_tensors="pt",
            ).to(self._network.device)
            read = inputs["attention_mask"].sum(1) >= self._max_length
            self._limit.look(read.tolist())
            outputs = self._network.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=self._num_beams,
                max_length=self._max_length,
                do_sample=False,
                no_repeat_ngram_size=0,  # graphs have repetitions
            )
            if outputs.shape[1] >= self._max_length:  # those that ended before are padded
                full = outputs[:, -2] != self._network.config.pad_token_id
                self._answers.look(full.tolist())
            texts = self._tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for place, text in zip(places, texts, strict=True):
                answers[place] = text
        return answers


def _folder(name: str) -> Path:
    return model_folder(name, instead="the rules in this package (method.graph_parser=null)")


class SequenceParser(AbstractGraphParser):
    """Parses captions into graphs with a model of amrlib's ``parse_xfm`` kind.

    Args:
        cache_folder: for the model's answers by caption, in a file named after its identity, so
            that a killed run resumes; None: no file.
        **model: arguments of `SequenceModel`.
    """

    def __init__(
        self,
        *,
        cache_folder: str | Path | None = None,
        **model: Annotated[Any, ArgumentsOf(SequenceModel)],
    ) -> None:
        self.model = SequenceModel(**model)
        self._cache = None
        if cache_folder is not None:
            name = f"{self.model.identity()[:16]}.sqlite"
            self._cache = ParseCache(Path(cache_folder) / name)

    def graphs(self, captions: Sequence[str]) -> list[Graph | None]:
        """See `AbstractGraphParser`; None if the answer is not a graph.

        Raises:
            ValueError: the cache is damaged.
            OSError: the cache cannot be read or written.
        """
        distinct = list(dict.fromkeys(captions))
        lines = {} if self._cache is None else self._cache.read(distinct)
        missing = [caption for caption in distinct if caption not in lines]
        size = self.model.batch_size * BATCHES_KEPT_AT_ONCE
        for start in range(0, len(missing), size):
            chunk = missing[start : start + size]
            answers = dict(zip(chunk, self.model.answers(chunk), strict=True))
            if self._cache is not None:
                self._cache.write(answers.items())
            lines |= answers
        return [read_linear(lines[caption]) for caption in captions]


class SequenceWriter(AbstractGraphWriter):
    """Writes graphs as sentences with a model of amrlib's ``generate_xfm`` kind.

    Args:
        lower_case: see `AbstractGraphWriter`.
        **model: arguments of `SequenceModel`.
    """

    def __init__(
        self, *, lower_case: bool = False, **model: Annotated[Any, ArgumentsOf(SequenceModel)]
    ) -> None:
        self.model, self.lower_case = SequenceModel(**model), lower_case

    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        """See `AbstractGraphWriter`; the first line of each answer; equal for equal graphs."""
        lines = [write_penman(graph) for graph in graphs]
        # Samples repeat, and an answer is a search.
        distinct = list(dict.fromkeys(lines))
        answers = dict(zip(distinct, self.model.answers(distinct), strict=True))
        return [next(iter(answers[line].strip().splitlines()), "").strip() for line in lines]


def read_linear(line: str) -> Graph | None:
    """Parse a model's output line to a graph, as far as it is readable.

    Such lines have typical small faults: brackets that are not closed, roles without a target. A
    repeated label is the same node. A role without a target, a target without a role, and a number
    or an alignment without a label, are skipped.

    Returns:
        None where the line has no label.
    """
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    open_nodes: list[str] = []  # nodes whose bracket is open
    role, after_bracket = "", False
    for token in _TOKEN.findall(line):
        if token == "(":
            after_bracket = True
        elif token == ")":
            open_nodes, role, after_bracket = open_nodes[: max(len(open_nodes) - 1, 1)], "", False
        elif token.startswith(":") and len(token) > 1:
            role, after_bracket = token[1:], False
        elif node_of(_NUMBERED.sub("", token)).concept:
            variable = _variable(token, nodes)
            if open_nodes and role:
                edges.append(edge_of(open_nodes[-1], role, variable))
            if not open_nodes or after_bracket:
                open_nodes.append(variable)
            role, after_bracket = "", False
    if not nodes:
        return None
    unique_edges = [edge for edge in dict.fromkeys(edges) if edge.source != edge.target]
    graph = Graph(nodes, tuple(unique_edges), next(iter(nodes)))
    return graph.part(graph.reachable(graph.root), graph.root)


def _variable(token: str, nodes: dict[str, Node]) -> str:
    """Node with this label, or a new node; each constant is a separate node."""
    if token in nodes and not nodes[token].is_literal:
        return token
    node = node_of(_NUMBERED.sub("", token))
    variable = token
    while variable in nodes:
        variable += "'"
    nodes[variable] = node
    return variable
