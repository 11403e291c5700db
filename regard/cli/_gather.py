"""Options that take several files: --train a.en a.de is read as --train a.en --train a.de."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

SETTING = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*=")
SEVERAL = ("--train", "--valid", "--test")


class Gathering(TyperCommand):
    """A command whose --train, --valid and --test take what follows, up to the next option or setting."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, gathered(args))


def gathered(words: Sequence[str], names: Sequence[str] = SEVERAL) -> list[str]:
    """The same words, with the name of the option before each of its values.

    >>> gathered(["translation", "--train", "a.en", "a.de", "steps=10", "--show"])
    ['translation', '--train', 'a.en', '--train', 'a.de', 'steps=10', '--show']
    """
    found: list[str] = []
    name, first = "", False
    for word in words:
        if word in names and not first:
            name, first = word, True
            continue
        more = name and not word.startswith("-") and not SETTING.match(word)
        if first or more:
            found += [name, word]
        else:
            name = ""
            found.append(word)
        first = False
    return found + [name] * first  # an option without a value is for typer to refuse
