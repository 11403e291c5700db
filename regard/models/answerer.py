"""A question about an image, read into the query that looks for its answer.

Several looks one after another, each asked by what is known so far, are those of Yang, He, Gao, Deng and Smola (2016),
"Stacked Attention Networks for Image Question Answering", arXiv 1511.02274.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attended, Attention
from regard.errors import ShapeError, UsageError
from regard.models._dropout import Dropout


class Answerer(nn.Module):
    """Reads a question, looks at a grid of vectors, and chooses one of the known answers.

        u_0 = read(question)
        z_k = attend_k(u_{k-1}, grid)                   a look
        u_k = tanh(u_{k-1} + W_k z_k)                   what is known after it
        answer scores = V relu(W [z_K; u_K])

    `read` makes one vector of a question: `Bag` or `InOrder`. `looks` are the attentions of the looks, in order, asked
    with vectors of its size; that of the score `Constant`,
    which sees the mean of the grid, is no attention at all. `eyes` make the grid of an image, such as `Convolutions`;
    without them the pictures are grids already. Of each picture, several questions can be asked at once.

    >>> look = Attention(Additive(query_dim=16, key_dim=8, hidden_dim=8))
    >>> model = Answerer(Bag(words=20, dim=16), looks=[look], answers=5, grid_dim=8)
    >>> pictures, questions = torch.rand(2, 49, 8), torch.randint(1, 20, (2, 3, 4))
    >>> model(pictures, questions, torch.randint(1, 5, (2, 3))).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        read: Bag | InOrder,
        looks: Sequence[Attention],
        answers: int,
        *,
        eyes: nn.Module | None = None,
        grid_dim: int = 96,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not looks:
            raise UsageError(
                "an answerer looks at least once; Attention(Constant()) sees the mean of the grid"
            )
        self.grid_dim, self.eyes, self.read, dim = grid_dim, eyes, read, read.dim
        self.attentions = nn.ModuleList(looks)
        self.joins = nn.ModuleList(nn.Linear(grid_dim, dim) for _ in looks)
        self.join = nn.Linear(grid_dim + dim, dim)
        self.output = nn.Linear(dim, answers)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        pictures: Float[Tensor, "rows *picture"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked answers"]:
        """The scores of each answer, before any softmax."""
        return self.consider(pictures, questions, lengths).scores

    def looks(
        self,
        pictures: Float[Tensor, "rows *picture"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked looks cells"]:
        """Where each look fell."""
        return torch.stack([look.weights for look in self.consider(pictures, questions, lengths).seen], 2)

    def consider(self, pictures: Tensor, questions: Tensor, lengths: Tensor) -> Considered:
        """`forward`, together with the looks."""
        grid, known = self.grid(pictures), self.asked(questions, lengths)
        seen = []
        for attention, join in zip(self.attentions, self.joins, strict=True):
            look = attention(known, grid, grid)
            known = torch.tanh(known + join(look.context))
            seen.append(look)
        told = torch.relu(self.join(torch.cat((look.context, known), -1)))
        return Considered(self.output(self.dropout(told)), seen)

    def asked(
        self, questions: Int[Tensor, "rows asked words"], lengths: Int[Tensor, "rows asked"]
    ) -> Float[Tensor, "rows asked dim"]:
        """What each question asks for."""
        found = self.read(questions.flatten(0, 1), lengths.flatten())
        return self.dropout(found.unflatten(0, lengths.shape))

    def grid(self, pictures: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows cells grid"]:
        """The vectors of the cells, row by row."""
        grid = pictures if self.eyes is None else self.eyes(pictures)
        if grid.dim() != 3 or grid.shape[-1] != self.grid_dim:
            raise ShapeError(f"a grid is (rows, cells, {self.grid_dim}) here, got {tuple(grid.shape)}")
        return grid


class Bag(nn.Module):
    """One vector for each question: the mean of those of its words, in whatever order they stand."""

    def __init__(self, words: int, dim: int):
        super().__init__()
        self.dim, self.embed = dim, nn.Embedding(words, dim)

    def forward(
        self, questions: Int[Tensor, "rows words"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows dim"]:
        inside = torch.arange(questions.shape[1], device=lengths.device) < lengths[:, None]
        return (self.embed(questions) * (inside / lengths[:, None])[..., None]).sum(1)


class InOrder(nn.Module):
    """One vector for each question: the state of a GRU after its last word."""

    def __init__(self, words: int, embed_dim: int, dim: int):
        super().__init__()
        self.dim, self.embed = dim, nn.Embedding(words, embed_dim)
        self.step = nn.GRU(embed_dim, dim, batch_first=True)

    def forward(
        self, questions: Int[Tensor, "rows words"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows dim"]:
        states = self.step(self.embed(questions))[0]
        return states[torch.arange(len(states), device=states.device), lengths - 1]


class Considered(NamedTuple):
    """The scores of the answers, and the looks before them."""

    scores: Float[Tensor, "rows asked answers"]
    seen: list[Attended]
