"""Training throughput beside JoeyNMT: the same pieces of text, the same network, one process at a time, in turns.

    python -m benchmarks.throughput --joey JOEY/bin/python --data multi30k/tok --model transformer

JoeyNMT has an environment of its own, because it needs older packages than ours:

    python -m venv JOEY
    JOEY/bin/pip install torch==2.13.0 joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0

A target token is one that is predicted: the end of the sentence counts, its beginning and padding do not. JoeyNMT
fills a batch up to rows x longest sentence, in random order, so that half of it is padding; ``--joey-tokens`` lets
it have larger ones. It is measured with memory as the C library handles it, and with freed memory kept, as ours
is; the verdict is against the best of these. Ours is measured in both of its precisions; JoeyNMT turns its own
(``fp16``) off on a CPU. ``--sides theirs`` leaves ours out, and ``--busy`` is for a machine that others use too: one
thread, processor time instead of the clock.
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

from benchmarks._segmented import LANGUAGES, prepare
from benchmarks._side import ROOT, Side
from benchmarks.report import machine
from benchmarks.timing import CLOCKS, spread

TARGETS = {"transformer": 5.0, "gru": 3.0}  # times as many target tokens a second
HEAD = (
    "side",
    "target tokens/s",
    "quartiles",
    "windows",
    "ours / this",
    "target tokens an update",
    "others' load",
)
PRECISIONS = ["float32", "bfloat16"]
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 35), "MALLOC_TRIM_THRESHOLD_": str(1 << 35)}  # GNU C library
now = CLOCKS[os.environ.get("BENCHMARK_CLOCK", "wall")]  # what both sides count windows with


OURS = {  # what `_joey_side.py` says of JoeyNMT's, in our words
    "transformer": {},
    "gru": {
        "model": "rnn",
        "order": "luong",
        "input_feeding": True,
        "score": "additive",
        "hidden_dim": 256,
        "encoder_hidden_dim": 256,
        "num_layers": 1,
        "dropout": 0.2,
        "tie_embeddings": "none",
    },
}
WARM_UP, WINDOW = 3, 5  # updates that are not counted, updates a window


def ours(model: str, files: Path, tokens_per_batch: int, seconds: float, precision: str) -> list[float]:
    """Target tokens a second of regard, window by window, by ``now``; the first updates are not counted."""
    import torch

    from regard.data import BatchingConfig, InMemoryPairs, ParallelFiles, Tokenizer
    from regard.tasks import NextTokenLoss, make_config
    from regard.tasks.translation.task import build_model
    from regard.training.engine import retain_freed_memory
    from regard.training.optim import make_optimizer, scale_and_clip_gradients, set_learning_rate

    retain_freed_memory()  # as the engine does
    settings = make_config("multi30k", **OURS[model])
    pairs = ParallelFiles([files / f"train.{language}" for language in LANGUAGES])
    words = Tokenizer.train(
        (files / "vocabulary.txt").read_text().split("\n"), model_type="word", vocab_size=20_000
    )
    data = InMemoryPairs(pairs, words, words, BatchingConfig(max_tokens=tokens_per_batch))
    objective = NextTokenLoss(build_model(settings, len(words), len(words)), settings.label_smoothing)
    optimizer = make_optimizer(objective, settings)
    laps, done = [], 0
    for step, (batch, _) in enumerate(data.batches(None)):
        laps.append((now(), done))
        if step >= WARM_UP and (step - WARM_UP) % WINDOW == 0 and laps[-1][0] - laps[WARM_UP][0] >= seconds:
            break
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):  # as the engine does
            loss = objective(batch)
        loss.total.backward()
        scale_and_clip_gradients(optimizer, 1 / loss.count, settings.max_grad_norm)
        set_learning_rate(optimizer, settings.learning_rate(step + 1))
        optimizer.step()
        optimizer.zero_grad()
        done += loss.count
    marks = laps[WARM_UP::WINDOW]
    return [(to[1] - at[1]) / (to[0] - at[0]) for at, to in pairwise(marks)]


def sides(options: argparse.Namespace, files: Path) -> list[Side]:
    found = []
    for precision in options.precision if "ours" in options.sides else ():
        words = ["--measure", options.model, str(files), str(options.tokens), str(options.seconds), precision]
        found.append(Side(f"regard, {precision}", [sys.executable, "-m", "benchmarks.throughput", *words]))
    for tokens in options.joey_tokens if "theirs" in options.sides else ():
        for workers in options.workers:
            words = [options.model, str(files), "--tokens", str(tokens), "--workers", str(workers)]
            command = [str(options.joey), str(ROOT / "benchmarks" / "_joey_side.py"), *words]
            command += ["--seconds", str(options.seconds)]
            for memory in options.memory:
                name = f"JoeyNMT, batch_size {tokens}, num_workers {workers}, memory {memory}"
                found.append(Side(name, command, KEEP if memory == "kept" else {}))
    return found


def compare(options: argparse.Namespace) -> list[Side]:
    """Every side in turns; who comes first changes from round to round."""
    with tempfile.TemporaryDirectory() as folder:
        found = sides(options, prepare(options.data, Path(folder)))
        for turn in range(options.rounds):
            for side in found if turn % 2 == 0 else reversed(found):
                side.run()
                middle = spread(side.windows).median
                print(f"round {turn + 1}: {side.name}, {middle:,.0f} tokens/s so far", file=sys.stderr)
    return found


def said() -> str:
    """The command, with the ends of long paths only: where a machine keeps things is its own affair."""
    words = ["/".join(Path(word).parts[1:][-3:]) if word.startswith("/") else word for word in sys.argv[1:]]
    return shlex.join(["python", "-m", "benchmarks.throughput", *words])


def report(found: list[Side], facts: dict[str, str], options: argparse.Namespace) -> list[str]:
    lines = [f"# Training throughput, {options.model}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- {side.name}: {json.dumps(side.facts)}" for side in found if side.facts]
    ours, theirs = ([side for side in found if side.name.startswith(name)] for name in ("regard", "Joey"))
    target = TARGETS[options.model]
    for side in ours if theirs else ():
        middle = spread(side.windows).median
        times = [middle / spread(other.windows).median for other in theirs]
        verdict = "met" if min(times) >= target else "MISSED"
        told = " and ".join(f"{one:.2f}" for one in times)
        lines += [
            f"- {side.name}: {told} times JoeyNMT, in the order below; target {target:g} at its best: {verdict}"
        ]
    rows = [HEAD, ["---"] * len(HEAD), *(side.cells(ours[0] if ours else None) for side in found)]
    return [*lines, "", *(f"| {' | '.join(row)} |" for row in rows)]


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:  # a process of its own, started by `Side.run`
        model, files, tokens, seconds, precision = sys.argv[2:]
        windows = ours(model, Path(files), int(tokens), float(seconds), precision)
        print(json.dumps({"windows": windows}))
        return
    parser = argparse.ArgumentParser("python -m benchmarks.throughput", description="Training, in turns.")
    parser.add_argument("--joey", type=Path, help="the Python of an environment with JoeyNMT 2.3")
    parser.add_argument(
        "--data", type=Path, required=True, help="a folder with train*.en[.xz], train*.de[.xz]"
    )
    parser.add_argument("--model", choices=sorted(TARGETS), default="transformer")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a batch of ours")
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS, help="of ours, in matrix products"
    )
    parser.add_argument("--joey-tokens", type=int, nargs="+", default=[4096], help="its batch_size")
    parser.add_argument("--workers", type=int, nargs="+", default=[0], help="its num_workers")
    parser.add_argument("--memory", nargs="+", choices=("default", "kept"), default=["default", "kept"])
    parser.add_argument("--sides", nargs="+", choices=("ours", "theirs"), default=["ours", "theirs"])
    parser.add_argument("--seconds", type=float, default=30, help="a turn, without the warm-up")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of the clock")
    parser.add_argument("--out", type=Path, help="a Markdown file, say benchmarks/results/throughput.md")
    options = parser.parse_args()
    if "theirs" in options.sides and options.joey is None:
        parser.error("--joey must name the Python of an environment with JoeyNMT, or say --sides ours")
    if options.busy:
        if any(options.workers):
            parser.error("--busy counts one process, and a worker of JoeyNMT is another: say --workers 0")
        os.environ.update(OMP_NUM_THREADS="1", BENCHMARK_CLOCK="processor")  # for the processes started here
    facts = {**machine(), "command": said()}  # the load before we add to it
    for other in ("cores", "x-transformers", "entmax"):
        facts.pop(other)
    threads = "1 thread, processor time" if options.busy else "all threads, by the clock"
    facts["cores"] = f"{os.cpu_count()}; {threads}"
    lines = report(compare(options), facts, options)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
