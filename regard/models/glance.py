"""An image put into a class by one glance at a grid of it: a learned query says what to look for.

Read top to bottom: the model, the glance, and what can take its place.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import ShapeError, UnsupportedError, UsageError
from regard.models._dropout import Dropout


class Glance(nn.Module):
    """Sees a grid of vectors, and says to which class it belongs.

        context_c = attend(query_c, grid)
        score_c   = w_c . context_c + b_c

    `pool` makes the contexts: `Look(attention)` has one query for all classes, or one for each of them, or none;
    `Largest()` takes the maximum of the grid instead, and `Look(Attention(Constant()))` its mean. `eyes` make the
    grid of an image, such as `Convolutions`; without them the pictures are grids already.

    >>> pool = Look(Attention(Additive(None, key_dim=8, hidden_dim=4)))
    >>> model = Glance(classes=10, pool=pool, grid_dim=8)
    >>> model(torch.rand(2, 49, 8)).shape, model.looks(torch.rand(2, 49, 8)).shape
    (torch.Size([2, 10]), torch.Size([2, 1, 49]))
    """

    def __init__(
        self,
        classes: int,
        pool: Look | Largest,
        *,
        eyes: nn.Module | None = None,
        grid_dim: int = 96,
        dropout: float = 0.0,
    ):
        super().__init__()
        if pool.queries not in (1, classes):
            raise UsageError(
                f"a glance has one query, or one for each of {classes} classes, not {pool.queries}"
            )
        self.grid_dim, self.eyes, self.pool = grid_dim, eyes, pool
        self.output = nn.Linear(grid_dim, classes)
        self.dropout = Dropout(dropout)

    def forward(self, pictures: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows classes"]:
        """The scores of each class, before any softmax."""
        seen = self.dropout(self.pool(self.grid(pictures)))
        if seen.shape[1] == 1:
            return self.output(seen[:, 0])
        return (seen * self.output.weight).sum(-1) + self.output.bias

    def looks(self, pictures: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows queries cells"]:
        """Where each query looked."""
        return self.pool.looks(self.grid(pictures))

    def grid(self, pictures: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows cells grid"]:
        """The vectors of the cells, row by row."""
        grid = pictures if self.eyes is None else self.eyes(pictures)
        if grid.dim() != 3 or grid.shape[-1] != self.grid_dim:
            raise ShapeError(f"a grid is (rows, cells, {self.grid_dim}) here, got {tuple(grid.shape)}")
        return grid


class Look(nn.Module):
    """What attention sees of each grid, asked by learned queries or, without `query_dim`, by nobody.

    >>> Look(Attention(Bilinear(6, 8)), query_dim=6, queries=10)(torch.rand(2, 49, 8)).shape
    torch.Size([2, 10, 8])
    """

    def __init__(self, attention: Attention, query_dim: int | None = None, queries: int = 1):
        super().__init__()
        if query_dim is None and queries != 1:
            raise UsageError(
                f"{queries} looks that nobody asks for would all be the same one; give a query_dim"
            )
        self.attention, self.queries = attention, queries
        self.query = None if query_dim is None else nn.Parameter(torch.randn(queries, query_dim))

    def forward(self, grid: Float[Tensor, "rows cells dim"]) -> Float[Tensor, "rows queries dim"]:
        return self.attention(self.query, grid, grid).context

    def looks(self, grid: Float[Tensor, "rows cells dim"]) -> Float[Tensor, "rows queries cells"]:
        return self.attention(self.query, grid, grid).weights


class Largest(nn.Module):
    """The largest of each number of the grid, wherever it is. It has no weights."""

    queries = 1

    def forward(self, grid: Float[Tensor, "rows cells dim"]) -> Float[Tensor, "rows 1 dim"]:
        return grid.amax(1, keepdim=True)

    def looks(self, grid: Float[Tensor, "rows cells dim"]) -> Float[Tensor, "rows queries cells"]:
        raise UnsupportedError("a maximum has no weights; take a model that pools by attention or average")
