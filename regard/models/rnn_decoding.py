"""Where a word looked, now that it is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import AttentionOutput, padding, softmax
from regard.attention.observers import WATCHERS
from regard.attention.projected import ProjectedKV
from regard.errors import UnsupportedError
from regard.models.fast_decoding.shared import base2_logits, cached_output_projection
from regard.models.layers import CellState

if TYPE_CHECKING:
    from regard.models.rnn_seq2seq import RNNSeq2Seq

MAX_LOGITS = 1 << 24  # scores of words


@torch.no_grad()
def posterior_alignment(
    model: RNNSeq2Seq,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    target: Int[Tensor, "rows target"],
) -> Float[Tensor, "rows target-1 source"]:
    """The chance that each word of the target came from each place of the source, by Bayes' rule.

        p(place | word) ~ weight of the place x p(word | context = state of the place)

    A decoder looks before it writes a word, so its weights are a guess; an unexpected word corrects it. After Shankar
    and Sarawagi (2019), "Posterior attention models for sequence to sequence learning", who train with it.
    """
    memory, now = model.encode(source, source_lengths)
    if memory.projected_kv is None:
        raise UnsupportedError("a model without attention has no weights to correct")
    embedded, found = model.tgt_embed(target[:, :-1]), []
    for t, ahead in enumerate(model.first.project_input(embedded).unbind(1)):
        after, _, look = model.decode_step(ahead, memory, now, t)
        assert look is not None
        given = (memory.projected_kv.value, ahead, embedded[:, t], now, after, target[:, t + 1])
        found.append(
            softmax(look.weights.squeeze(1).log() + _word_log_likelihood(model, *given))
        )  # 0 where it saw nothing
        now = after
    return torch.stack(found, 1)


def _word_log_likelihood(
    model: RNNSeq2Seq,
    encoder_states: Tensor,
    projected_input: Tensor,
    embedded: Tensor,
    state: RNNState,
    next_state: RNNState,
    word: Tensor,
) -> Float[Tensor, "rows source"]:
    """The log-probability of the word that came, had the decoder seen one place of the source only."""
    rows, places = encoder_states.shape[:2]
    some = max(1, MAX_LOGITS // (places * model.lm_head.out_features))
    likely = []
    for part in torch.arange(rows, device=encoder_states.device).split(some):
        each = part.repeat_interleave(places)
        context = encoder_states[part].flatten(0, 1)
        top = next_state.top_hidden[each]
        if model.order == "bahdanau":  # there the step itself sees the context
            top = model._step_cells(projected_input[each], context, state.reorder(each).states)[-1][0]
        scores = model.lm_head(model.readout(top, context, embedded[each]))
        likely.append(scores.gather(1, word[each, None]).squeeze(1) - scores.logsumexp(-1))
    return torch.cat(likely).view(rows, places)


class DecoderOutput(NamedTuple):
    """What the decoder says after each word, and what it saw: one look a step, or one for all steps."""

    hidden: Float[Tensor, "rows target dim"]
    attention: list[AttentionOutput]


@dataclass(frozen=True)
class RNNState:
    """Where the decoder stands: the state of each layer, and what input feeding hands on."""

    states: list[CellState]
    input_feed: Tensor

    @property
    def top_hidden(self) -> Tensor:
        return self.states[-1][0]

    def reorder(self, rows: Tensor) -> RNNState:
        return RNNState([tuple(part[rows] for part in state) for state in self.states], self.input_feed[rows])


@dataclass(frozen=True)
class EncoderMemory:
    """What there is to look at: all states of the encoder, or the last ones only.

    In a beam search, `width` rows stand together that translate one sentence, and look at it together.
    """

    projected_kv: ProjectedKV | None
    lengths: Int[Tensor, " sentences"]
    final_state: Float[Tensor, "sentences dim"]
    needs_positions: bool
    beam_width: int = 1

    def attend(
        self, query: Float[Tensor, "rows queries dim"], t: int
    ) -> tuple[Tensor, AttentionOutput | None]:
        if self.projected_kv is None:
            last = (
                self.final_state
                if self.beam_width == 1
                else self.final_state.repeat_interleave(self.beam_width, 0)
            )
            return last[:, None].expand(-1, query.shape[1], -1), None
        if self.beam_width == 1:
            look = self.projected_kv(query, positions=t) if self.needs_positions else self.projected_kv(query)
            return look.context, look
        beams = query.view(-1, self.beam_width, query.shape[-1])
        places = (
            {"positions": torch.full((self.beam_width,), t, device=query.device)}
            if self.needs_positions
            else {}
        )
        look = self.projected_kv(beams, **places)
        return look.context.reshape(len(query), 1, -1), look

    def reorder(self, sentences: Tensor) -> EncoderMemory:
        lengths = self.lengths[sentences]
        over = None if self.projected_kv is None else self.projected_kv.reorder(sentences, padding(lengths))
        return EncoderMemory(
            over, lengths, self.final_state[sentences], self.needs_positions, self.beam_width
        )

    def with_beam_width(self, beam_width: int) -> EncoderMemory:
        """The same for so many rows a sentence."""
        return replace(self, beam_width=beam_width)

    def __len__(self) -> int:
        return len(self.final_state)


class RNNDecoderState:
    """A translation being written, one word of each row at a time."""

    def __init__(self, model: RNNSeq2Seq, memory: EncoderMemory, state: RNNState):
        self.model, self.memory, self.state, self.t = model, memory, state, 0
        self.output_projection = cached_output_projection(model.lm_head)
        self.attention: AttentionOutput | None = None
        self.buffer: Tensor | None = None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        return self.output_projection(self._hidden_after(tokens))

    def base2_logits(self, tokens: Int[Tensor, " rows"], block_size: int) -> Float[Tensor, "rows padded"]:
        """The same as powers of two."""
        self.buffer = base2_logits(
            self.output_projection, self._hidden_after(tokens), block_size, self.buffer
        )
        return self.buffer

    def _hidden_after(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        model = self.model
        embedded = model.dropout(model.tgt_embed(tokens))
        ahead = model.first.project_input(embedded)
        self.state, context, self.attention = model.decode_step(ahead, self.memory, self.state, self.t)
        self.t += 1
        if model.order == "luong":
            return model.dropout(self.state.input_feed)
        return model.readout(self.state.top_hidden, context, embedded)

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked."""
        if self.attention is None:
            raise UnsupportedError("a model without attention has no weights")
        return self.attention.weights.flatten(0, 1)

    def reorder(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.state = self.state.reorder(rows)
        self.memory = self.memory.reorder(rows // self.memory.beam_width).with_beam_width(1)

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """The same where each line of rows is the beam of one sentence, and sentences only leave."""
        if WATCHERS.get():  # who watches is told row by row
            self.reorder(rows.flatten())
            return
        self.state = self.state.reorder(rows.flatten())
        if len(rows) < len(self.memory):
            self.memory = self.memory.reorder(rows[:, 0] // self.memory.beam_width)
        self.memory = self.memory.with_beam_width(rows.shape[1])


def _without_none(seen: list[Any]) -> list[AttentionOutput]:
    return [look for look in seen if look is not None]
