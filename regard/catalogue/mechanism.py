"""What the catalogue knows of one mechanism, and how to find it by name.

Small things to paint pictures of; torch is imported when one is made, so that the list itself is quick.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor

POSITIONAL = "Goes by position: permuting the keys changes the answer."


RANDOM = "Random in training: compared under one state of the generator."


KINDS = ("score", "normalizer", "mask", "scope", "position", "addressing", "heads")


@dataclass(frozen=True)
class Mechanism:
    """One mechanism: what the code does not say of itself.

    name        as in the code
    kind        which letter of the equation it fills in: one of KINDS
    zh          the sentence of its docstring, in Chinese
    cost        of n keys and m queries, as a reader of papers would put it
    fast        its fast path in a sentence
    aliases     other names it goes by
    exceptions  the laws it does not keep, and what it promises instead
    build       makes a small example from the module `regard.attention`; the object itself if not given
    paint       makes the weights of its picture from the same module; what the kind suggests if not given
    """

    name: str
    kind: str
    summary_zh: str
    cost: str
    fast_path: str
    aliases: tuple[str, ...] = ()
    law_exceptions: str = ""
    example_factory: Callable[[Any], Any] | None = None
    picture_factory: Callable[[Any], Any] | None = None

    @property
    def path(self) -> str:
        """Where it lives, seen from `regard.attention`."""
        return f"addressing.{self.name}" if self.kind == "addressing" else self.name

    @property
    def object(self) -> Any:
        """The class, function or value itself."""
        return reduce(getattr, self.path.split("."), _import_attention())

    @property
    def summary(self) -> str:
        return parse_docstring(inspect.getdoc(self.object) or "")[0]

    @property
    def equation(self) -> str:
        return parse_docstring(inspect.getdoc(self.object) or "")[1]

    @property
    def paper(self) -> str:
        return parse_docstring(inspect.getdoc(self.object) or "")[2]

    def example(self) -> Any:
        """A small one, ready to use; a query, a key and a value have 4 features each, as in the picture."""
        return self.example_factory(_import_attention()) if self.example_factory else self.object

    def picture(self) -> Tensor:
        """The weights (queries x keys) it gives in a small fixed example."""
        from regard.catalogue.pictures import picture_weights

        return picture_weights(self, _import_attention())


def find_by_name(mechanisms: Iterable[Mechanism], name: str) -> Mechanism:
    known = {_normalize_name(word): entry for entry in mechanisms for word in (*entry.aliases, entry.name)}
    wanted = _normalize_name(name)
    if wanted in known:
        return known[wanted]
    ranked = difflib.get_close_matches(wanted, known, n=len(known), cutoff=0.0)
    beginnings = [word for word in ranked if wanted and word.startswith(wanted)]
    nearest = dict.fromkeys(known[word].name for word in [*beginnings, *ranked])
    suggestions = list(nearest)[:3]
    raise UnknownNameError(
        f"no mechanism {name!r}; did you mean {' or '.join(suggestions)}?", suggestions=suggestions
    )


def parse_docstring(doc: str) -> tuple[str, str, str]:
    """Sentence, equation and paper of a docstring written as the house writes them.

    >>> parse_docstring("How alike.\\n\\n    score = q . k\\n\\nSomebody (2015), arXiv 1234.\\n\\n>>> 1\\n1")
    ('How alike.', 'score = q . k', 'Somebody (2015), arXiv 1234.')
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(doc))
    plain = [p for p in paragraphs if not p.lstrip().startswith(">>>")]
    indented = next((i for i, p in enumerate(plain) if p.startswith("    ")), None)
    equation = inspect.cleandoc("\n" + plain[indented]) if indented is not None else ""
    papers = (_join_lines(p) for p in plain[1 if indented is None else indented + 1 :] if _PAPER.search(p))
    return _join_lines(plain[0]) if plain else "", equation, next(papers, "")


_PAPER = re.compile(r"arXiv|doi|\b(19|20)\d\d\b")


def _join_lines(paragraph: str) -> str:
    return " ".join(paragraph.split()).replace("``", "")


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def _import_attention() -> Any:
    return import_module("regard.attention")


def import_torch() -> Any:
    import torch as module

    return module


def half_circle(steps: int) -> Any:
    """Points on half a circle: (steps, 4)."""
    t = import_torch()
    angle = t.linspace(0, t.pi, steps)
    return 2 * t.stack([angle.cos(), angle.sin(), (2 * angle).cos(), (2 * angle).sin()], dim=-1)


def similarity_weights(vectors: Any) -> Any:
    """How alike each two rows are, shared out by softmax."""
    return (vectors @ vectors.mT).softmax(-1)


def eye(rows: int, columns: int) -> Any:
    return import_torch().eye(rows, columns)


def fixed_focus(steps: int, position: int) -> Any:
    """The same one-hot weights at every step."""
    return import_torch().eye(steps)[position].expand(steps, steps)
