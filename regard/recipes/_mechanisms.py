"""Attention from names: here, at the border, "additive" becomes an object; inside, objects are passed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from regard import attention as a
from regard.catalogue import find
from regard.recipes._parse import SettingError

WORDS = re.compile(r"\s*([^()]+?)\s*(?:\(\s*([0-9.eE+-]+)\s*\))?\s*")

# What each score needs of a model: the sizes of its queries and keys, of a hidden layer, and a number of its own.
SCORES: dict[str, Callable[[int, int, int, float | None], Any]] = {
    "Constant": lambda query, key, hidden, x: a.Constant(),
    "Dot": lambda query, key, hidden, x: a.Dot(),
    "ScaledDot": lambda query, key, hidden, x: a.ScaledDot(),
    "Bilinear": lambda query, key, hidden, x: a.Bilinear(query, key),
    "Additive": lambda query, key, hidden, x: a.Additive(query, key, hidden),
    "Concat": lambda query, key, hidden, x: a.Concat(query, key, hidden, depth=int(x or 1)),
    "Cosine": lambda query, key, hidden, x: a.Cosine(x or 5.0, learned=True),
    "Gaussian": lambda query, key, hidden, x: a.Gaussian(x or 1.0, learned=True),
    "Boxcar": lambda query, key, hidden, x: a.Boxcar(x or 1.0),
    "Epanechnikov": lambda query, key, hidden, x: a.Epanechnikov(x or 1.0),
    "Location": lambda query, key, hidden, x: a.Location(query, max_keys=int(x or 200)),
    "Energy": lambda query, key, hidden, x: a.Energy(query, key),
}
NORMALIZERS: dict[str, Callable[[float | None], Any]] = {
    "softmax": lambda x: a.softmax,
    "Temperature": lambda x: a.Temperature(x or 1.0),
    "sigmoid": lambda x: a.sigmoid,
    "SigmoidSum": lambda x: a.SigmoidSum(),
    "sparsemax": lambda x: a.sparsemax,
    "entmax15": lambda x: a.entmax15,
    "Entmax": lambda x: a.Entmax(x or 1.5),
    "kernel_sum": lambda x: a.kernel_sum,
    "hardmax": lambda x: a.hardmax,
    "Sample": lambda x: a.Sample(),
    "StraightThrough": lambda x: a.StraightThrough(a.softmax),
    "Gumbel": lambda x: a.Gumbel(x or 1.0),
    "TopK": lambda x: a.TopK(int(x or 4)),
}
SAME_SIZE = ("Dot", "ScaledDot", "Cosine", "Gaussian", "Boxcar", "Epanechnikov")


def named(kind: str, words: str, known: dict[str, Any]) -> tuple[str, float | None]:
    """The name in the catalogue and the number in parentheses.

    >>> named("normalize", "top-k(3)", NORMALIZERS)
    ('TopK', 3.0)
    """
    match = WORDS.fullmatch(words)
    if match is None:
        raise SettingError(f"{kind}={words} is not possible; write a name, or a name with a number: topk(4)")
    try:
        name = find(match[1]).name
    except LookupError as error:
        raise SettingError(f"{kind}={words} is not possible. {error}") from None
    if name not in known:
        raise SettingError(f"{kind}={words} is not possible; {kind} is one of {', '.join(known)}")
    return name, None if match[2] is None else float(match[2])


def score(words: str, query_dim: int, key_dim: int, hidden_dim: int) -> Any:
    """A score for queries and keys of these sizes."""
    name, number = named("score", words, SCORES)
    if name in SAME_SIZE and query_dim != key_dim:
        raise SettingError(
            f"score={words} compares vectors of one size, but the queries have {query_dim} numbers and the keys "
            f"{key_dim}; set encoder_dim so that they agree, or leave it out"
        )
    return SCORES[name](query_dim, key_dim, hidden_dim, number)


def normalizer(words: str | None) -> Any:
    """A normalizer; without a name the one that goes with the score."""
    if words is None:
        return None
    name, number = named("normalize", words, NORMALIZERS)
    return NORMALIZERS[name](number)


def looking(scope: str, how: Any, share: Any, query_dim: int, hidden_dim: int, radius: int) -> Any:
    """An attention of this scope."""
    if scope == "local-m":
        return a.LocalM(how, radius, share)
    if scope == "local-p":
        return a.LocalP(how, query_dim, hidden_dim, radius, share)
    return a.Attention(how, share)
