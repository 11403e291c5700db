"""Image captioning with attention to a grid.

Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel and Bengio (2015), "Show, Attend and Tell", arXiv 1502.03044. Top to
bottom: the model, sampled attention that is soft for some rows, decoding step by step, the doubly stochastic penalty.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Attention, AttentionOutput, Normalizer, ProjectedKV, Sample, softmax
from regard.attention.module import Device, Dtype, FactoryKwargs, reset_modules
from regard.errors import UsageError
from regard.models.image_models import GridModel, Images
from regard.models.layers import CellState, FastDropout, LSTMCell, TargetTokens
from regard.models.rnn_decoding import DecoderOutput

__all__ = ["CaptionDecoderState", "PartialSample", "ShowAttendTell", "doubly_stochastic_penalty"]


class ShowAttendTell(GridModel):
    """Image captioning: an LSTM that attends to a grid before each token.

        z_t = attend(h_{t-1}, grid)
        g_t = sigmoid(w . h_{t-1}) z_t                    gated context
        h_t = step(h_{t-1}, [y_{t-1}; g_t])
        token_t from tanh(y_{t-1} + W [h_t; g_t])         deep output

    Args:
        vocab_size: number of tokens
        attention: queries have size `hidden_dim`, keys `feature_dim`. Softmax is the paper's soft attention, `Sample`
            its hard attention, the score `Constant`, the mean of the grid, is the model without attention
        backbone: from images to grids, such as `ConvBackbone`; None if the inputs are grids
        feature_dim: size of a grid vector
        embed_dim: size of a token's vector
        hidden_dim: size of the LSTM's state
        dropout: probability of dropout on embeddings and before `lm_head`
        soft_fraction: with sampled attention, the fraction of rows that use softmax in training (paper, 4.1)
        device, dtype: of the parameters, as in PyTorch; `attention` and `backbone` have their own

    Shape: images (batch, *image), target (batch, tgt_len) -> (batch, tgt_len, vocab_size)

    Example:
        >>> attention = Attention(Additive(query_dim=16, key_dim=8, hidden_dim=8))
        >>> model = ShowAttendTell(11, attention, feature_dim=8, embed_dim=8, hidden_dim=16)
        >>> model(torch.rand(2, 49, 8), torch.randint(4, 11, (2, 5))).shape
        torch.Size([2, 5, 11])
    """

    repr_settings = ("soft_fraction",)

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
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if not 0 <= soft_fraction <= 1:
            raise UsageError(f"ShowAttendTell: invalid value {soft_fraction} for soft_fraction: must be from 0 to 1")
        self.hidden_dim, self.feature_dim, self.soft_fraction = hidden_dim, feature_dim, soft_fraction
        self.backbone, self.attention = backbone, attention
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.tgt_embed = nn.Embedding(vocab_size, embed_dim, **factory)
        self.bridge = nn.Linear(feature_dim, 2 * hidden_dim, **factory)
        self.gate = nn.Linear(hidden_dim, 1, **factory)
        self.cell = LSTMCell(embed_dim, feature_dim, hidden_dim, **factory)
        self.readout_proj = nn.Linear(hidden_dim + feature_dim, embed_dim, **factory)
        self.lm_head = nn.Linear(embed_dim, vocab_size, **factory)
        self.dropout = FastDropout(dropout)

    def reset_parameters(self) -> None:
        reset_modules(self.attention, self.backbone, self.tgt_embed, self.bridge, self.gate)
        reset_modules(self.cell, self.readout_proj, self.lm_head)

    def forward(self, images: Images, target: TargetTokens) -> Float[Tensor, "batch tgt_len vocab"]:
        """Logits of the next token after each token of the caption."""
        return self.lm_head(self.forward_hidden(images, target))

    def forward_hidden(self, images: Images, target: TargetTokens) -> Float[Tensor, "batch tgt_len embed_dim"]:
        """The input of `lm_head`, for losses that compute logits in chunks."""
        return self.decode(images, target).hidden

    def attention_weights(self, images: Images, target: TargetTokens) -> Float[Tensor, "batch tgt_len-1 cells"]:
        """Attention weights of `target[:, 1:]` over the grid."""
        return torch.cat([output.weights for output in self.decode(images, target[:, :-1]).attention], 1)

    def start_decoding(self, images: Images) -> CaptionDecoderState:
        """Encode the images once and return the state of a decoder that takes one token per step."""
        return CaptionDecoderState(self, *self.encode(images))

    def decode(self, images: Tensor, target: Tensor, soft_fraction: float | Tensor | None = None) -> DecoderOutput:
        """Hidden states of `forward_hidden` and the attention of each step.

        `soft_fraction` replaces the model's own.
        """
        projected_kv, state = self.encode(images, soft_fraction)
        embedded = self.dropout(self.tgt_embed(target))
        steps = []
        for projected in self.cell.project_input(embedded).unbind(1):
            state, context, output = self.decode_step(projected, projected_kv, state)
            steps.append((state[0], context, output))
        top_states, contexts, outputs = zip(*steps, strict=True)
        hidden = self.readout(torch.stack(top_states, 1), torch.stack(contexts, 1), embedded)
        return DecoderOutput(hidden, list(outputs))

    def encode(self, images: Tensor, soft_fraction: float | Tensor | None = None) -> tuple[ProjectedKV, CellState]:
        """The attention over the grid, with its keys projected, and the initial state."""
        grid = self.encode_image(images)
        start = torch.tanh(self.bridge(grid.mean(1)))
        attention = self.attention
        if self.training and isinstance(attention.normalize, Sample):
            fraction = self.soft_fraction if soft_fraction is None else soft_fraction
            soft_rows = torch.rand(len(grid), device=grid.device) < fraction
            attention = Attention(attention.score, PartialSample(attention.normalize, soft_rows))
        return attention.precompute(grid, grid), tuple(start.chunk(2, -1))

    def decode_step(
        self, projected_input: Tensor, projected_kv: ProjectedKV, state: CellState
    ) -> tuple[CellState, Tensor, AttentionOutput]:
        """One step: the next state, the gated context and its attention.

        `projected_input` is what the cell's `project_input` returns for the embedding of the token before.
        """
        output = projected_kv(state[0][:, None])
        context = torch.sigmoid(self.gate(state[0])) * output.context.squeeze(1)
        return self.cell(projected_input, context, state), context, output

    def readout(self, top_hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """The input of `lm_head`, of one step or of many."""
        return self.dropout(torch.tanh(embedded + self.readout_proj(torch.cat([top_hidden, context], -1))))


class PartialSample(Normalizer):
    """Samples in most rows and applies softmax in the others, which learn by the gradient alone.

    A row with softmax has log-probability 0.

    Args:
        sample: the normalizer that samples
        soft_rows: True for each row with softmax

    Shape: scores (rows, queries, keys), -inf for hidden keys -> weights of the same shape

    Example:
        >>> PartialSample(Sample(), torch.tensor([True, False])).eval()(torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]]]))
        tensor([[[0.5000, 0.5000]],
        <BLANKLINE>
                [[0.0000, 1.0000]]])
    """

    def __init__(self, sample: Sample, soft_rows: Bool[Tensor, " rows"]):
        super().__init__()
        # Not named `sampler`: that is where attention outputs look for a wrapped normalizer.
        self.sample, self.soft_rows = sample, soft_rows

    @property
    def is_random(self) -> bool:
        """Whether the weights are sampled in the current mode."""
        return self.sample.is_random

    def compute_weights(self, scores: Tensor) -> Tensor:
        """Softmax in soft rows, samples in the others."""
        return torch.where(self.soft_rows[:, None, None], softmax(scores), self.sample(scores))

    def log_prob(self, scores: Tensor, weights: Tensor) -> Tensor:
        """Log-probability of the samples; 0 in soft rows."""
        return self.sample.log_prob(scores, weights).masked_fill(self.soft_rows[:, None], 0.0)

    def entropy(self, scores: Tensor) -> Tensor:
        """Entropy of the distribution that is sampled."""
        return self.sample.entropy(scores)


class CaptionDecoderState:
    """State of a caption decoder that takes one token of each row per step.

    Args:
        model: the model
        projected_kv: the attention over the grids
        state: the initial state

    Example:
        >>> attention = Attention(Additive(query_dim=16, key_dim=8, hidden_dim=8))
        >>> model = ShowAttendTell(11, attention, feature_dim=8, embed_dim=8, hidden_dim=16)
        >>> decoder = model.start_decoding(torch.rand(2, 49, 8))
        >>> decoder.step(torch.tensor([1, 1])).shape, decoder.weights().shape
        (torch.Size([2, 11]), torch.Size([2, 49]))
    """

    def __init__(self, model: ShowAttendTell, projected_kv: ProjectedKV, state: CellState):
        self.model, self.projected_kv, self.state = model, projected_kv, state
        self.source_rows = torch.arange(len(state[0]), device=state[0].device)  # which image each row describes
        self.attention: AttentionOutput | None = None

    def step(self, tokens: Int[Tensor, " batch"]) -> Float[Tensor, "batch vocab"]:
        """Logits of the next token of each row, given the token before it."""
        model = self.model
        embedded = model.dropout(model.tgt_embed(tokens))
        projected = model.cell.project_input(embedded)
        self.state, context, self.attention = model.decode_step(projected, self.projected_kv, self.state)
        return model.lm_head(model.readout(self.state[0], context, embedded))

    def weights(self) -> Float[Tensor, "batch cells"]:
        """Attention weights of the last step."""
        if self.attention is None:
            raise UsageError("CaptionDecoderState: there are no weights before the first step")
        return self.attention.weights.squeeze(1)

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        self.state = tuple(part[rows] for part in self.state)
        before, self.source_rows = self.source_rows, self.source_rows[rows]
        if not torch.equal(before, self.source_rows):  # hypotheses of a beam usually stay with their image
            self.projected_kv = self.projected_kv.reorder(rows)


def doubly_stochastic_penalty(
    attention: list[AttentionOutput], word_mask: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, " batch"]:
    """Doubly stochastic penalty: how far the weights of a whole caption are from being the same for all cells.

        penalty = sum_cells (1 - sum_tokens weights)^2

    Args:
        attention: the attention of each step, as in `DecoderOutput`
        word_mask: True for tokens, False for padding

    Shape: word_mask (batch, tokens) -> (batch,)

    Returns:
        the penalty of each caption

    Example:
        >>> output = attend(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))  # 2 tokens, 2 cells
        >>> doubly_stochastic_penalty([output], torch.ones(1, 2, dtype=torch.bool)).tolist()
        [0.0]

    Reference: Xu et al. (2015), eq. 14.
    """
    weights = torch.cat([output.weights for output in attention], 1)
    return (1 - (weights * word_mask[..., None]).sum(1)).square().sum(-1)
