"""`regard mechanisms [NAME]`: the catalogue, and one mechanism as an equation and a picture."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.arguments import AsJson, Lang
from regard.cli.completion import complete_mechanism
from regard.cli.output import make_table, print_blocks, print_json
from regard.config import load_translations
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.catalogue import Mechanism

__all__ = ["mechanisms"]

LABELS = {"aliases": "also called", "cost": "cost", "fast_path": "fast path", "law_exceptions": "exceptions"}
PICTURE_TITLE = "Weights of {} queries (rows) over {} keys (columns), in a small example:"


def mechanisms(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A mechanism, such as additive; without it, all are listed.",
            autocompletion=complete_mechanism,
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="List only: score, normalizer, mask, scope, position, addressing or heads.")
    ] = None,
    as_json: AsJson = False,
    lang: Annotated[Lang, typer.Option(help="Language of the sentences.")] = "en",
) -> None:
    """List the mechanisms, or explain one: equation, paper, cost, fast path and a picture of its weights.

    Example: regard mechanisms --kind score

    Example: regard mechanisms additive
    """
    from regard.catalogue import KINDS, MECHANISMS, get_mechanism

    if name is not None:
        if kind is not None:
            raise UsageError("--kind is for the list; leave it out to explain one mechanism")
        mechanism = get_mechanism(name)
        if as_json:
            print_json(_explanation_as_dict(mechanism, lang))
        else:
            _print_explanation(mechanism, lang)
        return
    if kind is not None:
        UnknownNameError.check("kind", kind, KINDS)
    kinds = KINDS if kind is None else (kind,)
    selected = [one for each in kinds for one in MECHANISMS if one.kind == each]
    if as_json:
        print_json({"mechanisms": [_as_dict(one, lang) for one in selected]})
    else:
        rows = [(one.name, one.kind, _summary(one, lang)) for one in selected]
        print_blocks(make_table(rows, styles=("bold", "dim")))


def _summary(mechanism: Mechanism, lang: Lang) -> str:
    return mechanism.summary_zh if lang == "zh" else mechanism.summary


def _as_dict(mechanism: Mechanism, lang: Lang) -> dict[str, Any]:
    facts = {name: getattr(mechanism, name) for name in ("name", "kind", "aliases")}
    return facts | {"summary": _summary(mechanism, lang)}


def _explanation_as_dict(mechanism: Mechanism, lang: Lang) -> dict[str, Any]:
    facts = {name: getattr(mechanism, name) for name in ("equation", "paper", "cost", "fast_path")}
    exceptions, weights = mechanism.law_exceptions, mechanism.picture().tolist()
    return _as_dict(mechanism, lang) | facts | {"exceptions": exceptions, "weights": weights}


def _print_explanation(mechanism: Mechanism, lang: Lang) -> None:
    from rich.text import Text

    from regard.viewing.terminal import heatmap

    print_blocks(Text.assemble((mechanism.name, "bold"), (f"  {mechanism.kind}", "dim")), "")
    print_blocks(_summary(mechanism, lang), "")
    if mechanism.equation:
        typer.echo(indent(mechanism.equation, "    ") + "\n")  # never wrapped
    if mechanism.paper:
        print_blocks(mechanism.paper, "")
    facts = {name: getattr(mechanism, name) for name in LABELS} | {"aliases": ", ".join(mechanism.aliases)}
    translations = {f"mechanisms.{name}": label for name, label in LABELS.items()} | load_translations(lang)
    print_blocks(make_table((translations[f"mechanisms.{name}"], text) for name, text in facts.items() if text), "")
    weights = mechanism.picture()
    title = translations.get("mechanisms.picture", PICTURE_TITLE)
    print_blocks(title.format(*weights.shape), "")
    typer.echo(heatmap(weights, language=lang))
