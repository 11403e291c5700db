"""The positions that a mask, a positional score or a bell is asked about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass
class Grid:
    """The positions that a rule is asked about, and how the scores they belong to are laid out.

    The scores have axes ``(*batch, *inner, queries, keys)``. ``batch`` counts the leading axes that belong
    to the caller, ``inner`` those that a fast path put in (the blocks of a band). ``query_at`` and ``key_at``
    broadcast to the scores from the right; ``queries`` and ``keys`` are the full numbers of them. ``whole``
    says that all positions are asked about, ``consecutive`` that they follow one another and lie alike in
    every block.
    """

    queries: int
    keys: int
    batch: int
    query_at: Int[Tensor, "..."]
    key_at: Int[Tensor, "..."]
    inner: int = 0
    whole: bool = False
    consecutive: bool = True

    @classmethod
    def full(cls, queries: int, keys: int, batch: int = 0, device: torch.device | None = None) -> Grid:
        """Every query and every key."""
        query_at = torch.arange(queries, device=device)[:, None]
        key_at = torch.arange(keys, device=device)[None, :]
        return cls(queries, keys, batch, query_at, key_at, whole=True)

    def lead(self, table: Tensor, own: int) -> Tensor:
        """Let the first axes of ``table`` be the leading batch axes and its last ``own`` axes stay last."""
        split, gap = table.dim() - own, self.batch + self.inner + 2 - table.dim()
        return table.reshape(table.shape[:split] + (1,) * gap + table.shape[split:])

    def pick(self, table: Tensor, at: Tensor) -> Tensor:
        """``table[*lead, position]`` at the positions ``at``, laid out like the scores."""
        at = at.clamp(0, max(table.shape[-1] - 1, 0))
        if at.dim() <= self.inner + 2:
            return self.lead(table[..., at], at.dim())
        table = self.lead(table, 1)
        shape = torch.broadcast_shapes(table.shape[:-1], at.shape[:-1])
        return table.expand(*shape, -1).gather(-1, at.expand(*shape, -1))
