"""How to search, in one small typed object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigError

Method = Literal["beam", "greedy", "sample"]
LengthPenalty = Literal["wu", "power"]


@dataclass(frozen=True)
class Decoding:
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

    >>> Decoding(beam=4, best=2, alpha=0.6).penalty(7) == 2**0.6
    True
    """

    method: Method = "beam"
    beam: int = 5
    best: int = 1
    length_penalty: LengthPenalty = "wu"
    alpha: float = 1.0
    coverage: float = 0.0
    patience: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_length: int = 256
    min_length: int = 0
    length_ratio: float = 3.0
    length_extra: int = 20

    def __post_init__(self) -> None:
        for name, choices in (("method", get_args(Method)), ("length_penalty", get_args(LengthPenalty))):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"Decoding: {name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}."
                )
        for name in ("beam", "best", "max_length"):
            self._at_least(name, 1)
        for name in ("alpha", "coverage", "top_k", "min_length", "length_ratio", "length_extra"):
            self._at_least(name, 0)
        self._at_least("patience", 1)
        for name, most in (("beam", 1_000), ("alpha", 10), ("max_length", 1_000_000)):
            if getattr(self, name) > most:
                raise ConfigError(f"Decoding: {name} must be {most:,} or less, not {getattr(self, name):,}.")
        if self.method == "beam" and self.best > self.beam:
            raise ConfigError(
                f"Decoding: a beam of {self.beam} cannot give the best {self.best}; take a wider beam."
            )
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(
                f"Decoding: temperature must be above 0, not {self.temperature}; at 0 it is greedy."
            )
        if not 0.001 <= self.temperature <= 1000:  # beyond, quotients in float32 become infinite
            raise ConfigError(
                f"Decoding: temperature must be from 0.001 to 1000, not {self.temperature}; take greedy for less."
            )
        if not 1e-6 <= self.top_p <= 1:  # less is 0 in float32
            raise ConfigError(
                f"Decoding: top_p must be above 0 and at most 1, not {self.top_p}; the least is 0.000001."
            )
        if self.min_length >= self.max_length:
            raise ConfigError(
                f"Decoding: min_length {self.min_length} and EOS do not fit in max_length {self.max_length}."
            )

    def _at_least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:  # NaN is refused, too
            raise ConfigError(f"Decoding: {name} must be {least} or more, not {getattr(self, name)}.")

    def penalty(self, length: float) -> float:
        """What the log-probability of a translation of this length is divided by."""
        base = (5 + length) / 6 if self.length_penalty == "wu" else length
        return float(base**self.alpha)

    def penalties(self, lengths: Int[Tensor, " rows"]) -> Tensor:
        """`penalty` of many lengths at once."""
        longest = int(lengths.max()) if len(lengths) else 0
        table = [self.penalty(length) for length in range(1, longest + 1)]
        return torch.tensor(table, device=lengths.device)[lengths - 1]

    def limits(self, source_lengths: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        """How many tokens, EOS counted, the translation of each sentence may have.

        >>> Decoding(max_length=40, length_ratio=2, length_extra=10).limits(torch.tensor([3, 20])).tolist()
        [16, 40]
        """
        room = (source_lengths.double() * self.length_ratio + self.length_extra).long()
        return room.clamp(max(1, self.min_length + 1), self.max_length)
