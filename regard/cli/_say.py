"""How the verbs speak: languages, refusals, JSON."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType


class Language(str, Enum):
    en = "en"
    zh = "zh"


def refuse(sentence: str) -> NoReturn:
    """End with one sentence on stderr and exit code 2."""
    typer.echo(f"regard: {sentence}", err=True)
    raise typer.Exit(2)


def say_json(answer: dict[str, Any]) -> None:
    typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))


def say(*parts: RenderableType) -> None:
    """Print for people: wrapped to the terminal, styled if it is one, without spaces at the ends of lines."""
    from rich.console import Console

    out = Console(highlight=False, markup=False, emoji=False)
    with out.capture() as text:
        out.print(*parts, sep="\n")
    typer.echo("\n".join(line.rstrip() for line in text.get().splitlines()), color=True)
