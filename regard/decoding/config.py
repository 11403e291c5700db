"""Options of decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from regard.config import Config, option

__all__ = ["DecodingConfig", "LengthPenaltyType", "SearchMethod"]

SearchMethod = Literal["beam", "greedy", "sample"]
LengthPenaltyType = Literal["wu", "power"]


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(Config):
    """How sequences are searched or sampled.

        score = log p(target | source) / norm(length) + coverage_penalty * sum_i log min(sum_j weights[j, i], 1)

        "wu":    norm(length) = ((5 + length) / 6) ^ length_penalty
        "power": norm(length) = length ^ length_penalty

    Lengths include EOS, on both sides. A target has at most
    min(max_length, max_length_ratio * source length + max_length_offset) tokens; one that reaches this limit without
    EOS is not `finished`.

    Args:
        method: "beam", "greedy" or "sample"
        beam_size: hypotheses of a sentence that a beam search continues
        num_best: hypotheses returned for each sentence; samples for "sample"
        length_penalty: exponent of the length norm; 0 disables it
        length_penalty_type: "wu" or "power"
        coverage_penalty: strength of the coverage penalty (beam search only); the model must have attention
        patience: a beam search ends after patience * beam_size finished hypotheses, or earlier where no other can be
            among the best (exact). Infinity leaves the exact rule only.
        temperature: divides the logits for sampling
        top_k: samples from the k most probable tokens; 0 for all
        top_p: samples from the smallest set of tokens with this total probability
        max_length, min_length: limits on the number of tokens; `min_length` does not count EOS
        max_length_ratio, max_length_offset: limit relative to the source length

    Reference: Wu et al. (2016), arXiv 1609.08144, section 7, whose beta is `coverage_penalty`; patience: Kasai et al.
    (2022), arXiv 2204.05424; top_p: Holtzman et al. (2020), arXiv 1904.09751.

    >>> DecodingConfig(beam_size=4, num_best=2, length_penalty=0.6).length_norm(7) == 2**0.6
    True
    """

    method: SearchMethod = option("beam", "beam search, greedy search, or sampling")
    beam_size: int = option(5, "hypotheses that a beam search continues", ge=1, le=1_000)
    num_best: int = option(1, "hypotheses or samples returned for each sentence", ge=1)
    length_penalty_type: LengthPenaltyType = option("wu", "formula of the length norm")
    length_penalty: float = option(
        1.0, "exponent of the length norm; larger values prefer longer targets, 0 disables it", ge=0, le=10
    )
    coverage_penalty: float = option(0.0, "beam search: strength of the coverage penalty", ge=0, infinite=True)
    patience: float = option(
        1.0, "a beam search ends after patience * beam_size finished hypotheses", ge=1, infinite=True
    )
    temperature: float = option(1.0, "sampling: divisor of the logits", ge=0.001, le=1_000)
    top_k: int = option(0, "sampling: number of most probable tokens to sample from; 0 for all", ge=0)
    top_p: float = option(1.0, "sampling: total probability of the tokens to sample from", ge=1e-6, le=1)
    max_length: int = option(256, "maximum number of tokens, including EOS", ge=1, le=1_000_000)
    min_length: int = option(0, "minimum number of tokens before EOS", ge=0)
    max_length_ratio: float = option(3.0, "maximum number of tokens per source token", ge=0, infinite=True)
    max_length_offset: int = option(20, "tokens allowed beyond max_length_ratio", ge=0)

    def validate(self) -> None:
        """Refuse options that exclude each other."""
        if self.method == "beam" and self.num_best > self.beam_size:
            raise self.error("num_best", f"must be at most beam_size={self.beam_size}; increase beam_size")
        if self.min_length >= self.max_length:
            raise self.error("min_length", f"must be less than max_length={self.max_length}, to include EOS")

    @classmethod
    def of_run(cls, config: Any, **options: Any) -> DecodingConfig:
        """The options of a search with a trained model; greedy for a single hypothesis.

        Args:
            config: of the run, with `beam_size`, `length_penalty`, `max_length`, which does not count EOS, and perhaps
                `length_penalty_type`
            options: fields that differ; None: as in the run
        """
        values = {"beam_size": config.beam_size, "length_penalty": config.length_penalty}
        values |= {"max_length": config.max_length + 1}
        values |= {"length_penalty_type": getattr(config, "length_penalty_type", "wu")}
        values |= {name: value for name, value in options.items() if value is not None}
        is_greedy = values["beam_size"] == values.get("num_best", 1) == 1
        return cls(**{"method": "greedy" if is_greedy else "beam", **values})

    def length_norm(self, length: float) -> float:
        """Divisor of the log-probability of a sequence of this length."""
        base = (5 + length) / 6 if self.length_penalty_type == "wu" else length
        return float(base**self.length_penalty)

    def length_norms(self, lengths: Int[Tensor, " rows"]) -> Tensor:
        """`length_norm` of each row."""
        longest = int(lengths.max()) if len(lengths) else 0
        table = [self.length_norm(length) for length in range(1, longest + 1)]
        return torch.tensor(table, device=lengths.device)[lengths - 1]

    def max_lengths(self, source_lengths: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        """Maximum number of target tokens of each row, including EOS.

        >>> config = DecodingConfig(max_length=40, max_length_ratio=2, max_length_offset=10)
        >>> config.max_lengths(torch.tensor([3, 20])).tolist()
        [16, 40]
        """
        limits = (source_lengths.double() * self.max_length_ratio + self.max_length_offset).long()
        return limits.clamp(max(1, self.min_length + 1), self.max_length)
