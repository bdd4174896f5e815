#!/usr/bin/env bash
# torch 2.15.0, on a CPU with Python 3.11.
#
# Behaviour: the first normal_() on a tensor of the meta device imports torch._dynamo,
# torch._inductor and sympy, 909 modules in all, about 2 s of CPU time. uniform_() and zero_() on the
# same tensor import nothing. nn.Embedding draws its first values by normal_(), nn.Linear by
# uniform_(), so an embedding made on the meta device pays for the compiler and a linear layer does
# not.
#
# Why a good engineer would not guess it: modules are made on the meta device to save time and memory
# (load_state_dict(assign=True), init_empty_weights), since no values are drawn there. No compiler is
# asked for, and two initialisers that draw nothing alike differ by all of it. A command that embeds a
# few sentences starts two seconds later for one table of words.
#
# Output seen:
#   zero_     modules imported: 0    compiler: no
#   uniform_  modules imported: 0    compiler: no
#   normal_   modules imported: 909  compiler: yes
#   Linear    modules imported: 0    compiler: no
#   Embedding modules imported: 909  compiler: yes
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet torch==2.15.0 numpy==2.3.5
for what in zero_ uniform_ normal_ Linear Embedding; do
  "$folder/bin/python" - "$what" <<'PY'
import sys

import torch

what = sys.argv[1]
tensor = torch.empty(3, device="meta")
before = set(sys.modules)
if what.endswith("_"):
    getattr(tensor, what)()
else:
    getattr(torch.nn, what)(4, 4, device="meta")
new = set(sys.modules) - before
compiler = {"torch._dynamo", "torch._inductor", "sympy"} <= new
print(f"{what:9} modules imported: {len(new):<4} compiler: {'yes' if compiler else 'no'}")
expected = what in ("normal_", "Embedding")
assert compiler is expected and bool(new) is expected, "behaviour changed"
PY
done
