"""`regard classify RUN`: documents in, their classes out, in order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli._document import classifier_of
from regard.cli.arguments import AsJson, Device, read_file_blocks, read_stdin_lines
from regard.cli.output import print_json, print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import TextClassifier
    from regard.tasks.classification import Classification


def classify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Documents, or images' files; without any, standard input."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file with one document a line; also .gz or .xz.")] = None,
    as_one_document: Annotated[
        bool, typer.Option("--as-one-document", help="The file or standard input is one document of many lines.")
    ] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Say which class documents or images belong to, and with which probability.

    One line out for each line in, in order: the class, a tab, its probability. An empty line stays empty. Before the
    class of an image stands its file.

    Example: regard classify runs/imdb "A dull film. I left early."

    Example: regard classify runs/imdb --as-one-document < review.txt

    Example: regard classify runs/digits seven.png
    """
    if texts and file is not None:
        raise UsageError("Give texts or --file, not both.")
    if texts and as_one_document:
        raise UsageError("--as-one-document is for --file or standard input; a TEXT is one document anyway.")
    classifier, _ = classifier_of(run, device)
    blocks = iter([texts]) if texts else _blocks(file, as_one_document)
    found, first = [], 1
    for block in blocks:
        for number, (text, one) in enumerate(_answers(classifier, block), first):
            if one is not None and one.truncation:
                print_status(f"document {number}: {one.truncation} left out, as it is longer than this model reads")
            if as_json:
                told = {"label": None, "probabilities": {}} if one is None else one.to_json()
                found.append({"document": number, "text": text, **told})
            else:
                typer.echo("" if one is None else f"{one.label}\t{one.probability:.4f}")
        first += len(block)
    if as_json:
        print_json({"run": str(run), "documents": found})


def _answers(classifier: TextClassifier, texts: list[str]) -> Iterator[tuple[str, Classification | None]]:
    """Each text with its class; an empty one has none."""
    known = iter(classifier.classify([text for text in texts if text.strip()]))
    return ((text, next(known) if text.strip() else None) for text in texts)


def _blocks(file: Path | None, whole: bool) -> Iterator[list[str]]:
    """Documents in blocks, from a file or as they come."""
    from regard.data.text_files import read_lines

    if file is not None:
        if whole:
            yield ["\n".join(read_lines(file))]
        else:
            yield from read_file_blocks(file)
        return
    asking = sys.stdin.isatty()
    if asking:
        print_status("One document; Ctrl-D ends." if whole else "One line, one document; Ctrl-D ends.")
    if whole:
        yield ["\n".join(line for ready in read_stdin_lines(False) for line in ready)]
        return
    for ready in read_stdin_lines(asking):
        if ready:
            yield ready
