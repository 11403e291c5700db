"""Decoding with a recurrent encoder-decoder: its memory, its state, and alignment by the known target tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import AttentionOutput, ProjectedKV, padding, softmax
from regard.attention.observers import WATCHERS
from regard.errors import UnsupportedError
from regard.models.fast_decoding import RecurrentState, cached_output_projection
from regard.models.layers import CellState, Lengths, SourceTokens, TargetTokens

if TYPE_CHECKING:
    from regard.models.rnn_seq2seq import RNNSeq2Seq

__all__ = ["DecoderOutput", "EncoderMemory", "RNNDecoderState", "RNNState", "posterior_alignment"]

MAX_LOGITS = 1 << 24  # computed at a time by posterior_alignment


class DecoderOutput(NamedTuple):
    """Hidden states of a decoder, the input of `lm_head`, and its attention: one per step, or one for all steps.

    Args:
        hidden: the hidden states
        attention: the outputs of the attention

    Example:
        >>> DecoderOutput(torch.zeros(2, 7, 16), []).hidden.shape
        torch.Size([2, 7, 16])
    """

    hidden: Float[Tensor, "batch tgt_len output_dim"]
    attention: list[AttentionOutput]


@dataclass(frozen=True)
class RNNState:
    """State of a recurrent decoder: that of each layer, and the vector that input feeding passes on.

    Args:
        states: the state of each layer, first layer first
        input_feed: the attentional hidden state of the step before

    Example:
        >>> RNNState([(torch.zeros(2, 16),)], torch.zeros(2, 16)).reorder(torch.tensor([0, 0, 1])).top_hidden.shape
        torch.Size([3, 16])
    """

    states: list[CellState]
    input_feed: Tensor

    @property
    def top_hidden(self) -> Tensor:
        """The hidden state of the last layer."""
        return self.states[-1][0]

    def reorder(self, rows: Tensor) -> RNNState:
        """The state of these rows."""
        return RNNState([tuple(part[rows] for part in state) for state in self.states], self.input_feed[rows])


@dataclass(frozen=True)
class EncoderMemory:
    """What a recurrent decoder attends to: all encoder states, or without attention the final ones only.

    In a beam search, `beam_width` neighboring rows are hypotheses of one sentence and share its keys.

    Args:
        projected_kv: the attention over the encoder states, or None
        lengths: numbers of source tokens
        final_state: the final encoder states
        needs_positions: whether the attention takes the position of the query, as LocalM and LocalP do
        beam_width: rows of each sentence

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16)
        >>> source, lengths = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3])
        >>> memory, state = model.encode(source, lengths)
        >>> memory.attend(state.top_hidden[:, None], 0)[0].shape
        torch.Size([2, 1, 16])
    """

    projected_kv: ProjectedKV | None
    lengths: Int[Tensor, " sentences"]
    final_state: Float[Tensor, "sentences dim"]
    needs_positions: bool
    beam_width: int = 1

    def attend(self, query: Float[Tensor, "rows queries dim"], t: int) -> tuple[Tensor, AttentionOutput | None]:
        """Contexts of the queries of step t, and the attention if there is one."""
        width = self.beam_width
        if self.projected_kv is None:
            final = self.final_state if width == 1 else self.final_state.repeat_interleave(width, 0)
            return final[:, None].expand(-1, query.shape[1], -1), None
        options: dict[str, Any] = {}
        if self.needs_positions:
            options["query_positions"] = t if width == 1 else torch.full((width,), t, device=query.device)
        if width == 1:
            output = self.projected_kv(query, **options)
            return output.context, output
        output = self.projected_kv(query.view(-1, width, query.shape[-1]), **options)
        return output.context.reshape(len(query), 1, -1), output

    def reorder(self, sentences: Tensor) -> EncoderMemory:
        """The memory of these sentences."""
        lengths = self.lengths[sentences]
        kv = None if self.projected_kv is None else self.projected_kv.reorder(sentences, padding(lengths))
        return replace(self, projected_kv=kv, lengths=lengths, final_state=self.final_state[sentences])

    def __len__(self) -> int:
        return len(self.final_state)


class RNNDecoderState(RecurrentState):
    """State of a recurrent decoder that takes one token of each row per step.

    Args:
        model: the model
        memory: what the decoder attends to
        state: the initial state

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16)
        >>> source, lengths = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3])
        >>> decoder = RNNDecoderState(model, *model.encode(source, lengths))
        >>> decoder.step(torch.tensor([1, 1])).shape, decoder.weights().shape
        (torch.Size([2, 13]), torch.Size([2, 5]))
    """

    def __init__(self, model: RNNSeq2Seq, memory: EncoderMemory, state: RNNState):
        super().__init__(cached_output_projection(model.lm_head), memory)
        self.model, self.state = model, state

    def advance(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows output_dim"]:
        """The hidden state of each row after its next token."""
        model = self.model
        embedded = model.dropout(model.tgt_embed(tokens))
        projected = model.first_cell.project_input(embedded)
        self.state, context, self.attention = model.decode_step(projected, self.memory, self.state, self.t)
        self.t += 1
        if model.decoder_type == "luong":
            return model.dropout(self.state.input_feed)
        return model.readout(self.state.top_hidden, context, embedded)

    def reorder_states(self, rows: Int[Tensor, " new_rows"]) -> None:
        """Continue with the recurrent states of these rows."""
        self.state = self.state.reorder(rows)

    def reorder_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """`reorder` where each line of `rows` is the beam of one sentence, and sentences keep their order."""
        if WATCHERS.get():  # watchers get weights row by row
            self.reorder(rows.flatten())
        else:
            super().reorder_beams(rows)


@torch.no_grad()
def posterior_alignment(
    model: RNNSeq2Seq, source: SourceTokens, source_lengths: Lengths, target: TargetTokens
) -> Float[Tensor, "batch tgt_len-1 src_len"]:
    """Posterior probability that each target token comes from each source position, by Bayes' rule.

        p(position | token) ~ weight of the position * p(token | context = encoder state of the position)

    A decoder attends before it predicts a token, so its weights are a prior; a token that it did not expect corrects
    them.

    Args:
        model: a model with attention
        source, source_lengths, target: as in `RNNSeq2Seq.forward`

    Shape: source (batch, src_len), source_lengths (batch,), target (batch, tgt_len) -> (batch, tgt_len - 1, src_len)

    Returns:
        weights of `target[:, 1:]` over the source, which sum to 1; 0 where the attention weight is 0

    Example:
        >>> from regard.models import RNNSeq2Seq
        >>> model = RNNSeq2Seq(11, 13, Attention(Additive(16, 16, 8)), embed_dim=8, hidden_dim=16)
        >>> source, lengths = torch.randint(4, 11, (2, 5)), torch.tensor([5, 3])
        >>> posterior_alignment(model, source, lengths, torch.randint(4, 13, (2, 7))).shape
        torch.Size([2, 6, 5])

    Reference: Shankar and Sarawagi (2019), "Posterior attention models for sequence to sequence learning", who train
        with it.
    """
    memory, state = model.encode(source, source_lengths)
    if memory.projected_kv is None:
        raise UnsupportedError("posterior_alignment: a model without attention has no weights to correct")
    encoder_states, embedded, weights = memory.projected_kv.value, model.tgt_embed(target[:, :-1]), []
    batch, src_len = encoder_states.shape[:2]
    chunk_size = max(1, MAX_LOGITS // (src_len * model.lm_head.out_features))
    for t, projected in enumerate(model.first_cell.project_input(embedded).unbind(1)):
        next_state, _, output = model.decode_step(projected, memory, state, t)
        assert output is not None
        chunks = []  # log-probabilities of the tokens if the context were the encoder state of one position only
        for rows in torch.arange(batch, device=encoder_states.device).split(chunk_size):
            repeated = rows.repeat_interleave(src_len)
            context, top_hidden = encoder_states[rows].flatten(0, 1), next_state.top_hidden[repeated]
            if model.decoder_type == "bahdanau":  # the step itself depends on the context
                states = state.reorder(repeated).states
                top_hidden = model._step_cells(projected[repeated], context, states)[-1][0]
            logits = model.lm_head(model.readout(top_hidden, context, embedded[repeated, t]))
            chunks.append(logits.gather(1, target[repeated, t + 1, None]).squeeze(1) - logits.logsumexp(-1))
        log_likelihood = torch.cat(chunks).view(batch, src_len)
        weights.append(softmax(output.weights.squeeze(1).log() + log_likelihood))
        state = next_state
    return torch.stack(weights, 1)
