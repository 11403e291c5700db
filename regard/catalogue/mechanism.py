"""A mechanism of the catalogue: everything about it that its code does not contain, and its lookup by name.

torch is imported only when an example or a picture is made, so that listing the mechanisms is fast.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.config import load_translations
from regard.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KINDS", "Argument", "Mechanism", "find_by_name", "parse_docstring"]

POSITIONAL = "Depends on positions: permuting the keys changes the result."
RANDOM = "Random in training: compared under one state of the generator."
KINDS = ("score", "normalizer", "mask", "scope", "position", "addressing", "heads")
EXAMPLE_SIZES = {"embed_dim": 4, "query_dim": 4, "key_dim": 4, "hidden_dim": 8, "num_heads": 2, "max_keys": 64}
EXAMPLE_SETTINGS = {"max_positions": 64, "radius": 3, "temperature": 0.25, "alpha": 1.3, "k": 3, "p": 0.1}
NUM_QUERIES, NUM_KEYS = 8, 16
PICTURE_FACTORIES: dict[str, Callable[..., Any]] = {
    "score": lambda a, part, query, key: a.attend(query, key, key, score=part),
    "normalizer": lambda a, part, query, key: a.attend(query, key, key, normalize=part),
    "mask": lambda a, part, _, key: a.attend(key, key, key, part, score=a.Constant()),
    "scope": lambda _, part, query, key: part(query, key, key),
    "heads": lambda _, part, __, key: part(key, key, key),
}
"""How the output of a picture is computed with an example, by the kind of the mechanism."""


@dataclass(frozen=True)
class Argument:
    """A number that a mechanism takes: in parentheses in an option, and from a slider of the playground.

    Args:
        name: of the argument
        default: in an option without parentheses
        min, max: the range of the slider, both included
        initial: where the slider is at first; None: at the default
        step: distance of two values of the slider; 1: the argument is an integer

    Example:
        >>> Argument("radius", 2, 0, 8, step=1).check(3.0)
        3
    """

    name: str
    default: float
    min: float = -math.inf
    max: float = math.inf
    initial: float | None = None
    step: float = 0.05

    def check(self, value: float | None = None) -> float:
        """The value, or the initial one, if it is in the range of the slider."""
        if value is None:
            value = self.default if self.initial is None else self.initial
        if not self.min <= value <= self.max:
            raise InputError(f"{self.name} must be from {self.min:g} to {self.max:g}, not {value:g}")
        if self.step == 1 and value != int(value):
            raise InputError(f"{self.name} must be an integer, not {value:g}")
        return int(value) if self.step == 1 else value

    def slider(self) -> dict[str, Any]:
        """The slider, as plain values."""
        return {"name": self.name, "min": self.min, "max": self.max, "default": self.check(), "step": self.step}


@dataclass(frozen=True)
class Mechanism:
    """One mechanism of the library.

    Args:
        name: its name in the code
        kind: the argument of the equation that it is a value of, one of KINDS
        cost: the cost with n keys and m queries
        fast_path: its fast path in a sentence
        aliases: other names
        arguments: the numbers that it takes
        law_exceptions: the laws that do not hold for it
        example_factory: from the modules `regard.attention` and torch to a small example; by default an instance of the
            class with small sizes for its arguments, or the function itself
        picture_factory: from the modules `regard.attention` and torch to the weights of its picture; derived from the
            kind by default

    Example:
        >>> from regard.catalogue import get_mechanism
        >>> dot = get_mechanism("dot")
        >>> dot.kind, dot.equation
        ('score', 'score(q, k) = q . k')
    """

    name: str
    kind: str
    cost: str
    fast_path: str = "None needed."
    aliases: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    law_exceptions: str = ""
    example_factory: Callable[[Any, Any], Any] | None = None
    picture_factory: Callable[[Any, Any], Any] | None = None

    @property
    def qualified_name(self) -> str:
        """Its name relative to `regard.attention`."""
        return f"addressing.{self.name}" if self.kind == "addressing" else self.name

    @property
    def object(self) -> Any:
        """The class or function itself."""
        return reduce(getattr, self.qualified_name.split("."), import_module("regard.attention"))

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        return parse_docstring(inspect.getdoc(self.object) or "")[0]

    @property
    def summary_zh(self) -> str:
        """The summary in Chinese, from the file of translations; in English where there is none."""
        return load_translations("zh").get(f"Mechanism.{self.name}") or self.summary

    @property
    def equation(self) -> str:
        """The equation in its docstring."""
        return parse_docstring(inspect.getdoc(self.object) or "")[1]

    @property
    def paper(self) -> str:
        """The reference in its docstring."""
        return parse_docstring(inspect.getdoc(self.object) or "")[2]

    def example(self) -> Any:
        """A small example for queries, keys and values with 4 features each, as in the picture."""
        attention = import_module("regard.attention")
        if self.example_factory:
            return self.example_factory(attention, import_module("torch"))
        parts = {"score": attention.ScaledDot(), "normalize": attention.softmax}
        return self.build(**EXAMPLE_SIZES, **EXAMPLE_SETTINGS, **parts)

    def build(self, **values: Any) -> Any:
        """An instance of the class with those of the values that it takes; a function itself.

        Args:
            values: by the name of the argument

        Example:
            >>> from regard.catalogue import get_mechanism
            >>> get_mechanism("topk").build(k=3, query_dim=8)
            TopK(k=3)
        """
        return self.object(**self.select_arguments(values)) if isinstance(self.object, type) else self.object

    def select_arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that are arguments of the class or function.

        Args:
            values: by the name of the argument
        """
        names = inspect.signature(self.object).parameters
        return {name: value for name, value in values.items() if name in names}

    def picture(self) -> Tensor:
        """The weights (queries x keys) of a small fixed example, with queries and keys on half a circle.

        Query i and key j are the cosines and sines of their angle and of twice the angle, so that the weights of a
        similarity score are largest along the diagonal, and other mechanisms can be compared with it.
        """
        torch, attention = import_module("torch"), import_module("regard.attention")
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # the caller's random state is preserved
            torch.manual_seed(0)
            if self.picture_factory:
                weights = self.picture_factory(attention, torch)
            elif self.kind in PICTURE_FACTORIES:
                query, key = half_circle(NUM_QUERIES), half_circle(NUM_KEYS)
                weights = PICTURE_FACTORIES[self.kind](attention, self.example(), query, key).weights
            else:
                raise NotImplementedError(f"the catalogue entry {self.name} ({self.kind}) needs a picture_factory")
        return weights[(0,) * (weights.dim() - 2)]  # batch and heads: the first of each


def find_by_name(mechanisms: Iterable[Mechanism], name: str) -> Mechanism:
    """Find the mechanism with this name or alias; a name takes precedence over an alias.

    Args:
        mechanisms: the mechanisms to search
        name: the name; case, hyphens, underscores and spaces are ignored

    Example:
        >>> from regard.catalogue import MECHANISMS
        >>> find_by_name(MECHANISMS, "scaled-dot").name
        'ScaledDot'
    """
    entries, key = tuple(mechanisms), _normalize_name(name)
    index = {_normalize_name(alias): entry for entry in entries for alias in entry.aliases}
    index |= {_normalize_name(entry.name): entry for entry in entries}
    if key in index:
        return index[key]
    ranked = difflib.get_close_matches(key, index, n=len(index), cutoff=0.0)
    beginnings = [word for word in ranked if key and word.startswith(key)]
    suggestions = list(dict.fromkeys(index[word].name for word in [*beginnings, *ranked]))[:3]
    raise UnknownNameError(f"no mechanism {name!r}; did you mean {' or '.join(suggestions)}?", suggestions=suggestions)


def parse_docstring(doc: str) -> tuple[str, str, str]:
    """Extract the first sentence, equation and reference of a docstring.

    Args:
        doc: the docstring

    Returns:
        The sentence, equation and reference; empty strings for what is missing.

    >>> parse_docstring("A score.\\n\\n    score = q . k\\n\\nReference: Luong (2015), arXiv 1234.\\n\\n>>> 1\\n1")
    ('A score.', 'score = q . k', 'Luong (2015), arXiv 1234.')
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(doc))
    plain = [p for p in paragraphs if not p.lstrip().startswith(">>>")]
    indented = next((i for i, p in enumerate(plain) if p.startswith("    ")), None)
    equation = inspect.cleandoc("\n" + plain[indented]) if indented is not None else ""
    references = (p.removeprefix("Reference: ") for p in plain if p.startswith("Reference: "))
    return _join_lines(plain[0]) if plain else "", equation, _join_lines(next(references, ""))


def _join_lines(paragraph: str) -> str:
    return " ".join(paragraph.split()).replace("``", "")


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def half_circle(steps: int) -> Any:
    """Points on half a circle: (steps, 4)."""
    t = import_module("torch")
    angle = t.linspace(0, t.pi, steps)
    return 2 * t.stack([angle.cos(), angle.sin(), (2 * angle).cos(), (2 * angle).sin()], dim=-1)


def similarity_weights(vectors: Any) -> Any:
    """The softmax of the dot products of all pairs of rows."""
    return (vectors @ vectors.mT).softmax(-1)


def fixed_focus(steps: int, position: int) -> Any:
    """The same one-hot weights at every step."""
    return import_module("torch").eye(steps)[position].expand(steps, steps)
