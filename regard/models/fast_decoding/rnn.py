"""Recurrent cells laid out for steps: what is known before a word is, and what the word adds, in one product each.

The definitions are in _cells.py. All that a cell adds up before its gates stands in one row, and a gate that sees both
the past and the inputs is the sum of both:

    GRU     [ new, of the past | reset | keep | new | more ]      the past: the first three; inputs: all but the first
    LSTM    [ enter | forget | out | new            | more ]      the past: the first four; inputs: all

where `more` is whatever else is wanted of the same inputs.

Additive attention asked again and again over the same keys, which are kept as exponentials.

    score(q, k) = s sum_h v_h / (1 + A_qh B_kh) + constant          A = e^-s(a + c), B = e^-s(b - c), s = 2 for tanh

See regard/attention/fast/additive.py. Here c is the middle of a sentence's keys, so that B and how far it reaches are
known before any query is; the constant is gone after softmax.

A recurrent decoder laid out for steps: what `PackedRecurrentSteps` needs, made once and kept with the model.

Writing word by word, by an exact shortcut: a recurrent model's steps with its weights laid out for them.

The definition is `Steps` in recurrent.py. On a beam several rows follow the same one of the step before, and many write
the same word: what depends on a state alone, or on a word alone, is computed once for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention, Dropout, softmax
from regard.attention.fast.additive import FACTOR_MARGIN, FACTOR_REACH, TANH_SCALE
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
from regard.models.layers import CellState, GRUCell, LSTMCell, RNNCell


class ExtraOutputs(NamedTuple):
    """What else is wanted of a cell's inputs."""

    context_weight: Float[Tensor, "late more"]
    input_weight: Float[Tensor, "early more"]
    bias: Float[Tensor, " more"]


class FusedCell:
    """The weights of a cell, each matrix in the order in which a product reads it."""

    hidden_gates: tuple[
        int, ...
    ]  # the cell's gates that see the past, in the order in which they stand in a row
    input_gates: tuple[int, ...]  # those that see inputs
    num_hidden_only: int  # gates at the front of a row that see no input

    def __init__(self, cell: RNNCell, extra: ExtraOutputs | None = None):
        self.hidden_dim = cell.hidden_proj.in_features
        self.hidden_weight, self.hidden_bias = self._reorder_gates(cell.hidden_proj, self.hidden_gates)
        self.input_weight, self.input_bias = self._reorder_gates(cell.input_proj, self.input_gates)
        self.context_weight = (
            None if cell.context_proj is None else self._reorder_gates(cell.context_proj, self.input_gates)[0]
        )
        if extra is not None and self.context_weight is not None:
            self.context_weight, self.input_weight = (
                torch.cat((self.context_weight, extra.context_weight), 1),
                torch.cat((self.input_weight, extra.input_weight), 1),
            )
            self.input_bias = torch.cat((self.input_bias, extra.bias))
        self.input_start = self.num_hidden_only * self.hidden_dim  # of what inputs add
        self.gates_end = self.input_start + len(self.input_gates) * self.hidden_dim  # of the gates

    def _reorder_gates(self, layer: nn.Linear, gates: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """A layer's columns and its bias, gate by gate in this order."""
        weight, held = layer.weight.detach(), layer._parameters["bias"]
        bias = weight.new_zeros(len(weight)) if held is None else held.detach()
        weights, biases = weight.split(self.hidden_dim), bias.split(self.hidden_dim)
        columns = torch.cat([weights[gate] for gate in gates]).t().contiguous()
        return columns, torch.cat([biases[gate] for gate in gates])

    def project_input(self, inputs: Float[Tensor, "rows early"]) -> Float[Tensor, "rows added"]:
        """What the early input adds to a row."""
        return torch.addmm(self.input_bias, inputs, self.input_weight)

    def project_state(
        self, h: Float[Tensor, "rows dim"], context: Float[Tensor, "rows late"] | None
    ) -> Float[Tensor, "rows all"]:
        """All of a row but what the early input adds."""
        row = h.new_empty(len(h), self.input_start + self.input_weight.shape[1])
        past = self.hidden_weight.shape[1]
        torch.addmm(self.hidden_bias, h, self.hidden_weight, out=row[:, :past])
        row[:, past:].zero_()
        if self.context_weight is not None and context is not None:
            row[:, self.input_start :].addmm_(context, self.context_weight)
        return row

    def update(
        self, row: Float[Tensor, "rows all"], projected_input: Float[Tensor, "rows added"], state: CellState
    ) -> CellState:
        """The next state. Of the row only what is more than gates is left."""
        row[:, self.input_start :].add_(projected_input)
        return self.apply_gates(row[:, : self.gates_end].split(self.hidden_dim, 1), state)

    def extra_outputs(self, row: Float[Tensor, "rows all"]) -> Float[Tensor, "rows more"]:
        return row[:, self.gates_end :]

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        raise NotImplementedError(f"{type(self).__name__} must say how it steps: write gates(parts, state)")


class FusedGRU(FusedCell):
    hidden_gates, input_gates, num_hidden_only = (2, 0, 1), (0, 1, 2), 1

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        past, reset, keep, new = gates
        new = torch.addcmul(new, reset.sigmoid_(), past).tanh_()
        return (new.lerp_(state[0], keep.sigmoid_()),)


class FusedLSTM(FusedCell):
    hidden_gates, input_gates, num_hidden_only = (0, 1, 3, 2), (0, 1, 3, 2), 0

    def apply_gates(self, gates: tuple[Tensor, ...], state: CellState) -> CellState:
        enter, forget, out, new = gates
        c = forget.sigmoid_().mul(state[1]).addcmul_(enter.sigmoid_(), new.tanh_())
        return torch.tanh(c).mul_(out.sigmoid_()), c


FUSED_CELLS: dict[type[RNNCell], type[FusedCell]] = {GRUCell: FusedGRU, LSTMCell: FusedLSTM}


MAX_CACHED_PAIRS = 2**18  # pairs x hidden: what stays in a core's cache, as large as it may be


class AttentionStep(NamedTuple):
    """What was seen in a step."""

    weights: Float[Tensor, "sentences width source"]


@dataclass(frozen=True)
class FactoredAdditive:
    """What there is to look at, as `Memory` in recurrent.py; `width` rows that translate one sentence look together."""

    query_proj: Float[Tensor, "dim hidden"]  # from a state to -s a
    energy: Float[Tensor, " hidden"]  # s v
    key: Float[Tensor, "sentences source hidden"]  # B
    center: Float[Tensor, "sentences 1 hidden"]  # -s c
    bound: Float[Tensor, "sentences 1 hidden"]  # beyond, the network is saturated whatever the key
    value: Float[Tensor, "sentences source value"]
    padding_bias: Float[Tensor, "sentences 1 source"]  # -inf where a sentence has no more words
    beam_width: int = 1

    def __len__(self) -> int:
        return len(self.key)

    def attend(
        self, query: Float[Tensor, "rows 1 dim"], t: int
    ) -> tuple[Float[Tensor, "rows 1 value"], AttentionStep]:
        asked = torch.mm(query.flatten(0, 1), self.query_proj).view(
            len(self.key), self.beam_width, len(self.energy)
        )
        asked = asked.add_(self.center).clamp_(-self.bound, self.bound).exp_()
        weights = self._scores(asked).add_(self.padding_bias).softmax(-1)
        return torch.bmm(weights, self.value).flatten(0, 1)[:, None], AttentionStep(weights)

    def _scores(
        self, queries: Float[Tensor, "sentences width hidden"]
    ) -> Float[Tensor, "sentences width source"]:
        """Of some sentences at a time."""
        (sentences, source, hidden), one = self.key.shape, queries.new_ones(())
        scores = queries.new_empty(sentences, self.beam_width, source)
        some = max(1, MAX_CACHED_PAIRS // (self.beam_width * source * hidden))
        room = queries.new_empty(min(some, sentences), self.beam_width, source, hidden)
        for query, key, found in zip(
            queries.split(some), self.key.split(some), scores.split(some), strict=True
        ):
            pairs = room[: len(key)]
            torch.addcmul(one, query[:, :, None], key[:, None], out=pairs).reciprocal_()
            torch.mv(pairs.view(-1, hidden), self.energy, out=found.view(-1))
        return scores

    def reorder(self, sentences: Int[Tensor, " new"]) -> FactoredAdditive:
        names = ("key", "center", "bound", "value", "hidden")
        return replace(self, **{name: getattr(self, name).index_select(0, sentences) for name in names})

    def with_beam_width(self, beam_width: int) -> FactoredAdditive:
        """The same for so many rows a sentence."""
        return replace(self, beam_width=beam_width)


def factor_memory(memory: Any, attention: Any) -> Any:
    """The memory of a recurrent model in this form; as it is where that does not stand for the definition."""
    if not _is_standard_additive(attention) or memory.over.key.device.type != "cpu":
        return memory
    over, score = memory.over, attention.score
    scale = TANH_SCALE[score.activation]
    key = -scale * over.key
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    center, reach = (low + high) / 2, (high - low) / 2
    if not (
        key.numel() and bool(reach.amax() < FACTOR_REACH[key.dtype]) and bool(score.energy.isfinite().all())
    ):
        return memory
    real = torch.arange(key.shape[1]) < memory.lengths[:, None]
    return FactoredAdditive(
        query_proj=score.W.weight.t() * -scale,
        energy=score.energy * scale,
        key=key.sub_(center).exp_(),
        center=center,
        bound=reach + FACTOR_MARGIN[key.dtype],
        value=over.value,
        padding_bias=key.new_zeros(len(key), 1, key.shape[1]).masked_fill_(~real[:, None], -math.inf),
    )


def _is_standard_additive(attention: Any) -> bool:
    if type(attention) is not Attention or type(attention.score) is not Additive:
        return False
    normalize = attention.normalize
    inner = normalize.normalize if isinstance(normalize, Dropout) else normalize
    score = attention.score
    return inner in (None, softmax) and score.query_proj is not None and score.activation in TANH_SCALE


class FusedRNNDecoder:
    """A decoder's weights as its steps want them.

    What joins state, context and word is cut in three. In Bahdanau's order context and word are known before the
    state, so their parts stand behind the first cell's gates, and are made in the same products.
    """

    def __init__(self, model: Any):
        self.is_luong, self.input_feeding = model.order == "luong", model.input_feeding
        joined, bias = model.join.weight.detach().t(), model.join.bias.detach()
        if not self.is_luong:  # of each two the larger is said: all that are first, then all that are second
            joined, bias = (torch.cat((part[..., ::2], part[..., 1::2]), -1) for part in (joined, bias))
        sizes = [model.dim, model.start.in_features]
        sizes.append(len(joined) - sum(sizes))
        self.top_weight, self.context_weight, word = (part.contiguous() for part in joined.split(sizes))
        self.bias: Tensor = bias.contiguous()
        more = None if self.is_luong else ExtraOutputs(self.context_weight, word, self.bias)
        self.first_cell = FUSED_CELLS[type(model.first)](model.first, more)
        self.upper_cells: list[FusedCell] = [FUSED_CELLS[type(cell)](cell) for cell in model.above]
        self.embed_weight: Tensor = model.write.weight.detach()
        self.output_projection = cached_output_projection(model.output)


FUSED_RNN_DECODERS: WeightCache[FusedRNNDecoder] = WeakKeyDictionary()


def fuse_rnn_decoder(model: Any) -> FusedRNNDecoder | None:
    """The decoder laid out, the same as long as its weights are; None if steps must be the plain ones.

    Where somebody watches, hooks a part, wants gradients, compiles or computes in other precisions than the weights',
    each part of the model must be called.
    """
    cells, weight = [model.first, *model.above], model.output.weight
    laid = [part for whole in (*cells, model.join, model.write, model.output) for part in whole.modules()]
    looks = [] if model.attention is None else list(model.attention.modules())
    usual = (
        is_plain_inference(weight) and not WATCHERS.get() and weight.dtype in (torch.float32, torch.float64)
    )
    if not (usual and has_no_hooks(model) and all(type(cell) in FUSED_CELLS for cell in cells)):
        return None
    if not all(map(is_inlineable, (*laid, *looks, model.dropout))):
        return None
    return get_or_build(FUSED_RNN_DECODERS, model, laid, lambda: FusedRNNDecoder(model))


class FusedRNNDecoderState:
    """`Steps` of a recurrent model, whose rows are sentences x width: those that translate one sentence stand together.

    `states` and `fed` are those of the distinct rows that are followed; `parents` says which each row follows.
    """

    def __init__(self, decoder: FusedRNNDecoder, memory: Any, state: Any):
        self.decoder, self.memory, self.t = decoder, memory, 0
        self.states, self.parents = state.states, RowGroups()
        self.input_feed: Tensor | None = state.input_feed if decoder.input_feeding else None
        self.attention: Any = None
        self.buffer: Tensor | None = None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        return self.decoder.output_projection(self._hidden_after(tokens))

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int) -> Float[Tensor, "rows padded"]:
        """The same as powers of two."""
        self.buffer = base2_logits(
            self.decoder.output_projection, self._hidden_after(tokens), block_size, self.buffer
        )
        return self.buffer

    def _hidden_after(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        packed = self.decoder
        words, writing = unique_rows(tokens)
        ahead = writing.expand(packed.first_cell.project_input(F.embedding(words, packed.embed_weight)))
        said = self._step_luong(ahead) if packed.is_luong else self._step_bahdanau(ahead)
        self.parents, self.t = RowGroups(), self.t + 1
        return said

    def _step_luong(self, projected_input: Float[Tensor, "rows added"]) -> Float[Tensor, "rows dim"]:
        packed = self.decoder
        self._step_cells(projected_input, self.input_feed)
        top = self.states[-1][0]
        said = (
            torch.addmm(packed.bias, top, packed.top_weight)
            .addmm_(self._attend(top), packed.context_weight)
            .tanh_()
        )
        self.input_feed = said if packed.input_feeding else None
        return said

    def _step_bahdanau(self, projected_input: Float[Tensor, "rows added"]) -> Float[Tensor, "rows dim"]:
        packed, context = self.decoder, self._attend(self.parents.expand(self.states[-1][0]))
        row = self._step_cells(projected_input, self.parents.pick_one(context))
        pairs = packed.first_cell.extra_outputs(row).addmm_(self.states[-1][0], packed.top_weight)
        return torch.maximum(*pairs.chunk(2, 1))

    def _attend(self, top_hidden: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows value"]:
        context, self.attention = self.memory.look(top_hidden[:, None], self.t)
        return context.squeeze(1)

    def _step_cells(
        self, projected_input: Float[Tensor, "rows added"], context: Float[Tensor, "distinct late"] | None
    ) -> Float[Tensor, "rows all"]:
        """To the next state of every layer; what is left of the first cell's row."""
        first, spread = self.decoder.first_cell, self.parents.expand
        row = spread(first.project_state(self.states[0][0], context))
        turned = [first.update(row, projected_input, tuple(map(spread, self.states[0])))]
        for cell, state in zip(self.decoder.upper_cells, self.states[1:], strict=True):
            projected_input = cell.project_input(turned[-1][0])
            turned.append(
                cell.update(
                    spread(cell.project_state(state[0], None)), projected_input, tuple(map(spread, state))
                )
            )
        self.states = turned
        return row

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked."""
        if self.attention is None:
            raise UnsupportedError("a model without attention has no weights")
        return self.attention.weights.flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.memory = self.memory.select(rows // self.memory.width).with_beam_width(1)
        self._set_parents(rows)

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """The same where each line of rows is the beam of one sentence, and sentences only leave."""
        if len(rows) < len(self.memory):
            self.memory = self.memory.select(rows[:, 0] // self.memory.width)
        self.memory = self.memory.with_beam_width(rows.shape[1])
        self._set_parents(rows.flatten())

    def _set_parents(self, rows: Int[Tensor, " new"]) -> None:
        rows = rows if self.parents.table is None else self.parents.table[rows]
        followed, self.parents = unique_rows(rows)
        self.states = [tuple(part.index_select(0, followed) for part in state) for state in self.states]
        self.input_feed = None if self.input_feed is None else self.input_feed.index_select(0, followed)
