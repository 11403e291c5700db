"""The best continuations of beams, in few passes over the logits of a large vocabulary."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.types import SpecialTokens, nan_error

__all__ = ["BLOCK_SIZE", "ContinuationRanker", "Continuations", "blockwise_topk"]

BLOCK_SIZE = 64  # tokens; the fastest on a CPU of 32 to 256, for a vocabulary of 10,000 and a beam of 5
CACHED_ROWS = 16  # rows whose powers fit in the cache of a core, for a vocabulary of 10,000
SAFE_EXPONENT = 60.0  # between 2^-60 and 2^60 a sum of powers is accurate in float32
LN2, LOG2E = math.log(2), 1 / math.log(2)


class Continuations(NamedTuple):
    """The best continuations of the beam of each sentence, most probable first.

    Args:
        total: log-probability of all tokens up to here
        token: id of the new token
        parent: index, on the beam, of the hypothesis that is continued
        log_prob: log-probability of the new token alone
    """

    total: Float[Tensor, "sentences places"]
    token: Int[Tensor, "sentences places"]
    parent: Int[Tensor, "sentences places"]
    log_prob: Float[Tensor, "sentences places"]

    def take(self, count: int) -> Continuations:
        """The first `count`."""
        return Continuations(*(column[:, :count] for column in self))


class ContinuationRanker:
    """Ranks continuations; buffers for the logits are reused from step to step.

        log p(token) = ln 2 (x_token - log2 sum_v 2^x_v)          x = logits / ln 2

    Powers of 2 cost half as much as powers of e. The best `count` tokens of a beam are in the `count` blocks of tokens
    with the largest maxima, so only these blocks are searched. PAD and BOS are excluded, and EOS up to `min_length`
    tokens; the others keep their probability.

    Args:
        specials: ids of BOS, EOS and PAD
        min_length: number of tokens before which EOS is excluded
        device: device of the logits
    """

    def __init__(self, specials: SpecialTokens, min_length: int, device: torch.device):
        forbidden = (specials.pad, specials.bos)
        self.forbidden, self.min_length = torch.tensor(forbidden, device=device), min_length
        self.forbidden_early = torch.tensor((*forbidden, specials.eos), device=device)
        self.logits_buffer = self.power_buffer = torch.empty(0, 0, device=device)

    def to_base2(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows padded"]:
        """Logits / ln 2, padded with -inf to whole blocks, in a buffer of this object."""
        rows, vocab = logits.shape
        if len(self.logits_buffer) < rows:
            padded = -(-vocab // BLOCK_SIZE) * BLOCK_SIZE
            self.logits_buffer = self.logits_buffer.new_full((rows, padded), -math.inf)
        buffer = self.logits_buffer[:rows]
        torch.mul(logits.float(), LOG2E, out=buffer[:, :vocab])
        return buffer

    def rank(
        self,
        base2_logits: Float[Tensor, "rows padded"],
        total: Float[Tensor, "sentences width"],
        count: int,
        length: int,
    ) -> Continuations:
        """The best `count` continuations of every beam with token number `length`.

        Args:
            base2_logits: as `to_base2` returns them; rows are sentences x width. Excluded tokens become -inf in them
            total: log-probability of each hypothesis on the beams
            count: continuations of each beam
            length: number of the token, from 1
        """
        sentences, width = total.shape
        log_sum = self._log2_sum(base2_logits, length)
        excluded = self.forbidden_early if length <= self.min_length else self.forbidden
        base2_logits.index_fill_(1, excluded, -math.inf)
        blocks = base2_logits.unflatten(1, (-1, BLOCK_SIZE))
        maxima = blocks.amax(-1).sub_(log_sum[:, None]).mul_(LN2)
        maxima = maxima.view(sentences, width, -1).add_(total[:, :, None]).flatten(1)
        best_blocks = maxima.topk(min(count, maxima.shape[1]), sorted=False).indices
        first_block = torch.arange(0, maxima.numel(), maxima.shape[1], device=total.device)
        logits = (
            blocks.flatten(0, 1)
            .index_select(0, (best_blocks + first_block[:, None]).flatten())
            .view(*best_blocks.shape, BLOCK_SIZE)
        )

        parent = best_blocks.div(blocks.shape[1], rounding_mode="floor")
        log_probs = logits.sub_(log_sum.view(sentences, width).gather(1, parent)[:, :, None]).mul_(LN2)
        totals = (log_probs + total.gather(1, parent)[:, :, None]).flatten(1)
        best = totals.topk(min(count, totals.shape[1]))
        block, offset = best.indices.div(BLOCK_SIZE, rounding_mode="floor"), best.indices % BLOCK_SIZE
        token = best_blocks.gather(1, block).remainder_(blocks.shape[1]).mul_(BLOCK_SIZE).add_(offset)
        # A place of probability 0 may be in the padding, beyond the vocabulary.
        token = token.masked_fill_(best.values == -math.inf, 0)
        log_prob = log_probs.flatten(1).gather(1, best.indices)
        return Continuations(best.values, token, parent.gather(1, block), log_prob)

    def _log2_sum(self, base2_logits: Float[Tensor, "rows padded"], length: int) -> Float[Tensor, " rows"]:
        """log2 of the sum of all powers, before any token is excluded."""
        rows = CACHED_ROWS if base2_logits.device.type == "cpu" else len(base2_logits)
        if len(self.power_buffer) < min(rows, len(base2_logits)):
            self.power_buffer = base2_logits.new_empty(min(rows, len(base2_logits)), base2_logits.shape[1])
        result = base2_logits.new_empty(len(base2_logits))
        for chunk, sums in zip(base2_logits.split(rows), result.split(rows), strict=True):
            torch.sum(torch.exp2(chunk, out=self.power_buffer[: len(chunk)]), -1, out=sums)
        result.log2_()
        if not bool((result.abs() < SAFE_EXPONENT).all()):
            maximum = base2_logits.amax(-1)
            result = torch.exp2(base2_logits - maximum[:, None]).sum(-1).log2_().add_(maximum)
            if not bool(result.isfinite().all()):
                raise nan_error(length)
        return result


def blockwise_topk(
    scores: Float[Tensor, "rows vocab"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """Find the `count` largest numbers of each row and their indices, largest first, as torch.topk.

    The best `count` numbers are in the `count` blocks with the largest maxima, so only these are searched: about half
    the time of torch.topk for a vocabulary of 10,000.

    Args:
        scores: the numbers
        count: how many to find

    Shape:
        - scores: (rows, vocab)
        - returns: (rows, count), (rows, count)

    Returns:
        The numbers and their indices.

    >>> values, indices = blockwise_topk(torch.tensor([[0.1, 0.7, 0.2]]), 2)
    >>> indices.tolist()
    [[1, 2]]
    """
    rows, vocab = scores.shape
    num_blocks = vocab // BLOCK_SIZE
    if num_blocks < 4 * count:
        return _topk(scores, count)
    blocks = scores[:, : num_blocks * BLOCK_SIZE].unflatten(1, (num_blocks, BLOCK_SIZE))
    best_blocks = blocks.amax(-1).topk(count, sorted=False).indices[:, :, None]
    values = blocks.gather(1, best_blocks.expand(-1, -1, BLOCK_SIZE)).flatten(1)
    indices = (best_blocks * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=scores.device)).flatten(1)
    if num_blocks * BLOCK_SIZE < vocab:
        remaining = torch.arange(num_blocks * BLOCK_SIZE, vocab, device=scores.device)
        values = torch.cat((values, scores[:, remaining[0] :]), 1)
        indices = torch.cat((indices, remaining.expand(rows, -1)), 1)
    values, places = _topk(values, count)
    return values, indices.gather(1, places)


def _topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    best = scores.topk(count)
    return best.values, best.indices
