"""What only some predictors can do: each ability is a base class, asked for with `isinstance`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from regard.config import Config, option

__all__ = ["AlignOptions", "Alignable", "AlignedText", "Scorable", "ScoredTarget", "Tokenizable", "Tokenization"]

MAX_EXPONENT = 700.0  # of a perplexity


@dataclass(frozen=True)
class ScoredTarget:
    """How probable a given answer is.

    Args:
        log_prob: its natural log-probability
        tokens: as the tokenizer writes them, the end of the sequence last
        token_log_probs: of each token
        token_ids: without the end of the sequence

    Example:
        >>> ScoredTarget(-1.0, ("a", "</s>"), (-0.25, -0.75)).mean_log_prob
        -0.5
    """

    log_prob: float
    tokens: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    token_ids: tuple[int, ...] = ()

    @property
    def mean_log_prob(self) -> float:
        """The log-probability of a token, on average."""
        return self.log_prob / max(len(self.tokens), 1)

    @property
    def perplexity(self) -> float:
        """The exponential of the negative mean log-probability of a token."""
        return math.exp(min(-self.mean_log_prob, MAX_EXPONENT))

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return asdict(self) | {"log_prob_per_token": self.mean_log_prob, "perplexity": self.perplexity}


class Scorable(ABC):
    """A predictor that can say how probable given answers are: `regard score`, /v1/score.

    Example:
        >>> from regard.tasks import Translator
        >>> issubclass(Translator, Scorable)
        True
    """

    @abstractmethod
    def score(self, inputs: Sequence[Any], targets: Sequence[str]) -> list[ScoredTarget]:
        """The log-probability of the target of each input."""

    @abstractmethod
    def get_target(self, example: Any) -> str:
        """The target of an example of a split."""


@dataclass(frozen=True, kw_only=True)
class AlignOptions(Config):
    """Options of an alignment of words."""

    layer: int | None = option(None, "this layer, counted from 0; None: the mean", ge=0)
    head: int | None = option(None, "this head, counted from 0; None: the mean", ge=0)
    method: Literal["argmax", "threshold"] = option(
        "argmax", "link each target word to its most attended source word, or to all with enough weight"
    )
    threshold: float = option(0.25, "weight of a link with method=threshold", ge=0, le=1)


@dataclass(frozen=True)
class AlignedText:
    """An answer with its word alignment.

    Args:
        text: the answer, given or predicted
        log_prob: its log-probability; None if the model does not tell
        source, target: the words
        weights: a row for each target word, a number for each source word
        links: indices of a source word and a target word
    """

    text: str
    log_prob: float | None
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    links: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return asdict(self)


class Alignable(ABC):
    """A predictor that can align the words of inputs and answers: /v1/align.

    Example:
        >>> from regard.tasks import Translator
        >>> issubclass(Translator, Alignable)
        True
    """

    align_options: ClassVar[type[Config]] = AlignOptions

    @abstractmethod
    def align(self, source: Any, target: Any) -> Any:
        """The alignment of each pair."""

    @abstractmethod
    def align_texts(self, inputs: Sequence[Any], targets: Sequence[str | None], options: Any) -> list[AlignedText]:
        """Word alignments of inputs and answers; None stands for the answer of the model."""


@dataclass(frozen=True)
class Tokenization:
    """A text as a model reads or writes it.

    Args:
        tokens: as the tokenizer writes them
        unknown: the indices of tokens that stand for what the model does not know
        limit: the maximum number of tokens; None if there is none
    """

    tokens: tuple[str, ...]
    unknown: tuple[int, ...]
    limit: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, with `count` and `fits`."""
        count = len(self.tokens)
        return {"count": count, "fits": self.limit is None or count <= self.limit, **asdict(self)}


class Tokenizable(ABC):
    """A predictor that shows how it tokenizes texts: /v1/tokens.

    Example:
        >>> from regard.tasks import Translator
        >>> issubclass(Translator, Tokenizable)
        True
    """

    @abstractmethod
    def tokenize(self, text: str, side: Literal["input", "target"] = "input") -> Tokenization:
        """The tokens of an input or of an answer."""
