"""An image described in words, with a look at a part of it for each word.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio (2015), "Show, Attend and Tell", arXiv 1502.03044. Read
top to bottom: the model, what there is to look at, a look that is drawn half of the time, writing word by word.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Attended, Attention, Sample, softmax
from regard.attention._over import Over
from regard.attention.normalizers import Normalizer
from regard.errors import ShapeError, UsageError
from regard.models._cells import LSTMCell, State
from regard.models._dropout import Dropout


class ShowAttendTell(nn.Module):
    """Sees a grid of vectors; writes with an LSTM that looks at the grid before each word.

        z_t = attend(h_{t-1}, grid)                       what is seen
        g_t = sigmoid(w . h_{t-1}) z_t                    the gate: how much of it counts for this word
        h_t = step(h_{t-1}, [y_{t-1}; g_t])
        word_t from tanh(y_{t-1} + W [h_t; g_t])          the deep output

    `eyes` makes the grid of an image, such as `Convolutions`; without them the pictures are grids already, of vectors
    of size `grid_dim`. `attention` is asked with states of size `dim`: softmax is the paper's soft attention, `Sample`
    its hard one, and the score `Constant`, which sees the mean of the grid in every step, is no attention at all.
    Where it samples, the share `expected` of the rows sees what softmax would show instead (paper, 4.1).

    >>> attention = Attention(Additive(query_dim=16, key_dim=8, hidden_dim=8))
    >>> model = ShowAttendTell(words=11, attention=attention, grid_dim=8, embed_dim=8, dim=16)
    >>> model.output(model(torch.rand(2, 49, 8), torch.randint(4, 11, (2, 5)))).shape
    torch.Size([2, 5, 11])
    """

    def __init__(
        self,
        words: int,
        attention: Attention,
        *,
        eyes: nn.Module | None = None,
        grid_dim: int = 128,
        embed_dim: int = 128,
        dim: int = 256,
        dropout: float = 0.0,
        expected: float = 0.5,
    ):
        super().__init__()
        if not 0 <= expected <= 1:
            raise UsageError(f"expected={expected} must be from 0 to 1")
        self.dim, self.grid_dim, self.expected = dim, grid_dim, expected
        self.eyes, self.attention = eyes, attention
        self.write = nn.Embedding(words, embed_dim)
        self.start = nn.Linear(grid_dim, 2 * dim)
        self.gate = nn.Linear(dim, 1)
        self.cell = LSTMCell(embed_dim, grid_dim, dim)
        self.join = nn.Linear(dim + grid_dim, embed_dim)
        self.output = nn.Linear(embed_dim, words)
        self.dropout = Dropout(dropout)

    def forward(
        self, pictures: Float[Tensor, "rows *picture"], target: Int[Tensor, "rows target"]
    ) -> Float[Tensor, "rows target embed"]:
        """What `output` turns into the scores of the next word, after each word of the caption."""
        return self.decode(pictures, target).hidden

    def looks(
        self, pictures: Float[Tensor, "rows *picture"], target: Int[Tensor, "rows target"]
    ) -> Float[Tensor, "rows target-1 cells"]:
        """Where each word of the caption looked."""
        return torch.cat([look.weights for look in self.decode(pictures, target[:, :-1]).seen], 1)

    def begin(self, pictures: Float[Tensor, "rows *picture"]) -> Steps:
        """See the pictures once, then write word by word."""
        return Steps(self, *self.see(pictures))

    def decode(self, pictures: Tensor, target: Tensor, expected: float | Tensor | None = None) -> Told:
        """`forward`, together with the look of each step; `expected` in place of the model's own share."""
        over, state = self.see(pictures, expected)
        embedded = self.dropout(self.write(target))
        tops, contexts, seen = [], [], []
        for ahead in self.cell.ahead(embedded).unbind(1):
            state, context, look = self.step(ahead, over, state)
            tops.append(state[0])
            contexts.append(context)
            seen.append(look)
        return Told(self.say(torch.stack(tops, 1), torch.stack(contexts, 1), embedded), seen)

    def see(self, pictures: Tensor, expected: float | Tensor | None = None) -> tuple[Over, State]:
        """What there is to look at, and the state to begin with."""
        grid = self.grid(pictures)
        start = torch.tanh(self.start(grid.mean(1)))
        attention = self.attention
        if self.training and isinstance(attention.normalize, Sample):
            share = self.expected if expected is None else expected
            rows = torch.rand(len(grid), device=grid.device) < share
            attention = Attention(attention.score, Mixed(attention.normalize, rows))
        return attention.over(grid, grid), tuple(start.chunk(2, -1))

    def grid(self, pictures: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows cells grid"]:
        """The vectors of the cells, row by row."""
        grid = pictures if self.eyes is None else self.eyes(pictures)
        if grid.dim() != 3 or grid.shape[-1] != self.grid_dim:
            raise ShapeError(f"a grid is (rows, cells, {self.grid_dim}) here, got {tuple(grid.shape)}")
        return grid

    def step(self, ahead: Tensor, over: Over, state: State) -> tuple[State, Tensor, Attended]:
        """One word further; `ahead` is what the cell makes of the embedded word before it."""
        look = over(state[0][:, None])
        context = torch.sigmoid(self.gate(state[0])) * look.context.squeeze(1)
        return self.cell(ahead, context, state), context, look

    def say(self, top: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """What is said in a step, or in many."""
        return self.dropout(torch.tanh(embedded + self.join(torch.cat([top, context], -1))))


class Told(NamedTuple):
    """What the decoder says after each word, and the look before it."""

    hidden: Float[Tensor, "rows target embed"]
    seen: list[Attended]


class Mixed(Normalizer):
    """Look as a chooser chooses, but in some rows as it would on average: these learn by the gradient alone.

    A row that does not choose has log-probability 0.
    """

    def __init__(self, choose: Sample, expected: Bool[Tensor, " rows"]):
        super().__init__()
        self.choose, self.expected = choose, expected

    @property
    def random(self) -> bool:
        return self.choose.random

    def share(self, scores: Tensor) -> Tensor:
        return torch.where(self.expected[:, None, None], softmax(scores), self.choose(scores))

    def log_prob(self, scores: Tensor, weights: Tensor) -> Tensor:
        return self.choose.log_prob(scores, weights).masked_fill(self.expected[:, None], 0.0)

    def entropy(self, scores: Tensor) -> Tensor:
        return self.choose.entropy(scores)


class Steps:
    """A caption being written, one word of each row at a time."""

    def __init__(self, model: ShowAttendTell, over: Over, state: State):
        self.model, self.over, self.state = model, over, state
        self.rows = torch.arange(len(state[0]), device=state[0].device)
        self.seen: Attended | None = None

    def step(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        model = self.model
        embedded = model.dropout(model.write(words))
        self.state, context, self.seen = model.step(model.cell.ahead(embedded), self.over, self.state)
        return model.output(model.say(self.state[0], context, embedded))

    def weights(self) -> Float[Tensor, "rows cells"]:
        """Where the last word looked."""
        assert self.seen is not None
        return self.seen.weights.squeeze(1)

    def select(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.state = tuple(part[rows] for part in self.state)
        before, self.rows = self.rows, self.rows[rows]
        if not torch.equal(before, self.rows):  # a beam mostly moves within its caption: the picture stays
            self.over = self.over.select(rows)


def doubly(seen: list[Attended], words: Bool[Tensor, "rows words"]) -> Float[Tensor, " rows"]:
    """How far a caption is from having looked at every cell alike: the sum over cells of (1 - regard in all words)^2.

    Paper, eq. 14: the doubly stochastic penalty.
    """
    weights = torch.cat([look.weights for look in seen], 1)
    return (1 - (weights * words[..., None]).sum(1)).square().sum(-1)
