"""The command line: one verb, one function, one file.

`regard --help` and `regard --version` must answer at once, so nothing here imports torch or rich at the top:
each verb fetches what it needs when it runs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from regard._version import __version__
from regard.cli._explain import explain
from regard.cli._list import list_

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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _regard(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Attention: every mechanism as a value in one equation."""


def main() -> None:
    """Run the command line. What a user got wrong is one sentence on stderr and exit code 2."""
    from regard._extras import MissingExtra

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode gets "?", not a traceback
    try:
        app()
    except MissingExtra as error:
        typer.echo(f"regard: {error}", err=True)
        sys.exit(2)
