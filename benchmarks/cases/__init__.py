"""Every case, by group."""

from __future__ import annotations

from importlib.util import find_spec

# Checked here only: the other benchmarks do not need these libraries.
missing = [name for name in ("entmax", "x_transformers") if find_spec(name) is None]
if missing:
    raise SystemExit(f"{' and '.join(missing)} must be installed: pip install --group bench, or make bench")

from benchmarks.case import Case, Growth  # noqa: E402
from benchmarks.cases import additive, dot, growth, heads, local, masks, normalizers, scores  # noqa: E402

ALL: list[Case | Growth] = [
    *dot.CASES,
    *heads.CASES,
    *additive.CASES,
    *local.CASES,
    *scores.CASES,
    *normalizers.CASES,
    *masks.CASES,
    *growth.CASES,
]
GROUPS = list(dict.fromkeys(case.group for case in ALL))


def find(key: str) -> Case | Growth:
    return next(case for case in ALL if case.key == key)
