"""A run: the folder that holds all of one training."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from regard.errors import RunExistsError, RunFormatError, RunLockedError, RunNotFoundError
from regard.files import storage_errors, write_json
from regard.training import checkpoint
from regard.training.checkpoint import load_into, load_weights
from regard.training.distributed import distributed_context

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two processes apart there
    fcntl = None  # type: ignore[assignment]


class RunFolder:
    """The folder of one training, and the names in it.

        run.json                      what is trained, and how
        checkpoints/step-00001000/    all that is needed to go on from step 1000
        weights/                      best.safetensors, average.safetensors, recent/
        metrics.jsonl, log.txt, curve.png

    `Run.create` makes a new one, `Run.open` finds one again.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.record_path = self.folder / "run.json"
        self.checkpoints = self.folder / "checkpoints"
        self.best = self.folder / "weights" / "best.safetensors"
        self.average = self.folder / "weights" / "average.safetensors"
        self.recent = self.folder / "weights" / "recent"
        self.metrics = self.folder / "metrics.jsonl"
        self.log = self.folder / "log.txt"
        self.curve = self.folder / "curve.png"

    @classmethod
    def create(cls, folder: str | Path) -> RunFolder:
        """A new run. A folder with something in it is refused; torchrun, restarting, finds its own run again."""
        run = cls(folder)
        if not distributed_context().is_main:
            return run  # the first process makes it
        if run.folder.is_file():
            raise RunExistsError(f"{folder} is a file; choose another name for the run's folder")
        restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        if run.folder.is_dir() and any(run.folder.iterdir()) and not (restarted and run.is_run()):
            hint = (
                f"go on with: regard resume {folder}" if run.is_run() else "choose an empty or a new folder"
            )
            raise RunExistsError(f"{folder} is not empty; {hint}")
        with storage_errors(str(folder)):
            run.folder.mkdir(parents=True, exist_ok=True)
        return run

    @classmethod
    def open(cls, folder: str | Path) -> RunFolder:
        """A run that is there already."""
        run = cls(folder)
        if not run.folder.is_dir():
            what = "that is a file, and a run is a folder" if run.folder.exists() else "no such folder"
            raise RunNotFoundError(f"there is no run in {folder}: {what}")
        if not run.is_run():
            raise RunNotFoundError(f"there is no run in {folder}: it has neither run.json nor checkpoints")
        return run

    def is_run(self) -> bool:
        return self.record_path.is_file() or self.checkpoints.is_dir()

    def write_record(self, record: dict[str, Any]) -> None:
        """Keep what is trained, and how, in run.json."""
        write_json(self.record_path, record)

    def read_record(self) -> dict[str, Any]:
        """What `write` kept."""
        try:
            record = json.loads(self.record_path.read_bytes())
        except FileNotFoundError:
            raise RunNotFoundError(f"there is no run in {self.folder}: run.json is missing") from None
        except ValueError as error:
            raise RunFormatError(f"{self.record_path} is damaged: {error}") from None
        if not isinstance(record, dict):
            raise RunFormatError(f"{self.record_path} is damaged: it should hold a JSON object")
        return record

    def find_weights(self) -> Path:
        """The file of the weights to use: the average, else the best, else those of the newest checkpoint."""
        for path in (self.average, self.best):
            if path.is_file():
                return path
        found = checkpoint.load_latest(self.checkpoints)
        if found is None:
            raise RunNotFoundError(
                f"{self.folder} has no weights yet; train it with: regard resume {self.folder}"
            )
        return found.path / checkpoint.MODEL_FILE

    def load_into(self, module: nn.Module, prefix: str = "") -> None:
        """Put the run's weights into a module; `within="model"` takes those below that name."""
        load_into(module, load_weights(self.find_weights(), prefix), str(self.folder))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training in this folder; the lock ends with the process, however it ends."""
        with storage_errors(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = open(self.folder / ".lock", "a")  # noqa: SIM115
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RunLockedError(
                        f"another process is training in {self.folder}; wait for it to end, or stop it first"
                    ) from None
            yield
