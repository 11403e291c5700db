"""A recurrent decoder laid out for steps: what `PackedRecurrentSteps` needs, made once and kept with the model."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from regard.attention._watching import WATCHING
from regard.models._kept import Kept, kept, plain
from regard.models._packed_cells import PACKED, More, PackedCell
from regard.models._words import unrecorded, untouched, words


class PackedRecurrent:
    """A decoder's weights as its steps want them.

    What joins state, context and word is cut in three. In Bahdanau's order context and word are known before the
    state, so their parts stand behind the first cell's gates, and are made in the same products.
    """

    def __init__(self, model: Any):
        self.luong, self.feeding = model.order == "luong", model.input_feeding
        joined, bias = model.join.weight.detach().t(), model.join.bias.detach()
        if not self.luong:  # of each two the larger is said: all that are first, then all that are second
            joined, bias = (torch.cat((part[..., ::2], part[..., 1::2]), -1) for part in (joined, bias))
        sizes = [model.dim, model.start.in_features]
        sizes.append(len(joined) - sum(sizes))
        self.top, self.context, word = (part.contiguous() for part in joined.split(sizes))
        self.bias: Tensor = bias.contiguous()
        more = None if self.luong else More(self.context, word, self.bias)
        self.first = PACKED[type(model.first)](model.first, more)
        self.above: list[PackedCell] = [PACKED[type(cell)](cell) for cell in model.above]
        self.words: Tensor = model.write.weight.detach()
        self.output = words(model.output)


KEPT: Kept[PackedRecurrent] = WeakKeyDictionary()


def packed_recurrent(model: Any) -> PackedRecurrent | None:
    """The decoder laid out, the same as long as its weights are; None if steps must be the plain ones.

    Where somebody watches, hooks a part, wants gradients, compiles or computes in other precisions than the weights',
    each part of the model must be called.
    """
    cells, weight = [model.first, *model.above], model.output.weight
    laid = [part for whole in (*cells, model.join, model.write, model.output) for part in whole.modules()]
    looks = [] if model.attention is None else list(model.attention.modules())
    usual = unrecorded(weight) and not WATCHING.get() and weight.dtype in (torch.float32, torch.float64)
    if not (usual and untouched(model) and all(type(cell) in PACKED for cell in cells)):
        return None
    if not all(map(plain, (*laid, *looks, model.dropout))):
        return None
    return kept(KEPT, model, laid, lambda: PackedRecurrent(model))
