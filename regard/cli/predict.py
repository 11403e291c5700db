"""`regard predict RUN`, and the commands of tasks, which are aliases of it: `regard translate RUN`, ..."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import arguments
from regard.cli.evaluate import read_example
from regard.cli.output import echo_text, escape_controls, print_json, print_status
from regard.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Prediction, Predictor

__all__ = ["predict"]


def predict(
    run: arguments.Run,
    inputs: arguments.Inputs = None,
    file: Annotated[Path | None, typer.Option(help="A file with one text per line; also .gz or .xz.")] = None,
    as_one_document: Annotated[
        bool, typer.Option("--as-one-document", help="The file or standard input is one text of many lines.")
    ] = False,
    example: arguments.Example = None,
    split: arguments.Split = None,
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this file, one per line.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each text while it is generated.")] = False,
    too_long: arguments.TooLongOption = "error",
    device: arguments.Device = "auto",
    engine: arguments.Engine = None,
    as_json: arguments.AsJson = False,
    options: Mapping[str, Any] = {},
) -> None:
    """Predict with a trained model: one line for each input, in order; an empty line stays empty.

    The options of the task are those of the run: regard predict RUN --help

    Example: regard predict runs/dates "3. Mai 2021"

    Example: regard translate runs/en-de < news.en > news.de

    Example: regard classify runs/digits seven.png

    Example: regard ask runs/digit-questions scene.png "how many 3s"
    """
    if inputs and (file is not None or as_one_document):
        option = "--file" if file is not None else "--as-one-document"
        raise UsageError(f"{option} cannot be combined with INPUT")
    if stream and (as_json or out is not None):
        raise UsageError("--stream prints to the terminal; it cannot be combined with --json or --out")
    predictor = arguments.load_predictor(run, device, engine)
    if not predictor.inputs:
        raise UnsupportedError(f"{run} takes no input; use regard evaluate {run} or regard show {run}")
    chosen = predictor.predict_options(**options)
    limit = arguments.InputLimit(predictor, too_long, _describe_source(inputs, file, as_one_document, example))
    if example is not None or split is not None:
        blocks = iter([[read_example(predictor, run, example or 0, split, inputs or ())]])
    else:
        blocks = _read_blocks(limit, inputs, file, as_one_document, bool(options))
    if stream:
        _stream(limit, blocks, chosen)
        return
    results: list[dict[str, Any]] = []
    number = 0
    default_output = nullcontext(None if as_json else sys.stdout)
    with default_output if out is None else open(out, "w", encoding="utf-8", newline="\n") as output:
        for block in blocks:
            for input, prediction in _predict_block(limit, block, chosen, number):
                number += 1
                for remark in () if prediction is None else prediction.remarks():
                    print_status(f"input {number}: {remark}")
                if output is not None:
                    text = _format_lines(predictor, input, prediction, number)
                    output.write(escape_controls(text) if output.isatty() else text)
                if as_json:
                    results.append(_as_dict(predictor, input, prediction))
            if output is not None:
                output.flush()
    if as_json:
        print_json({"run": str(run), "predictions": results})


def _describe_source(words: Sequence[str] | None, file: Path | None, is_one: bool, example: int | None) -> str:
    """The subject of messages about an input; empty if there is only one."""
    if is_one or example is not None or (words and len(words) == 1):
        return ""
    return f"{file}, line" if file is not None else "input" if words else "standard input, line"


def _read_blocks(
    limit: arguments.InputLimit, words: Sequence[str] | None, file: Path | None, as_one_document: bool, full: bool
) -> Iterator[list[Any]]:
    """The inputs in blocks: of arguments, of a file, or of standard input as they arrive."""
    fields = limit.predictor.inputs
    if words:
        inputs = arguments.group_words(fields, words)
        arguments.check_not_empty(fields, inputs)
        yield inputs
    elif len(fields) > 1 or fields[0].kind != "text":
        names = " and ".join(one.name.upper() for one in fields)
        raise UsageError(f"no input: this model takes {names} as arguments")
    elif as_one_document:
        blocks = arguments.read_stdin_lines(False) if file is None else arguments.read_file_blocks(file)
        yield ["\n".join(chain.from_iterable(blocks))]
    elif file is not None:
        if limit.too_long == "error":
            _check_file(limit, file)
        yield from arguments.read_file_blocks(file)
    else:
        yield from arguments.read_stdin_blocks("One line, one input; Ctrl-D ends.", full)


def _check_file(limit: arguments.InputLimit, file: Path) -> None:
    """Refuse a file with an input that the model cannot take, before anything is predicted."""
    first = 1
    for block in arguments.read_file_blocks(file):
        texts = {number: line for number, line in enumerate(block, first) if line.strip()}
        with limit.located(list(texts)):
            limit.predictor.check(list(texts.values()))
        first += len(block)


def _predict_block(
    limit: arguments.InputLimit, block: Sequence[Any], options: Any, done: int
) -> Iterator[tuple[Any, Prediction | None]]:
    """Each input with its prediction; None for an empty text of a model that takes none."""
    predictor = limit.predictor
    keeps_empty = any(field.may_be_empty for field in predictor.inputs)
    inputs = {
        number: one
        for number, one in enumerate(block, done + 1)
        if keeps_empty or not isinstance(one, str) or one.strip()
    }
    results = limit.apply(inputs, lambda values: predictor.predict(values, options)) if inputs else []
    predictions = dict(zip(inputs, results, strict=True))
    return ((one, predictions.get(number)) for number, one in enumerate(block, done + 1))


def _stream(limit: arguments.InputLimit, blocks: Iterator[list[Any]], options: Any) -> None:
    """Print each prediction while it grows."""
    for number, input in enumerate(chain.from_iterable(blocks), 1):
        text, last = "", None
        with limit.located([number]):
            for last in limit.predictor.stream(input, options):
                if not last.text.startswith(text):  # the end changed what was printed
                    typer.echo()
                    text = ""
                echo_text(last.text[len(text) :], end="")
                sys.stdout.flush()
                text = last.text
        typer.echo()
        for remark in () if last is None else last.remarks():
            print_status(remark)


def _format_lines(predictor: Predictor[Any, Any, Any], input: Any, prediction: Prediction | None, number: int) -> str:
    """The lines of a prediction, after the file of an input that is no text."""
    if prediction is None:
        return "\n"
    is_file = isinstance(input, str) and all(field.kind != "text" for field in predictor.inputs)
    return "".join(f"{input}\t{line}\n" if is_file else f"{line}\n" for line in prediction.to_lines(number))


def _as_dict(predictor: Predictor[Any, Any, Any], input: Any, prediction: Prediction | None) -> dict[str, Any]:
    parts = (input,) if len(predictor.inputs) == 1 else input
    pairs = zip(predictor.inputs, parts, strict=True)
    inputs = {field.name: part for field, part in pairs if isinstance(part, str)}  # not the image of an example
    return {"input": inputs, **({"text": ""} if prediction is None else prediction.to_json())}
