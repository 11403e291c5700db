"""Run scripts as `python SCRIPT ...` does, but in copies of one process that has imported torch for all of them."""

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 600


@dataclass(frozen=True)
class Output:
    """What a script printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


class ScriptRunner:
    """Runs scripts one after the other, each in a process of its own."""

    def __init__(self, server: "subprocess.Popen[str]", folder: Path):
        self.server, self.files = server, [folder / "stdout", folder / "stderr"]

    def run(self, script: Path, cwd: Path, *arguments: str) -> Output:
        """Run a script in a folder."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        request = [str(script), list(arguments), str(cwd), *map(str, self.files)]
        print(json.dumps(request), file=self.server.stdin, flush=True)
        code = int(self.server.stdout.readline())
        return Output(code, *(file.read_text(encoding="utf-8") for file in self.files))


@contextmanager
def start_runner(folder: Path, **environment: str) -> Iterator[ScriptRunner]:
    """Start the process that is copied."""
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", **environment},
        encoding="utf-8",
    ) as server:
        yield ScriptRunner(server, folder)


def serve() -> None:
    """Answer every request with an exit code. In the copies this returns when the script has ended."""
    import torch._dynamo  # noqa: F401 (optimizers need it)

    for line in sys.stdin:
        script, arguments, cwd, *files = json.loads(line)
        if child := os.fork():
            sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
            sys.stdout.flush()
            continue
        signal.alarm(TIMEOUT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, file in enumerate(files, start=1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.chdir(cwd)
        sys.argv[:] = [script, *arguments]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        return


if __name__ == "__main__":
    serve()
