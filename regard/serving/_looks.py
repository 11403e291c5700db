"""A look: the weights of one translation, kept for as long as somebody may want to see more of them."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy
import torch

from regard.errors import RequestError

THUMB = 32  # cells a side
Block = numpy.ndarray[Any, numpy.dtype[numpy.uint16]]


@dataclass(frozen=True)
class Side:
    """A sentence as one side of a matrix: its tokens, and which of them make up a word."""

    tokens: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Layer:
    """The heads of one attention. `rows` and `columns` name the sides that look and are looked at; `kind` is "across"
    (the translation looks at its source), "reading" or "writing" (each looks at itself)."""

    kind: str
    rows: str
    columns: str
    weights: Block  # heads, queries, keys

    def thumbnails(self) -> tuple[list[int], bytes]:
        """All heads in small, a cell as dark as the darkest of those it stands for; and their size."""
        whole = torch.from_numpy(self.weights.astype("float32"))[:, None]
        size = [min(THUMB, side) for side in whole.shape[2:]]
        small = torch.nn.functional.adaptive_max_pool2d(whole, size)
        return size, small.numpy().astype("<u2").tobytes()


@dataclass(frozen=True)
class Look:
    """One sentence, one translation of it, and every weight between and within them."""

    source: str
    target: list[int]
    sides: dict[str, Side]
    layers: list[Layer]
    token_log_probs: list[float] | None  # of a translation that was given as text
    measurable: bool  # whether its faithfulness can be had in reasonable time
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))

    @property
    def bytes(self) -> int:
        return sum(layer.weights.nbytes for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "source": self.source,
            "measurable": self.measurable,
            "sides": {name: vars(side) for name, side in self.sides.items()},
            "token_log_probs": self.token_log_probs,
            "layers": [
                {"kind": layer.kind, "rows": layer.rows, "columns": layer.columns, "heads": len(layer.weights)}
                for layer in self.layers
            ],
        }


class Looks:
    """The looks of late; those that nobody has looked at for longest leave first."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._kept: OrderedDict[str, Look] = OrderedDict()
        self._most, self._most_bytes = most, most_bytes
        self._lock = Lock()

    def keep(self, look: Look) -> None:
        with self._lock:
            self._kept[look.id] = look
            while len(self._kept) > 1 and (len(self._kept) > self._most or self._bytes() > self._most_bytes):
                self._kept.popitem(last=False)

    def find(self, id: str) -> Look:
        with self._lock:
            if id not in self._kept:
                raise RequestError(404, "no_look", "This look is no longer kept; look again.")
            self._kept.move_to_end(id)
            return self._kept[id]

    def _bytes(self) -> int:
        return sum(look.bytes for look in self._kept.values())
