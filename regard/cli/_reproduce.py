"""`regard reproduce STUDY`: what a paper found, found again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli._say import AsJson, Language, note, say, say_json, table
from regard.errors import UnknownNameError


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="A study; without it, all are listed.")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Settings that all its trainings share, such as num_threads=1."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where results go; default: runs/STUDY.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps only, to see that everything works.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(help="Folder of Multi30k, IMDB, MNIST or Flickr8k; default: what is made on the fly."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only these parts, with commas (ntm2014: copy,recall); others stay.")
    ] = None,
    as_json: AsJson = False,
    lang: Annotated[Language, typer.Option(help="The language of the list.")] = Language.en,
) -> None:
    """Train what a paper trained, and see whether its claims hold.

    Killed, it goes on with the same command.

    Example: regard reproduce bahdanau2015

    Example: regard reproduce luong2015 --data multi30k precision=bfloat16 steps=2000

    Example: regard reproduce ntm2014 --only copy,recall
    """
    from regard.studies import STUDIES

    if name is None:
        _list(as_json, lang)
        return
    if name not in STUDIES:
        raise UnknownNameError.among("study", name, STUDIES)
    folder = out or Path("runs", name)
    answer = STUDIES[name].run(
        folder, quick, data, note, [part.strip() for part in only.split(",")] if only else (), words or ()
    )
    if as_json:
        say_json(answer)
        return
    typer.echo(f"{answer['table']}\n\nThe results are in {folder}.")


def _list(as_json: bool, lang: Language) -> None:
    from regard.studies import STUDIES

    said = {name: one.summary_zh if lang is Language.zh else one.summary for name, one in STUDIES.items()}
    if as_json:
        say_json({"studies": [{"name": name, "sentence": sentence} for name, sentence in said.items()]})
    else:
        say(table(said.items()))
