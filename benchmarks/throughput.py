"""Training throughput compared with JoeyNMT: the same tokens, the same network, one process at a time, in turns.

    python -m benchmarks.throughput --joey JOEY/bin/python --data multi30k/tok --model transformer

JoeyNMT needs an environment of its own, because it requires older packages:

    python -m venv JOEY
    JOEY/bin/pip install torch==2.13.0 joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0

Target tokens are those that are predicted: EOS counts, BOS and padding do not. JoeyNMT limits a batch by rows x longest
sentence, in random order, so half of it is padding; ``--joey-tokens`` sets larger batches. JoeyNMT is measured with the
default memory management of the C library and with freed memory retained, as in regard; the result is compared with the
better one. regard is measured in both precisions; JoeyNMT disables its own (``fp16``) on a CPU. ``--sides theirs``
skips regard, and ``--busy`` is for a shared machine: one thread, processor time instead of wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks._segmented import LANGUAGES, prepare
from benchmarks._side import ROOT, BenchmarkProcess
from benchmarks.report import machine
from benchmarks.timing import CLOCKS, spread

TARGETS = {"transformer": 5.0, "gru": 3.0}  # target tokens per second, relative to JoeyNMT
HEAD = ("side", "target tokens/s", "quartiles", "windows", "ours / this", "target tokens per update", "other load")
PRECISIONS = ["float32", "bfloat16"]
RETAIN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 35), "MALLOC_TRIM_THRESHOLD_": str(1 << 35)}  # GNU C library
now = CLOCKS[os.environ.get("BENCHMARK_CLOCK", "wall")]  # both sides measure windows with it


OPTIONS: dict[str, dict[str, Any]] = {  # the options of `_joey_side.py`, as options of regard
    "transformer": {},
    "gru": {
        "model": "rnn",
        "decoder_type": "luong",
        "input_feeding": True,
        "score": "additive",
        "hidden_dim": 256,
        "encoder_hidden_dim": 256,
        "num_layers": 1,
        "dropout": 0.2,
        "tie_embeddings": "none",
    },
}
WARM_UP, WINDOW = 3, 5  # updates that are not measured, updates per window


def measure_regard(model: str, files: Path, tokens_per_batch: int, seconds: float, precision: str) -> list[float]:
    """Target tokens per second of regard in each window; the first updates are not measured."""
    import torch

    from regard.data import BatchingConfig, InMemoryPairs, ParallelFiles, Tokenizer
    from regard.tasks import make_config
    from regard.tasks.translation.task import build_loss, build_model
    from regard.training.optim import make_optimizer, scale_and_clip_gradients, set_learning_rate
    from regard.training.trainer import Objective
    from regard.training.weights import retain_freed_memory

    retain_freed_memory()  # as the engine does
    config = make_config("multi30k", **OPTIONS[model])
    pairs = ParallelFiles([files / f"train.{language}" for language in LANGUAGES])
    tokenizer = Tokenizer.train(
        (files / "vocabulary.txt").read_text().split("\n"), model_type="word", vocab_size=20_000
    )
    data = InMemoryPairs(pairs, tokenizer, tokenizer, BatchingConfig(max_tokens=tokens_per_batch))
    objective = Objective(build_model(config, len(tokenizer), len(tokenizer)), build_loss(config))
    optimizer = make_optimizer(objective, config)
    laps, tokens = [], 0
    for step, (batch, _) in enumerate(data.batches(None)):
        laps.append((now(), tokens))
        if step >= WARM_UP and (step - WARM_UP) % WINDOW == 0 and laps[-1][0] - laps[WARM_UP][0] >= seconds:
            break
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):  # as the engine does
            loss = objective(batch)
        loss.total.backward()
        scale_and_clip_gradients(optimizer, 1 / loss.count, config.max_grad_norm)
        set_learning_rate(optimizer, config.learning_rate(step + 1))
        optimizer.step()
        optimizer.zero_grad()
        tokens += loss.count
    marks = laps[WARM_UP::WINDOW]
    return [(end[1] - start[1]) / (end[0] - start[0]) for start, end in pairwise(marks)]


def make_sides(options: argparse.Namespace, files: Path) -> list[BenchmarkProcess]:
    sides = []
    for precision in options.precision if "ours" in options.sides else ():
        arguments = ["--measure", options.model, str(files), str(options.tokens), str(options.seconds), precision]
        sides.append(
            BenchmarkProcess(f"regard, {precision}", [sys.executable, "-m", "benchmarks.throughput", *arguments])
        )
    for tokens in options.joey_tokens if "theirs" in options.sides else ():
        for workers in options.workers:
            arguments = [options.model, str(files), "--tokens", str(tokens), "--workers", str(workers)]
            command = [str(options.joey), str(ROOT / "benchmarks" / "_joey_side.py"), *arguments]
            command += ["--seconds", str(options.seconds)]
            for memory in options.memory:
                name = f"JoeyNMT, batch_size {tokens}, num_workers {workers}, memory {memory}"
                sides.append(BenchmarkProcess(name, command, RETAIN_MEMORY if memory == "retained" else {}))
    return sides


def compare(options: argparse.Namespace) -> list[BenchmarkProcess]:
    """Run all sides in turns; the order alternates from round to round."""
    with tempfile.TemporaryDirectory() as folder:
        sides = make_sides(options, prepare(options.data, Path(folder)))
        for turn in range(options.rounds):
            for side in sides if turn % 2 == 0 else reversed(sides):
                side.run()
                middle = spread(side.windows).median
                print(f"round {turn + 1}: {side.name}, {middle:,.0f} tokens/s so far", file=sys.stderr)
    return sides


def format_command() -> str:
    """The command, with the ends of absolute paths only."""
    arguments = ["/".join(Path(text).parts[1:][-3:]) if text.startswith("/") else text for text in sys.argv[1:]]
    return shlex.join(["python", "-m", "benchmarks.throughput", *arguments])


def report(sides: list[BenchmarkProcess], facts: dict[str, str], options: argparse.Namespace) -> list[str]:
    lines = [f"# Training throughput, {options.model}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- {side.name}: {json.dumps(side.facts)}" for side in sides if side.facts]
    ours, theirs = ([side for side in sides if side.name.startswith(name)] for name in ("regard", "Joey"))
    target = TARGETS[options.model]
    for side in ours if theirs else ():
        middle = spread(side.windows).median
        times = [middle / spread(other.windows).median for other in theirs]
        verdict = "met" if min(times) >= target else "MISSED"
        ratios = " and ".join(f"{one:.2f}" for one in times)
        lines += [
            f"- {side.name}: {ratios} times JoeyNMT, in the order below; target {target:g} at its best: {verdict}"
        ]
    rows = [HEAD, ["---"] * len(HEAD), *(side.cells(ours[0] if ours else None) for side in sides)]
    return [*lines, "", *(f"| {' | '.join(row)} |" for row in rows)]


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:  # a separate process, started by `BenchmarkProcess.run`
        model, files, tokens, seconds, precision = sys.argv[2:]
        windows = measure_regard(model, Path(files), int(tokens), float(seconds), precision)
        print(json.dumps({"windows": windows}))
        return
    parser = argparse.ArgumentParser("python -m benchmarks.throughput", description="Training, in turns.")
    parser.add_argument("--joey", type=Path, help="the Python of an environment with JoeyNMT 2.3")
    parser.add_argument("--data", type=Path, required=True, help="a folder with train*.en[.xz], train*.de[.xz]")
    parser.add_argument("--model", choices=sorted(TARGETS), default="transformer")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens per batch of regard")
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS, help="of regard, in matrix products"
    )
    parser.add_argument("--joey-tokens", type=int, nargs="+", default=[4096], help="batch_size of JoeyNMT")
    parser.add_argument("--workers", type=int, nargs="+", default=[0], help="num_workers of JoeyNMT")
    parser.add_argument("--memory", nargs="+", choices=("default", "retained"), default=["default", "retained"])
    parser.add_argument("--sides", nargs="+", choices=("ours", "theirs"), default=["ours", "theirs"])
    parser.add_argument("--seconds", type=float, default=30, help="per turn, without the warm-up")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of wall time")
    parser.add_argument("--out", type=Path, help="a Markdown file, say benchmarks/results/throughput.md")
    options = parser.parse_args()
    if "theirs" in options.sides and options.joey is None:
        parser.error("--joey must be the Python of an environment with JoeyNMT; or use --sides ours")
    if options.busy:
        if any(options.workers):
            parser.error("--busy measures one process, but a worker of JoeyNMT is another; use --workers 0")
        os.environ.update(OMP_NUM_THREADS="1", BENCHMARK_CLOCK="processor")  # for the child processes
    facts = {**machine(), "command": format_command()}  # the load before this benchmark
    for other in ("cores", "x-transformers", "entmax"):
        facts.pop(other)
    threads = "1 thread, processor time" if options.busy else "all threads, wall time"
    facts["cores"] = f"{os.cpu_count()}; {threads}"
    lines = report(compare(options), facts, options)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
