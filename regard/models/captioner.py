"""An image described in words, with a look at a part of it for each word.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio (2015), "Show, Attend and Tell", arXiv 1502.03044. Read
top to bottom: the model, what there is to look at, a look that is drawn half of the time, writing word by word.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Attention, AttentionOutput, Sample, softmax
from regard.attention.normalizers import Normalizer
from regard.attention.projected import ProjectedKV
from regard.errors import ShapeError, UsageError
from regard.models.layers import CellState, FastDropout, LSTMCell


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
    >>> model = ShowAttendTell(vocab_size=11, attention=attention, feature_dim=8, embed_dim=8, hidden_dim=16)
    >>> model.lm_head(model(torch.rand(2, 49, 8), torch.randint(4, 11, (2, 5)))).shape
    torch.Size([2, 5, 11])
    """

    def __init__(
        self,
        vocab_size: int,
        attention: Attention,
        *,
        backbone: nn.Module | None = None,
        feature_dim: int = 128,
        embed_dim: int = 128,
        hidden_dim: int = 256,
        dropout: float = 0.0,
        soft_fraction: float = 0.5,
    ):
        super().__init__()
        if not 0 <= soft_fraction <= 1:
            raise UsageError(f"expected={soft_fraction} must be from 0 to 1")
        self.hidden_dim, self.feature_dim, self.soft_fraction = hidden_dim, feature_dim, soft_fraction
        self.backbone, self.attention = backbone, attention
        self.tgt_embed = nn.Embedding(vocab_size, embed_dim)
        self.bridge = nn.Linear(feature_dim, 2 * hidden_dim)
        self.gate = nn.Linear(hidden_dim, 1)
        self.cell = LSTMCell(embed_dim, feature_dim, hidden_dim)
        self.readout_proj = nn.Linear(hidden_dim + feature_dim, embed_dim)
        self.lm_head = nn.Linear(embed_dim, vocab_size)
        self.dropout = FastDropout(dropout)

    def forward(
        self, images: Float[Tensor, "rows *picture"], target: Int[Tensor, "rows target"]
    ) -> Float[Tensor, "rows target embed"]:
        """What `output` turns into the scores of the next word, after each word of the caption."""
        return self.decode(images, target).hidden

    def attention_weights(
        self, images: Float[Tensor, "rows *picture"], target: Int[Tensor, "rows target"]
    ) -> Float[Tensor, "rows target-1 cells"]:
        """Where each word of the caption looked."""
        return torch.cat([look.weights for look in self.decode(images, target[:, :-1]).attention], 1)

    def start_decoding(self, images: Float[Tensor, "rows *picture"]) -> CaptionDecoderState:
        """See the pictures once, then write word by word."""
        return CaptionDecoderState(self, *self.encode(images))

    def decode(
        self, images: Tensor, target: Tensor, soft_fraction: float | Tensor | None = None
    ) -> CaptionDecoderOutput:
        """`forward`, together with the look of each step; `expected` in place of the model's own share."""
        over, state = self.encode(images, soft_fraction)
        embedded = self.dropout(self.tgt_embed(target))
        tops, contexts, seen = [], [], []
        for ahead in self.cell.project_input(embedded).unbind(1):
            state, context, look = self.decode_step(ahead, over, state)
            tops.append(state[0])
            contexts.append(context)
            seen.append(look)
        return CaptionDecoderOutput(
            self.readout(torch.stack(tops, 1), torch.stack(contexts, 1), embedded), seen
        )

    def encode(
        self, images: Tensor, soft_fraction: float | Tensor | None = None
    ) -> tuple[ProjectedKV, CellState]:
        """What there is to look at, and the state to begin with."""
        grid = self.encode_image(images)
        start = torch.tanh(self.bridge(grid.mean(1)))
        attention = self.attention
        if self.training and isinstance(attention.normalize, Sample):
            share = self.soft_fraction if soft_fraction is None else soft_fraction
            rows = torch.rand(len(grid), device=grid.device) < share
            attention = Attention(attention.score, PartiallySampled(attention.normalize, rows))
        return attention.precompute(grid, grid), tuple(start.chunk(2, -1))

    def encode_image(self, images: Float[Tensor, "rows *picture"]) -> Float[Tensor, "rows cells grid"]:
        """The vectors of the cells, row by row."""
        grid = images if self.backbone is None else self.backbone(images)
        if grid.dim() != 3 or grid.shape[-1] != self.feature_dim:
            raise ShapeError(f"a grid is (rows, cells, {self.feature_dim}) here, got {tuple(grid.shape)}")
        return grid

    def decode_step(
        self, projected_input: Tensor, projected_kv: ProjectedKV, state: CellState
    ) -> tuple[CellState, Tensor, AttentionOutput]:
        """One word further; `ahead` is what the cell makes of the embedded word before it."""
        look = projected_kv(state[0][:, None])
        context = torch.sigmoid(self.gate(state[0])) * look.context.squeeze(1)
        return self.cell(projected_input, context, state), context, look

    def readout(self, top_hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """What is said in a step, or in many."""
        return self.dropout(torch.tanh(embedded + self.readout_proj(torch.cat([top_hidden, context], -1))))


class CaptionDecoderOutput(NamedTuple):
    """What the decoder says after each word, and the look before it."""

    hidden: Float[Tensor, "rows target embed"]
    attention: list[AttentionOutput]


class PartiallySampled(Normalizer):
    """Look as a chooser chooses, but in some rows as it would on average: these learn by the gradient alone.

    A row that does not choose has log-probability 0.
    """

    def __init__(self, sampler: Sample, soft_rows: Bool[Tensor, " rows"]):
        super().__init__()
        self.sampler, self.soft_rows = sampler, soft_rows

    @property
    def is_random(self) -> bool:
        return self.sampler.is_random

    def compute_weights(self, scores: Tensor) -> Tensor:
        return torch.where(self.soft_rows[:, None, None], softmax(scores), self.sampler(scores))

    def log_prob(self, scores: Tensor, weights: Tensor) -> Tensor:
        return self.sampler.log_prob(scores, weights).masked_fill(self.soft_rows[:, None], 0.0)

    def entropy(self, scores: Tensor) -> Tensor:
        return self.sampler.entropy(scores)


class CaptionDecoderState:
    """A caption being written, one word of each row at a time."""

    def __init__(self, model: ShowAttendTell, projected_kv: ProjectedKV, state: CellState):
        self.model, self.projected_kv, self.state = model, projected_kv, state
        self.source_rows = torch.arange(len(state[0]), device=state[0].device)
        self.attention: AttentionOutput | None = None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        model = self.model
        embedded = model.dropout(model.tgt_embed(tokens))
        self.state, context, self.attention = model.decode_step(
            model.cell.project_input(embedded), self.projected_kv, self.state
        )
        return model.lm_head(model.readout(self.state[0], context, embedded))

    def weights(self) -> Float[Tensor, "rows cells"]:
        """Where the last word looked."""
        assert self.attention is not None
        return self.attention.weights.squeeze(1)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.state = tuple(part[rows] for part in self.state)
        before, self.source_rows = self.source_rows, self.source_rows[rows]
        if not torch.equal(
            before, self.source_rows
        ):  # a beam mostly moves within its caption: the picture stays
            self.projected_kv = self.projected_kv.reorder(rows)


def doubly_stochastic_penalty(
    attention: list[AttentionOutput], word_mask: Bool[Tensor, "rows words"]
) -> Float[Tensor, " rows"]:
    """How far a caption is from having looked at every cell alike: the sum over cells of (1 - regard in all words)^2.

    Paper, eq. 14: the doubly stochastic penalty.
    """
    weights = torch.cat([look.weights for look in attention], 1)
    return (1 - (weights * word_mask[..., None]).sum(1)).square().sum(-1)
