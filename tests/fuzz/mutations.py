"""Damage that hypothesis draws: of bytes, and of the values that files hold."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import yaml
from hypothesis import strategies as st
from safetensors import torch as safetensors

from tests.captioning.data.damage import ODD_BYTES, ODD_VALUES

Draw = Callable[[st.SearchStrategy[Any]], Any]
ODD_YAML = (
    *("!!python/object/apply:os.system [echo]", "&a [*a]", "? : :", "{a: 1, a: 2}", "\t- x"),
    *("!!binary AA", "<<: 1", "- " * 400, "${nothing}", "${oc.env:HOME}", "[" * 400),
)
ODD_TENSORS = (
    *(torch.zeros(0), torch.tensor(float("nan")), torch.zeros(3, dtype=torch.complex64)),
    *(torch.zeros(1, 1, 1, 1), torch.full((2,), torch.inf), torch.zeros(5, dtype=torch.bool)),
)
ODD_ARRAYS = (
    *(np.zeros(0), np.array(np.nan), np.array("text"), np.zeros((1, 1, 1, 1, 1)), np.zeros(7)),
    *(np.array([{"a": 1}, None], dtype=object), np.array([b"\xff"]), np.full((2, 3), np.inf)),
    *(np.array([2**63 - 1]), np.zeros((3, 2), dtype=">c16"), np.zeros((1, 2), dtype="<M8[s]")),
)


def damaged(draw: Draw, data: bytes, suffix: str) -> bytes:
    """Another content of a file.

    Args:
        draw: of hypothesis.
        data: of the good file.
        suffix: of its name, which says what values it holds.
    """
    form = FORMS.get(suffix)
    if form is not None and data and draw(st.integers(0, 2)):
        return form(draw, data)
    for _ in range(draw(st.integers(1, 3))):
        data = _bytes(draw, data)
    return data


def _place(draw: Draw, data: bytes) -> int:
    """Often near an end, where headers and tables are."""
    width = draw(st.sampled_from((len(data), min(64, len(data)))))
    place = draw(st.integers(0, width))
    return len(data) - place if draw(st.booleans()) else place


def _bytes(draw: Draw, data: bytes) -> bytes:
    here = _place(draw, data)
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return data[:here]
    if kind == 1:
        return data[:here] + draw(st.sampled_from(ODD_BYTES)) + data[here:]
    if kind == 2:
        return data[:here] + data[here + draw(st.integers(1, 12)) :]
    if kind == 3:
        other = _place(draw, data)
        return data[:other] + data[here : here + 40] + data[other:]
    if kind == 4:
        return data[:here] + draw(st.binary(min_size=1, max_size=8)) + data[here + 8 :]
    if kind == 5:
        lines = data.split(b"\n")
        number = draw(st.integers(0, len(lines) - 1))
        lines[number] = draw(st.sampled_from((b"", lines[0], lines[-1], *ODD_BYTES)))
        return b"\n".join(lines)
    flipped = bytes([data[here] ^ (1 << draw(st.integers(0, 7)))]) if here < len(data) else b"\0"
    return data[:here] + flipped + data[here + 1 :]


def _edited(draw: Draw, value: Any, odd: tuple[Any, ...]) -> Any:
    """The value with something in it replaced, removed, doubled or renamed; in place."""
    node, places = value, []
    while isinstance(node, dict | list) and node and (not places or draw(st.integers(0, 6))):
        key = draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        places.append((node, key))
        node = node[key]
    if not places:
        return draw(st.sampled_from(odd))
    parent, key = places[-1]
    kind = draw(st.integers(0, 4))
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, parent[key])
    elif kind == 1:
        parent["odd"] = parent.pop(key)
    else:
        parent[key] = draw(st.sampled_from(odd) | st.text(max_size=6) | st.integers())
    return value


def _json(draw: Draw, data: bytes) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:
        return _bytes(draw, data)
    return json.dumps(_edited(draw, value, tuple(ODD_VALUES))).encode()


def _json_lines(draw: Draw, data: bytes) -> bytes:
    lines = data.splitlines()
    number = draw(st.integers(0, len(lines) - 1))
    lines[number] = _json(draw, lines[number])
    return b"\n".join(lines) + b"\n"


def _yaml(draw: Draw, data: bytes) -> bytes:
    if draw(st.integers(0, 3)):
        value = _edited(draw, yaml.safe_load(data), (*ODD_VALUES[:-1], "${data.name}", "???"))
        return yaml.dump(value, allow_unicode=True).encode(errors="surrogatepass")
    lines = data.split(b"\n")
    lines[draw(st.integers(0, len(lines) - 1))] = draw(st.sampled_from(ODD_YAML)).encode()
    return b"\n".join(lines)


def _npz(draw: Draw, data: bytes) -> bytes:
    with np.load(io.BytesIO(data), allow_pickle=True) as saved:
        arrays = {name: saved[name] for name in saved.files}
    file = io.BytesIO()
    np.savez(file, **_edited(draw, arrays, ODD_ARRAYS))
    return file.getvalue()


def _torch(draw: Draw, data: bytes) -> bytes:
    content = torch.load(io.BytesIO(data), weights_only=True)
    file = io.BytesIO()
    edited = _edited(draw, content, (*ODD_TENSORS, *ODD_VALUES))
    is_older = draw(st.integers(0, 3)) == 0
    torch.save(edited, file, _use_new_zipfile_serialization=not is_older)
    return file.getvalue()


def _safetensors(draw: Draw, data: bytes) -> bytes:
    if draw(st.booleans()):
        tensors = _edited(draw, dict(safetensors.load(data)), ODD_TENSORS)
        kept = {k: v for k, v in tensors.items() if isinstance(v, torch.Tensor)}
        return safetensors.save(kept)
    size = int.from_bytes(data[:8], "little")
    header = _json(draw, data[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


FORMS: dict[str, Callable[[Draw, bytes], bytes]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".yaml": _yaml,
    ".npz": _npz,
    ".ckpt": _torch,
    ".pth": _torch,
    ".safetensors": _safetensors,
}
