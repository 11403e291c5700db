"""`regard show RUN INPUT`: a prediction with the attention weights behind it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from regard import tasks
from regard.cli import arguments
from regard.cli.evaluate import read_example
from regard.cli.output import escape_controls, print_json, print_status
from regard.errors import EmptyInputError, UsageError

__all__ = ["show"]

SUFFIXES = (".html", ".png", ".svg", ".txt", ".json")


def show(
    run: arguments.Run,
    inputs: arguments.Inputs = None,
    out: Annotated[
        Path | None, typer.Option(help="x.html, x.png, x.svg, x.txt or x.json; default: the terminal.")
    ] = None,
    example: arguments.Example = None,
    split: arguments.Split = None,
    lang: Annotated[arguments.Lang | None, typer.Option(help="Language of the page and of legends.")] = None,
    too_long: arguments.TooLongOption = "error",
    device: arguments.Device = "auto",
    as_json: arguments.AsJson = False,
    options: Mapping[str, Any] = {},
) -> None:
    """Show a prediction with the attention weights behind it: in the terminal, as a page, a figure or JSON.

    The options of the task are those of the run: regard show RUN --help

    Example: regard show runs/dates "3. Mai 2021" --out may.html

    Example: regard show runs/copy --length 30 --out copy.html

    Example: regard show runs/captions dog.jpg --out dog.png

    Example: regard show runs/digit-questions --example 12
    """
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot write {out}: its name must end in {', '.join(SUFFIXES)}")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"no folder {out.parent} for {out.name}; create it first")
    predictor = arguments.load_predictor(run, device)
    chosen = predictor.explain_options(**options)
    input = _read_input(predictor, run, inputs or [], example, split)
    limit = arguments.InputLimit(predictor, too_long)
    (explanation,) = limit.apply({1: input}, lambda inputs: [predictor.explain(inputs[0], chosen)])
    for remark in explanation.prediction.remarks():
        print_status(remark)
    if out is not None:
        _save(explanation, out, lang)
    if as_json:
        print_json(explanation.to_json() | ({} if out is None else {"out": str(out)}), indent=None)
    else:
        describe = explanation.to_text if out is None else explanation.summary
        text = describe(language=lang or "en")
        typer.echo(escape_controls(text) if sys.stdout.isatty() else text)


def _read_input(
    predictor: tasks.Predictor[Any, Any, Any], run: Path, words: list[str], index: int | None, split: str | None
) -> Any:
    """One input: of arguments, of a split of the recipe, or a text from standard input."""
    fields = predictor.inputs
    if words and not fields:
        raise UsageError(f"{run} takes no input; regard show {run} --help lists its options")
    if words and index is None and split is None:
        inputs = arguments.group_words(fields, words)
        if len(inputs) > 1:
            raise UsageError(f"{len(inputs)} inputs: show takes one of them")
        return inputs[0]
    if not fields:
        return None
    if index is not None or split is not None or len(fields) > 1 or fields[0].kind != "text":
        return read_example(predictor, run, index or 0, split, words)
    text = "\n".join(chain.from_iterable(arguments.read_stdin_lines(False)))
    if not text.strip():
        raise EmptyInputError("the text is empty: there is nothing to show")
    return text


def _save(explanation: tasks.Explanation, out: Path, language: str | None) -> None:
    """Write the file; a warning, such as of characters without a font, is one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explanation.save(out, language=language)
    for warning in caught:
        print_status(str(warning.message))
