"""The recurrent translator, with any attention, or with none.

Bahdanau, Cho and Bengio (2015), arXiv 1409.0473, and Luong, Pham and Manning (2015), arXiv 1508.04025. Read top
to bottom: the model, then its two orders of looking and stepping, then the encoder and writing word by word.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import Attention, AttentionOutput, LocalM, LocalP, padding
from regard.attention.positions import uses_relative_positions
from regard.errors import UsageError
from regard.models.fast_decoding.rnn import FusedRNNDecoderState, factor_memory, fuse_rnn_decoder
from regard.models.layers import RNN_CELLS, RNN_LAYERS, CellState, FastDropout, RNNCell
from regard.models.rnn_decoding import (
    DecoderOutput,
    EncoderMemory,
    RNNDecoderState,
    RNNState,
    _without_none,
    posterior_alignment,
)

DecoderOrder = Literal["bahdanau", "luong"]


CellType = Literal["gru", "lstm"]


AttentionModule = Attention | LocalM | LocalP


class RNNSeq2Seq(nn.Module):
    """Reads with a recurrent network, in both directions; writes with another that looks at all that was read.

        order="bahdanau"                            order="luong"
        c_t = attend(s_{t-1}, states)               s_t = step(s_{t-1}, [y_{t-1}; a_{t-1}])
        s_t = step(s_{t-1}, [y_{t-1}; c_t])         c_t = attend(s_t, states)
        word_t from maxout(s_t, y_{t-1}, c_t)       a_t = tanh(W [c_t; s_t]), word_t from a_t

    `attention` is any module called like `Attention`: its queries are the decoder's states, of size `dim`, its
    keys the encoder's, of size `2 encoder_dim` (`dim` by default, so that dot products are possible), or of size
    `encoder_dim` where it reads in one direction only, `bidirectional=False`. Without it the network has the same
    shape, but c is the encoder's last states in every step: the bottleneck. `input_feeding` gives a_{t-1} to the
    next step (Luong, 3.3). The decoder starts from tanh of a layer over the encoder's last states in both
    directions (Bahdanau takes the backward ones only).

    >>> attention = Attention(Additive(query_dim=16, key_dim=16, hidden_dim=8))
    >>> model = RNNSeq2Seq(src_vocab_size=11, tgt_vocab_size=13, attention=attention, embed_dim=8, hidden_dim=16)
    >>> source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))
    >>> model.lm_head(model(source, torch.tensor([5, 3]), target)).shape
    torch.Size([2, 7, 13])
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        attention: AttentionModule | None = None,
        *,
        embed_dim: int = 256,
        hidden_dim: int = 256,
        encoder_hidden_dim: int | None = None,
        num_layers: int = 1,
        cell_type: CellType = "gru",
        bidirectional: bool = True,
        order: DecoderOrder = "bahdanau",
        input_feeding: bool = False,
        dropout: float = 0.0,
        tie_embeddings: bool = False,
    ):
        super().__init__()
        for name, value, known in (
            ("cell", cell_type, tuple(RNN_CELLS)),
            ("order", order, ("bahdanau", "luong")),
        ):
            if value not in known:
                raise UsageError(f"{name}={value!r} is not possible; {name} is one of {', '.join(known)}")
        if input_feeding and order == "bahdanau":
            raise UsageError(
                "input_feeding belongs to order='luong'; in Bahdanau's, a step sees its context anyway"
            )
        if attention is not None and uses_relative_positions(attention):
            raise UsageError(
                "Rotary, Alibi and RelativeBias go by the distance from a query to a key, and a state of the decoder"
                " has none to a word of the source; take a score without them"
            )
        ways = 1 + bidirectional
        encoder_hidden_dim = hidden_dim // ways if encoder_hidden_dim is None else encoder_hidden_dim
        self.hidden_dim, self.order, self.input_feeding = hidden_dim, order, input_feeding
        self.src_embed, self.tgt_embed = (
            nn.Embedding(src_vocab_size, embed_dim),
            nn.Embedding(tgt_vocab_size, embed_dim),
        )
        self.encoder = RNNEncoder(
            embed_dim, encoder_hidden_dim, num_layers, cell_type, bidirectional, dropout
        )
        self.attention = attention
        out_dim, states_dim = embed_dim if tie_embeddings else hidden_dim, ways * encoder_hidden_dim
        make = RNN_CELLS[cell_type]
        late_dim = states_dim if order == "bahdanau" else out_dim * input_feeding
        self.first = make(embed_dim, late_dim, hidden_dim)
        self.above = nn.ModuleList(make(hidden_dim, 0, hidden_dim) for _ in range(num_layers - 1))
        self.bridge = nn.Linear(states_dim, num_layers * make.num_states * hidden_dim)
        joined = hidden_dim + states_dim + embed_dim * (order == "bahdanau")
        self.readout_proj = nn.Linear(joined, out_dim * (2 if order == "bahdanau" else 1))
        self.lm_head = nn.Linear(out_dim, tgt_vocab_size, bias=False)
        self.dropout = FastDropout(dropout)
        for embedding in (self.src_embed, self.tgt_embed):
            nn.init.normal_(embedding.weight, std=embed_dim**-0.5 if tie_embeddings else 0.1)
        if tie_embeddings:
            self.lm_head.weight = self.tgt_embed.weight

    def forward(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> Float[Tensor, "rows target dim"]:
        """What `output` turns into the scores of the next word, after each word of the target."""
        return self.decode(source, source_lengths, target).hidden

    def attention_weights(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows 1 target-1 source"]]:
        """Where each word of the target looked in the source: one layer, one head; none without attention."""
        seen = self.decode(source, source_lengths, target[:, :-1]).attention
        return [torch.cat([look.weights for look in seen], 1)[:, None]] if seen else []

    def posterior_alignment(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows 1 target-1 source"]]:
        """The same, now that the words are known: weights that a word which nobody expected has corrected."""
        return (
            []
            if self.attention is None
            else [posterior_alignment(self, source, source_lengths, target)[:, None]]
        )

    def start_decoding(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"]
    ) -> RNNDecoderState | FusedRNNDecoderState:
        """Read the source once, then write word by word: by `Steps`, or by the same in fewer operations."""
        (memory, now), fast = self.encode(source, source_lengths), fuse_rnn_decoder(self)
        if fast is None:
            return RNNDecoderState(self, memory, now)
        return FusedRNNDecoderState(fast, factor_memory(memory, self.attention), now)

    def decode(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> DecoderOutput:
        """`forward`, together with what was seen in each step: its weights, and its chances if it is sampled."""
        memory, now = self.encode(source, source_lengths)
        embedded = self.dropout(self.tgt_embed(target))
        if self.order == "luong" and not self.input_feeding:
            return self._decode_parallel(embedded, memory, now)
        tops, contexts, fed, seen = [], [], [], []
        for t, ahead in enumerate(self.first.project_input(embedded).unbind(1)):
            now, context, look = self.decode_step(ahead, memory, now, t)
            tops.append(now.top_hidden)
            contexts.append(context)
            fed.append(now.input_feed)
            seen.append(look)
        if self.order == "luong":
            return DecoderOutput(self.dropout(torch.stack(fed, 1)), _without_none(seen))
        return DecoderOutput(
            self.readout(torch.stack(tops, 1), torch.stack(contexts, 1), embedded), _without_none(seen)
        )

    def _decode_parallel(
        self, embedded: Tensor, memory: EncoderMemory, initial_state: RNNState
    ) -> DecoderOutput:
        """In Luong's order without input feeding no step waits for a look, so all looks are one."""
        states = embedded
        for i, cell in enumerate((self.first, *self.above)):
            state, tops = initial_state.states[i], []
            for ahead in cell.project_input(self.dropout(states) if i else states).unbind(1):
                state = cell(ahead, None, state)
                tops.append(state[0])
            states = torch.stack(tops, 1)
        context, look = memory.attend(states, 0)
        return DecoderOutput(self.readout(states, context, embedded), _without_none([look]))

    def encode(self, source: Tensor, source_lengths: Tensor) -> tuple[EncoderMemory, RNNState]:
        """What the decoder looks at, and where it starts from."""
        states, last = self.encoder(self.dropout(self.src_embed(source)), source_lengths)
        start = torch.tanh(self.bridge(last)).view(len(last), 1 + len(self.above), -1, self.hidden_dim)
        now = RNNState(
            [tuple(layer.unbind(1)) for layer in start.unbind(1)],
            last.new_zeros(len(last), self.readout_proj.out_features),
        )
        over = (
            None
            if self.attention is None
            else self.attention.precompute(states, states, padding(source_lengths))
        )
        return EncoderMemory(over, source_lengths, last, isinstance(self.attention, LocalM | LocalP)), now

    def decode_step(
        self, projected_input: Tensor, memory: EncoderMemory, state: RNNState, t: int
    ) -> tuple[RNNState, Tensor, AttentionOutput | None]:
        """One word further; `ahead` is what the first cell makes of the embedded word before it."""
        if self.order == "bahdanau":
            context, look = memory.attend(state.top_hidden[:, None], t)
            context = context.squeeze(1)
            return (
                RNNState(self._step_cells(projected_input, context, state.states), state.input_feed),
                context,
                look,
            )
        states = self._step_cells(
            projected_input, state.input_feed if self.input_feeding else None, state.states
        )
        context, look = memory.attend(states[-1][0][:, None], t)
        context = context.squeeze(1)
        return RNNState(states, self._attentional_state(states[-1][0], context)), context, look

    def _step_cells(
        self, projected_input: Tensor, context: Tensor | None, states: list[CellState]
    ) -> list[CellState]:
        turned = [self.first(projected_input, context, states[0])]
        for cell, state in zip(self.above, states[1:], strict=True):
            cell = cast(RNNCell, cell)
            turned.append(cell(cell.project_input(self.dropout(turned[-1][0])), None, state))
        return turned

    def readout(self, top_hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """What is said in a step, or in many."""
        if self.order == "luong":
            return self.dropout(self._attentional_state(top_hidden, context))
        pairs = self.readout_proj(torch.cat([top_hidden, context, embedded], -1))
        return self.dropout(pairs.unflatten(-1, (-1, 2)).amax(-1))

    def _attentional_state(self, top_hidden: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout_proj(torch.cat([top_hidden, context], -1)))


class RNNEncoder(nn.Module):
    """A recurrent network, mostly in both directions: all its states, and the last of each direction."""

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        num_layers: int,
        cell_type: CellType,
        bidirectional: bool,
        dropout: float,
    ):
        super().__init__()
        self.num_directions = 1 + bidirectional
        between = dropout if num_layers > 1 else 0.0
        self.layers = RNN_LAYERS[cell_type](
            embed_dim, hidden_dim, num_layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )

    def forward(
        self, embedded: Float[Tensor, "rows source embed"], lengths: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows source states"], Float[Tensor, "rows states"]]:
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.layers(packed)
        last = last[0] if isinstance(last, tuple) else last
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=embedded.shape[1])
        return states, torch.cat(list(last[-self.num_directions :]), -1)
