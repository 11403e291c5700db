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
    Run,
    load_predictor,
    read_file_blocks,
    read_stdin_blocks,
    read_stdin_lines,
    task_name,
)
from regard.cli.evaluate import read_example
from regard.cli.output import print_json, print_status
from regard.errors import EmptyInputError, InputError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Prediction, Predictor

__all__ = ["predict"]

Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="Texts or image files; without any, texts from standard input."),
]


def predict(
    run: Run,
    inputs: Inputs = None,
    file: Annotated[Path | None, typer.Option(help="A file with one text a line; also .gz or .xz.")] = None,
    as_one_document: Annotated[
        bool, typer.Option("--as-one-document", help="The file or standard input is one text of many lines.")
    ] = False,
    example: Annotated[
        int | None, typer.Option(min=0, help="Take this input of --split, from 0; INPUT replaces its last parts.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="--example: a split of the recipe; default: its first test.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this file, one a line.")] = None,
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
    predictor = load_predictor(run, device, engine)
    if not predictor.inputs:
        raise UnsupportedError(f"{run} takes no input; use regard evaluate {run} or regard show {run}")
    chosen = predictor.predict_options(**options)
    results: list[dict[str, Any]] = []
    number = 0
    with _open_output(out, as_json) as stream:
        if example is not None or split is not None:
            blocks = iter([[read_example(predictor, run, example or 0, split, inputs or ())]])
        else:
            blocks = _read_blocks(predictor, inputs, file, as_one_document, bool(options))
        for block in blocks:
            for given, prediction in _predict_block(predictor, block, chosen, number, file):
                number += 1
                if stream is not None:
                    stream.write(_format_lines(predictor, given, prediction, number))
                if as_json:
                    results.append(_as_dict(predictor, given, prediction))
            if stream is not None:
                stream.flush()
    if as_json:
        print_json({"run": str(run), "predictions": results})


def check_verb(verb: str, run: Path) -> None:
    """Refuse a run whose task has another command."""
    from regard.tasks import get_task

    task = task_name(run)
    if task is not None and (other := get_task(task).verb) != verb:
        raise UsageError(f"{run} was trained for {task}; use: regard {other} {run}")


def _read_blocks(
    predictor: Predictor[Any, Any, Any],
    words: Sequence[str] | None,
    file: Path | None,
    as_one_document: bool,
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
        _check_file(predictor, file)
        yield from read_file_blocks(file)
    else:
        yield from read_stdin_blocks("One line, one input; Ctrl-D ends.", full)


def group_words(fields: Sequence[Any], words: Sequence[str]) -> list[Any]:
    """Inputs from arguments: one word each, or as many as an input has parts."""
    count = len(fields)
    if len(words) % count:
        names = " ".join(one.name.upper() for one in fields)
        raise UsageError(f"{len(words)} arguments are not inputs of the form {names}")
    if count == 1:
        return list(words)
    return [tuple(words[first : first + count]) for first in range(0, len(words), count)]


def _check_file(predictor: Predictor[Any, Any, Any], file: Path) -> None:
    """Refuse a file with an input that the model cannot take, before anything is predicted."""
    first = 1
    for block in read_file_blocks(file):
        _check(predictor, [line for line in block if line.strip()], block, first, f"{file}, line")
        first += len(block)


def _check(
    predictor: Predictor[Any, Any, Any], inputs: list[Any], block: Sequence[Any], first: int, where: str
) -> None:
    try:
        predictor.check(inputs)
    except InputError as error:
        if error.row is None:
            raise
        rows = [index for index, one in enumerate(block) if not isinstance(one, str) or one.strip()]
        row = rows[error.row]
        raise type(error)(f"{where} {first + row}: {error}", row=row) from None


def _predict_block(
    predictor: Predictor[Any, Any, Any], block: list[Any], options: Any, done: int, file: Path | None
) -> Iterator[tuple[Any, Prediction | None]]:
    """Each input with its prediction; None for an empty text of a model that takes none."""
    numbered = dict(enumerate(block, done + 1))
    empty = [number for number, one in numbered.items() if isinstance(one, str) and not one.strip()]
    left_out = set(empty) if empty and _refuses_empty(predictor) else set()
    kept = {number: one for number, one in numbered.items() if number not in left_out}
    found = limit.apply(kept, lambda inputs: predictor.predict(inputs, options)) if kept else []
    predictions = dict(zip(kept, found, strict=True))
    return ((one, predictions.get(number)) for number, one in numbered.items())


def _refuses_empty(predictor: Predictor[Any, Any, Any]) -> bool:
    try:
        predictor.check([""])
    except EmptyInputError:
        return True
    return False


@contextlib.contextmanager
def _open_output(out: Path | None, as_json: bool) -> Iterator[TextIO | None]:
    """The stream of the predictions; None if they are printed as JSON only."""
    if out is not None:
        with open(out, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
    else:
        yield None if as_json else sys.stdout


def _format_lines(predictor: Predictor[Any, Any, Any], given: Any, prediction: Prediction | None, number: int) -> str:
    """The line of a prediction: `text`, or `label<TAB>probability`, or several with their numbers and scores."""
    from regard.tasks.classification import Classification

    if prediction is None:
        return "\n"
    alternatives = getattr(prediction, "alternatives", ())
    if len(alternatives) > 1 and hasattr(alternatives[0], "score"):
        return "".join(f"{number}\t{one.score:.4f}\t{one.text}\n" for one in alternatives)
    cells = [given] if isinstance(given, str) and all(field.kind != "text" for field in predictor.inputs) else []
    cells.append(prediction.text)
    if isinstance(prediction, Classification):
        cells.append(f"{prediction.score:.4f}")
    if truncation := getattr(prediction, "truncation", None):
        print_status(f"input {number}: {truncation} truncated")
    return "\t".join(map(str, cells)) + "\n"


def _as_dict(predictor: Predictor[Any, Any, Any], given: Any, prediction: Prediction | None) -> dict[str, Any]:
    parts = (given,) if len(predictor.inputs) == 1 else given
    pairs = zip(predictor.inputs, parts, strict=True)
    inputs = {field.name: part for field, part in pairs if isinstance(part, str)}  # not of an example's image
    return {"input": inputs, **({"text": ""} if prediction is None else prediction.to_json())}
