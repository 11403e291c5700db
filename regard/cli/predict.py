"""`regard predict RUN`, and the commands of tasks, which are aliases of it: `regard translate RUN`, ..."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from regard.cli.arguments import (
    AsJson,
    Device,
    Engine,
    Example,
    InputLimit,
    Inputs,
    Run,
    Split,
    TooLong,
    TooLongOption,
    group_words,
    load_predictor,
    read_file_blocks,
    read_stdin_blocks,
    read_stdin_lines,
)
from regard.cli.evaluate import read_example
from regard.cli.output import print_json, print_status
from regard.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Prediction, Predictor

__all__ = ["predict"]


def predict(
    run: Run,
    inputs: Inputs = None,
    file: Annotated[Path | None, typer.Option(help="A file with one text a line; also .gz or .xz.")] = None,
    as_one_document: Annotated[
        bool, typer.Option("--as-one-document", help="The file or standard input is one text of many lines.")
    ] = False,
    example: Example = None,
    split: Split = None,
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this file, one a line.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each text while it is generated.")] = False,
    too_long: TooLongOption = TooLong.error,
    device: Device = "auto",
    engine: Engine = None,
    as_json: AsJson = False,
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
    predictor = load_predictor(run, device, engine)
    if not predictor.inputs:
        raise UnsupportedError(f"{run} takes no input; use regard evaluate {run} or regard show {run}")
    chosen = predictor.predict_options(**options)
    if example is not None or split is not None:
        blocks = iter([[read_example(predictor, run, example or 0, split, inputs or ())]])
    else:
        blocks = _read_blocks(predictor, inputs, file, as_one_document, too_long, bool(options))
    limit = InputLimit(predictor, too_long, _describe_source(inputs, file, as_one_document, example))
    if stream:
        _stream(predictor, blocks, chosen, limit)
        return
    results: list[dict[str, Any]] = []
    number = 0
    with _open_output(out, as_json) as output:
        for block in blocks:
            for given, prediction in _predict_block(predictor, block, chosen, number, limit):
                number += 1
                for remark in () if prediction is None else prediction.remarks():
                    print_status(f"input {number}: {remark}")
                if output is not None:
                    output.write(_format_lines(predictor, given, prediction, number))
                if as_json:
                    results.append(_as_dict(predictor, given, prediction))
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
    predictor: Predictor[Any, Any, Any],
    words: Sequence[str] | None,
    file: Path | None,
    as_one_document: bool,
    too_long: TooLong,
    full: bool,
) -> Iterator[list[Any]]:
    """The inputs in blocks: of arguments, of a file, or of standard input as they arrive."""
    fields = predictor.inputs
    if words:
        yield group_words(fields, words)
        return
    if len(fields) > 1 or fields[0].kind != "text":
        names = " and ".join(one.name.upper() for one in fields)
        raise UsageError(f"no input: this model takes {names} as arguments")
    if as_one_document:
        blocks = read_file_blocks(file) if file is not None else read_stdin_lines(False)
        yield ["\n".join(line for block in blocks for line in block)]
    elif file is not None:
        if too_long is TooLong.error:
            _check_file(predictor, file)
        yield from read_file_blocks(file)
    else:
        yield from read_stdin_blocks("One line, one input; Ctrl-D ends.", full)


def _check_file(predictor: Predictor[Any, Any, Any], file: Path) -> None:
    """Refuse a file with an input that the model cannot take, before anything is predicted."""
    limit, first = InputLimit(predictor, TooLong.error, f"{file}, line"), 1
    for block in read_file_blocks(file):
        texts = {number: line for number, line in enumerate(block, first) if line.strip()}
        with limit.located(list(texts)):
            predictor.check(list(texts.values()))
        first += len(block)


def _predict_block(
    predictor: Predictor[Any, Any, Any], block: Sequence[Any], options: Any, done: int, limit: InputLimit
) -> Iterator[tuple[Any, Prediction | None]]:
    """Each input with its prediction; None for an empty text of a model that takes none."""
    numbered = dict(enumerate(block, done + 1))
    keeps_empty = any(field.may_be_empty for field in predictor.inputs)
    kept = {number: one for number, one in numbered.items() if keeps_empty or not isinstance(one, str) or one.strip()}
    found = limit.apply(kept, lambda inputs: predictor.predict(inputs, options)) if kept else []
    predictions = dict(zip(kept, found, strict=True))
    return ((one, predictions.get(number)) for number, one in numbered.items())


def _stream(predictor: Predictor[Any, Any, Any], blocks: Iterator[list[Any]], options: Any, limit: InputLimit) -> None:
    """Print each prediction while it grows."""
    for number, given in enumerate((one for block in blocks for one in block), 1):
        shown, last = "", None
        with limit.located([number]):
            for last in predictor.stream(given, options):
                if not last.text.startswith(shown):  # the end changed what was shown
                    typer.echo()
                    shown = ""
                typer.echo(last.text[len(shown) :], nl=False)
                sys.stdout.flush()
                shown = last.text
        typer.echo()
        for remark in () if last is None else last.remarks():
            print_status(remark)


@contextlib.contextmanager
def _open_output(out: Path | None, as_json: bool) -> Iterator[TextIO | None]:
    """The stream of the predictions; None if they are printed as JSON only."""
    if out is not None:
        with open(out, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
    else:
        yield None if as_json else sys.stdout


def _format_lines(predictor: Predictor[Any, Any, Any], given: Any, prediction: Prediction | None, number: int) -> str:
    """The lines of a prediction, after the file of an input that is no text."""
    if prediction is None:
        return "\n"
    is_file = isinstance(given, str) and all(field.kind != "text" for field in predictor.inputs)
    return "".join(f"{given}\t{line}\n" if is_file else f"{line}\n" for line in prediction.to_lines(number))


def _as_dict(predictor: Predictor[Any, Any, Any], given: Any, prediction: Prediction | None) -> dict[str, Any]:
    parts = (given,) if len(predictor.inputs) == 1 else given
    pairs = zip(predictor.inputs, parts, strict=True)
    inputs = {field.name: part for field, part in pairs if isinstance(part, str)}  # not of an example's image
    return {"input": inputs, **({"text": ""} if prediction is None else prediction.to_json())}
