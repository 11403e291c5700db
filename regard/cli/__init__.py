"""The command line: one verb, one function, one file.

`regard --help` and `regard --version` must answer at once, so nothing here imports torch or rich at the top:
each verb fetches what it needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from regard._version import __version__
from regard.cli._answer import answer
from regard.cli._average import average
from regard.cli._bench import bench
from regard.cli._caption import caption
from regard.cli._classify import classify
from regard.cli._compare import compare
from regard.cli._errors import to_regard_error
from regard.cli._evaluate import evaluate
from regard.cli._explain import explain
from regard.cli._export import export
from regard.cli._gather import Gathering
from regard.cli._info import info
from regard.cli._list import list_
from regard.cli._reproduce import reproduce
from regard.cli._resume import resume
from regard.cli._score import score
from regard.cli._serve import serve
from regard.cli._show import show
from regard.cli._train import train
from regard.cli._translate import translate
from regard.cli._write import write

app = typer.Typer(
    name="regard",
    help="Attention: every mechanism as a value in one equation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich takes longer to import than everything else here
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(list_)
app.command("explain")(explain)
VERBS = (
    *(train, resume, info),
    *(translate, classify, caption, answer, write),
    *(show, serve, export, bench),
    *(evaluate, score, average, compare, reproduce),
)
for _verb in VERBS:
    app.command(_verb.__name__, cls=Gathering if _verb in (train, compare) else None)(_verb)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _regard(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Attention: every mechanism as a value in one equation."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. What a user got wrong is one sentence on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode gets "?", not a traceback
    try:
        app(arguments)
    except Exception as error:
        known = to_regard_error(error)
        if known is None:
            raise
        typer.echo(f"regard: {known}", err=True)
        sys.exit(known.exit_code)
