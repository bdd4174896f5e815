"""AMR parsers and writers that are sequence-to-sequence models, such as amrlib's BART and T5.

Captions become lines like ``( ride-01 :ARG0 ( boy ) :ARG1 ( horse ) )``, in which equal labels are
told apart by numbers (``dog_0``, ``dog_1``): the form of amrlib's ``parse_xfm`` models. Writers
read a graph in PENMAN notation in one line, as its ``generate_xfm`` models. Their folders are read
by transformers alone: safetensors, or the tensors of ``pytorch_model.bin``, which amrlib has.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch

from augmentation.ssa.graph import Edge, Graph, Node
from augmentation.ssa.penman import edge_of, node_of, write_penman
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
from captioning.text.parse_cache import ParseCache

Precision = Literal["float32", "bfloat16", "float16"]
# Batches between two writes of answers, so the most that a killed process loses.
BATCHES_KEPT_AT_ONCE = 16

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()]+')
_NUMBERED = re.compile(r"_\d+$")
# without one of them transformers makes a tokenizer without words
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model")


class AbstractGraphParser(ABC):
    """Makes graphs of captions."""

    @abstractmethod
    def graphs(self, captions: Sequence[str]) -> list[Graph | None]:
        """A graph a caption, in order, of labels alone; None where there is none."""


class AbstractGraphWriter(ABC):
    """Writes graphs as sentences.

    Attributes:
        lower_case: new captions are in lower case, with the full stops that were written alone;
            else they begin with a capital and end in a full stop.
    """

    lower_case: bool = False

    @abstractmethod
    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        """A sentence a graph, in order; empty where there is none."""


class SequenceModel:
    """A sequence-to-sequence model of transformers that answers lines with lines.

    Args:
        name: its folder, or its name on the hub.
        tokenizer: folder or hub name of its tokenizer, which amrlib's folders lack; None for the
            one beside the weights.
        batch_size: lines at once; None: 256 on a GPU, 16 on a processor.
        num_beams: of beam search.
        max_length: tokens of a line and of an answer.
        device: ``"auto"`` takes a GPU if there is one.
        precision: of the weights. ``"bfloat16"`` or ``"float16"`` halve memory and save time on a
            GPU, and change some answers.

    Raises:
        FileNotFoundError, ConnectionError: no model, no tokenizer, or no weights.
        ValueError: weights of another model, or an unknown precision.
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
                f"{words}: no tokenizer in it; give that of the model that it was trained from, "
                "such as tokenizer=facebook/bart-large"
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

    def identity(self) -> str:
        """32 hex digits, other ones where answers may be: by files, search and library."""
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
        """The most probable answer to each line, in order."""
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
            outputs = self._network.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=self._num_beams,
                max_length=self._max_length,
                do_sample=False,
                no_repeat_ngram_size=0,  # graphs have repetitions
            )
            texts = self._tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for place, text in zip(places, texts, strict=True):
                answers[place] = text
        return answers


def _folder(name: str) -> Path:
    return model_folder(name, instead="the rules in this package (method.graph_parser=null)")


class SequenceParser(AbstractGraphParser):
    """Captions to graphs by a model of amrlib's ``parse_xfm`` kind.

    Args:
        cache_folder: for the model's answers by caption, in a file named after its identity, so
            that a killed run goes on where it was; None keeps none.
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
        """See `AbstractGraphParser`; None where the answer is no graph.

        Raises:
            ValueError: a damaged cache.
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
    """Graphs to sentences by a model of amrlib's ``generate_xfm`` kind.

    Args:
        lower_case: see `AbstractGraphWriter`.
        **model: arguments of `SequenceModel`.
    """

    def __init__(
        self, *, lower_case: bool = False, **model: Annotated[Any, ArgumentsOf(SequenceModel)]
    ) -> None:
        self.model, self.lower_case = SequenceModel(**model), lower_case

    def sentences(self, graphs: Sequence[Graph]) -> list[str]:
        """See `AbstractGraphWriter`; the first line of each answer, the same for the same graph."""
        lines = [write_penman(graph) for graph in graphs]
        # Samples repeat, and an answer is a search.
        distinct = list(dict.fromkeys(lines))
        answers = dict(zip(distinct, self.model.answers(distinct), strict=True))
        return [next(iter(answers[line].strip().splitlines()), "").strip() for line in lines]


def read_linear(line: str) -> Graph | None:
    """The graph of a model's line, as far as there is one.

    Such lines have small faults: brackets that are not closed, roles without a target. A repeated
    label is the same node. A role without a target, a target without a role, and a number or
    an alignment without a label, are skipped.

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
    """The node of a label: one that has it, or a new one; each constant is a node of its own."""
    if token in nodes and not nodes[token].is_literal:
        return token
    node = node_of(_NUMBERED.sub("", token))
    variable = token
    while variable in nodes:
        variable += "'"
    nodes[variable] = node
    return variable
