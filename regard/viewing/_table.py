"""The measures of every head that was seen, as one table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor

from regard.viewing import _html, measures

if TYPE_CHECKING:
    from regard.viewing.records import Record

COLUMNS = {
    "name": "attention",
    "head": "head",
    "entropy": "entropy",
    "sparsity": "idle",
    "holding": "90 % in",
    "distance": "distance",
    "diagonality": "diagonal",
    "agreement": "alike",
}


@dataclass(frozen=True)
class Line:
    """One head: each measure on average over its queries, in all calls; NaN where there is nothing to measure."""

    name: str
    head: int
    entropy: float
    sparsity: float
    holding: float
    distance: float
    diagonality: float
    agreement: float

    def cells(self) -> list[str]:
        return [_shown(value) for value in asdict(self).values()]


@dataclass(frozen=True)
class Measures:
    """What `seen.measures()` found: print it with rich, or take `to_json()`."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Measures:
        """Measures of heads, the calls of a module taken together."""
        found: dict[tuple[int, str, int], list[dict[str, Tensor]]] = {}
        for record in records:
            for head, values in zip(record.heads, _measured(record), strict=True):
                found.setdefault((record.layer, record.name, head), []).append(values)
        lines = [
            Line(name, head, **{what: _mean([one[what] for one in several]) for what in several[0]})
            for (_, name, head), several in sorted(found.items(), key=lambda item: item[0])
        ]
        return cls(tuple(lines))

    def to_json(self) -> list[dict[str, Any]]:
        """One object a head; None where there is nothing to measure."""
        return [
            {key: None if value != value else value for key, value in asdict(line).items()}
            for line in self.lines
        ]

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for place, title in enumerate(COLUMNS.values()):
            table.add_column(title, justify="right" if place else "left", overflow="fold")
        for line in self.lines:
            table.add_row(*line.cells())
        return table

    def _repr_html_(self) -> str:
        return _html.table(list(COLUMNS.values()), [line.cells() for line in self.lines])


def _measured(record: Record) -> list[dict[str, Tensor]]:
    """For each head, each measure of each query; positions that are padding are left out."""
    weights = record.weights
    mask = _there(record)
    per_query = {
        "entropy": measures.entropy(weights, mask),
        "sparsity": measures.sparsity(weights, mask),
        "holding": measures.holding(weights, mask),
        "distance": measures.distance(weights, mask),
        "diagonality": measures.diagonality(weights, mask),
    }
    if weights.shape[2] == 1:  # a decoding step: where its query stands is not known here
        for what in ("distance", "diagonality"):
            per_query[what] = torch.full_like(per_query[what], math.nan)
    alike = measures.agreement(weights, mask)
    alike = alike.masked_fill(torch.eye(len(record.heads), dtype=torch.bool), math.nan)
    return [
        {what: values[:, place] for what, values in per_query.items()} | {"agreement": alike[:, place]}
        for place in range(len(record.heads))
    ]


def _there(record: Record) -> Tensor | None:
    """True where both positions have a word; None if nobody gave words."""
    if record.queries is None and record.keys is None:
        return None
    there = torch.ones(len(record.weights), 1, *record.weights.shape[2:], dtype=torch.bool)
    for rows, axis in ((record.queries, 2), (record.keys, 3)):
        for row, words in enumerate(rows or ()):
            there[row].narrow(axis - 1, len(words), there.shape[axis] - len(words)).fill_(False)
    return there


def _mean(values: list[Tensor]) -> float:
    return torch.cat([value.flatten() for value in values]).nanmean().item()


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "-" if value != value else f"{value:.3g}"
