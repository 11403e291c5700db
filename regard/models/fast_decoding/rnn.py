"""Fast decoding with a recurrent model: exactly `RNNDecoderState`, in fewer operations.

In a beam several rows continue the same row of the step before, and many take the same token: what depends on a state
alone, or on a token alone, is computed once for all of them. Weights are laid out so that a cell's gates, and with
Bahdanau's order the part of the readout that does not need the new state, are one product per input:

    GRU     [ new, from the state | reset | keep | new | extra ]      state: the first three; inputs: all but the first
    LSTM    [ input | forget | output | new            | extra ]      state: the first four; inputs: all

A gate that depends on both the state and the inputs is the sum of both products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.observers import WATCHERS
from regard.errors import UnsupportedError
from regard.models.fast_decoding.shared import (
    RowGroups,
    WeightCache,
    base2_logits,
    cached_output_projection,
    get_or_build,
    has_no_hooks,
    is_inlineable,
    is_plain_inference,
    unique_rows,
)
from regard.models.layers import CellState, FastDropout, GRUCell, LSTMCell, RNNCell

if TYPE_CHECKING:
    from regard.models.rnn_seq2seq import RNNSeq2Seq

__all__ = [
    "ExtraOutputs",
    "FusedCell",
    "FusedGRU",
    "FusedLSTM",
    "FusedRNNDecoder",
    "FusedRNNDecoderState",
    "fuse_rnn_decoder",
]


class ExtraOutputs(NamedTuple):
    """Weights of other outputs of a cell's inputs, computed in the same products.

    Args:
        context_weight: from the context
        input_weight: from the input
        bias: their bias

    Example:
        >>> ExtraOutputs(torch.zeros(4, 2), torch.zeros(3, 2), torch.zeros(2)).bias.shape
        torch.Size([2])
    """

    context_weight: Float[Tensor, "context extra"]
    input_weight: Float[Tensor, "input extra"]
    bias: Float[Tensor, " extra"]


class FusedCell:
    """Weights of a recurrent cell, transposed and contiguous, gates in the order of a row (see the module).

    Args:
        cell: the cell
        extra: weights of other outputs of the cell's inputs

    Example:
        >>> cell, state = GRUCell(3, 0, 5), (torch.zeros(2, 5),)
        >>> fused, x = FusedGRU(cell), torch.randn(2, 3)
        >>> new = fused.update(fused.project_state(state[0], None), fused.project_input(x), state)[0]
        >>> torch.allclose(new, cell(cell.project_input(x), None, state)[0], atol=1e-6)
        True
    """

    hidden_gates: tuple[int, ...]  # the cell's gates that depend on the state, in the order of a row
    input_gates: tuple[int, ...]  # those that depend on the inputs
    num_hidden_only: int  # gates at the front of a row that depend on no input

    def __init__(self, cell: RNNCell, extra: ExtraOutputs | None = None):
        self.hidden_dim = cell.hidden_proj.in_features
        self.hidden_weight, self.hidden_bias = self._reorder_gates(cell.hidden_proj, self.hidden_gates)
        self.input_weight, self.input_bias = self._reorder_gates(cell.input_proj, self.input_gates)
        self.context_weight: Tensor | None = None
        if cell.context_proj is not None:
            self.context_weight = self._reorder_gates(cell.context_proj, self.input_gates)[0]
        if extra is not None and self.context_weight is not None:
            self.context_weight = torch.cat((self.context_weight, extra.context_weight), 1)
            self.input_weight = torch.cat((self.input_weight, extra.input_weight), 1)
            self.input_bias = torch.cat((self.input_bias, extra.bias))
        self.input_start = self.num_hidden_only * self.hidden_dim  # of what depends on inputs, in a row
        self.gates_end = self.input_start + len(self.input_gates) * self.hidden_dim

    def _reorder_gates(self, layer: nn.Linear, gates: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Transposed weight and bias of a layer, gate by gate in this order."""
        weight, bias = layer.weight.detach(), layer._parameters["bias"]
        weights = weight.split(self.hidden_dim)
        biases = (weight.new_zeros(len(weight)) if bias is None else bias.detach()).split(self.hidden_dim)
        weight_t = torch.cat([weights[gate] for gate in gates]).t().contiguous()
        return weight_t, torch.cat([biases[gate] for gate in gates])

    def project_input(self, inputs: Float[Tensor, "rows input"]) -> Float[Tensor, "rows outputs"]:
        """What the input adds to a row."""
        return torch.addmm(self.input_bias, inputs, self.input_weight)

    def project_state(
        self, h: Float[Tensor, "rows hidden"], context: Float[Tensor, "rows context"] | None
    ) -> Float[Tensor, "rows row"]:
        """A row without what the input adds."""
        row = h.new_empty(len(h), self.input_start + self.input_weight.shape[1])
        hidden_end = self.hidden_weight.shape[1]
        torch.addmm(self.hidden_bias, h, self.hidden_weight, out=row[:, :hidden_end])
        row[:, hidden_end:].zero_()
        if self.context_weight is not None and context is not None:
            row[:, self.input_start :].addmm_(context, self.context_weight)
        return row

    def update(
        self, row: Float[Tensor, "rows row"], projected_input: Float[Tensor, "rows outputs"], state: CellState
    ) -> CellState:
        """The next state. Of the row only the extra outputs are still valid after it."""
        row[:, self.input_start :].add_(projected_input)
        return self.apply_gates(row[:, : self.gates_end].split(self.hidden_dim, 1), state)

    def extra_outputs(self, row: Float[Tensor, "rows row"]) -> Float[Tensor, "rows extra"]:
        """The extra outputs in a row."""
        return row[:, self.gates_end :]

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        """The next state from the sums of all gates and the previous state."""
        raise NotImplementedError(f"{type(self).__name__} must implement apply_gates(gates, state)")


class FusedGRU(FusedCell):
    """`GRUCell` for `FusedRNNDecoder`.

    Args:
        cell, extra: as in `FusedCell`

    Example:
        >>> FusedGRU(GRUCell(3, 0, 5)).input_weight.shape
        torch.Size([3, 15])
    """

    hidden_gates, input_gates, num_hidden_only = (2, 0, 1), (0, 1, 2), 1

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        """See `GRUCell.update`."""
        new_hidden, reset, keep, new = gates
        new = torch.addcmul(new, reset.sigmoid_(), new_hidden).tanh_()
        return (new.lerp_(state[0], keep.sigmoid_()),)


class FusedLSTM(FusedCell):
    """`LSTMCell` for `FusedRNNDecoder`.

    Args:
        cell, extra: as in `FusedCell`

    Example:
        >>> FusedLSTM(LSTMCell(3, 0, 5)).input_weight.shape
        torch.Size([3, 20])
    """

    hidden_gates, input_gates, num_hidden_only = (0, 1, 3, 2), (0, 1, 3, 2), 0

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        """See `LSTMCell.update`."""
        i, f, o, g = gates
        c = f.sigmoid_().mul(state[1]).addcmul_(i.sigmoid_(), g.tanh_())
        return torch.tanh(c).mul_(o.sigmoid_()), c


INLINED = (RNNCell, nn.Linear, nn.Embedding, FastDropout)
FUSED_CELLS: dict[type[RNNCell], type[FusedCell]] = {GRUCell: FusedGRU, LSTMCell: FusedLSTM}


class FusedRNNDecoder:
    """Weights of a recurrent decoder, as the steps of `FusedRNNDecoderState` need them.

    The readout's weight is split into the parts of state, context and token. In Bahdanau's order context and token are
    known before the new state, so their parts are extra outputs of the first cell's products.

    Args:
        model: the model

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, embed_dim=8, hidden_dim=16).eval()
        >>> len(FusedRNNDecoder(model).upper_cells)
        0
    """

    def __init__(self, model: RNNSeq2Seq):
        self.is_luong, self.input_feeding = model.order == "luong", model.input_feeding
        weight_t, bias = model.readout_proj.weight.detach().t(), model.readout_proj.bias.detach()
        if not self.is_luong:  # maxout takes the larger of each pair: first all first elements, then all second ones
            weight_t, bias = (torch.cat((part[..., ::2], part[..., 1::2]), -1) for part in (weight_t, bias))
        sizes = [model.hidden_dim, model.bridge.in_features]
        sizes.append(len(weight_t) - sum(sizes))
        self.top_weight, self.context_weight, input_weight = (part.contiguous() for part in weight_t.split(sizes))
        self.bias: Tensor = bias.contiguous()
        extra = None if self.is_luong else ExtraOutputs(self.context_weight, input_weight, self.bias)
        first, *upper = (cast(RNNCell, cell) for cell in model.cells)
        self.first_cell = FUSED_CELLS[type(first)](first, extra)
        self.upper_cells: list[FusedCell] = [FUSED_CELLS[type(cell)](cell) for cell in upper]
        self.embed_weight: Tensor = model.tgt_embed.weight.detach()
        self.output_projection = cached_output_projection(model.lm_head)


FUSED_RNN_DECODERS: WeightCache[FusedRNNDecoder] = WeakKeyDictionary()


def fuse_rnn_decoder(model: RNNSeq2Seq) -> FusedRNNDecoder | None:
    """The fused decoder of a recurrent model, cached as long as its weights are unchanged.

    None if every module must be called: with gradients, watchers, hooks, compilation or autocast.

    Args:
        model: the model

    Returns:
        the fused decoder, or None

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, embed_dim=8, hidden_dim=16).eval()
        >>> fuse_rnn_decoder(model) is None  # gradients are enabled
        True
    """
    weight = model.lm_head.weight
    parts = (*model.cells, model.readout_proj, model.tgt_embed, model.lm_head)
    modules = [module for part in parts for module in part.modules()]
    attention = [] if model.attention is None else list(model.attention.modules())
    is_plain = is_plain_inference(weight) and not WATCHERS.get() and weight.dtype in (torch.float32, torch.float64)
    if not (is_plain and has_no_hooks(model) and all(type(cell) in FUSED_CELLS for cell in model.cells)):
        return None
    if not all(is_inlineable(module, INLINED) for module in (*modules, model.dropout)):
        return None
    if any(module.training or not has_no_hooks(module) for module in attention):
        return None
    return get_or_build(FUSED_RNN_DECODERS, model, modules, lambda: FusedRNNDecoder(model))


class FusedRNNDecoderState:
    """`RNNDecoderState` by fused operations; rows are sentences x width, neighbors share a sentence.

    `states` and `input_feed` are those of the distinct rows that are continued; `parents` maps each row to its own.

    Args:
        decoder: the fused weights
        memory: an `EncoderMemory` or a `FactoredAdditive`
        state: the initial `RNNState`

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, embed_dim=8, hidden_dim=16).eval()
        >>> with torch.no_grad():
        ...     decoder = model.start_decoding(torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]))
        ...     type(decoder).__name__, decoder.step(torch.tensor([1, 1])).shape
        ('FusedRNNDecoderState', torch.Size([2, 13]))
    """

    def __init__(self, decoder: FusedRNNDecoder, memory: Any, state: Any):
        self.decoder, self.memory, self.t = decoder, memory, 0
        self.states, self.parents = state.states, RowGroups()
        self.input_feed: Tensor | None = state.input_feed if decoder.input_feeding else None
        self.attention: Any = None
        self.buffer: Tensor | None = None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """Logits of the next token of each row, given the token before it."""
        return self.decoder.output_projection(self._hidden_after(tokens))

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int) -> Float[Tensor, "rows padded"]:
        """The logits of `step` divided by ln 2, in float32, padded with -inf to a multiple of `block_size`."""
        projection = self.decoder.output_projection
        self.buffer = base2_logits(projection, self._hidden_after(tokens), block_size, self.buffer)
        return self.buffer

    def _hidden_after(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows output_dim"]:
        decoder = self.decoder
        unique_tokens, groups = unique_rows(tokens)
        embedded = F.embedding(unique_tokens, decoder.embed_weight)
        projected = groups.expand(decoder.first_cell.project_input(embedded))
        hidden = self._step_luong(projected) if decoder.is_luong else self._step_bahdanau(projected)
        self.parents, self.t = RowGroups(), self.t + 1
        return hidden

    def _step_luong(self, projected_input: Float[Tensor, "rows outputs"]) -> Float[Tensor, "rows output_dim"]:
        decoder = self.decoder
        self._step_cells(projected_input, self.input_feed)
        top_hidden = self.states[-1][0]
        hidden = torch.addmm(decoder.bias, top_hidden, decoder.top_weight)
        hidden = hidden.addmm_(self._attend(top_hidden), decoder.context_weight).tanh_()
        self.input_feed = hidden if decoder.input_feeding else None
        return hidden

    def _step_bahdanau(self, projected_input: Float[Tensor, "rows outputs"]) -> Float[Tensor, "rows output_dim"]:
        decoder, context = self.decoder, self._attend(self.parents.expand(self.states[-1][0]))
        row = self._step_cells(projected_input, self.parents.pick_one(context))
        pairs = decoder.first_cell.extra_outputs(row).addmm_(self.states[-1][0], decoder.top_weight)
        return torch.maximum(*pairs.chunk(2, 1))

    def _attend(self, top_hidden: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows value"]:
        context, self.attention = self.memory.attend(top_hidden[:, None], self.t)
        return context.squeeze(1)

    def _step_cells(
        self, projected_input: Float[Tensor, "rows outputs"], context: Float[Tensor, "groups context"] | None
    ) -> Float[Tensor, "rows row"]:
        """Advance the state of every layer; returns what is left of the first cell's row."""
        first, expand = self.decoder.first_cell, self.parents.expand
        row = expand(first.project_state(self.states[0][0], context))
        states = [first.update(row, projected_input, tuple(map(expand, self.states[0])))]
        for cell, state in zip(self.decoder.upper_cells, self.states[1:], strict=True):
            projected_input = cell.project_input(states[-1][0])
            upper_row = expand(cell.project_state(state[0], None))
            states.append(cell.update(upper_row, projected_input, tuple(map(expand, state))))
        self.states = states
        return row

    def weights(self) -> Float[Tensor, "rows src_len"]:
        """Attention weights of the last step."""
        if self.attention is None:
            raise UnsupportedError("FusedRNNDecoderState: a model without attention has no weights")
        return self.attention.weights.flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with these rows; a row may be repeated or left out."""
        self.memory = self.memory.reorder(rows // self.memory.beam_width).with_beam_width(1)
        self._set_parents(rows)

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """`reorder` where each line of `rows` is the beam of one sentence, and sentences keep their order."""
        if len(rows) < len(self.memory):
            self.memory = self.memory.reorder(rows[:, 0] // self.memory.beam_width)
        self.memory = self.memory.with_beam_width(rows.shape[1])
        self._set_parents(rows.flatten())

    def _set_parents(self, rows: Int[Tensor, " new_rows"]) -> None:
        rows = rows if self.parents.table is None else self.parents.table[rows]
        parents, self.parents = unique_rows(rows)
        self.states = [tuple(part.index_select(0, parents) for part in state) for state in self.states]
        self.input_feed = None if self.input_feed is None else self.input_feed.index_select(0, parents)
