"""Train, kill the process at a random moment, resume, and compare the weights bit for bit; twenty times.

    python -m benchmarks.kills [--times 20] [--out benchmarks/results/kills.md]

The processes are those of the command line, with a short training that uses dropout. The moment is drawn between the
start of the process and the time of an uninterrupted training, so kills hit the preparation, steps, validations and
writing of checkpoints.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = [
    "steps=1000",
    "hidden_dim=32",
    "embed_dim=16",
    "dropout=0.2",
    "validate_every=100",
    "save_every=20",
    "average_last=2",
    "device=cpu",
    "num_threads=1",
]


def regard(*arguments: str) -> list[str]:
    """The command line of regard."""
    return [sys.executable, "-m", "regard", *arguments]


def finish(run: Path) -> None:
    """Train to the end; a run that was killed before it had a record is started again."""
    has_record = (run / "run.json").is_file()
    if not has_record:
        shutil.rmtree(run, ignore_errors=True)
    arguments = ["resume", str(run)] if has_record else ["train", "reverse", *OPTIONS, "--out", str(run)]
    subprocess.run(regard(*arguments), check=True, capture_output=True)


def fingerprint(run: Path) -> list[str]:
    """Checksums of the last checkpoint and of the best and averaged weights."""
    last = sorted((run / "checkpoints").iterdir())[-1]
    weights = sorted((run / "weights").glob("*.safetensors"))  # the average may not be used
    files = [last / "model.safetensors", last / "training.safetensors", *weights]
    return [file.name + hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]


def latest_step(run: Path) -> str:
    """The step of the latest checkpoint."""
    steps = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    return f"{int(steps[-1].removeprefix('step-'))}" if steps else "none"


def train_and_kill(run: Path, rng: random.Random, seconds: float) -> float:
    """Train and kill the process at a random moment; again if the training was faster. Returns the moment."""
    while True:
        shutil.rmtree(run, ignore_errors=True)
        moment = rng.uniform(0, seconds)
        command = regard("train", "reverse", *OPTIONS, "--out", str(run))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return moment


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.kills", description="Kill and resume trainings.")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng, rows, num_equal = random.Random(options.seed), [], 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        finish(Path(folder, "uninterrupted"))
        seconds = time.perf_counter() - start
        expected = fingerprint(Path(folder, "uninterrupted"))
        for number in range(1, options.times + 1):
            run = Path(folder, f"killed{number}")
            moment = train_and_kill(run, rng, seconds)
            step = latest_step(run)
            finish(run)
            is_equal = fingerprint(run) == expected
            num_equal += is_equal
            rows.append(f"| {number} | {moment:.1f} s | {step} | {'yes' if is_equal else 'NO'} |")
            print(rows[-1], flush=True)
    head = [
        f"# {options.times} killed and resumed trainings",
        "",
        "    python -m benchmarks.kills",
        "",
        f"`regard train reverse {' '.join(OPTIONS)}` takes {seconds:.1f} s; killed by SIGKILL at a random moment,",
        "then resumed by `regard resume`. Equal: the last weights, optimizer state, best and averaged weights",
        f"have the same bytes as those of an uninterrupted run. Equal: {num_equal} of {options.times}.",
        "",
        "| kill | moment | latest checkpoint | equal |",
        "|---|---|---|---|",
    ]
    if options.out:
        options.out.write_text("\n".join(head + rows) + "\n")
    print(f"{num_equal} of {options.times} equal")
    sys.exit(num_equal != options.times)


if __name__ == "__main__":
    main()
