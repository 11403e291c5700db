"""The recurrent encoder-decoder, with any attention or none.

Bahdanau, Cho and Bengio (2015), arXiv 1409.0473, and Luong, Pham and Manning (2015), arXiv 1508.04025. Top to bottom:
the model, with the decoders of both papers, then the encoder. Decoding step by step is in
`regard.models.rnn_decoding`.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import Attention, AttentionOutput, LocalM, LocalP, padding
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule, reset_modules
from regard.errors import UsageError, require_choice
from regard.models import layers
from regard.models.layers import CellState, Lengths, Logits, RNNCell, SourceTokens, TargetTokens
from regard.models.rnn_decoding import DecoderOutput, EncoderMemory, RNNDecoderState, RNNState, posterior_alignment
from regard.models.rnn_fast import FusedRNNDecoderState, factor_memory, fuse_rnn_decoder

__all__ = [
    "AttentionModule", "CellType", "DecoderType", "InitHidden", "RNNEncoder", "RNNSeq2Seq", "ReadoutType", "run_rnn",
]  # fmt: skip

DecoderType = Literal["bahdanau", "luong"]
CellType = Literal["gru", "lstm"]
InitHidden = Literal["bridge", "last", "per-layer", "zero"]
ReadoutType = Literal["maxout", "tanh", "linear"]
AttentionModule = Attention | LocalM | LocalP
Hidden = Float[Tensor, "batch tgt_len output_dim"]
Alignments = list[Float[Tensor, "batch 1 tgt_len-1 src_len"]]
STEP_METHODS = ("decode_step", "_step_cells", "readout", "_attentional_state")  # what fused steps replace


class RNNSeq2Seq(ResettableModule):
    """Recurrent encoder-decoder with attention.

        decoder_type="bahdanau"                     decoder_type="luong"
        c_t = attend(s_{t-1}, states)               s_t = step(s_{t-1}, [y_{t-1}; a_{t-1}])
        s_t = step(s_{t-1}, [y_{t-1}; c_t])         c_t = attend(s_t, states)
        token_t from maxout(s_t, y_{t-1}, c_t)      a_t = tanh(W [c_t; s_t]), token_t from a_t

    By default the decoder starts from tanh of a linear layer over the encoder's final states of both directions
    (Bahdanau et al. use the backward one only). Without attention c_t is these final states in every step: the
    bottleneck.

    Args:
        src_vocab_size: number of source tokens
        tgt_vocab_size: number of target tokens
        attention: any module called like `Attention`; queries are decoder states of size `hidden_dim`, keys encoder
            states of size `2 * encoder_hidden_dim` (`encoder_hidden_dim` if not bidirectional)
        embed_dim: size of a token's vector
        hidden_dim: size of the decoder's state
        encoder_hidden_dim: size of the encoder's state in each direction; by default such that keys have size
            `hidden_dim`, as dot products need it
        num_layers: recurrent layers of the encoder and of the decoder
        cell_type: "gru" or "lstm"
        bidirectional: whether the encoder reads in both directions
        decoder_type: "bahdanau" attends before the step, "luong" after it
        input_feeding: pass a_{t-1} to the next step (Luong et al., 3.3); only with decoder_type="luong"
        init_hidden: where the decoder starts: "bridge" (above), "zero", "last" (every layer, and an LSTM's cell too,
            from the final hidden states of the last encoder layer, as JoeyNMT) or "per-layer" (each layer from the
            final state of the same encoder layer, as textbooks do); the last two need encoder states of size
            `hidden_dim`
        readout_type: "maxout" of s_t, y_{t-1} and c_t (only with decoder_type="bahdanau"), "tanh" (a_t above) or
            "linear" (logits directly from [s_t; c_t], no tied embeddings); None: that of the paper
        dropout: probability of dropout on embeddings, between layers and before `lm_head`
        tie_embeddings: share the target embeddings with `lm_head`
        device, dtype: of the parameters, as in PyTorch; `attention` has its own

    Shape: source (batch, src_len), source_lengths (batch,), target (batch, tgt_len) -> (batch, tgt_len, tgt_vocab)

    Example:
        >>> attention = Attention(Additive(query_dim=16, key_dim=16, hidden_dim=8))
        >>> model = RNNSeq2Seq(11, 13, attention, embed_dim=8, hidden_dim=16)
        >>> source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))
        >>> model(source, torch.tensor([5, 3]), target).shape
        torch.Size([2, 7, 13])
    """

    repr_settings = ("decoder_type", "input_feeding", "init_hidden", "readout_type", "tie_embeddings")

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
        decoder_type: DecoderType = "bahdanau",
        input_feeding: bool = False,
        init_hidden: InitHidden = "bridge",
        readout_type: ReadoutType | None = None,
        dropout: float = 0.0,
        tie_embeddings: bool = False,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        readout_type = readout_type or ("maxout" if decoder_type == "bahdanau" else "tanh")
        for name, value, choices in (
            ("cell_type", cell_type, tuple(layers.RNN_CELLS)),
            ("decoder_type", decoder_type, get_args(DecoderType)),
            ("init_hidden", init_hidden, get_args(InitHidden)),
            ("readout_type", readout_type, get_args(ReadoutType)),
        ):
            if value not in choices:
                require_choice(name, value, choices, "RNNSeq2Seq")
        if readout_type == "maxout" and decoder_type == "luong":
            raise UsageError("RNNSeq2Seq: readout_type='maxout' needs decoder_type='bahdanau'; take 'tanh' or 'linear'")
        if readout_type == "linear" and tie_embeddings:
            raise UsageError(
                "RNNSeq2Seq: readout_type='linear' has no vector of size embed_dim, which tie_embeddings needs; take"
                " 'tanh'"
            )
        if input_feeding and decoder_type == "bahdanau":
            raise UsageError(
                "RNNSeq2Seq: input_feeding needs decoder_type='luong'; a step of Bahdanau's decoder already"
                " has its context"
            )
        if attention is not None and any(getattr(part, "is_relative", False) for part in attention.modules()):
            raise UsageError(
                "RNNSeq2Seq: the score must not depend on distances (Rotary, Alibi, RelativeBias), because there are"
                " none between a decoder state and a source token; pass a score without them"
            )
        num_directions = 1 + bidirectional
        encoder_hidden_dim = hidden_dim // num_directions if encoder_hidden_dim is None else encoder_hidden_dim
        memory_dim = num_directions * encoder_hidden_dim
        if init_hidden in ("last", "per-layer") and memory_dim != hidden_dim:
            raise UsageError(
                f"RNNSeq2Seq: init_hidden={init_hidden!r} needs encoder states of size hidden_dim={hidden_dim}, but"
                f" they have {memory_dim}; change encoder_hidden_dim, or take 'bridge'"
            )
        self.hidden_dim, self.decoder_type, self.input_feeding = hidden_dim, decoder_type, input_feeding
        self.init_hidden, self.readout_type, self.memory_dim = init_hidden, readout_type, memory_dim
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.src_embed = nn.Embedding(src_vocab_size, embed_dim, **factory)
        self.tgt_embed = nn.Embedding(tgt_vocab_size, embed_dim, **factory)
        options = {"num_layers": num_layers, "cell_type": cell_type, "bidirectional": bidirectional, **factory}
        self.encoder = RNNEncoder(embed_dim, encoder_hidden_dim, dropout=dropout, **options)
        self.attention = attention
        output_dim = embed_dim if tie_embeddings else hidden_dim
        if readout_type == "linear":
            output_dim = hidden_dim + memory_dim
        make_cell = layers.RNN_CELLS[cell_type]
        context_dim = memory_dim if decoder_type == "bahdanau" else output_dim * input_feeding
        cell_dims = [(embed_dim, context_dim), *[(hidden_dim, 0)] * (num_layers - 1)]
        self.cells = nn.ModuleList(make_cell(*dims, hidden_dim, **factory) for dims in cell_dims)
        self.bridge = self.readout_proj = None
        if init_hidden == "bridge":
            self.bridge = nn.Linear(memory_dim, num_layers * make_cell.num_states * hidden_dim, **factory)
        if readout_type != "linear":
            readout_dim = hidden_dim + memory_dim + embed_dim * (readout_type == "maxout")
            self.readout_proj = nn.Linear(readout_dim, output_dim * (1 + (readout_type == "maxout")), **factory)
        self.lm_head = nn.Linear(output_dim, tgt_vocab_size, bias=False, **factory)
        self.dropout, self.tie_embeddings = layers.FastDropout(dropout), tie_embeddings
        self._init_parameters()

    def reset_parameters(self) -> None:
        layers.untie(self.lm_head, self.tgt_embed)
        reset_modules(self.attention, self.src_embed, self.tgt_embed, self.encoder)
        reset_modules(self.cells, self.bridge, self.readout_proj, self.lm_head)
        self._init_parameters()

    def _init_parameters(self) -> None:
        for embedding in (self.src_embed, self.tgt_embed):
            nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5 if self.tie_embeddings else 0.1)
        if self.tie_embeddings:
            self.lm_head.weight = self.tgt_embed.weight

    def forward(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Logits:
        """Logits of the next token after each target token."""
        return self.lm_head(self.forward_hidden(source, source_lengths, target))

    def forward_hidden(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Hidden:
        """The input of `lm_head`, for losses that compute logits in chunks."""
        return self.decode(source, source_lengths, target).hidden

    def attention_weights(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Alignments:
        """Attention weights of `target[:, 1:]` over the source: one layer, one head; empty without attention."""
        return _stack_weights(self.decode(source, source_lengths, target[:, :-1]))

    def forward_with_weights(
        self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens
    ) -> tuple[Logits, list[Float[Tensor, "batch 1 tgt_len src_len"]]]:
        """Logits, and the attention weights of `attention_weights`, from one pass."""
        output = self.decode(source, source_lengths, target)
        return self.lm_head(output.hidden), _stack_weights(output)

    def posterior_alignment(self, source: SourceTokens, source_lengths: Lengths, target: TargetTokens) -> Alignments:
        """Attention weights corrected by the target tokens themselves; see `rnn_decoding.posterior_alignment`."""
        if self.attention is None:
            return []
        return [posterior_alignment(self, source, source_lengths, target)[:, None]]

    def start_decoding(self, source: SourceTokens, source_lengths: Lengths) -> RNNDecoderState | FusedRNNDecoderState:
        """Encode the source once and return the state of a decoder that takes one token per step.

        Without gradients, hooks and watchers it is a `FusedRNNDecoderState`, which computes the same faster.
        """
        memory, state = self.encode(source, source_lengths)
        has_standard_steps = all(getattr(type(self), name) is getattr(RNNSeq2Seq, name) for name in STEP_METHODS)
        fused = fuse_rnn_decoder(self) if has_standard_steps else None
        if fused is None:
            return RNNDecoderState(self, memory, state)
        return FusedRNNDecoderState(fused, factor_memory(memory, self.attention), state)

    def decode(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> DecoderOutput:
        """Hidden states of `forward_hidden` and the attention of each step, with log-probabilities if it is sampled."""
        memory, state = self.encode(source, source_lengths)
        embedded = self.dropout(self.tgt_embed(target))
        if self.decoder_type == "luong" and not self.input_feeding:
            return self._decode_parallel(embedded, memory, state)
        steps = []
        for t, projected in enumerate(self.first_cell.project_input(embedded).unbind(1)):
            state, context, output = self.decode_step(projected, memory, state, t)
            steps.append((state.top_hidden, context, state.input_feed, output))
        top_states, contexts, input_feeds, outputs = zip(*steps, strict=True)
        attention = [output for output in outputs if output is not None]
        if self.decoder_type == "luong":
            return DecoderOutput(self.dropout(torch.stack(input_feeds, 1)), attention)
        hidden = self.readout(torch.stack(top_states, 1), torch.stack(contexts, 1), embedded)
        return DecoderOutput(hidden, attention)

    def _decode_parallel(self, embedded: Tensor, memory: EncoderMemory, initial_state: RNNState) -> DecoderOutput:
        """Luong's decoder without input feeding: no step depends on a context, so all queries attend in one call."""
        hidden = embedded
        for layer, cell in enumerate(self.get_cells()):
            cell_state, steps = initial_state.states[layer], []
            for projected in cell.project_input(self.dropout(hidden) if layer else hidden).unbind(1):
                cell_state = cell(projected, None, cell_state)
                steps.append(cell_state[0])
            hidden = torch.stack(steps, 1)
        context, output = memory.attend(hidden, 0)
        return DecoderOutput(self.readout(hidden, context, embedded), [] if output is None else [output])

    def encode(self, source: Tensor, source_lengths: Tensor) -> tuple[EncoderMemory, RNNState]:
        """What the decoder attends to, and its initial state."""
        embedded = self.src_embed(source)
        embedded = self.dropout(embedded) if self.dropout.training else embedded
        if self.init_hidden == "per-layer":
            states, starts = self.encoder.forward_layers(embedded, source_lengths)
            final = starts[-1][0]
        else:
            states, final = self.encoder(embedded, source_lengths)
            starts = self._start_states(final)
        state = RNNState(starts, final.new_zeros(len(final), self.lm_head.in_features))
        projected_kv = None
        if self.attention is not None:
            projected_kv = self.attention.precompute(states, states, padding(source_lengths))
        needs_positions = isinstance(self.attention, LocalM | LocalP)
        return EncoderMemory(projected_kv, source_lengths, final, needs_positions), state

    def _start_states(self, final: Tensor) -> list[CellState]:
        """The state of each layer from the encoder's final hidden states."""
        if self.bridge is not None:
            start = torch.tanh(self.bridge(final)).view(len(final), len(self.cells), -1, self.hidden_dim)
            return [tuple(layer.unbind(1)) for layer in start.unbind(1)]
        start = final if self.init_hidden == "last" else final.new_zeros(len(final), self.hidden_dim)
        return [(start,) * self.first_cell.num_states for _ in self.cells]

    def decode_step(
        self, projected_input: Tensor, memory: EncoderMemory, state: RNNState, t: int
    ) -> tuple[RNNState, Tensor, AttentionOutput | None]:
        """One step: the next state, the context and its attention.

        `projected_input` is what the first cell's `project_input` returns for the embedding of the token before.
        """
        if self.decoder_type == "bahdanau":
            context, output = memory.attend(state.top_hidden[:, None], t)
            context = context.squeeze(1)
            states = self._step_cells(projected_input, context, state.states)
            return RNNState(states, state.input_feed), context, output
        input_feed = state.input_feed if self.input_feeding else None
        states = self._step_cells(projected_input, input_feed, state.states)
        context, output = memory.attend(states[-1][0][:, None], t)
        context = context.squeeze(1)
        return RNNState(states, self._attentional_state(states[-1][0], context)), context, output

    @property
    def first_cell(self) -> RNNCell:
        """The cell of the decoder's first layer."""
        return cast(RNNCell, self.cells[0])

    def get_cells(self) -> list[RNNCell]:
        """The cells of the decoder, first layer first."""
        return [cast(RNNCell, cell) for cell in self.cells]

    def _step_cells(self, projected_input: Tensor, context: Tensor | None, states: list[CellState]) -> list[CellState]:
        first, *upper = self.get_cells()
        new_states = [first(projected_input, context, states[0])]
        for cell, state in zip(upper, states[1:], strict=True):
            new_states.append(cell(cell.project_input(self.dropout(new_states[-1][0])), None, state))
        return new_states

    def readout(self, top_hidden: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """The input of `lm_head`, of one step or of many."""
        if self.readout_type != "maxout" or self.readout_proj is None:
            return self.dropout(self._attentional_state(top_hidden, context))
        pairs = self.readout_proj(torch.cat([top_hidden, context, embedded], -1))
        return self.dropout(pairs.unflatten(-1, (-1, 2)).amax(-1))

    def _attentional_state(self, top_hidden: Tensor, context: Tensor) -> Tensor:
        features = torch.cat([top_hidden, context], -1)
        return features if self.readout_proj is None else torch.tanh(self.readout_proj(features))


def _stack_weights(output: DecoderOutput) -> list[Tensor]:
    """The weights of all steps as one layer with one head; none without attention."""
    weights = [step.weights for step in output.attention]
    return [torch.cat(weights, 1)[:, None]] if weights else []


class RNNEncoder(ResettableModule):
    """A recurrent encoder, by default bidirectional.

    Args:
        embed_dim: size of the input vectors
        hidden_dim: size of the state in each direction
        num_layers: recurrent layers
        cell_type: "gru" or "lstm"
        bidirectional: whether to read in both directions
        dropout: probability of dropout between layers
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, src_len, embed_dim), lengths (batch,) -> all states (batch, src_len, num_directions * hidden_dim)
        and the final state of each direction (batch, num_directions * hidden_dim)

    Example:
        >>> states, final = RNNEncoder(8, 6)(torch.randn(2, 5, 8), torch.tensor([5, 3]))
        >>> states.shape, final.shape
        (torch.Size([2, 5, 12]), torch.Size([2, 12]))
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        *,
        num_layers: int = 1,
        cell_type: CellType = "gru",
        bidirectional: bool = True,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        self.num_directions = 1 + bidirectional
        options: FactoryKwargs = {"batch_first": True, "bidirectional": bidirectional, "device": device, "dtype": dtype}
        dropout = dropout if num_layers > 1 else 0.0
        self.layers = layers.RNN_LAYERS[cell_type](embed_dim, hidden_dim, num_layers, dropout=dropout, **options)

    def forward(
        self, embedded: Float[Tensor, "batch src_len embed_dim"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch src_len states"], Float[Tensor, "batch states"]]:
        states, final = run_rnn(self.layers, embedded, lengths)
        final = final[0] if isinstance(final, tuple) else final
        return states, torch.cat(list(final[-self.num_directions :]), -1)

    def forward_layers(
        self, embedded: Float[Tensor, "batch src_len embed_dim"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch src_len states"], list[CellState]]:
        """All states, and the final state of each layer, both directions side by side; an LSTM's with its cell."""
        states, final = run_rnn(self.layers, embedded, lengths)
        parts = final if isinstance(final, tuple) else (final,)
        layers_of_parts = [[torch.cat(list(one), -1) for one in part.split(self.num_directions)] for part in parts]
        return states, [tuple(layer) for layer in zip(*layers_of_parts, strict=True)]


def run_rnn(
    rnn: nn.Module, x: Float[Tensor, "batch seq_len dim"], lengths: Lengths
) -> tuple[Float[Tensor, "batch seq_len states"], Any]:
    """Run a recurrent layer over rows of different lengths.

    Args:
        rnn: `nn.GRU` or `nn.LSTM`, batch first
        x: padded input vectors
        lengths: vectors of each row

    Shape: x (batch, seq_len, dim), lengths (batch,) -> (batch, seq_len, states)

    Returns:
        all states, 0 on padding, and the final state as the layer returns it

    Example:
        >>> run_rnn(nn.GRU(8, 6, batch_first=True), torch.randn(2, 5, 8), torch.tensor([5, 3]))[0].shape
        torch.Size([2, 5, 6])
    """
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, final = rnn(packed)
    return pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0], final
