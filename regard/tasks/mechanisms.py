"""Attention from the names in options: "additive" becomes an object here, and models receive objects."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from regard import attention as a
from regard.attention.normalizers.base import input_kind
from regard.catalogue import MECHANISMS, Mechanism
from regard.catalogue.mechanism import find_by_name
from regard.errors import ConfigError, closest

__all__ = [
    "NORMALIZERS", "SCORES", "build_attention", "build_multi_head", "build_normalizer",
    "build_positions", "build_score", "check_mechanisms", "invalid_mechanism", "parse_mechanism",
    "training_warnings",
]  # fmt: skip

MECHANISM_PATTERN = re.compile(r"\s*([^()]+?)\s*(?:\(\s*([0-9.eE+-]+)\s*\))?\s*")

WRAPPERS = (
    "SoftCap",
    "Dropout",
    "WithSink",
    "GaussianWindow",
)  # they need another part, and numbers that no option has
SCORES = {entry.name: entry for entry in MECHANISMS if entry.kind == "score" and entry.name not in WRAPPERS}
NORMALIZERS = {entry.name: entry for entry in MECHANISMS if entry.kind == "normalizer" and entry.name not in WRAPPERS}
EQUAL_SIZE_SCORES = ("Dot", "ScaledDot", "Cosine", "Gaussian", "Boxcar", "Epanechnikov")


def parse_mechanism(option: str, text: str, known: Mapping[str, Mechanism]) -> tuple[Mechanism, dict[str, float]]:
    """A mechanism of the catalogue, and its number by the name of the argument: that in parentheses, or its default.

    Args:
        option: name of the option, for errors
        text: value of the option
        known: the mechanisms that the option takes, by name

    Returns:
        The mechanism and the number; an empty dict if it takes none.

    Example:
        >>> entry, numbers = parse_mechanism("normalize", "top-k(3)", NORMALIZERS)
        >>> entry.name, numbers
        ('TopK', {'k': 3})
    """
    match = MECHANISM_PATTERN.fullmatch(text)
    if match is None:
        raise invalid_mechanism(option, text, "expected a name, or a name with a number, such as topk(4)")
    try:
        entry = find_by_name(MECHANISMS, match[1])
    except LookupError:
        raise invalid_mechanism(option, text, _expected(match[1], known)) from None
    if entry.name not in known:  # a mechanism of another kind
        raise invalid_mechanism(option, text, f"expected one of {', '.join(known)}")
    return entry, _parse_argument(option, text, entry, match[2])


def invalid_mechanism(option: str, text: str, why: str) -> ConfigError:
    """The error for the value of an option that names a mechanism.

    Args:
        option: name of the option
        text: its value
        why: what is wrong
    """
    return ConfigError(f"invalid value {text!r} for {option}: {why}", option=option)


def _expected(word: str, known: Mapping[str, Mechanism]) -> str:
    """The closest names in lower case, or all names."""
    names = [name.lower() for entry in known.values() for name in (entry.name, *entry.aliases)]
    near = closest(word.lower(), names)
    return f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}"


def check_mechanisms(config: Any) -> None:
    """Raise ConfigError if an option of a config names an unknown score or normalizer.

    Args:
        config: of a run
    """
    for option in ("score", "normalize", "self_score", "self_normalize"):
        if (text := getattr(config, option, None)) is not None:
            parse_mechanism(option, text, SCORES if option.endswith("score") else NORMALIZERS)


def training_warnings(model: nn.Module) -> list[str]:
    """Sentences about parts of a model that do not learn, to be printed before training.

    Args:
        model: the model
    """
    if not any(vars(part).get("normalize") is a.hardmax for part in model.modules()):
        return []
    return [
        "hardmax has no gradient, so its score keeps its initial parameters; sample and straight-through are trained"
    ]


def _parse_argument(option: str, text: str, entry: Mechanism, number_text: str | None) -> dict[str, float]:
    if number_text is None:
        return {argument.name: argument.default for argument in entry.arguments}
    if not entry.arguments:
        raise invalid_mechanism(option, text, f"{entry.name} takes no number")
    (argument,) = entry.arguments
    try:
        number = float(number_text)
    except ValueError:
        number = math.nan
    is_integer = argument.step == 1
    if not 0 < number < math.inf or (is_integer and number != int(number)):
        raise invalid_mechanism(
            option, text, f"{entry.name} takes {'an integer' if is_integer else 'a number'} above 0"
        )
    return {argument.name: int(number) if is_integer else number}


def build_score(text: str, query_dim: int, key_dim: int, hidden_dim: int, option: str = "score") -> Any:
    """The score that an option names.

    Args:
        text: value of the option
        query_dim, key_dim: sizes of queries and keys
        hidden_dim: size of the hidden layer of scores that have one
        option: name of the option, for errors
    """
    entry, numbers = parse_mechanism(option, text, SCORES)
    if entry.name in EQUAL_SIZE_SCORES and query_dim != key_dim:
        raise ConfigError(
            f"{option}={text} compares vectors of one size, but the queries have {query_dim} numbers and the keys "
            f"{key_dim}; set encoder_hidden_dim so that they agree, or leave it out"
        )
    return entry.build(query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim, learned=True, **numbers)


def build_normalizer(text: str | None, option: str = "normalize") -> Any:
    """The normalizer that an option names; None without a name: that of the score.

    Args:
        text: value of the option
        option: its name, for errors
    """
    if text is None:
        return None
    entry, numbers = parse_mechanism(option, text, NORMALIZERS)
    try:
        return entry.build(normalize=a.softmax, **numbers)
    except ValueError as error:
        raise invalid_mechanism(option, text, str(error)) from None


def build_attention(scope: str, score: Any, normalize: Any, query_dim: int, hidden_dim: int, window_radius: int) -> Any:
    """An attention module.

    Args:
        scope: "global", "local-m" or "local-p"
        score, normalize: objects
        query_dim, hidden_dim: sizes of a query and of the hidden layer that predicts the center, of local-p
        window_radius: of local-m and local-p
    """
    _check_pair(score, normalize)
    if scope == "global":
        return a.Attention(score, normalize)
    sizes = {"query_dim": query_dim, "hidden_dim": hidden_dim, "radius": window_radius}
    return find_by_name(MECHANISMS, scope).build(score=score, normalize=normalize, **sizes)


def build_multi_head(
    score: str,
    normalize: str | None,
    embed_dim: int,
    num_heads: int,
    max_positions: int,
    positions: str = "none",
    prefix: str = "",
) -> a.MultiHead:
    """Multi-head attention of a Transformer.

    Args:
        score, normalize: values of the options; the heads share the score
        embed_dim, num_heads: as in `MultiHead`
        max_positions: the largest number of keys
        positions: "rotary", "alibi" and "relative" change the score; the others do not
        prefix: of the names of the options, for errors

    Example:
        >>> build_multi_head("dot", "sparsemax", 8, 2, 100, "alibi").score
        SumScore(...)
    """
    option, head_dim = f"{prefix}score", embed_dim // num_heads
    entry, numbers = parse_mechanism(option, score, SCORES)
    if entry.name == "Location" and "(" not in score:
        score = f"{score}({max_positions})"
    elif numbers.get("max_keys", max_positions) < max_positions:
        raise invalid_mechanism(option, score, f"needs a number of at least {max_positions}, 2 max_length + 2")
    scorer = build_score(score, head_dim, head_dim, head_dim, option)
    if normalize is not None and parse_mechanism(f"{prefix}normalize", normalize, NORMALIZERS)[0].name == "Sample":
        raise invalid_mechanism(
            f"{prefix}normalize", normalize, "needs model=rnn, which is trained with REINFORCE; take straight-through"
        )
    if positions == "rotary":
        if head_dim % 2:
            raise ConfigError(
                f"positions=rotary needs heads of an even size, but embed_dim / num_heads is {head_dim}",
                option="positions",
            )
        scorer = a.Rotary(scorer)
    elif positions in ("alibi", "relative"):
        if scorer.output_kind == "kernel":
            raise ConfigError(
                f"positions={positions} adds a bias to real-valued scores, but {option}={score} returns kernel values; "
                "take another score or positions=rotary",
                option="positions",
            )
        scorer = scorer + (a.Alibi(num_heads) if positions == "alibi" else a.RelativeBias(num_heads))
    normalizer = build_normalizer(normalize, f"{prefix}normalize")
    _check_pair(scorer, normalizer)
    return a.MultiHead(embed_dim, num_heads, score=scorer, normalize=normalizer)


def build_positions(name: str, embed_dim: int, max_positions: int) -> nn.Module | None:
    """The module that adds absolute positions to embeddings, or None.

    Args:
        name: "sinusoidal" or "learned"; None is returned for all others
        embed_dim: size of a vector
        max_positions: number of learned positions
    """
    if name not in ("sinusoidal", "learned"):
        return None
    return find_by_name(MECHANISMS, name).build(embed_dim=embed_dim, max_positions=max_positions)


def _check_pair(score: Any, normalize: Any) -> None:
    if normalize is not None and input_kind(normalize) != score.output_kind:
        kinds = {"logits": "any real numbers", "kernel": "kernel values, which kernel_sum normalizes"}
        raise ConfigError(
            f"this score and this normalizer do not go together: the score returns {kinds[score.output_kind]}, the "
            f"normalizer expects {kinds[input_kind(normalize)]}"
        )
