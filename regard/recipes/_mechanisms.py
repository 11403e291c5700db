"""Attention from names: here, at the border, "additive" becomes an object; inside, objects are passed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from torch import nn

from regard import attention as a
from regard.attention.normalizers.base import takes
from regard.catalogue import ENTRIES, find
from regard.errors import ConfigError, closest

WORDS = re.compile(r"\s*([^()]+?)\s*(?:\(\s*([0-9.eE+-]+)\s*\))?\s*")

# What each score needs of a model: the sizes of its queries and keys, of a hidden layer, and a number of its own.
SCORES: dict[str, Callable[[int, int, int, Any], Any]] = {
    "Constant": lambda query, key, hidden, x: a.Constant(),
    "Dot": lambda query, key, hidden, x: a.Dot(),
    "ScaledDot": lambda query, key, hidden, x: a.ScaledDot(),
    "Bilinear": lambda query, key, hidden, x: a.Bilinear(query, key),
    "Additive": lambda query, key, hidden, x: a.Additive(query, key, hidden),
    "Concat": lambda query, key, hidden, x: a.Concat(query, key, hidden, depth=x),
    "Cosine": lambda query, key, hidden, x: a.Cosine(x, learned=True),
    "Gaussian": lambda query, key, hidden, x: a.Gaussian(x, learned=True),
    "Boxcar": lambda query, key, hidden, x: a.Boxcar(x),
    "Epanechnikov": lambda query, key, hidden, x: a.Epanechnikov(x),
    "Location": lambda query, key, hidden, x: a.Location(query, max_keys=x),
    "Energy": lambda query, key, hidden, x: a.Energy(query, key),
}
NORMALIZERS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: a.softmax,
    "Temperature": lambda x: a.Temperature(x),
    "sigmoid": lambda x: a.sigmoid,
    "SigmoidSum": lambda x: a.SigmoidSum(),
    "sparsemax": lambda x: a.sparsemax,
    "entmax15": lambda x: a.entmax15,
    "Entmax": lambda x: a.Entmax(x),
    "kernel_sum": lambda x: a.kernel_sum,
    "hardmax": lambda x: a.hardmax,
    "Sample": lambda x: a.Sample(),
    "StraightThrough": lambda x: a.StraightThrough(a.softmax),
    "Gumbel": lambda x: a.Gumbel(x),
    "TopK": lambda x: a.TopK(x),
}
# Those that have a number of their own, and what it is if none is given; a whole one must be given whole.
NUMBERS: dict[str, int | float] = {
    "Concat": 1,
    "Cosine": 5.0,
    "Gaussian": 1.0,
    "Boxcar": 1.0,
    "Epanechnikov": 1.0,
    "Location": 200,
    "Temperature": 1.0,
    "Entmax": 1.5,
    "Gumbel": 1.0,
    "TopK": 4,
}
SAME_SIZE = ("Dot", "ScaledDot", "Cosine", "Gaussian", "Boxcar", "Epanechnikov")


def named(kind: str, words: str, known: dict[str, Any]) -> tuple[str, int | float | None]:
    """The name in the catalogue, and the number in parentheses or the one it has without.

    >>> named("normalize", "top-k(3)", NORMALIZERS)
    ('TopK', 3)
    """
    match = WORDS.fullmatch(words)
    if match is None:
        raise invalid(kind, words, "expected a name, or a name with a number, such as topk(4)")
    try:
        name = find(match[1]).name
    except LookupError:
        raise invalid(kind, words, _expected(match[1], known)) from None
    if name not in known:  # it is something else
        raise invalid(kind, words, f"expected one of {', '.join(known)}")
    return name, _number(kind, words, name, match[2])


def invalid(kind: str, words: str, why: str) -> ConfigError:
    """The error for the value of an option that names a mechanism."""
    return ConfigError(f"invalid value {words!r} for {kind}: {why}", option=kind)


def _expected(word: str, known: dict[str, Any]) -> str:
    """The names that come closest, in small letters as people type them; else all."""
    names = [name.lower() for e in ENTRIES if e.name in known for name in (e.name, *e.aliases)]
    near = closest(word.lower(), names)
    return f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}"


def check_names(settings: Any) -> None:
    """Refuse settings whose score or normalizer there is not."""
    for kind, known in (("score", SCORES), ("normalize", NORMALIZERS)):
        if (words := getattr(settings, kind, None)) is not None:
            named(kind, words, known)


def cautions(objective: nn.Module) -> list[str]:
    """What somebody who trains this should know before it begins."""
    if not any(getattr(part, "normalize", None) is a.hardmax for part in objective.modules()):
        return []
    return [
        "hardmax has no gradient, so its score stays as it is at the start and does not learn where to look; sample"
        " and straight-through do"
    ]


def _number(kind: str, words: str, name: str, written: str | None) -> int | float | None:
    if written is None:
        return NUMBERS.get(name)
    if name not in NUMBERS:
        raise invalid(kind, words, f"{name} takes no number")
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    whole = isinstance(NUMBERS[name], int)
    if not 0 < number < math.inf or (whole and number != int(number)):
        raise invalid(kind, words, f"{name} takes {'an integer' if whole else 'a number'} above 0")
    return int(number) if whole else number


def score(words: str, query_dim: int, key_dim: int, hidden_dim: int) -> Any:
    """A score for queries and keys of these sizes."""
    name, number = named("score", words, SCORES)
    if name in SAME_SIZE and query_dim != key_dim:
        raise ConfigError(
            f"score={words} compares vectors of one size, but the queries have {query_dim} numbers and the keys "
            f"{key_dim}; set encoder_dim so that they agree, or leave it out"
        )
    return SCORES[name](query_dim, key_dim, hidden_dim, number)


def normalizer(words: str | None) -> Any:
    """A normalizer; without a name the one that goes with the score."""
    if words is None:
        return None
    name, number = named("normalize", words, NORMALIZERS)
    try:
        return NORMALIZERS[name](number)
    except ValueError as error:
        raise invalid("normalize", words, str(error)) from None


def looking(scope: str, how: Any, share: Any, query_dim: int, hidden_dim: int, radius: int) -> Any:
    """An attention of this scope."""
    if share is not None and takes(share) != how.gives:
        kinds = {"logits": "any real numbers", "kernel": "kernel values, which kernel_sum shares out"}
        raise ConfigError(
            f"this score and this normalizer do not go together: the score gives {kinds[how.gives]}, the normalizer "
            f"takes {kinds[takes(share)]}"
        )
    if scope == "local-m":
        return a.LocalM(how, radius, share)
    if scope == "local-p":
        return a.LocalP(how, query_dim, hidden_dim, radius, share)
    return a.Attention(how, share)
