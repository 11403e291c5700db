"""Attention from names: here, at the border, "additive" becomes an object; inside, objects are passed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from torch import nn

from regard import attention as a
from regard.attention.normalizers.base import input_kind
from regard.catalogue import MECHANISMS, get_mechanism
from regard.errors import ConfigError, closest

MECHANISM_PATTERN = re.compile(r"\s*([^()]+?)\s*(?:\(\s*([0-9.eE+-]+)\s*\))?\s*")


# What each score needs of a model: the sizes of its queries and keys, of a hidden layer, and a number of its own.
SCORES: dict[str, Callable[[int, int, int, Any], Any]] = {
    "Constant": lambda query, key, hidden, x: a.Constant(),
    "Dot": lambda query, key, hidden, x: a.Dot(),
    "ScaledDot": lambda query, key, hidden, x: a.ScaledDot(),
    "Bilinear": lambda query, key, hidden, x: a.Bilinear(query, key),
    "Additive": lambda query, key, hidden, x: a.Additive(query, key, hidden),
    "Concat": lambda query, key, hidden, x: a.Concat(query, key, hidden, num_layers=x),
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
MECHANISM_ARGUMENTS: dict[str, int | float] = {
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


EQUAL_SIZE_SCORES = ("Dot", "ScaledDot", "Cosine", "Gaussian", "Boxcar", "Epanechnikov")


def parse_mechanism(option: str, text: str, known: dict[str, Any]) -> tuple[str, int | float | None]:
    """The name in the catalogue, and the number in parentheses or the one it has without.

    >>> parse_mechanism("normalize", "top-k(3)", NORMALIZERS)
    ('TopK', 3)
    """
    match = MECHANISM_PATTERN.fullmatch(text)
    if match is None:
        raise invalid(option, text, "expected a name, or a name with a number, such as topk(4)")
    try:
        name = get_mechanism(match[1]).name
    except LookupError:
        raise invalid(option, text, _expected(match[1], known)) from None
    if name not in known:  # it is something else
        raise invalid(option, text, f"expected one of {', '.join(known)}")
    return name, _parse_argument(option, text, name, match[2])


def invalid(kind: str, words: str, why: str) -> ConfigError:
    """The error for the value of an option that names a mechanism."""
    return ConfigError(f"invalid value {words!r} for {kind}: {why}", option=kind)


def _expected(word: str, known: dict[str, Any]) -> str:
    """The names that come closest, in small letters as people type them; else all."""
    names = [name.lower() for e in MECHANISMS if e.name in known for name in (e.name, *e.aliases)]
    near = closest(word.lower(), names)
    return f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}"


def check_mechanisms(config: Any) -> None:
    """Refuse settings whose score or normalizer there is not."""
    for kind, known in (("score", SCORES), ("normalize", NORMALIZERS)):
        if (words := getattr(config, kind, None)) is not None:
            parse_mechanism(kind, words, known)


def training_warnings(objective: nn.Module) -> list[str]:
    """What somebody who trains this should know before it begins."""
    if not any(getattr(part, "normalize", None) is a.hardmax for part in objective.modules()):
        return []
    return [
        "hardmax has no gradient, so its score stays as it is at the start and does not learn where to look; sample"
        " and straight-through do"
    ]


def _parse_argument(kind: str, words: str, name: str, text: str | None) -> int | float | None:
    if text is None:
        return MECHANISM_ARGUMENTS.get(name)
    if name not in MECHANISM_ARGUMENTS:
        raise invalid(kind, words, f"{name} takes no number")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    whole = isinstance(MECHANISM_ARGUMENTS[name], int)
    if not 0 < number < math.inf or (whole and number != int(number)):
        raise invalid(kind, words, f"{name} takes {'an integer' if whole else 'a number'} above 0")
    return int(number) if whole else number


def build_score(text: str, query_dim: int, key_dim: int, hidden_dim: int) -> Any:
    """A score for queries and keys of these sizes."""
    name, number = parse_mechanism("score", text, SCORES)
    if name in EQUAL_SIZE_SCORES and query_dim != key_dim:
        raise ConfigError(
            f"score={text} compares vectors of one size, but the queries have {query_dim} numbers and the keys "
            f"{key_dim}; set encoder_hidden_dim so that they agree, or leave it out"
        )
    return SCORES[name](query_dim, key_dim, hidden_dim, number)


def build_normalizer(text: str | None) -> Any:
    """A normalizer; without a name the one that goes with the score."""
    if text is None:
        return None
    name, number = parse_mechanism("normalize", text, NORMALIZERS)
    try:
        return NORMALIZERS[name](number)
    except ValueError as error:
        raise invalid("normalize", text, str(error)) from None


def build_attention(scope: str, score: Any, normalize: Any, query_dim: int, hidden_dim: int, window_radius: int) -> Any:
    """An attention of this scope."""
    if normalize is not None and input_kind(normalize) != score.output_kind:
        kinds = {"logits": "any real numbers", "kernel": "kernel values, which kernel_sum normalizes"}
        raise ConfigError(
            f"this score and this normalizer do not go together: the score returns {kinds[score.output_kind]}, the "
            f"normalizer expects {kinds[input_kind(normalize)]}"
        )
    if scope == "local-m":
        return a.LocalM(score, window_radius, normalize)
    if scope == "local-p":
        return a.LocalP(score, query_dim, hidden_dim, window_radius, normalize)
    return a.Attention(score, normalize)
