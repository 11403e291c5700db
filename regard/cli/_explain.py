"""`regard explain NAME`: one mechanism in words, as an equation and as a picture."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._say import Language, say, say_json

if TYPE_CHECKING:
    from regard.catalogue import Mechanism

LABELS = {
    Language.en: {
        "aliases": "also called",
        "cost": "cost",
        "fast": "fast path",
        "exceptions": "exceptions",
        "picture": "Weights of {} queries (rows) over {} keys (columns), in a small example:",
    },
    Language.zh: {
        "aliases": "别名",
        "cost": "代价",
        "fast": "快速路径",
        "exceptions": "例外",
        "picture": "一个小例子中 {} 个查询（行）对 {} 个键（列）的权重：",
    },
}


def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A mechanism, such as additive; `regard list` names them all."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    lang: Annotated[Language, typer.Option(help="The language of the explanation.")] = Language.en,
) -> None:
    """Explain a mechanism: sentence, equation, paper, cost, fast path, and a picture of its weights."""
    from regard.catalogue import get_mechanism

    entry = get_mechanism(name)
    if as_json:
        say_json(_as_dict(entry, lang))
    else:
        _print(entry, lang)


def _as_dict(entry: Mechanism, lang: Language) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "aliases": entry.aliases,
        "sentence": entry.summary_zh if lang is Language.zh else entry.summary,
        "equation": entry.equation,
        "paper": entry.paper,
        "cost": entry.cost,
        "fast": entry.fast_path,
        "exceptions": entry.law_exceptions,
        "weights": entry.picture().tolist(),
    }


def _print(entry: Mechanism, lang: Language) -> None:
    from rich.table import Table
    from rich.text import Text

    from regard.cli._wrap import Wrapped
    from regard.viewing.terminal import heatmap

    labels = LABELS[lang]
    say(Text.assemble((entry.name, "bold"), (f"  {entry.kind}", "dim")), "")
    say(entry.summary_zh if lang is Language.zh else entry.summary, "")
    if entry.equation:
        typer.echo(indent(entry.equation, "    ") + "\n")  # never wrapped
    if entry.paper:
        say(entry.paper, "")

    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column()
    for field, text in (
        ("aliases", ", ".join(entry.aliases)),
        ("cost", entry.cost),
        ("fast", entry.fast_path),
        ("exceptions", entry.law_exceptions),
    ):
        if text:
            facts.add_row(labels[field], Wrapped(text))
    say(facts, "")

    weights = entry.picture()
    say(labels["picture"].format(*weights.shape), "")
    typer.echo(heatmap(weights, language=lang.value))
