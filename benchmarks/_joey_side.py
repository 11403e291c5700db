"""Training speed of JoeyNMT 2.3. Run by the Python of an environment that has it, not by ours:

    JOEY/bin/python benchmarks/_joey_side.py transformer FILES --tokens 4096 --seconds 30 --workers 0

prints one line of JSON: target tokens per second of each window, and the sizes of its batches. Its own training loop
runs; the time is read at the beginning of each batch, and the loop is interrupted at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

NEVER = 10**9  # updates: no validation and no logging while the clock runs
WARM_UP, WINDOW = 3, 5  # updates that are not counted, updates a window
BUSY = os.environ.get("BENCHMARK_CLOCK") == "processor"  # set by `throughput --busy`
now = time.process_time if BUSY else time.perf_counter


def transformer() -> dict[str, Any]:
    """Transformer-Tiny: 4 + 4 layers of 128, as published for Multi30k."""
    layers = {
        "type": "transformer",
        "num_layers": 4,
        "num_heads": 4,
        "hidden_size": 128,
        "ff_size": 256,
        "dropout": 0.3,
        "layer_norm": "post",
        "embeddings": {"embedding_dim": 128, "scale": True, "dropout": 0.3},
    }
    return {"tied_embeddings": True, "tied_softmax": True, "encoder": layers, "decoder": layers}


def gru() -> dict[str, Any]:
    """One bidirectional layer of 256 and one decoder layer of 256 with Bahdanau's score and input feeding."""
    layer = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "hidden_size": 256, "dropout": 0.2}
    layer["embeddings"] = {"embedding_dim": 256, "scale": False, "dropout": 0.2}
    above = {"attention": "bahdanau", "hidden_dropout": 0.2, "input_feeding": True, "init_hidden": "bridge"}
    return {"encoder": {**layer, "bidirectional": True}, "decoder": {**layer, **above}}


MODELS = {"transformer": transformer, "gru": gru}


def settings(model: str, files: Path, out: Path, tokens: int, workers: int) -> dict[str, Any]:
    """The content of a configuration file of JoeyNMT."""
    side = {"level": "word", "voc_file": str(files / "vocabulary.txt")}  # the files are cut already
    return {
        "name": model,
        "model_dir": str(out),
        "use_cuda": False,
        "num_workers": workers,
        "data": {
            "train": str(files / "train"),
            "dev": str(files / "train"),  # required, but not used
            "src": {"lang": "en", **side},
            "trg": {"lang": "de", **side},
        },
        "model": MODELS[model](),
        "training": {
            "optimizer": "adam",
            "learning_rate": 0.005,
            "learning_rate_min": 1e-9,
            "learning_rate_warmup": 2000,
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": 1.0,
            "label_smoothing": 0.1,
            "normalization": "tokens",
            "batch_type": "token",
            "batch_size": tokens,
            "epochs": NEVER,
            "validation_freq": NEVER,
            "logging_freq": NEVER,
        },
        "testing": {},
    }


class Stopwatch:
    """A wrapper of the training step that records times and sizes of batches."""

    def __init__(self, trainer: Any, seconds: float) -> None:
        self.trainer, self.seconds, self.step = trainer, seconds, trainer._train_step
        self.laps: list[tuple[float, int]] = []  # (time, target tokens so far) where an update begins
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, batch: Any) -> Any:
        # Between two calls are a step, its update and the construction of the next batch.
        self.laps.append((now(), self.trainer.stats.total_tokens))
        done = len(self.laps) - 1 - WARM_UP
        if done >= WINDOW and done % WINDOW == 0 and self.laps[-1][0] - self.laps[WARM_UP][0] >= self.seconds:
            raise KeyboardInterrupt
        self.shapes.append((batch.nseqs, batch.ntokens, batch.src.numel(), batch.trg.numel()))
        return self.step(batch)

    def windows(self) -> list[float]:
        marks = self.laps[WARM_UP::WINDOW]
        return [(to[1] - at[1]) / (to[0] - at[0]) for at, to in pairwise(marks)]

    def batches(self) -> dict[str, float]:
        """Averages over the updates that were counted."""
        names = ("rows", "target tokens", "source positions", "target positions")
        columns = zip(*self.shapes[WARM_UP:], strict=True)
        return {name: round(mean(column), 1) for name, column in zip(names, columns, strict=True)}


def measure(model: str, files: Path, tokens: int, seconds: float, workers: int) -> dict[str, Any]:
    import torch
    from joeynmt.config import parse_global_args, set_validation_args
    from joeynmt.prediction import prepare
    from joeynmt.training import TrainManager

    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as out:
        args = parse_global_args(settings(model, files, Path(out), tokens, workers))
        network, train, dev, _ = prepare(args, rank=0, mode="train")
        options = {"num_workers": args.num_workers, "autocast": args.autocast_state, "seed": args.seed}
        options.update(train_args=args.train, dev_args=set_validation_args(args.test_files))
        trainer = TrainManager(0, network, args.model_dir, args.device, **options)
        watch = trainer._train_step = Stopwatch(trainer, seconds)
        trainer.train_and_validate(train, dev)
    return {
        "windows": watch.windows(),
        "batches": watch.batches(),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("joeynmt", "torch")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed of JoeyNMT.")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("files", type=Path, help="a folder with train.en, train.de and vocabulary.txt")
    parser.add_argument("--tokens", type=int, default=4096, help="its batch_size, of batch_type token")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--workers", type=int, default=0)
    with contextlib.redirect_stdout(sys.stderr):
        answer = measure(**vars(parser.parse_args()))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
