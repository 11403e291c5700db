"""What the sources of batches share: chunks, plans, and positions to go on from."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from random import Random
from typing import Any

from regard.data._filling import Encoder, Filling
from regard.data._rows import Chunk, Encoded, Numbers
from regard.data.batch import Batch, Pair
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError

Position = dict[str, Any]


class Source(ABC):
    """Chunks of pairs, each planned by (seed, epoch, chunk) alone."""

    chunks = 1  # an epoch has

    def __init__(self, source: Tokenizer, target: Tokenizer, filling: Filling | None, name: str) -> None:
        self.filling = filling or Filling()
        self._encoder = Encoder(source, target, self.filling, name)
        self._mark = zlib.crc32(repr((self.filling, len(source), len(target))).encode())
        self.report = self._encoder.report()

    @abstractmethod
    def _read(self, epoch: int, first: int) -> Iterator[Chunk]:
        """The chunks of an epoch from `first` on."""

    def batches(self, position: Position | None = None) -> Iterator[tuple[Batch, Position]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        epoch, first, done = self._place(position)
        while True:
            found = False
            for index, chunk in enumerate(self._read(epoch, first), first):
                plan = self._plan(chunk, epoch, index)
                if done > len(plan):
                    raise self._foreign()
                for number in range(done, len(plan)):
                    found = True
                    yield chunk.batch(plan[number]), self._after(epoch, index, number + 1, len(plan))
                done = 0
            if not found and first == 0:
                raise DataError(f"Nothing of {self._encoder.name} can be used: {self.report}")
            epoch, first = epoch + 1, 0

    def _plan(self, chunk: Chunk, epoch: int, index: int) -> list[Numbers]:
        return chunk.plan(self.filling.tokens, self.filling.noise, self.filling.random(epoch, index))

    def _after(self, epoch: int, index: int, done: int, planned: int) -> Position:
        if done == planned:
            index, done = index + 1, 0
        if index == self.chunks:
            epoch, index = epoch + 1, 0
        return {"epoch": epoch, "chunk": index, "batch": done, "data": f"{self._mark:08x}"}

    def _place(self, position: Position | None) -> tuple[int, int, int]:
        if position is None:
            return 0, 0, 0
        if position.get("data") != f"{self._mark:08x}":
            raise self._foreign()
        return position["epoch"], position["chunk"], position["batch"]

    def _foreign(self) -> DataError:
        return DataError(
            f"{self._encoder.name} or its settings changed since this position was saved; put the old ones back, "
            "or begin a new run."
        )


def varied(encoder: Encoder, used: list[tuple[Pair, Encoded]], epoch: int, index: int) -> Chunk:
    """The encoded pairs as a chunk, under dropout if there is any."""
    if not any(encoder.filling.dropouts):
        return Chunk.of([encoded for _, encoded in used])
    random = Random(f"{encoder.filling.seed} {epoch} {index} dropout")
    return Chunk.of([encoder.sampled(pair, encoded, random) for pair, encoded in used])
