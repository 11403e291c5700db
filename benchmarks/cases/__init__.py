"""Every case, by group."""

from __future__ import annotations

from benchmarks.case import Case, Growth
from benchmarks.cases import additive, dot, growth, heads, local, masks, normalizers, scores

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
