"""A small training: batches that can be resumed, and a model with dropout and tied weights.

As a program it trains a run, for tests that kill it: python toy.py RUN [key=value ...]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from regard.training import Loss, RunFolder, TrainingConfig, checkpoint, distributed, fit, logging

VOCAB_SIZE = 11


@dataclass(frozen=True)
class Rows:
    """Rows of numbers; the next number is to be predicted."""

    numbers: torch.Tensor

    @property
    def num_tokens(self) -> int:
        return self.numbers[:, 1:].numel()

    def to(self, device) -> Rows:
        return Rows(self.numbers.to(device))

    def shard(self, rank: int, world_size: int) -> Rows:
        return Rows(self.numbers[rank::world_size])


class CountingRows:
    """Rows that count upwards from a random number; batches differ in rows and length. An epoch has seven."""

    def __init__(self, seed: int = 0, max_rows: int = 6):
        self.seed, self.max_rows = seed, max_rows

    def batches(self, position):
        epoch, done = (position["epoch"], position["done"]) if position else (0, 0)
        while True:
            for index in range(done, 7):
                random = torch.Generator().manual_seed(self.seed + 1000 * epoch + index)
                rows, length = torch.randint(1, self.max_rows, (2,), generator=random).tolist()
                start = torch.randint(VOCAB_SIZE, (rows, 1), generator=random)
                is_last = index == 6
                position = {"epoch": epoch + is_last, "done": 0 if is_last else index + 1}
                yield Rows((start + torch.arange(length + 1)) % VOCAB_SIZE), position
            epoch, done = epoch + 1, 0


class NextNumber(nn.Module):
    """Logits of the next number: an embedding, a GRU, dropout, and an output layer with the same weights."""

    def __init__(self, dim: int = 8, dropout: float = 0.3):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(dim, VOCAB_SIZE)
        self.output.weight = self.embedding.weight
        self.register_buffer("num_rows", torch.zeros((), dtype=torch.long))

    def forward(self, numbers):
        if self.training:
            self.num_rows += numbers.shape[0]
        return self.output(self.dropout(self.rnn(self.embedding(numbers))[0]))


def loss_fn(model: nn.Module, rows: Rows) -> Loss:
    logits = model(rows.numbers[:, :-1]).flatten(0, 1)
    target = rows.numbers[:, 1:].reshape(-1)
    total = F.cross_entropy(logits, target, reduction="sum")
    return Loss(total, rows.num_tokens, {"errors": (logits.argmax(-1) != target).sum()})


def make_model(seed: int = 0, **kwargs) -> NextNumber:
    torch.manual_seed(seed)
    return NextNumber(**kwargs)


def make_validation(model: nn.Module):
    """A validation: the loss of some rows, and the accuracy. It draws random numbers, as sampling would."""
    rows = Rows((torch.arange(VOCAB_SIZE)[:, None] + torch.arange(6)) % VOCAB_SIZE)

    def validate() -> dict[str, float]:
        torch.rand(3)
        loss = loss_fn(model, rows)
        errors = float(loss.metrics["errors"])
        return {"loss": float(loss.total) / loss.count, "accuracy": 1 - errors / loss.count}

    return validate


def make_config(**kwargs) -> TrainingConfig:
    defaults = {
        "steps": 30,
        "validate_every": 7,
        "save_every": 5,
        "warmup_steps": 5,
        "lr": 0.02,
        "device": "cpu",
        "num_threads": 1,
    }
    return TrainingConfig(**{**defaults, **kwargs})


def ignore(line: str) -> None:
    """Drop a line of the log."""


def train(
    folder: str | Path, model: nn.Module | None = None, log=ignore, max_rows: int = 6, compile_mode="whole", **kwargs
):
    """Train a run, or resume it."""
    model = make_model() if model is None else model
    config, batches = make_config(**kwargs), CountingRows(max_rows=max_rows)
    result = fit(
        model,
        loss_fn,
        batches,
        config,
        RunFolder(folder),
        make_validation(model),
        log,
        lower_is_better=config.monitor == "loss",
        compile_mode=compile_mode,
    )
    return model, result


def train_and_exit(folder: str, options: dict, kill_at: tuple[str, int] | None = None) -> None:
    """Train in a process of its own; `kill_at=("fsync", 5)` kills it before the fifth call of os.fsync."""
    logging.plot_curve = lambda *args: False
    if kill_at is not None:
        kill_in_write(*kill_at)
    _, result = train(folder, **options)
    os._exit(3 if result.interrupted else 0)


def kill_in_write(name: str, calls: int) -> None:
    """Make this process kill itself while it writes files; "half" is after half of a file was written."""
    count = 0

    def kill_before(call, before):
        def counted(*args, **kwargs):
            nonlocal count
            count += 1
            if count == calls:
                before(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    if name == "half":
        checkpoint.write_and_sync = kill_before(
            checkpoint.write_and_sync, lambda path, content: path.write_bytes(content[: len(content) // 2])
        )
    else:
        module = shutil if name == "rmtree" else os
        setattr(module, name, kill_before(getattr(module, name), lambda *args: None))


def main() -> None:
    folder, *overrides = sys.argv[1:]
    options = dict(item.split("=") for item in overrides)
    types = {item.name: type(item.default) for item in fields(TrainingConfig)}
    model = make_model(dropout=float(options.pop("dropout", "0.3")))
    max_rows = int(options.pop("max_rows", "6"))
    options = {key: types[key](value) for key, value in options.items()}
    _, result = train(folder, model, None, max_rows, **options)
    distributed.destroy_process_group()
    sys.exit(3 if result.interrupted else 0)


if __name__ == "__main__":
    main()
