"""Where each sentence of a batch is kept, when those that leave are replaced by the last ones."""

from __future__ import annotations

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


class Places:
    """A sentence that leaves makes a hole, which one from the end fills: so few are moved, but the order changes.

    >>> places = Places(5, torch.device("cpu"))
    >>> places.leave(torch.tensor([0, 2, 4]))  # three stay; the last one goes where the second was
    (3, tensor([1]), tensor([4]))
    >>> kept = torch.tensor([[10], [14], [12]])  # at its places
    >>> places.from_places(kept).flatten().tolist()
    [10, 12, 14]
    """

    def __init__(self, count: int, device: torch.device):
        self.place = torch.arange(count, device=device)  # of each sentence, in order
        self.order: Tensor | None = None  # which sentence is at each place; None: they are in order

    def __len__(self) -> int:
        return len(self.place)

    def at(self, sentences: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
        return self.place[sentences]

    def to_places(self, ordered: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        return ordered if self.order is None else ordered.index_select(0, self.order)

    def from_places(self, placed: Shaped[Tensor, "sentences *_"]) -> Shaped[Tensor, "sentences *_"]:
        return placed if self.order is None else placed.index_select(0, self.place)

    def leave(self, staying: Int[Tensor, " left"]) -> tuple[int, Tensor, Tensor]:
        """All others leave: how many are left, the holes among their places, and which places move there."""
        left, place = len(staying), self.place[staying]
        free = torch.ones(left, dtype=torch.bool, device=place.device)
        inside = place < left
        free[place[inside]] = False
        holes, movers = free.nonzero().flatten(), place[~inside]
        place[~inside] = holes
        self.place, self.order = place, place.argsort()
        return left, holes, movers
