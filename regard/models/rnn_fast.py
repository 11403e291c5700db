"""Fast decoding with a recurrent model: exactly `RNNDecoderState`, in fewer operations.

In a beam several rows continue the same row of the step before, and many take the same token: what depends on a state
alone, or on a token alone, is computed once for all of them. Weights are laid out so that a cell's gates, and with
Bahdanau's decoder the part of the readout that does not need the new state, are one product per input:

    GRU     [ new, from the state | reset | keep | new | extra ]      state: the first three; inputs: all but the first
    LSTM    [ input | forget | output | new            | extra ]      state: the first four; inputs: all

A gate that depends on both the state and the inputs is the sum of both products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention
from regard.attention.fast.additive import FACTOR_MARGIN, FACTOR_REACH, TANH_SCALE
from regard.models import fast_decoding
from regard.models.fast_decoding import RowGroups, unique_rows
from regard.models.layers import CellState, FastDropout, GRUCell, LSTMCell, RNNCell

if TYPE_CHECKING:
    from regard.models.rnn_seq2seq import RNNSeq2Seq

__all__ = [
    "FactoredAdditive", "FusedCell", "FusedRNNDecoder", "FusedRNNDecoderState", "factor_memory", "fuse_rnn_decoder",
]  # fmt: skip

ProjectedInput = Float[Tensor, "rows outputs"]
GateRows = Float[Tensor, "rows row"]


class FusedCell:
    """Weights of a recurrent cell, transposed and contiguous, gates in the order of a row (see the module).

    Args:
        cell: the cell
        extra: weights of other outputs of the cell's inputs: from the context, from the input, and their bias

    Example:
        >>> cell, state = GRUCell(3, 0, 5), (torch.zeros(2, 5),)
        >>> fused, x = FUSED_CELLS[GRUCell](cell), torch.randn(2, 3)
        >>> new = fused.update(fused.project_state(state[0], None), fused.project_input(x), state)[0]
        >>> torch.allclose(new, cell(cell.project_input(x), None, state)[0], atol=1e-6)
        True
    """

    hidden_gates: tuple[int, ...]  # the cell's gates that depend on the state, in the order of a row
    input_gates: tuple[int, ...]  # those that depend on the inputs
    num_hidden_only: int  # gates at the front of a row that depend on no input

    def __init__(self, cell: RNNCell, extra: tuple[Tensor, Tensor, Tensor] | None = None):
        self.hidden_dim = cell.hidden_proj.in_features
        self.hidden_weight, self.hidden_bias = self._reorder_gates(cell.hidden_proj, self.hidden_gates)
        self.input_weight, self.input_bias = self._reorder_gates(cell.input_proj, self.input_gates)
        self.context_weight: Tensor | None = None
        if cell.context_proj is not None:
            self.context_weight = self._reorder_gates(cell.context_proj, self.input_gates)[0]
        if extra is not None and self.context_weight is not None:
            self.context_weight = torch.cat((self.context_weight, extra[0]), 1)
            self.input_weight = torch.cat((self.input_weight, extra[1]), 1)
            self.input_bias = torch.cat((self.input_bias, extra[2]))
        self.input_start = self.num_hidden_only * self.hidden_dim  # of what depends on inputs, in a row
        self.gates_end = self.input_start + len(self.input_gates) * self.hidden_dim

    def _reorder_gates(self, layer: nn.Linear, gates: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Transposed weight and bias of a layer, gate by gate in this order."""
        weight, bias = layer.weight.detach(), layer._parameters["bias"]
        weights = weight.split(self.hidden_dim)
        biases = (weight.new_zeros(len(weight)) if bias is None else bias.detach()).split(self.hidden_dim)
        weight_t = torch.cat([weights[gate] for gate in gates]).t().contiguous()
        return weight_t, torch.cat([biases[gate] for gate in gates])

    def project_input(self, inputs: Float[Tensor, "rows input"]) -> ProjectedInput:
        """What the input adds to a row."""
        return torch.addmm(self.input_bias, inputs, self.input_weight)

    def project_state(self, h: Float[Tensor, "rows hidden"], context: Float[Tensor, "rows context"] | None) -> GateRows:
        """A row without what the input adds."""
        row = h.new_empty(len(h), self.input_start + self.input_weight.shape[1])
        hidden_end = self.hidden_weight.shape[1]
        torch.addmm(self.hidden_bias, h, self.hidden_weight, out=row[:, :hidden_end])
        row[:, hidden_end:].zero_()
        if self.context_weight is not None and context is not None:
            row[:, self.input_start :].addmm_(context, self.context_weight)
        return row

    def update(self, row: GateRows, projected_input: ProjectedInput, state: CellState) -> CellState:
        """The next state. Of the row only the extra outputs, from `gates_end` on, are still valid after it."""
        row[:, self.input_start :].add_(projected_input)
        return self.apply_gates(row[:, : self.gates_end].split(self.hidden_dim, 1), state)

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        """The next state from the sums of all gates and the previous state."""
        raise NotImplementedError(f"{type(self).__name__} must implement apply_gates(gates, state)")


class _FusedGRU(FusedCell):
    """`GRUCell` for `FusedRNNDecoder`."""

    hidden_gates, input_gates, num_hidden_only = (2, 0, 1), (0, 1, 2), 1

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        """See `GRUCell.update`."""
        new_hidden, reset, keep, new = gates
        new = torch.addcmul(new, reset.sigmoid_(), new_hidden).tanh_()
        return (new.lerp_(state[0], keep.sigmoid_()),)


class _FusedLSTM(FusedCell):
    """`LSTMCell` for `FusedRNNDecoder`."""

    hidden_gates, input_gates, num_hidden_only = (0, 1, 3, 2), (0, 1, 3, 2), 0

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        """See `LSTMCell.update`."""
        i, f, o, g = gates
        c = f.sigmoid_().mul(state[1]).addcmul_(i.sigmoid_(), g.tanh_())
        return torch.tanh(c).mul_(o.sigmoid_()), c


MAX_CACHED_PAIRS = 2**18  # pairs x hidden_dim that fit into the cache of a core
INLINED = (RNNCell, nn.Linear, nn.Embedding, FastDropout)
FUSED_CELLS: dict[type[RNNCell], type[FusedCell]] = {GRUCell: _FusedGRU, LSTMCell: _FusedLSTM}


class FusedRNNDecoder:
    """Weights of a recurrent decoder, as the steps of `FusedRNNDecoderState` need them.

    The readout's weight is split into the parts of state, context and token. With maxout context and token are known
    before the new state, so their parts are extra outputs of the first cell's products.

    Args:
        model: the model

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, embed_dim=8, hidden_dim=16).eval()
        >>> len(FusedRNNDecoder(model).upper_cells)
        0
    """

    def __init__(self, model: RNNSeq2Seq):
        self.is_luong, self.input_feeding = model.decoder_type == "luong", model.input_feeding
        self.is_maxout, extra = model.readout_type == "maxout", None
        self.readout: tuple[Tensor, Tensor, Tensor] | None = None  # of a linear readout there is none
        if model.readout_proj is not None:
            weight_t, bias = model.readout_proj.weight.detach().t(), model.readout_proj.bias.detach()
            if self.is_maxout:  # the larger of each pair: first all first elements, then all second ones
                weight_t, bias = (torch.cat((part[..., ::2], part[..., 1::2]), -1) for part in (weight_t, bias))
            sizes = [model.hidden_dim, model.memory_dim]
            sizes.append(len(weight_t) - sum(sizes))
            top_weight, context_weight, input_weight = (part.contiguous() for part in weight_t.split(sizes))
            self.readout = top_weight, context_weight, bias.contiguous()
            extra = (context_weight, input_weight, self.readout[2]) if self.is_maxout else None
        first, *upper = (cast(RNNCell, cell) for cell in model.cells)
        self.first_cell = FUSED_CELLS[type(first)](first, extra)
        self.upper_cells: list[FusedCell] = [FUSED_CELLS[type(cell)](cell) for cell in upper]
        self.embed_weight: Tensor = model.tgt_embed.weight.detach()
        self.output_projection = fast_decoding.cached_output_projection(model.lm_head)


FUSED_RNN_DECODERS: fast_decoding.WeightCache[FusedRNNDecoder] = WeakKeyDictionary()


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
    readout = [] if model.readout_proj is None else [model.readout_proj]
    parts = (*model.cells, *readout, model.tgt_embed, model.lm_head)
    modules = [module for part in parts for module in part.modules()]
    attention = [] if model.attention is None else list(model.attention.modules())
    is_plain = (
        fast_decoding.can_fuse(model.lm_head.weight, (*modules, model.dropout), INLINED)
        and all(type(cell) in FUSED_CELLS for cell in model.cells)
        and not any(module.training for module in attention)
        and all(map(fast_decoding.has_no_hooks, (model, *attention)))
    )
    build = partial(FusedRNNDecoder, model)
    return fast_decoding.get_or_build(FUSED_RNN_DECODERS, model, modules, build) if is_plain else None


@dataclass(frozen=True)
class FactoredAdditive:
    """Additive attention over fixed keys, which are stored as exponentials; used like `EncoderMemory`.

        score(q, k) = s sum_h v_h / (1 + A_qh B_kh) + constant          A = e^-s(a + c), B = e^-s(b - c), s = 2 for tanh

    See regard/attention/fast/additive.py. Here c is the center of a sentence's keys, so that B and its range are known
    before any query; softmax cancels the constant. `beam_width` neighboring rows are hypotheses of one sentence.

    Args:
        query_proj: from a state to -s a
        energy: s v
        key: B
        center: -s c
        bound: beyond it the network is saturated for every key
        value: the values
        padding_bias: -inf on padding, else 0
        beam_width: rows of each sentence

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16)
        >>> with torch.no_grad():
        ...     memory, state = model.encode(torch.randint(4, 11, (2, 5)), torch.tensor([5, 3]))
        ...     factored = factor_memory(memory, model.attention)
        ...     factored.attend(state.top_hidden[:, None], 0)[0].shape
        torch.Size([2, 1, 16])
    """

    query_proj: Float[Tensor, "dim hidden"]
    energy: Float[Tensor, " hidden"]
    key: Float[Tensor, "sentences src_len hidden"]
    center: Float[Tensor, "sentences 1 hidden"]
    bound: Float[Tensor, "sentences 1 hidden"]
    value: Float[Tensor, "sentences src_len value"]
    padding_bias: Float[Tensor, "sentences 1 src_len"]
    beam_width: int = 1

    def __len__(self) -> int:
        return len(self.key)

    def attend(
        self, query: Float[Tensor, "rows 1 dim"], t: int
    ) -> tuple[Float[Tensor, "rows 1 value"], SimpleNamespace]:
        """Contexts of the queries, and what a step keeps of an `AttentionOutput`: their `weights`."""
        queries = torch.mm(query.flatten(0, 1), self.query_proj)
        queries = queries.view(len(self.key), self.beam_width, len(self.energy))
        queries = queries.add_(self.center).clamp_(-self.bound, self.bound).exp_()
        weights = self._scores(queries).add_(self.padding_bias).softmax(-1)
        return torch.bmm(weights, self.value).flatten(0, 1)[:, None], SimpleNamespace(weights=weights)

    def _scores(self, queries: Float[Tensor, "sentences width hidden"]) -> Float[Tensor, "sentences width src_len"]:
        """Scores, computed for a few sentences at a time."""
        (sentences, src_len, hidden_dim), one = self.key.shape, queries.new_ones(())
        scores = queries.new_empty(sentences, self.beam_width, src_len)
        chunk_size = max(1, MAX_CACHED_PAIRS // (self.beam_width * src_len * hidden_dim))
        buffer = queries.new_empty(min(chunk_size, sentences), self.beam_width, src_len, hidden_dim)
        chunks = zip(queries.split(chunk_size), self.key.split(chunk_size), scores.split(chunk_size), strict=True)
        for query, key, out in chunks:
            pairs = buffer[: len(key)]
            torch.addcmul(one, query[:, :, None], key[:, None], out=pairs).reciprocal_()
            torch.mv(pairs.view(-1, hidden_dim), self.energy, out=out.view(-1))
        return scores

    def reorder(self, sentences: Int[Tensor, " new"]) -> FactoredAdditive:
        """The memory of these sentences."""
        names = ("key", "center", "bound", "value", "padding_bias")
        return replace(self, **{name: getattr(self, name).index_select(0, sentences) for name in names})


def factor_memory(memory: Any, attention: Any) -> Any:
    """An `EncoderMemory` as `FactoredAdditive`, or the memory itself.

    Args:
        memory: the memory of a recurrent model
        attention: the model's attention

    Returns:
        the factored memory if the attention is additive with softmax, on a CPU, and the range of its keys allows
        exponentials; else the memory
    """
    is_additive = type(attention) is Attention and type(attention.score) is Additive
    if not is_additive or not fast_decoding.applies_softmax(attention):
        return memory
    projected_kv, score = memory.projected_kv, attention.score
    if score.query_proj is None or score.activation not in TANH_SCALE or projected_kv.key.device.type != "cpu":
        return memory
    scale = TANH_SCALE[score.activation]
    key = -scale * projected_kv.key
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    center, reach = (low + high) / 2, (high - low) / 2
    is_in_range = key.numel() and bool(reach.amax() < FACTOR_REACH[key.dtype])
    if not (is_in_range and bool(score.energy.isfinite().all())):
        return memory
    is_token = torch.arange(key.shape[1]) < memory.lengths[:, None]
    return FactoredAdditive(
        query_proj=score.query_proj.weight.t() * -scale,
        energy=score.energy * scale,
        key=key.sub_(center).exp_(),
        center=center,
        bound=reach + FACTOR_MARGIN[key.dtype],
        value=projected_kv.value,
        padding_bias=key.new_zeros(len(key), 1, key.shape[1]).masked_fill_(~is_token[:, None], -math.inf),
    )


class FusedRNNDecoderState(fast_decoding.RecurrentState):
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
        super().__init__(decoder.output_projection, memory)
        self.decoder, self.states, self.parents = decoder, state.states, RowGroups()
        self.input_feed: Tensor | None = state.input_feed if decoder.input_feeding else None

    def advance(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows output_dim"]:
        """The hidden state of each row after its next token."""
        decoder = self.decoder
        unique_tokens, groups = unique_rows(tokens)
        embedded = F.embedding(unique_tokens, decoder.embed_weight)
        projected = groups.expand(decoder.first_cell.project_input(embedded))
        hidden = self._step_luong(projected) if decoder.is_luong else self._step_bahdanau(projected)
        self.parents, self.t = RowGroups(), self.t + 1
        return hidden

    def _step_luong(self, projected_input: ProjectedInput) -> Float[Tensor, "rows output_dim"]:
        decoder = self.decoder
        self._step_cells(projected_input, self.input_feed)
        top_hidden = self.states[-1][0]
        hidden = self._read_out(top_hidden, self._attend(top_hidden))
        self.input_feed = hidden if decoder.input_feeding else None
        return hidden

    def _step_bahdanau(self, projected_input: ProjectedInput) -> Float[Tensor, "rows output_dim"]:
        decoder, context = self.decoder, self._attend(self.parents.expand(self.states[-1][0]))
        row = self._step_cells(projected_input, self.parents.pick_one(context))
        if not decoder.is_maxout:
            return self._read_out(self.states[-1][0], context)
        assert decoder.readout is not None
        pairs = row[:, decoder.first_cell.gates_end :].addmm_(self.states[-1][0], decoder.readout[0])
        return torch.maximum(*pairs.chunk(2, 1))

    def _read_out(
        self, top_hidden: Float[Tensor, "rows dim"], context: Float[Tensor, "rows value"]
    ) -> Float[Tensor, "rows output_dim"]:
        if self.decoder.readout is None:
            return torch.cat((top_hidden, context), 1)
        top_weight, context_weight, bias = self.decoder.readout
        return torch.addmm(bias, top_hidden, top_weight).addmm_(context, context_weight).tanh_()

    def _attend(self, top_hidden: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows value"]:
        context, self.attention = self.memory.attend(top_hidden[:, None], self.t)
        return context.squeeze(1)

    def _step_cells(self, projected_input: ProjectedInput, context: Float[Tensor, "groups context"] | None) -> GateRows:
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

    def reorder_states(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with the recurrent states of these rows."""
        rows = rows if self.parents.table is None else self.parents.table[rows]
        parents, self.parents = unique_rows(rows)
        self.states = [tuple(part.index_select(0, parents) for part in state) for state in self.states]
        self.input_feed = None if self.input_feed is None else self.input_feed.index_select(0, parents)
