"""A small world to train in: data that can be resumed, and a model with dropout and tied weights.

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

from regard.training import Loss, RunFolder, TrainingConfig, checkpoint, distributed, fit
from regard.training import logging as report

WORDS = 11


@dataclass(frozen=True)
class Rows:
    """Some rows of numbers; the next number is to be predicted."""

    words: torch.Tensor

    @property
    def num_tokens(self) -> int:
        return self.words[:, 1:].numel()

    def to(self, device) -> Rows:
        return Rows(self.words.to(device))

    def shard(self, rank: int, world_size: int) -> Rows:
        return Rows(self.words[rank::world_size])


class Counting:
    """Rows that count upwards from anywhere; batches differ in rows and length. An epoch has seven."""

    def __init__(self, seed: int = 0, most: int = 6):
        self.seed, self.most = seed, most

    def batches(self, position):
        epoch, done = (position["epoch"], position["done"]) if position else (0, 0)
        while True:
            for index in range(done, 7):
                random = torch.Generator().manual_seed(self.seed + 1000 * epoch + index)
                rows, length = torch.randint(1, self.most, (2,), generator=random).tolist()
                start = torch.randint(WORDS, (rows, 1), generator=random)
                end = index == 6
                position = {"epoch": epoch + end, "done": 0 if end else index + 1}
                yield Rows((start + torch.arange(length + 1)) % WORDS), position
            epoch, done = epoch + 1, 0


class Next(nn.Module):
    """Predicts the next number: embed, mix, drop, and compare with the same embeddings."""

    def __init__(self, dim: int = 8, dropout: float = 0.3):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(dim, WORDS)
        self.output.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, rows: Rows) -> Loss:
        words = rows.words
        if self.training:
            self.seen += words.shape[0]
        hidden = self.drop(self.mix(self.embedding(words[:, :-1]))[0])
        right = words[:, 1:].reshape(-1)
        scores = self.output(hidden).flatten(0, 1)
        total = F.cross_entropy(scores, right, reduction="sum")
        return Loss(total, rows.num_tokens, {"wrong": (scores.argmax(-1) != right).sum()})


def objective(seed: int = 0, **kwargs) -> Next:
    torch.manual_seed(seed)
    return Next(**kwargs)


def scores(model: Next):
    """A validation: the loss of some rows, and how many are right. It also draws numbers, as sampling would."""
    rows = Rows((torch.arange(WORDS)[:, None] + torch.arange(6)) % WORDS)

    def validate() -> dict[str, float]:
        torch.rand(3)
        loss = model(rows)
        return {
            "loss": float(loss.total) / loss.count,
            "right": 1 - float(loss.metrics["wrong"]) / loss.count,
        }

    return validate


def settings(**kwargs) -> TrainingConfig:
    usual = {
        "steps": 30,
        "validate_every": 7,
        "save_every": 5,
        "warmup": 5,
        "lr": 0.02,
        "device": "cpu",
        "threads": 1,
    }
    return TrainingConfig(**{**usual, **kwargs})


def silent(line: str) -> None:
    """Nobody listens."""


def train(folder: str | Path, model: Next | None = None, say=silent, most: int = 6, **kwargs):
    """Train a run, or go on with it."""
    model = objective() if model is None else model
    outcome = fit(model, Counting(most=most), settings(**kwargs), RunFolder(folder), scores(model), say)
    return model, outcome


def trained(folder: str, given: dict, dies: tuple[str, int] | None = None) -> None:
    """Train in a process of its own; `dies=("fsync", 5)` kills it before the fifth call of os.fsync."""
    report.plot_curve = lambda *args: False
    if dies is not None:
        mortal(*dies)
    _, outcome = train(folder, **given)
    os._exit(3 if outcome.interrupted else 0)


def mortal(name: str, calls: int) -> None:
    """Let this process kill itself in the midst of writing files; "half" is after half of a file was written."""
    count = 0

    def dying(call, before):
        def counted(*args, **kwargs):
            nonlocal count
            count += 1
            if count == calls:
                before(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    if name == "half":
        checkpoint.write_and_sync = dying(
            checkpoint.write_and_sync, lambda path, content: path.write_bytes(content[: len(content) // 2])
        )
    else:
        module = shutil if name == "rmtree" else os
        setattr(module, name, dying(getattr(module, name), lambda *args: None))


def main() -> None:
    folder, *rest = sys.argv[1:]
    given = dict(item.split("=") for item in rest)
    kinds = {item.name: type(item.default) for item in fields(TrainingConfig)}
    model = objective(dropout=float(given.pop("dropout", "0.3")))
    most = int(given.pop("most", "6"))
    _, outcome = train(folder, model, None, most, **{key: kinds[key](value) for key, value in given.items()})
    distributed.destroy_process_group()
    sys.exit(3 if outcome.interrupted else 0)


if __name__ == "__main__":
    main()
