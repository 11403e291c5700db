"""What decoding gives back: translations with their scores, and how the search came to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hypothesis:
    """A translation and what the model thinks of it.

    `ids` are without BOS and EOS. `log_probs` has one number a token, the one of EOS last if the translation
    is `finished`; `log_prob` is their sum, and `score` what hypotheses are ranked by (see `Decoding`). They are
    the model's own log-probabilities, also where tokens were drawn at another temperature or left out.

    >>> Hypothesis(ids=[7, 9], score=-0.5, log_prob=-0.6, log_probs=[-0.1, -0.2, -0.3], finished=True).length
    3
    """

    ids: list[int]
    score: float
    log_prob: float
    log_probs: list[float]
    finished: bool = True

    @property
    def length(self) -> int:
        """The number of tokens, EOS counted."""
        return len(self.log_probs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A token that was on a beam: how likely it was, how good all up to it, and what it continued.

    `parent` is the number of the candidate before it among those of the step before, -1 for the first token.
    """

    token: int
    log_prob: float
    score: float
    parent: int
    finished: bool


@dataclass(frozen=True)
class Trace:
    """The search for one translation as a tree: the candidates of each step, with their parents.

    >>> first, end = Candidate(7, -0.1, -0.1, -1, False), Candidate(3, -0.2, -0.3, 0, True)
    >>> Trace(((first,), (end,))).path(1, 0)
    [7, 3]
    """

    steps: tuple[tuple[Candidate, ...], ...]

    def path(self, step: int, index: int) -> list[int]:
        """The tokens that lead to a candidate, itself included."""
        tokens: list[int] = []
        while index >= 0:
            candidate = self.steps[step][index]
            tokens.append(candidate.token)
            step, index = step - 1, candidate.parent
        return tokens[::-1]

    def to_json(self, name: Callable[[int], str] | None = None) -> dict[str, Any]:
        """Plain lists and numbers; with `name`, each token's text is there, too."""

        def plain(candidate: Candidate) -> dict[str, Any]:
            text = {} if name is None else {"text": name(candidate.token)}
            return text | asdict(candidate)

        return {"steps": [[plain(candidate) for candidate in step] for step in self.steps]}
