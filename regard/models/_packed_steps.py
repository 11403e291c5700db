"""Writing word by word, by an exact shortcut: the Transformer's steps with every layer's weights laid out for them.

The definition is `Steps` in transformer.py. Here query, key and value are one product, and the beams of a sentence ask
together: for what was read they share its keys, and for what was written each sees, of all words that any of them
wrote, its own past. So a beam that moves copies nothing but a table of who sees what.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.models._memory import Read, closed, whole
from regard.models._packed import Layer, Packed
from regard.models._places import Places
from regard.models._words import bits

ROOM = 16  # words a beam that a cache has room for at first


class PackedSteps:
    """`Steps` of a Transformer, whose rows are sentences x width: those that translate one sentence stand together."""

    def __init__(
        self, packed: Packed, memory: Float[Tensor, "rows source dim"], lengths: Int[Tensor, " rows"]
    ):
        self.packed, self.width, self.length = packed, 1, 0
        self.memory = Read(packed, memory, lengths)
        self.places = Places(len(memory), memory.device)
        self.seen = 0  # words of each sentence, of all its rows, in the cache
        self.cache = memory.new_zeros(len(memory), len(packed.layers), 0, 2 * packed.dim)
        self.past = memory.new_zeros(len(memory), 1, 0)  # 0 where a row sees a word, else -inf
        self.clock = packed.places(0, ROOM)
        self.room: Tensor | None = None

    def step(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        return self.packed.output(self._said(words))

    def bits(self, words: Int[Tensor, " rows"], block: int) -> Float[Tensor, "rows padded"]:
        """The same as powers of two."""
        self.room = bits(self.packed.output, self._said(words), block, self.room)
        return self.room

    def _said(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        packed, width = self.packed, self.width
        words = self.places.to_places(words.view(-1, width)).flatten()
        if self.length == len(self.clock):
            self.clock = packed.places(0, 2 * self.length)
        x = torch.add(self.clock[self.length], F.embedding(words, packed.words), alpha=packed.scale)
        self._see_new_words()
        self.memory.asked.clear()
        for number, layer in enumerate(packed.layers):
            x = self._layer(x, layer, number)
        x = self.places.from_places(x.view(-1, width, packed.dim)).flatten(0, 1)
        self.length += 1
        return x if packed.last is None else packed.last(x)

    def _layer(self, x: Float[Tensor, "rows dim"], layer: Layer, number: int) -> Float[Tensor, "rows dim"]:
        first, (look, back, think) = self.packed.first, layer.norms
        new = layer.look(look(x) if first else x)
        x = layer.look_out(self._look(new, number)).add_(x)
        x = x if first else look(x)

        x = self.memory.look(back(x) if first else x, number, self.width).add_(x)
        x = x if first else back(x)

        wide = layer.widen(think(x) if first else x).relu_()
        x = layer.narrow(wide).add_(x)
        return x if first else think(x)

    def _look(self, new: Float[Tensor, "rows joined"], number: int) -> Float[Tensor, "rows dim"]:
        """At what was written: the new words' keys and values go to the end."""
        dim, upto = self.packed.dim, whole(self.seen)
        each = new.view(-1, self.width, 3 * dim)
        cache = self.cache[:, number, :upto]
        cache[:, self.seen - self.width : self.seen] = each[..., dim:]
        query, key, value = (
            self.packed.split(part) for part in (each[..., :dim], cache[..., :dim], cache[..., dim:])
        )
        mask = self.past[:, None, :, :upto]
        return F.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(-1, dim)

    def _see_new_words(self) -> None:
        """Each row sees its own new word, and there is room for all of them."""
        before, room = self.seen, self.past.shape[2]
        self.seen += self.width
        if self.seen > room:
            more = whole(max(2 * before, ROOM * self.width)) - room
            grown = self.cache.new_empty(*self.cache.shape[:2], room + more, self.cache.shape[3])
            grown[:, :, :before] = self.cache[:, :, :before]
            self.cache, self.past = grown, F.pad(self.past, (0, more), value=-math.inf)
        if whole(self.seen) > whole(before):
            self.cache[:, :, whole(before) : whole(self.seen)] = 0  # what nobody sees must still be a number
        self.past[:, :, before : self.seen].diagonal(dim1=1, dim2=2).zero_()

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked, on average over layers and heads."""
        return self.places.from_places(self.memory.weights()).flatten(0, 1)

    def select(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        sentences = self.places.at(rows // self.width)
        self.past = self.past[sentences, rows % self.width][:, None]
        self.cache = self.cache.index_select(0, sentences)
        self.memory.select(sentences)
        self.places, self.width = Places(len(rows), rows.device), 1

    def select_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """The same where each line of rows is the beam of one sentence, and sentences only leave."""
        if len(rows) < len(self.places):
            gone = self.places.leave(rows[:, 0] // self.width)
            closed(self.cache[:, :, : self.seen], *gone)
            self.cache, self.past = self.cache[: len(rows)], closed(self.past, *gone)
            self.memory.close(*gone)
        parents = self.places.to_places(rows % self.width)
        self.past = self.past.gather(1, parents[:, :, None].expand(-1, -1, self.past.shape[2]))
        self.width = rows.shape[1]
