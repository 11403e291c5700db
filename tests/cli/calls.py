"""Calls of the command line: in a process of its own, or in this one, which is faster."""

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from unittest import mock

PYTHON = [sys.executable, "-m", "regard"]
ENVIRONMENT = {"PYTHONIOENCODING": "utf-8", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Answer:
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> Answer:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [*PYTHON, *arguments],
        input=stdin,
        capture_output=True,
        timeout=120,
        env={**os.environ, **ENVIRONMENT, **environment},
        check=False,
    )
    return Answer(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


def call(*arguments: object, stdin: bytes = b"") -> Answer:
    """Run a command in this process, which imported torch already."""
    from regard.cli import main

    out, err, inputs = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(3))
    inputs.buffer.write(stdin)
    inputs.buffer.seek(0)
    with mock.patch.dict(os.environ, ENVIRONMENT), mock.patch.multiple(sys, stdout=out, stderr=err, stdin=inputs):
        code: object = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return Answer(int(str(code or 0)), *texts)


def assert_refused(answer: Answer, words: str, code: int = 2) -> None:
    """Check the exit code, and that one sentence on standard error is all output."""
    assert answer.returncode == code, answer.stderr
    assert answer.stdout == ""
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
