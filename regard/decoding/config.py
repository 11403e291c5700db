"""How to search, in one small typed object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from regard.config import Config, option

SearchMethod = Literal["beam", "greedy", "sample"]


LengthPenaltyType = Literal["wu", "power"]


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(Config):
    """How to turn steps into sentences.

        score = log p(target | source) / penalty(length) + coverage * sum_i log min(sum_j weights[j, i], 1)

        "wu":    penalty(length) = ((5 + length) / 6) ^ alpha
        "power": penalty(length) = length ^ alpha

    Wu et al. (2016), arXiv 1609.08144, section 7; their beta is `coverage`, which only beam search uses.
    Lengths count EOS, on both sides. A translation has at most
    min(max_length, length_ratio * source length + length_extra) tokens; one that has not ended by then is
    not `finished`. It has at least min_length tokens before EOS.

    `best` translations are given of each sentence; with "sample", so many are drawn. `patience` says when a
    beam search stops: after patience * beam translations have ended (Kasai et al. 2022, arXiv 2204.05424), or
    earlier where no other can come among the best. Infinite patience leaves the second, exact reason only.

    Sampling divides the logits by `temperature`, keeps the `top_k` likeliest tokens (0: all), and of these the
    fewest that have the share `top_p` of the probability together (Holtzman et al. 2020, arXiv 1904.09751).

    >>> DecodingConfig(beam_size=4, num_best=2, length_penalty=0.6).length_norm(7) == 2**0.6
    True
    """

    method: SearchMethod = option("beam", "beam search, the likeliest token at each step, or sampling")
    beam_size: int = option(5, "hypotheses kept side by side; 1 is greedy", ge=1, le=1_000)
    num_best: int = option(1, "translations of each sentence", ge=1)
    length_penalty_type: LengthPenaltyType = option("wu", "formula of the length penalty")
    length_penalty: float = option(
        1.0, "strength of the length penalty; above 0 prefers longer translations", ge=0, le=10
    )
    coverage_penalty: float = option(
        0.0, "strength of the coverage penalty; beam search only", ge=0, infinite=True
    )
    patience: float = option(1.0, "beam search ends after patience * beam translations", ge=1, infinite=True)
    temperature: float = option(1.0, "divides the logits; sampling only", ge=0.001, le=1_000)
    top_k: int = option(0, "sampling: the likeliest tokens that are kept; 0: all", ge=0)
    top_p: float = option(1.0, "sampling: the probability that the kept tokens have together", ge=1e-6, le=1)
    max_length: int = option(256, "most tokens of a translation", ge=1, le=1_000_000)
    min_length: int = option(0, "fewest tokens before the end", ge=0)
    max_length_ratio: float = option(3.0, "most tokens for each token of the source", ge=0, infinite=True)
    max_length_offset: int = option(20, "tokens allowed beyond length_ratio", ge=0)

    def validate(self) -> None:
        """Check what involves several options."""
        if self.method == "beam" and self.num_best > self.beam_size:
            raise self.option("best").error(
                self.num_best, f"must be at most beam={self.beam_size}; take a wider beam"
            )
        if self.min_length >= self.max_length:
            raise self.option("min_length").error(
                self.min_length, f"must be below max_length={self.max_length}, to leave room for the end"
            )

    def length_norm(self, length: float) -> float:
        """What the log-probability of a translation of this length is divided by."""
        base = (5 + length) / 6 if self.length_penalty_type == "wu" else length
        return float(base**self.length_penalty)

    def length_norms(self, lengths: Int[Tensor, " rows"]) -> Tensor:
        """`penalty` of many lengths at once."""
        longest = int(lengths.max()) if len(lengths) else 0
        table = [self.length_norm(length) for length in range(1, longest + 1)]
        return torch.tensor(table, device=lengths.device)[lengths - 1]

    def max_lengths(self, source_lengths: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        """How many tokens, EOS counted, the translation of each sentence may have.

        >>> DecodingConfig(max_length=40, max_length_ratio=2, max_length_offset=10).max_lengths(torch.tensor([3, 20])).tolist()
        [16, 40]
        """
        room = (source_lengths.double() * self.max_length_ratio + self.max_length_offset).long()
        return room.clamp(max(1, self.min_length + 1), self.max_length)
