"""Additive attention asked again and again over the same keys, which are kept as exponentials.

    score(q, k) = s sum_h v_h / (1 + A_qh B_kh) + constant          A = e^-s(a + c), B = e^-s(b - c), s = 2 for tanh

See regard/attention/fast/additive.py. Here c is the middle of a sentence's keys, so that B and how far it reaches are
known before any query is; the constant is gone after softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Additive, Attention, Dropout, softmax
from regard.attention.fast.additive import MARGIN, REACH, SCALE

CACHED = 2**18  # pairs x hidden: what stays in a core's cache, as large as it may be


class Look(NamedTuple):
    """What was seen in a step."""

    weights: Float[Tensor, "sentences width source"]


@dataclass(frozen=True)
class Factored:
    """What there is to look at, as `Memory` in recurrent.py; `width` rows that translate one sentence look together."""

    query: Float[Tensor, "dim hidden"]  # from a state to -s a
    judge: Float[Tensor, " hidden"]  # s v
    key: Float[Tensor, "sentences source hidden"]  # B
    center: Float[Tensor, "sentences 1 hidden"]  # -s c
    bound: Float[Tensor, "sentences 1 hidden"]  # beyond, the network is saturated whatever the key
    value: Float[Tensor, "sentences source value"]
    hidden: Float[Tensor, "sentences 1 source"]  # -inf where a sentence has no more words
    width: int = 1

    def __len__(self) -> int:
        return len(self.key)

    def look(self, query: Float[Tensor, "rows 1 dim"], t: int) -> tuple[Float[Tensor, "rows 1 value"], Look]:
        asked = torch.mm(query.flatten(0, 1), self.query).view(len(self.key), self.width, len(self.judge))
        asked = asked.add_(self.center).clamp_(-self.bound, self.bound).exp_()
        weights = self._scores(asked).add_(self.hidden).softmax(-1)
        return torch.bmm(weights, self.value).flatten(0, 1)[:, None], Look(weights)

    def _scores(
        self, asked: Float[Tensor, "sentences width hidden"]
    ) -> Float[Tensor, "sentences width source"]:
        """Of some sentences at a time."""
        (sentences, source, hidden), one = self.key.shape, asked.new_ones(())
        scores = asked.new_empty(sentences, self.width, source)
        some = max(1, CACHED // (self.width * source * hidden))
        room = asked.new_empty(min(some, sentences), self.width, source, hidden)
        for query, key, found in zip(
            asked.split(some), self.key.split(some), scores.split(some), strict=True
        ):
            pairs = room[: len(key)]
            torch.addcmul(one, query[:, :, None], key[:, None], out=pairs).reciprocal_()
            torch.mv(pairs.view(-1, hidden), self.judge, out=found.view(-1))
        return scores

    def select(self, sentences: Int[Tensor, " new"]) -> Factored:
        names = ("key", "center", "bound", "value", "hidden")
        return replace(self, **{name: getattr(self, name).index_select(0, sentences) for name in names})

    def wide(self, width: int) -> Factored:
        """The same for so many rows a sentence."""
        return replace(self, width=width)


def factored(memory: Any, attention: Any) -> Any:
    """The memory of a recurrent model in this form; as it is where that does not stand for the definition."""
    if not _additive(attention) or memory.over.key.device.type != "cpu":
        return memory
    over, score = memory.over, attention.score
    scale = SCALE[score.activation]
    key = -scale * over.key
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    center, reach = (low + high) / 2, (high - low) / 2
    if not (key.numel() and bool(reach.amax() < REACH[key.dtype]) and bool(score.v.isfinite().all())):
        return memory
    real = torch.arange(key.shape[1]) < memory.lengths[:, None]
    return Factored(
        query=score.W.weight.t() * -scale,
        judge=score.v * scale,
        key=key.sub_(center).exp_(),
        center=center,
        bound=reach + MARGIN[key.dtype],
        value=over.value,
        hidden=key.new_zeros(len(key), 1, key.shape[1]).masked_fill_(~real[:, None], -math.inf),
    )


def _additive(attention: Any) -> bool:
    if type(attention) is not Attention or type(attention.score) is not Additive:
        return False
    normalize = attention.normalize
    inner = normalize.normalize if isinstance(normalize, Dropout) else normalize
    score = attention.score
    return inner in (None, softmax) and score.W is not None and score.activation in SCALE
