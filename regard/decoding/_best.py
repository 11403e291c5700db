"""The best continuations of each beam among all words of the vocabulary, in few passes over their logits."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding._protocol import Specials, not_numbers

BLOCK = 64  # words; of 32 to 128 the fastest on a CPU, for 10,000 words and a beam of 5
CACHED = 16  # rows whose powers stay in a core's own cache, for 10,000 words
SAFE = 60.0  # within 2^60 and 2^-60 a sum of powers loses nothing in float32
LN2, LOG2E = math.log(2), 1 / math.log(2)


class Grown(NamedTuple):
    """The best continuations of each sentence's beam, the most probable first.

    `total` is the log-probability of all tokens up to here, `log_prob` that of the last one alone; `parent`
    is the place on the beam of what is continued.
    """

    total: Float[Tensor, "sentences places"]
    token: Int[Tensor, "sentences places"]
    parent: Int[Tensor, "sentences places"]
    log_prob: Float[Tensor, "sentences places"]

    def first(self, count: int) -> Grown:
        return Grown(*(column[:, :count] for column in self))


class Best:
    """Ranks what can follow, with room for the logits that is kept from step to step.

        log p(w) = ln 2 (x_w - log2 sum_v 2^x_v)          x = logits / ln 2

    Powers of two cost half as much as those of e. The best `count` words of a beam lie in the `count` blocks of words
    with the largest maxima, so only these are searched. PAD and BOS are never written, and EOS not before `at_least`
    tokens; the others keep their probability.
    """

    def __init__(self, specials: Specials, at_least: int, device: torch.device):
        never = (specials.pad, specials.bos)
        self.never, self.at_least = torch.tensor(never, device=device), at_least
        self.not_yet = torch.tensor((*never, specials.eos), device=device)
        self.room = self.powers = torch.empty(0, 0, device=device)

    def __call__(
        self,
        logits: Float[Tensor, "rows vocab"],
        total: Float[Tensor, "sentences width"],
        count: int,
        length: int,
    ) -> Grown:
        """The best `count` tokens number `length` of every beam; rows are sentences x width."""
        return self.ranked(self.scaled(logits), total, count, length)

    def scaled(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows padded"]:
        """x, in whole blocks: behind the last word stands -inf. The logits stay as they are."""
        rows, vocab = logits.shape
        if len(self.room) < rows:
            self.room = self.room.new_full((rows, -(-vocab // BLOCK) * BLOCK), -math.inf)
        room = self.room[:rows]
        torch.mul(logits.float(), LOG2E, out=room[:, :vocab])
        return room

    def ranked(
        self,
        bits: Float[Tensor, "rows padded"],
        total: Float[Tensor, "sentences width"],
        count: int,
        length: int,
    ) -> Grown:
        """The same of x in whole blocks; words that are not allowed become -inf in it."""
        sentences, width = total.shape
        norm = self._norm(bits, length)
        bits.index_fill_(1, self.not_yet if length <= self.at_least else self.never, -math.inf)
        blocks = bits.unflatten(1, (-1, BLOCK))
        ranks = (
            blocks.amax(-1).sub_(norm[:, None]).mul_(LN2).view(sentences, width, -1).add_(total[:, :, None])
        )
        ranks = ranks.flatten(1)
        chosen = ranks.topk(min(count, ranks.shape[1]), sorted=False).indices
        begin = torch.arange(0, ranks.numel(), ranks.shape[1], device=total.device)
        few = (
            blocks.flatten(0, 1)
            .index_select(0, (chosen + begin[:, None]).flatten())
            .view(*chosen.shape, BLOCK)
        )

        parent = chosen.div(blocks.shape[1], rounding_mode="floor")
        own = few.sub_(norm.view(sentences, width).gather(1, parent)[:, :, None]).mul_(LN2)
        totals = (own + total.gather(1, parent)[:, :, None]).flatten(1)
        best = totals.topk(min(count, totals.shape[1]))
        which, place = best.indices.div(BLOCK, rounding_mode="floor"), best.indices % BLOCK
        token = chosen.gather(1, which).remainder_(blocks.shape[1]).mul_(BLOCK).add_(place)
        # An empty place, of probability 0, may stand behind the last word.
        token = token.masked_fill_(best.values == -math.inf, 0)
        return Grown(best.values, token, parent.gather(1, which), own.flatten(1).gather(1, best.indices))

    def _norm(self, bits: Float[Tensor, "rows padded"], length: int) -> Float[Tensor, " rows"]:
        """The logarithm of the sum of all powers, before any is left out."""
        some = CACHED if bits.device.type == "cpu" else len(bits)
        if len(self.powers) < min(some, len(bits)):
            self.powers = bits.new_empty(min(some, len(bits)), bits.shape[1])
        norm = bits.new_empty(len(bits))
        for here, sums in zip(bits.split(some), norm.split(some), strict=True):
            torch.sum(torch.exp2(here, out=self.powers[: len(here)]), -1, out=sums)
        norm.log2_()
        if not bool((norm.abs() < SAFE).all()):
            most = bits.amax(-1)
            norm = torch.exp2(bits - most[:, None]).sum(-1).log2_().add_(most)
            if not bool(norm.isfinite().all()):
                raise not_numbers(length)
        return norm
