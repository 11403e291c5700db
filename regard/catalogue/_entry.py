"""What the catalogue knows of one mechanism, and how to find it by name."""

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

BY_POSITION = "Goes by position: permuting the keys changes the answer."
CHANCE = "Random in training: compared under one state of the generator."
KINDS = ("score", "normalizer", "mask", "scope", "position", "addressing", "heads")


@dataclass(frozen=True)
class Entry:
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
    zh: str
    cost: str
    fast: str
    aliases: tuple[str, ...] = ()
    exceptions: str = ""
    build: Callable[[Any], Any] | None = None
    paint: Callable[[Any], Any] | None = None

    @property
    def path(self) -> str:
        """Where it lives, seen from `regard.attention`."""
        return f"addressing.{self.name}" if self.kind == "addressing" else self.name

    @property
    def object(self) -> Any:
        """The class, function or value itself."""
        return reduce(getattr, self.path.split("."), _attention())

    @property
    def sentence(self) -> str:
        return parse(inspect.getdoc(self.object) or "")[0]

    @property
    def equation(self) -> str:
        return parse(inspect.getdoc(self.object) or "")[1]

    @property
    def paper(self) -> str:
        return parse(inspect.getdoc(self.object) or "")[2]

    def example(self) -> Any:
        """A small one, ready to use; a query, a key and a value have 4 features each, as in the picture."""
        return self.build(_attention()) if self.build else self.object

    def picture(self) -> Tensor:
        """The weights (queries x keys) it gives in a small fixed example."""
        from regard.catalogue._picture import weights_of

        return weights_of(self, _attention())


def search(entries: Iterable[Entry], name: str) -> Entry:
    known = {_fold(word): entry for entry in entries for word in (*entry.aliases, entry.name)}
    wanted = _fold(name)
    if wanted in known:
        return known[wanted]
    ranked = difflib.get_close_matches(wanted, known, n=len(known), cutoff=0.0)
    beginnings = [word for word in ranked if wanted and word.startswith(wanted)]
    nearest = dict.fromkeys(known[word].name for word in [*beginnings, *ranked])
    suggestions = list(nearest)[:3]
    raise UnknownNameError(
        f"no mechanism {name!r}; did you mean {' or '.join(suggestions)}?", suggestions=suggestions
    )


def parse(doc: str) -> tuple[str, str, str]:
    """Sentence, equation and paper of a docstring written as the house writes them.

    >>> parse("How alike.\\n\\n    score = q . k\\n\\nSomebody (2015), arXiv 1234.\\n\\n>>> 1\\n1")
    ('How alike.', 'score = q . k', 'Somebody (2015), arXiv 1234.')
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(doc))
    plain = [p for p in paragraphs if not p.lstrip().startswith(">>>")]
    indented = next((i for i, p in enumerate(plain) if p.startswith("    ")), None)
    equation = inspect.cleandoc("\n" + plain[indented]) if indented is not None else ""
    papers = (_joined(p) for p in plain[1 if indented is None else indented + 1 :] if _PAPER.search(p))
    return _joined(plain[0]) if plain else "", equation, next(papers, "")


_PAPER = re.compile(r"arXiv|doi|\b(19|20)\d\d\b")


def _joined(paragraph: str) -> str:
    return " ".join(paragraph.split()).replace("``", "")


def _fold(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).casefold()


def _attention() -> Any:
    return import_module("regard.attention")
