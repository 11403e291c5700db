"""The recurrent translator, with any attention, or with none.

Bahdanau, Cho and Bengio (2015), arXiv 1409.0473, and Luong, Pham and Manning (2015), arXiv 1508.04025. Read top
to bottom: the model, then its two orders of looking and stepping, then the encoder and writing word by word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import Attended, Attention, LocalM, LocalP, padding
from regard.attention._over import Over
from regard.attention._watching import WATCHING
from regard.attention.positions.relative import by_distance
from regard.errors import UnsupportedError, UsageError
from regard.models._cells import CELLS, LAYERS, Cell, State
from regard.models._dropout import Dropout
from regard.models._factored import factored
from regard.models._hindsight import hindsight
from regard.models._packed_recurrent import packed_recurrent
from regard.models._packed_recurrent_steps import PackedRecurrentSteps
from regard.models._words import bits, words

Order = Literal["bahdanau", "luong"]
Kind = Literal["gru", "lstm"]
Looking = Attention | LocalM | LocalP


class Recurrent(nn.Module):
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
    >>> model = Recurrent(source_words=11, target_words=13, attention=attention, embed_dim=8, dim=16)
    >>> source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))
    >>> model.output(model(source, torch.tensor([5, 3]), target)).shape
    torch.Size([2, 7, 13])
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        attention: Looking | None = None,
        *,
        embed_dim: int = 256,
        dim: int = 256,
        encoder_dim: int | None = None,
        layers: int = 1,
        cell: Kind = "gru",
        bidirectional: bool = True,
        order: Order = "bahdanau",
        input_feeding: bool = False,
        dropout: float = 0.0,
        tied: bool = False,
    ):
        super().__init__()
        for name, value, known in (("cell", cell, tuple(CELLS)), ("order", order, ("bahdanau", "luong"))):
            if value not in known:
                raise UsageError(f"{name}={value!r} is not possible; {name} is one of {', '.join(known)}")
        if input_feeding and order == "bahdanau":
            raise UsageError(
                "input_feeding belongs to order='luong'; in Bahdanau's, a step sees its context anyway"
            )
        if attention is not None and by_distance(attention):
            raise UsageError(
                "Rotary, Alibi and RelativeBias go by the distance from a query to a key, and a state of the decoder"
                " has none to a word of the source; take a score without them"
            )
        ways = 1 + bidirectional
        encoder_dim = dim // ways if encoder_dim is None else encoder_dim
        self.dim, self.order, self.input_feeding = dim, order, input_feeding
        self.read, self.write = nn.Embedding(source_words, embed_dim), nn.Embedding(target_words, embed_dim)
        self.encoder = Encoder(embed_dim, encoder_dim, layers, cell, bidirectional, dropout)
        self.attention = attention
        out_dim, states_dim = embed_dim if tied else dim, ways * encoder_dim
        make = CELLS[cell]
        late_dim = states_dim if order == "bahdanau" else out_dim * input_feeding
        self.first = make(embed_dim, late_dim, dim)
        self.above = nn.ModuleList(make(dim, 0, dim) for _ in range(layers - 1))
        self.start = nn.Linear(states_dim, layers * make.memories * dim)
        joined = dim + states_dim + embed_dim * (order == "bahdanau")
        self.join = nn.Linear(joined, out_dim * (2 if order == "bahdanau" else 1))
        self.output = nn.Linear(out_dim, target_words, bias=False)
        self.dropout = Dropout(dropout)
        for embedding in (self.read, self.write):
            nn.init.normal_(embedding.weight, std=embed_dim**-0.5 if tied else 0.1)
        if tied:
            self.output.weight = self.write.weight

    def forward(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> Float[Tensor, "rows target dim"]:
        """What `output` turns into the scores of the next word, after each word of the target."""
        return self.decode(source, source_lengths, target).hidden

    def looks(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows 1 target-1 source"]]:
        """Where each word of the target looked in the source: one layer, one head; none without attention."""
        seen = self.decode(source, source_lengths, target[:, :-1]).seen
        return [torch.cat([look.weights for look in seen], 1)[:, None]] if seen else []

    def hindsight(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows 1 target-1 source"]]:
        """The same, now that the words are known: weights that a word which nobody expected has corrected."""
        return [] if self.attention is None else [hindsight(self, source, source_lengths, target)[:, None]]

    def begin(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"]
    ) -> Steps | PackedRecurrentSteps:
        """Read the source once, then write word by word: by `Steps`, or by the same in fewer operations."""
        (memory, now), fast = self.encode(source, source_lengths), packed_recurrent(self)
        if fast is None:
            return Steps(self, memory, now)
        return PackedRecurrentSteps(fast, factored(memory, self.attention), now)

    def decode(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Written:
        """`forward`, together with what was seen in each step: its weights, and its chances if it is sampled."""
        memory, now = self.encode(source, source_lengths)
        embedded = self.dropout(self.write(target))
        if self.order == "luong" and not self.input_feeding:
            return self._all_at_once(embedded, memory, now)
        tops, contexts, fed, seen = [], [], [], []
        for t, ahead in enumerate(self.first.ahead(embedded).unbind(1)):
            now, context, look = self.step(ahead, memory, now, t)
            tops.append(now.top)
            contexts.append(context)
            fed.append(now.fed)
            seen.append(look)
        if self.order == "luong":
            return Written(self.dropout(torch.stack(fed, 1)), _only(seen))
        return Written(self.say(torch.stack(tops, 1), torch.stack(contexts, 1), embedded), _only(seen))

    def _all_at_once(self, embedded: Tensor, memory: Memory, now: Now) -> Written:
        """In Luong's order without input feeding no step waits for a look, so all looks are one."""
        states = embedded
        for i, cell in enumerate((self.first, *self.above)):
            state, tops = now.states[i], []
            for ahead in cell.ahead(self.dropout(states) if i else states).unbind(1):
                state = cell(ahead, None, state)
                tops.append(state[0])
            states = torch.stack(tops, 1)
        context, look = memory.look(states, 0)
        return Written(self.say(states, context, embedded), _only([look]))

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Memory, Now]:
        """What the decoder looks at, and where it starts from."""
        states, last = self.encoder(self.dropout(self.read(source)), lengths)
        start = torch.tanh(self.start(last)).view(len(last), 1 + len(self.above), -1, self.dim)
        now = Now(
            [tuple(layer.unbind(1)) for layer in start.unbind(1)],
            last.new_zeros(len(last), self.join.out_features),
        )
        over = None if self.attention is None else self.attention.over(states, states, padding(lengths))
        return Memory(over, lengths, last, isinstance(self.attention, LocalM | LocalP)), now

    def step(self, ahead: Tensor, memory: Memory, now: Now, t: int) -> tuple[Now, Tensor, Attended | None]:
        """One word further; `ahead` is what the first cell makes of the embedded word before it."""
        if self.order == "bahdanau":
            context, look = memory.look(now.top[:, None], t)
            context = context.squeeze(1)
            return Now(self._turn(ahead, context, now.states), now.fed), context, look
        states = self._turn(ahead, now.fed if self.input_feeding else None, now.states)
        context, look = memory.look(states[-1][0][:, None], t)
        context = context.squeeze(1)
        return Now(states, self._join(states[-1][0], context)), context, look

    def _turn(self, ahead: Tensor, late: Tensor | None, states: list[State]) -> list[State]:
        turned = [self.first(ahead, late, states[0])]
        for cell, state in zip(self.above, states[1:], strict=True):
            cell = cast(Cell, cell)
            turned.append(cell(cell.ahead(self.dropout(turned[-1][0])), None, state))
        return turned

    def say(self, top: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """What is said in a step, or in many."""
        if self.order == "luong":
            return self.dropout(self._join(top, context))
        pairs = self.join(torch.cat([top, context, embedded], -1))
        return self.dropout(pairs.unflatten(-1, (-1, 2)).amax(-1))

    def _join(self, top: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.join(torch.cat([top, context], -1)))


class Written(NamedTuple):
    """What the decoder says after each word, and what it saw: one look a step, or one for all steps."""

    hidden: Float[Tensor, "rows target dim"]
    seen: list[Attended]


@dataclass(frozen=True)
class Now:
    """Where the decoder stands: the state of each layer, and what input feeding hands on."""

    states: list[State]
    fed: Tensor

    @property
    def top(self) -> Tensor:
        return self.states[-1][0]

    def select(self, rows: Tensor) -> Now:
        return Now([tuple(part[rows] for part in state) for state in self.states], self.fed[rows])


@dataclass(frozen=True)
class Memory:
    """What there is to look at: all states of the encoder, or the last ones only.

    In a beam search, `width` rows stand together that translate one sentence, and look at it together.
    """

    over: Over | None
    lengths: Int[Tensor, " sentences"]
    last: Float[Tensor, "sentences dim"]
    local: bool
    width: int = 1

    def look(self, query: Float[Tensor, "rows queries dim"], t: int) -> tuple[Tensor, Attended | None]:
        if self.over is None:
            last = self.last if self.width == 1 else self.last.repeat_interleave(self.width, 0)
            return last[:, None].expand(-1, query.shape[1], -1), None
        if self.width == 1:
            look = self.over(query, positions=t) if self.local else self.over(query)
            return look.context, look
        beams = query.view(-1, self.width, query.shape[-1])
        places = {"positions": torch.full((self.width,), t, device=query.device)} if self.local else {}
        look = self.over(beams, **places)
        return look.context.reshape(len(query), 1, -1), look

    def select(self, sentences: Tensor) -> Memory:
        lengths = self.lengths[sentences]
        over = None if self.over is None else self.over.select(sentences, padding(lengths))
        return Memory(over, lengths, self.last[sentences], self.local, self.width)

    def wide(self, width: int) -> Memory:
        """The same for so many rows a sentence."""
        return replace(self, width=width)

    def __len__(self) -> int:
        return len(self.last)


class Encoder(nn.Module):
    """A recurrent network, mostly in both directions: all its states, and the last of each direction."""

    def __init__(
        self, embed_dim: int, dim: int, layers: int, cell: Kind, bidirectional: bool, dropout: float
    ):
        super().__init__()
        self.ways = 1 + bidirectional
        between = dropout if layers > 1 else 0.0
        self.layers = LAYERS[cell](
            embed_dim, dim, layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )

    def forward(
        self, embedded: Float[Tensor, "rows source embed"], lengths: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows source states"], Float[Tensor, "rows states"]]:
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.layers(packed)
        last = last[0] if isinstance(last, tuple) else last
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=embedded.shape[1])
        return states, torch.cat(list(last[-self.ways :]), -1)


class Steps:
    """A translation being written, one word of each row at a time."""

    def __init__(self, model: Recurrent, memory: Memory, now: Now):
        self.model, self.memory, self.now, self.t = model, memory, now, 0
        self.output = words(model.output)
        self.seen: Attended | None = None
        self.room: Tensor | None = None

    def step(self, before: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        return self.output(self._said(before))

    def bits(self, before: Int[Tensor, " rows"], block: int) -> Float[Tensor, "rows padded"]:
        """The same as powers of two."""
        self.room = bits(self.output, self._said(before), block, self.room)
        return self.room

    def _said(self, before: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        model = self.model
        embedded = model.dropout(model.write(before))
        ahead = model.first.ahead(embedded)
        self.now, context, self.seen = model.step(ahead, self.memory, self.now, self.t)
        self.t += 1
        if model.order == "luong":
            return model.dropout(self.now.fed)
        return model.say(self.now.top, context, embedded)

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked."""
        if self.seen is None:
            raise UnsupportedError("a model without attention has no weights")
        return self.seen.weights.flatten(0, 1)

    def select(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.now = self.now.select(rows)
        self.memory = self.memory.select(rows // self.memory.width).wide(1)

    def select_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """The same where each line of rows is the beam of one sentence, and sentences only leave."""
        if WATCHING.get():  # who watches is told row by row
            self.select(rows.flatten())
            return
        self.now = self.now.select(rows.flatten())
        if len(rows) < len(self.memory):
            self.memory = self.memory.select(rows[:, 0] // self.memory.width)
        self.memory = self.memory.wide(rows.shape[1])


def _only(seen: list[Any]) -> list[Attended]:
    return [look for look in seen if look is not None]
