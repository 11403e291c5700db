"""The folder of a run with the names in it, and how far its training has come. Importing it imports no torch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

from regard.errors import RunError, RunExistsError, RunFormatError, RunLockedError, RunNotFoundError
from regard.files import MAX_JSON_BYTES, add_checksum, read_file, read_json, storage_errors, write_json
from regard.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Progress", "RunFolder", "is_better", "median_speed", "read_points", "step_seed"]


def _import_or_none(name: str) -> Any:
    with contextlib.suppress(ImportError):
        return import_module(name)
    return None


fcntl, msvcrt = _import_or_none("fcntl"), _import_or_none("msvcrt")  # POSIX, Windows
JUNCTION_TAG = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT of Windows, whose lstat reports a junction as a folder


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

    def __init__(self, folder: str | os.PathLike[str]):
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
        run.check_entries()
        return run

    def is_run(self) -> bool:
        """Whether the folder has a record or checkpoints."""
        return self.record_path.is_file() or self.checkpoints.is_dir()

    def check_entries(self) -> None:
        """Raise RunError for a link or a device in the folder: what is written there would be written elsewhere."""
        for folder, folders, files in os.walk(self.folder):
            for path in (Path(folder, name) for name in (*folders, *files)):
                with contextlib.suppress(FileNotFoundError):  # a training may remove files meanwhile
                    status = path.lstat()
                    is_junction = getattr(status, "st_reparse_tag", 0) == JUNCTION_TAG
                    if is_junction or stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                        problem = "is a link or a device, which could lead out of the folder of the run"
                        raise RunError(f"{path} {problem}; put the file itself in its place")

    def write_record(self, record: dict[str, Any]) -> None:
        """Write run.json."""
        write_json(self.record_path, add_checksum(record))

    def read_record(self) -> dict[str, Any]:
        """Read run.json."""
        try:
            return read_json(self.record_path)
        except FileNotFoundError:
            raise RunNotFoundError(f"no run in {self.folder}: run.json is missing") from None
        except ValueError as error:
            raise RunFormatError(f"{self.record_path} is damaged: {error}") from None

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
        self.check_entries()
        with storage_errors(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = open(self.folder / ".lock", "ab")  # noqa: SIM115
        with file:
            try:
                _lock_file(file)
            except (BlockingIOError, PermissionError):
                problem = f"another process is training in {self.folder}"
                raise RunLockedError(f"{problem}; wait for it, or stop it first") from None
            yield


def _lock_file(file: IO[bytes]) -> None:
    """Lock an open file until it is closed; an error if another process has locked it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif msvcrt is not None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)


@dataclass
class Progress:
    """How far a training has come: the part of a checkpoint's state that is not tensors.

    It contains no random state: every step has a seed of its own, see `step_seed`.

    Args:
        step: number of optimizer steps
        data_position: position in the data after the last batch
        tokens: tokens trained on
        seconds: time of training, summed over resumed runs
        best: best value of the monitored metric
        best_step: its step
        validations_since_best: number of validations after it
        last_validated_step: step of the last validation, -1 before the first one
        scores: metrics of the last validation
    """

    step: int = 0
    data_position: dict[str, Any] | None = None
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    last_validated_step: int = -1
    scores: dict[str, float] = field(default_factory=dict)

    def record_validation(self, scores: dict[str, float], monitor: str, lower_is_better: bool) -> bool:
        """Add the metrics of a validation.

        Args:
            scores: all metrics
            monitor: name of the monitored one
            lower_is_better: whether smaller values of it are better

        Returns:
            Whether it is the best value so far.
        """
        improved = is_better(scores[monitor], self.best, lower_is_better)
        self.last_validated_step, self.scores = self.step, scores
        if improved:
            self.best, self.best_step, self.validations_since_best = scores[monitor], self.step, 0
        else:
            self.validations_since_best += 1
        return improved

    def stop_reason(self, config: TrainingConfig) -> str:
        """Why the training is over, or "" if it is not."""
        if self.step >= config.steps:
            return f"all {config.steps:,} steps are done"
        if config.patience is not None and self.validations_since_best >= config.patience:
            return f"{config.monitor} did not improve in {self.validations_since_best} validations"
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"max_minutes={config.max_minutes:g} is reached"
        return ""

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Progress:
        """The progress of which `to_json` is a part of `state`."""
        return cls(**{item.name: state[item.name] for item in fields(cls) if item.name in state})


def read_points(metrics_path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read metrics.jsonl, of which a crash or the disk may have damaged lines.

    Args:
        metrics_path: the file; without it there are no points

    Returns:
        The points in order, and the number of lines that cannot be read.
    """
    try:
        lines = read_file(metrics_path, MAX_JSON_BYTES).splitlines()
    except (OSError, ValueError):
        return [], 0
    points = [point for point in map(_parse_point, lines) if point]
    return points, len(lines) - len(points)


def median_speed(metrics_path: Path) -> float | None:
    """The median of the tokens per second in metrics.jsonl; None without points.

    Args:
        metrics_path: the file
    """
    speeds = [point["tokens_per_second"] for point in read_points(metrics_path)[0] if "tokens_per_second" in point]
    return median(speeds) if speeds else None


def _parse_point(line: bytes) -> dict[str, Any]:
    """A point of the metrics; empty if the line is not what was written."""
    try:
        point = json.loads(line)
        numbers = {name: value for name, value in {**point, **point.get("valid", {})}.items() if name != "valid"}
        return point if all(isinstance(value, int | float) for value in numbers.values()) and "step" in point else {}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def is_better(score: float, best: float | None, lower_is_better: bool, margin: float = 0.0) -> bool:
    """Whether a value is better than the best one; NaN never is.

    Args:
        score: the new value
        best: the best value so far, if any
        lower_is_better: whether smaller values are better
        margin: required relative improvement

    >>> is_better(1.0, 2.0, lower_is_better=True), is_better(1.0, 2.0, lower_is_better=False)
    (True, False)
    >>> is_better(30.3, 30.0, lower_is_better=False, margin=0.02)
    False
    """
    if math.isnan(score):
        return False
    if best is None:
        return True
    gain = best - score if lower_is_better else score - best
    return gain > margin * abs(best)


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of one step in one process.

    With a seed for every step a resumed run draws the same random numbers as one that was not interrupted; validations
    and the number of processes do not change them.

    Args:
        seed: seed of the training
        step: number of the step
        rank: index of the process

    >>> step_seed(0, 1) != step_seed(0, 2) != step_seed(0, 2, rank=1)
    True
    """
    mixed = seed & 0xFFFF_FFFF_FFFF_FFFF
    for number in (step, rank):  # splitmix64
        mixed = (mixed + (number + 1) * 0x9E37_79B9_7F4A_7C15) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & 0xFFFF_FFFF_FFFF_FFFF
        mixed ^= mixed >> 31
    return mixed >> 32  # PyTorch's generator on the CPU uses 32 bits only
