"""`regard list`: what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli._say import Language, say, say_json
from regard.errors import UnknownNameError

if TYPE_CHECKING:
    from regard.catalogue import Mechanism


def list_(
    kind: Annotated[
        str | None,
        typer.Option(help="Only these: score, normalizer, mask, scope, position, addressing or heads."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    lang: Annotated[Language, typer.Option(help="The language of the sentences.")] = Language.en,
) -> None:
    """List the mechanisms, each with a sentence."""
    from regard.catalogue import KINDS, MECHANISMS

    if kind is not None and kind not in KINDS:
        raise UnknownNameError(
            f"There is no kind {kind!r}; the kinds are {', '.join(KINDS[:-1])} and {KINDS[-1]}."
        )
    kinds = KINDS if kind is None else (kind,)
    entries = [entry for k in kinds for entry in MECHANISMS if entry.kind == k]
    if as_json:
        say_json({"mechanisms": [_as_dict(entry, lang) for entry in entries]})
    else:
        _print(entries, lang)


def _sentence(entry: Mechanism, lang: Language) -> str:
    return entry.summary_zh if lang is Language.zh else entry.summary


def _as_dict(entry: Mechanism, lang: Language) -> dict[str, object]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "aliases": entry.aliases,
        "sentence": _sentence(entry, lang),
    }


def _print(entries: list[Mechanism], lang: Language) -> None:
    from rich.table import Table

    from regard.cli._wrap import Wrapped

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for entry in entries:
        table.add_row(entry.name, entry.kind, Wrapped(_sentence(entry, lang)))
    say(table)
