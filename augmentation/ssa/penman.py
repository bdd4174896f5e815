"""Read and write graphs in PENMAN notation, the text format of AMR corpora and parsers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from augmentation.ssa.graph import Edge, Graph, Name, Node

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|:[A-Za-z][^\s()]*|[()/]|[^\s()]+')
_ALIGNMENT = re.compile(r"~(?:e\.)?(\d+)[\d,.e]*$")
# Roles that end with "-of" and are not inverse; "part-of" is what "of" says ("wall of a house"),
# "part" what an owner has ("his hand").
_NOT_INVERSE = ("consist-of", "part-of", "prep-on-behalf-of", "prep-out-of")


def write_penman(graph: Graph) -> str:
    """Write a graph as one line of text, without nodes that the root does not reach."""
    variables = _variables(graph)
    return _written(graph, graph.root, variables, set(), set())


def _variables(graph: Graph) -> dict[str, str]:
    """Short variables in AMR style: the first letter of the label, with a number if needed."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for variable, node in graph.nodes.items():
        letter = node.concept[0].lower()
        letter = letter if "a" <= letter <= "z" else "x"
        counts[letter] = counts.get(letter, 0) + 1
        names[variable] = letter if counts[letter] == 1 else f"{letter}{counts[letter]}"
    return names


def _written(
    graph: Graph, variable: str, names: dict[str, str], written: set[str], used: set[int]
) -> str:
    node = graph.nodes[variable]
    if graph.is_constant(variable):
        return node.concept
    if variable in written:
        return names[variable]
    written.add(variable)
    text = f"({names[variable]} / {node.concept}"
    out_edges = [(f":{e.role}", e, e.target) for e in graph.out[variable]]
    in_edges = [(f":{inverse(e.role)}", e, e.source) for e in graph.into[variable]]
    for role, edge, other in (*out_edges, *in_edges):
        if id(edge) not in used:
            used.add(id(edge))
            text += f" {role} {_written(graph, other, names, written, used)}"
    return text + ")"


def inverse(role: str) -> str:
    """Inverse role: ``"ARG0-of"`` for ``"ARG0"``; ``"mod"`` and ``"domain"`` are inverse."""
    return {"mod": "domain", "domain": "mod"}.get(role, f"{role}-of")


def read_penman(text: str) -> Graph:
    """Parse a graph from text with optional # comment lines and alignments (``~e.3``).

    Alignments are kept as `Name.token`.

    Raises:
        ValueError: the text is not in this notation, or has an unknown variable.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    tokens = iter(_TOKEN.findall("\n".join(lines)))
    reader = _Reader(tokens)
    try:
        if next(tokens) != "(":
            raise ValueError("the text does not begin with an opening bracket")
        root = reader.node()
    except (StopIteration, RecursionError, ValueError) as error:
        raise ValueError(f"invalid PENMAN notation: {text[:80]!r} ({error})") from error
    return reader.graph(root)


class _Reader:
    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self._nodes: dict[str, Node] = {}
        self._edges: list[tuple[str, str, str]] = []

    def node(self) -> str:
        """Read a node after its opening bracket, and return its variable."""
        variable, slash, concept = next(self._tokens), next(self._tokens), next(self._tokens)
        if slash != "/":
            raise ValueError(f"expected '/' after variable {variable!r}, got {slash!r}")
        self._nodes[variable] = node_of(concept)
        while (token := next(self._tokens)) != ")":
            if not token.startswith(":"):
                raise ValueError(f"expected a role in node {variable!r}, got {token!r}")
            role = _ALIGNMENT.sub("", token[1:])
            value = next(self._tokens)
            target = self.node() if value == "(" else value
            self._edges.append((variable, role, target))
        return variable

    def graph(self, root: str) -> Graph:
        """Return the graph that was read; values other than variables become separate nodes."""
        edges = []
        for source, role, value in self._edges:
            target = _ALIGNMENT.sub("", value)
            if target not in self._nodes:
                target = f"_{len(self._nodes)}"
                self._nodes[target] = node_of(value)
                if not self._nodes[target].is_literal and not re.match(r"[\w-]+$", value):
                    raise ValueError(f"{value!r} is neither a variable of the graph nor a constant")
            edges.append(edge_of(source, role, target))
        return Graph(self._nodes, tuple(edges), root)


def node_of(concept: str) -> Node:
    """Build a node from a label, with its alignment if it has one."""
    match = _ALIGNMENT.search(concept)
    token = int(match.group(1)) if match else -1
    return Node((Name(_ALIGNMENT.sub("", concept), token=token),))


def edge_of(source: str, role: str, target: str) -> Edge:
    """Build an edge in the direction that graphs store, which is never inverse."""
    if role == "domain":
        return Edge(target, "mod", source)
    if role.endswith("-of") and role not in _NOT_INVERSE:
        return Edge(target, role.removesuffix("-of"), source)
    return Edge(source, role, target)
