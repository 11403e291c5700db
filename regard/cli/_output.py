"""Where translations go: to standard output or a file as they come, or all together as JSON."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer

from regard.cli._answers import Answer, Searching, write_traces
from regard.cli.output import print_json


@dataclass(frozen=True)
class Output:
    """Where answers go, and in which form."""

    run: Path
    out: Path | None
    trace: Path | None
    as_json: bool
    several: bool
    layer: int | None
    head: int | None

    @contextlib.contextmanager
    def opened(self) -> Iterator[TextIO | None]:
        """The stream of the translations; None if they are told as JSON only."""
        if self.out is not None:
            with open(self.out, "w", encoding="utf-8", newline="\n") as stream:
                yield stream
        else:
            yield None if self.as_json else sys.stdout

    def lines(self, answer: Answer, number: int) -> str:
        """A text's translation as its line; several as lines with its number and their scores."""
        if not self.several:
            return f"{answer.text}\n"
        return "".join(f"{number}\t{one.hypothesis.score:.4f}\t{one.text}\n" for one in answer.found)


def emit(searching: Searching, blocks: Iterator[list[str]], output: Output) -> None:
    """Translate block after block; each is written before the next is begun."""
    kept: list[Answer] = []  # for JSON and traces, which are written as one
    done = 0
    with output.opened() as stream:
        for block in blocks:
            answers = searching.answers(block)
            for answer in answers:
                done += 1
                if stream is not None:
                    stream.write(output.lines(answer, done))
                if searching.align and not output.as_json:
                    typer.echo(answer.drawn(output.layer, output.head) + "\n")
            if stream is not None:
                stream.flush()
            if output.as_json or searching.trace:
                kept += answers
    if output.trace is not None:
        write_traces(output.trace, kept, searching.translator)
    if output.as_json:
        found = [one.as_dict(line, output.several) for line, one in enumerate(kept, 1)]
        indent = None if searching.align else 2  # weights are long columns of numbers
        print_json({"run": str(output.run), "translations": found}, indent)
