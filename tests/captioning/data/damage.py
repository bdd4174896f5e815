"""Seeded damage to files: bytes, lines, and the structure of JSON."""

from __future__ import annotations

import json
import os

import numpy as np

# Of each reader; `make fuzz` damages 2000.
NUM_FILES = int(os.environ.get("DAMAGED_FILES", "300"))
ODD_BYTES = [
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\n", b"\r\n", b"\t", b'"', b"{", b"]", b"\\u0000"),
    *(b"\\ud800", b"../", b"/", b"#", b"-", b"9" * 5000, b"NaN", b"[" * 3000, b"e999", b" "),
    *("\u2028".encode(), "\ufeff".encode(), b"null", b"<", b"&amp;", b"&x;"),
]
ODD_VALUES = [
    *(None, True, False, -1, 0, 7, 10**30, 1.5, float("nan"), float("inf"), 1e308, -0.0, "7"),
    *("", " ", "a\0b", "../a.jpg", "/a.jpg", "..", ".", "a\\b", "\ud800", "x" * 3000, "./a.jpg"),
    *([], {}, [[]], [1], ["a"], {"a": 1}, "\u200b", "a\nb"),
]


def damage_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(rng.integers(1, 4)):
        here, there = sorted(rng.integers(0, len(data) + 1, size=2).tolist())
        kind = rng.integers(5)
        if kind == 0:
            data = data[:here]
        elif kind == 1:
            data = data[:here] + ODD_BYTES[rng.integers(len(ODD_BYTES))] + data[here:]
        elif kind == 2:
            data = data[:here] + data[min(there, here + 12) :]
        elif kind == 3:
            data = data[:there] + data[here : here + 40] + data[there:]
        elif here < len(data):
            data = data[:here] + bytes([rng.integers(256)]) + data[here + 1 :]
    return data


def damage_lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    here, there = rng.integers(len(lines), size=2).tolist()
    kind = rng.integers(4)
    if kind == 0:
        del lines[here]
    elif kind == 1:
        lines.insert(there, lines[here])
    elif kind == 2:
        lines[here], lines[there] = lines[there], lines[here]
    else:
        lines[here] = ODD_BYTES[rng.integers(len(ODD_BYTES))]
    return b"\n".join(lines)


def damage_json(data: bytes, rng: np.random.Generator) -> bytes:
    """One value of one JSON document (a line of JSON Lines) is replaced, removed or doubled."""
    is_lines = data.startswith(b'{"') and b"}\n{" in data
    documents = data.splitlines() if is_lines else [data]
    chosen = int(rng.integers(len(documents)))
    try:
        value = json.loads(documents[chosen])
    except ValueError:  # XML, token files and lists of names
        return damage_bytes(data, rng)
    node, places = value, []
    while isinstance(node, dict | list) and node and (not places or rng.random() < 0.85):
        key = (list(node) if isinstance(node, dict) else range(len(node)))[rng.integers(len(node))]
        places.append((node, key))
        node = node[key]
    if not places:
        return damage_bytes(data, rng)
    parent, key = places[-1]
    kind = rng.integers(3)
    if kind == 0:
        parent[key] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
    elif kind == 1:
        del parent[key]
    elif isinstance(parent, list):
        parent.insert(key, parent[key])
    else:
        parent["odd"] = parent.pop(key)
    documents[chosen] = json.dumps(value).encode()
    return b"\n".join(documents)


DAMAGES = (damage_bytes, damage_lines, damage_json, damage_json)
