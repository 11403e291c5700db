"""How the verbs speak: languages, refusals, tables, JSON. Answers go to standard output, all else to stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class Language(str, Enum):
    en = "en"
    zh = "zh"


def note(sentence: str) -> None:
    """Say something that is not part of the answer."""
    typer.echo(sentence, err=True)


def say_json(answer: dict[str, Any], indent: int | None = 2) -> None:
    typer.echo(json.dumps(finite(answer), ensure_ascii=False, indent=indent))


def finite(value: Any) -> Any:
    """The same for JSON, which has no infinity: null stands for it.

    >>> finite({"loss": float("nan"), "steps": (1, 2)})
    {'loss': None, 'steps': [1, 2]}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(*parts: RenderableType) -> None:
    """Print for people: wrapped to the terminal, styled if it is one, without spaces at the ends of lines."""
    from rich.console import Console, Group

    from regard.cli._wrap import Wrapped

    out = Console(highlight=False, markup=False, emoji=False)
    with out.capture() as text:
        out.print(Group(*(Wrapped(part) if isinstance(part, str) else part for part in parts)))
    typer.echo("\n".join(line.rstrip() for line in text.get().splitlines()), color=True)


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), numbers: Iterable[int] = ()) -> Table:
    """Rows for `say`, the first column in bold; the columns in `numbers` stand to the right."""
    from rich.table import Table
    from rich.text import Text

    from regard.cli._wrap import Wrapped

    made = Table(box=None, pad_edge=False, show_header=bool(head), padding=(0, 2, 0, 0))
    rows, right = [tuple(row) for row in rows], set(numbers)
    for place in range(len(head) or len(rows[0]) if head or rows else 0):
        name = head[place] if head else ""
        made.add_column(
            Text(name),
            overflow="fold",
            justify="right" if place in right else "left",
            style="bold" if place == 0 else "",
            no_wrap=place == 0,
        )
    for row in rows:
        made.add_row(*map(Wrapped, row))
    return made
