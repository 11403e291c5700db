"""Writing word by word, by an exact shortcut: a recurrent model's steps with its weights laid out for them.

The definition is `Steps` in recurrent.py. On a beam several rows follow the same one of the step before, and many write
the same word: what depends on a state alone, or on a word alone, is computed once for all of them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import UnsupportedError
from regard.models._packed_recurrent import PackedRecurrent
from regard.models._shared import Shared, distinct
from regard.models._words import bits


class PackedRecurrentSteps:
    """`Steps` of a recurrent model, whose rows are sentences x width: those that translate one sentence stand together.

    `states` and `fed` are those of the distinct rows that are followed; `parents` says which each row follows.
    """

    def __init__(self, packed: PackedRecurrent, memory: Any, now: Any):
        self.packed, self.memory, self.t = packed, memory, 0
        self.states, self.parents = now.states, Shared()
        self.fed: Tensor | None = now.fed if packed.feeding else None
        self.seen: Any = None
        self.room: Tensor | None = None

    def step(self, before: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row, given the word before it."""
        return self.packed.output(self._said(before))

    def bits(self, before: Int[Tensor, " rows"], block: int) -> Float[Tensor, "rows padded"]:
        """The same as powers of two."""
        self.room = bits(self.packed.output, self._said(before), block, self.room)
        return self.room

    def _said(self, before: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        packed = self.packed
        words, writing = distinct(before)
        ahead = writing.spread(packed.first.ahead(F.embedding(words, packed.words)))
        said = self._luong(ahead) if packed.luong else self._bahdanau(ahead)
        self.parents, self.t = Shared(), self.t + 1
        return said

    def _luong(self, ahead: Float[Tensor, "rows added"]) -> Float[Tensor, "rows dim"]:
        packed = self.packed
        self._turn(ahead, self.fed)
        top = self.states[-1][0]
        said = torch.addmm(packed.bias, top, packed.top).addmm_(self._look(top), packed.context).tanh_()
        self.fed = said if packed.feeding else None
        return said

    def _bahdanau(self, ahead: Float[Tensor, "rows added"]) -> Float[Tensor, "rows dim"]:
        packed, context = self.packed, self._look(self.parents.spread(self.states[-1][0]))
        row = self._turn(ahead, self.parents.gather(context))
        pairs = packed.first.more(row).addmm_(self.states[-1][0], packed.top)
        return torch.maximum(*pairs.chunk(2, 1))

    def _look(self, top: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows value"]:
        context, self.seen = self.memory.look(top[:, None], self.t)
        return context.squeeze(1)

    def _turn(
        self, ahead: Float[Tensor, "rows added"], late: Float[Tensor, "distinct late"] | None
    ) -> Float[Tensor, "rows all"]:
        """To the next state of every layer; what is left of the first cell's row."""
        first, spread = self.packed.first, self.parents.spread
        row = spread(first.before(self.states[0][0], late))
        turned = [first.turn(row, ahead, tuple(map(spread, self.states[0])))]
        for cell, state in zip(self.packed.above, self.states[1:], strict=True):
            ahead = cell.ahead(turned[-1][0])
            turned.append(cell.turn(spread(cell.before(state[0], None)), ahead, tuple(map(spread, state))))
        self.states = turned
        return row

    def weights(self) -> Float[Tensor, "rows source"]:
        """Where the last word looked."""
        if self.seen is None:
            raise UnsupportedError("a model without attention has no weights")
        return self.seen.weights.flatten(0, 1)

    def select(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.memory = self.memory.select(rows // self.memory.width).wide(1)
        self._follow(rows)

    def select_beams(self, rows: Int[Tensor, "sentences width"]) -> None:
        """The same where each line of rows is the beam of one sentence, and sentences only leave."""
        if len(rows) < len(self.memory):
            self.memory = self.memory.select(rows[:, 0] // self.memory.width)
        self.memory = self.memory.wide(rows.shape[1])
        self._follow(rows.flatten())

    def _follow(self, rows: Int[Tensor, " new"]) -> None:
        rows = rows if self.parents.table is None else self.parents.table[rows]
        followed, self.parents = distinct(rows)
        self.states = [tuple(part.index_select(0, followed) for part in state) for state in self.states]
        self.fed = None if self.fed is None else self.fed.index_select(0, followed)
