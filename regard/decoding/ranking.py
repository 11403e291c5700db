"""The best continuations of each beam among all words of the vocabulary, in few passes over their logits.

The few best of many, quickly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.types import SpecialTokens, nan_error

BLOCK_SIZE = 64  # words; of 32 to 128 the fastest on a CPU, for 10,000 words and a beam of 5


CACHED_ROWS = 16  # rows whose powers stay in a core's own cache, for 10,000 words


SAFE_EXPONENT = 60.0  # within 2^60 and 2^-60 a sum of powers loses nothing in float32


LN2, LOG2E = math.log(2), 1 / math.log(2)


class Continuations(NamedTuple):
    """The best continuations of each sentence's beam, the most probable first.

    `total` is the log-probability of all tokens up to here, `log_prob` that of the last one alone; `parent`
    is the place on the beam of what is continued.
    """

    total: Float[Tensor, "sentences places"]
    token: Int[Tensor, "sentences places"]
    parent: Int[Tensor, "sentences places"]
    log_prob: Float[Tensor, "sentences places"]

    def take(self, count: int) -> Continuations:
        return Continuations(*(column[:, :count] for column in self))


class ContinuationRanker:
    """Ranks what can follow, with room for the logits that is kept from step to step.

        log p(w) = ln 2 (x_w - log2 sum_v 2^x_v)          x = logits / ln 2

    Powers of two cost half as much as those of e. The best `count` words of a beam lie in the `count` blocks of words
    with the largest maxima, so only these are searched. PAD and BOS are never written, and EOS not before `at_least`
    tokens; the others keep their probability.
    """

    def __init__(self, specials: SpecialTokens, min_length: int, device: torch.device):
        never = (specials.pad, specials.bos)
        self.forbidden, self.min_length = torch.tensor(never, device=device), min_length
        self.forbidden_early = torch.tensor((*never, specials.eos), device=device)
        self.logits_buffer = self.power_buffer = torch.empty(0, 0, device=device)

    def __call__(
        self,
        logits: Float[Tensor, "rows vocab"],
        total: Float[Tensor, "sentences width"],
        count: int,
        length: int,
    ) -> Continuations:
        """The best `count` tokens number `length` of every beam; rows are sentences x width."""
        return self.rank(self.to_base2(logits), total, count, length)

    def to_base2(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows padded"]:
        """x, in whole blocks: behind the last word stands -inf. The logits stay as they are."""
        rows, vocab = logits.shape
        if len(self.logits_buffer) < rows:
            self.logits_buffer = self.logits_buffer.new_full(
                (rows, -(-vocab // BLOCK_SIZE) * BLOCK_SIZE), -math.inf
            )
        room = self.logits_buffer[:rows]
        torch.mul(logits.float(), LOG2E, out=room[:, :vocab])
        return room

    def rank(
        self,
        base2_logits: Float[Tensor, "rows padded"],
        total: Float[Tensor, "sentences width"],
        count: int,
        length: int,
    ) -> Continuations:
        """The same of x in whole blocks; words that are not allowed become -inf in it."""
        sentences, width = total.shape
        norm = self._log2_sum(base2_logits, length)
        base2_logits.index_fill_(
            1, self.forbidden_early if length <= self.min_length else self.forbidden, -math.inf
        )
        blocks = base2_logits.unflatten(1, (-1, BLOCK_SIZE))
        ranks = (
            blocks.amax(-1).sub_(norm[:, None]).mul_(LN2).view(sentences, width, -1).add_(total[:, :, None])
        )
        ranks = ranks.flatten(1)
        chosen = ranks.topk(min(count, ranks.shape[1]), sorted=False).indices
        begin = torch.arange(0, ranks.numel(), ranks.shape[1], device=total.device)
        few = (
            blocks.flatten(0, 1)
            .index_select(0, (chosen + begin[:, None]).flatten())
            .view(*chosen.shape, BLOCK_SIZE)
        )

        parent = chosen.div(blocks.shape[1], rounding_mode="floor")
        own = few.sub_(norm.view(sentences, width).gather(1, parent)[:, :, None]).mul_(LN2)
        totals = (own + total.gather(1, parent)[:, :, None]).flatten(1)
        best = totals.topk(min(count, totals.shape[1]))
        which, place = best.indices.div(BLOCK_SIZE, rounding_mode="floor"), best.indices % BLOCK_SIZE
        token = chosen.gather(1, which).remainder_(blocks.shape[1]).mul_(BLOCK_SIZE).add_(place)
        # An empty place, of probability 0, may stand behind the last word.
        token = token.masked_fill_(best.values == -math.inf, 0)
        return Continuations(
            best.values, token, parent.gather(1, which), own.flatten(1).gather(1, best.indices)
        )

    def _log2_sum(self, base2_logits: Float[Tensor, "rows padded"], length: int) -> Float[Tensor, " rows"]:
        """The logarithm of the sum of all powers, before any is left out."""
        some = CACHED_ROWS if base2_logits.device.type == "cpu" else len(base2_logits)
        if len(self.power_buffer) < min(some, len(base2_logits)):
            self.power_buffer = base2_logits.new_empty(min(some, len(base2_logits)), base2_logits.shape[1])
        norm = base2_logits.new_empty(len(base2_logits))
        for here, sums in zip(base2_logits.split(some), norm.split(some), strict=True):
            torch.sum(torch.exp2(here, out=self.power_buffer[: len(here)]), -1, out=sums)
        norm.log2_()
        if not bool((norm.abs() < SAFE_EXPONENT).all()):
            most = base2_logits.amax(-1)
            norm = torch.exp2(base2_logits - most[:, None]).sum(-1).log2_().add_(most)
            if not bool(norm.isfinite().all()):
                raise nan_error(length)
        return norm


TOPK_BLOCK_SIZE = 64  # of 32 to 256 the fastest on a CPU, for 10,000 tokens and a beam of 5


def blockwise_topk(
    scores: Float[Tensor, "rows vocab"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The `count` largest of each row and where they are, largest first, as torch.topk gives them.

    The best `count` numbers lie in the `count` blocks with the largest maxima, so only these are searched:
    about half the time of torch.topk over a vocabulary of 10,000.

    >>> values, at = blockwise_topk(torch.tensor([[0.1, 0.7, 0.2]]), 2)
    >>> at.tolist()
    [[1, 2]]
    """
    rows, vocab = scores.shape
    whole = vocab // TOPK_BLOCK_SIZE
    if whole < 4 * count:
        return _topk(scores, count)
    blocks = scores[:, : whole * TOPK_BLOCK_SIZE].unflatten(1, (whole, TOPK_BLOCK_SIZE))
    chosen = blocks.amax(-1).topk(count, sorted=False).indices[:, :, None]
    few = blocks.gather(1, chosen.expand(-1, -1, TOPK_BLOCK_SIZE)).flatten(1)
    at = (chosen * TOPK_BLOCK_SIZE + torch.arange(TOPK_BLOCK_SIZE, device=scores.device)).flatten(1)
    if whole * TOPK_BLOCK_SIZE < vocab:
        rest = torch.arange(whole * TOPK_BLOCK_SIZE, vocab, device=scores.device)
        few, at = torch.cat((few, scores[:, rest[0] :]), 1), torch.cat((at, rest.expand(rows, -1)), 1)
    values, where = _topk(few, count)
    return values, at.gather(1, where)


def _topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    found = scores.topk(count)
    return found.values, found.indices
