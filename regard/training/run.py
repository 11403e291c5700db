"""The folder of a run and the names in it. Importing it imports no torch."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RunExistsError, RunFormatError, RunLockedError, RunNotFoundError
from regard.files import storage_errors, write_json

if TYPE_CHECKING:
    from torch import nn

try:
    import fcntl
except ImportError:  # on Windows runs are not locked
    fcntl = None  # type: ignore[assignment]

__all__ = ["RunFolder"]


class RunFolder:
    """The folder of one training.

        run.json                      task, recipe and config
        processor/                    what inputs need: tokenizers, labels, sizes
        checkpoints/step-00001000/    everything needed to resume at step 1000
        weights/                      best.safetensors, average.safetensors, recent/
        metrics.jsonl, log.txt, curve.png

    `RunFolder.create` creates a new one, `RunFolder.open` opens an existing one.

    Args:
        folder: its path

    Example:
        >>> import tempfile
        >>> run = RunFolder.create(tempfile.mkdtemp() + "/run")
        >>> run.write_record({"format": 2, "recipe": "reverse"})
        >>> RunFolder.open(run.folder).read_record()["recipe"]
        'reverse'
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.record_path = self.folder / "run.json"
        self.processor = self.folder / "processor"
        self.checkpoints = self.folder / "checkpoints"
        self.best = self.folder / "weights" / "best.safetensors"
        self.average = self.folder / "weights" / "average.safetensors"
        self.recent = self.folder / "weights" / "recent"
        self.metrics = self.folder / "metrics.jsonl"
        self.log = self.folder / "log.txt"
        self.curve = self.folder / "curve.png"

    @classmethod
    def create(cls, folder: str | Path) -> RunFolder:
        """Create the folder of a new run.

        Args:
            folder: its path; it may exist if it is empty, or if torchrun restarts a run

        Raises:
            RunExistsError: the folder is in use
        """
        from regard.training.distributed import distributed_context

        run = cls(folder)
        if not distributed_context().is_main:
            return run  # the main process creates it
        if run.folder.is_file():
            raise RunExistsError(f"{folder} is a file; choose another name for the folder of the run")
        is_restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        if run.folder.is_dir() and any(run.folder.iterdir()) and not (is_restart and run.is_run()):
            hint = f"resume with: regard resume {folder}" if run.is_run() else "choose an empty or a new folder"
            raise RunExistsError(f"{folder} is not empty; {hint}")
        with storage_errors(str(folder)):
            run.folder.mkdir(parents=True, exist_ok=True)
        return run

    @classmethod
    def open(cls, folder: str | Path) -> RunFolder:
        """Open the folder of an existing run.

        Args:
            folder: its path

        Raises:
            RunNotFoundError: there is no run
        """
        run = cls(folder)
        if not run.folder.is_dir():
            reason = "it is a file, but a run is a folder" if run.folder.exists() else "no such folder"
            raise RunNotFoundError(f"no run in {folder}: {reason}")
        if not run.is_run():
            raise RunNotFoundError(f"no run in {folder}: it has neither run.json nor checkpoints")
        return run

    def is_run(self) -> bool:
        """Whether the folder has a record or checkpoints."""
        return self.record_path.is_file() or self.checkpoints.is_dir()

    def write_record(self, record: dict[str, Any]) -> None:
        """Write run.json."""
        write_json(self.record_path, record)

    def read_record(self) -> dict[str, Any]:
        """Read run.json."""
        try:
            record = json.loads(self.record_path.read_bytes())
        except FileNotFoundError:
            raise RunNotFoundError(f"no run in {self.folder}: run.json is missing") from None
        except ValueError as error:
            raise RunFormatError(f"{self.record_path} is damaged: {error}") from None
        if not isinstance(record, dict):
            raise RunFormatError(f"{self.record_path} is damaged: it must be a JSON object")
        return record

    def find_weights(self) -> Path:
        """The file of the weights to use: the average, else the best, else those of the latest checkpoint."""
        from regard.training import checkpoint

        for path in (self.average, self.best):
            if path.is_file():
                return path
        latest = checkpoint.load_latest(self.checkpoints)
        if latest is None:
            raise RunNotFoundError(f"{self.folder} has no weights yet; train it with: regard resume {self.folder}")
        return latest.path / checkpoint.MODEL_FILE

    def load_into(self, module: nn.Module, prefix: str = "") -> None:
        """Load the weights of the run into a module.

        Args:
            module: a model of the same architecture
            prefix: take only the weights below this name
        """
        from regard.training.weights import load_into, load_weights

        load_into(module, load_weights(self.find_weights(), prefix), str(self.folder))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Prevent other processes from training in this folder; the lock ends with the process."""
        with storage_errors(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = open(self.folder / ".lock", "a")  # noqa: SIM115
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RunLockedError(
                        f"another process is training in {self.folder}; wait for it, or stop it first"
                    ) from None
            yield
