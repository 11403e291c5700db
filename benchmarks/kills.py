"""Twenty times: train, kill -9 at a random moment, resume, and compare the weights bit for bit.

    python -m benchmarks.kills [--times 20] [--out benchmarks/results/kills.md]

Real processes of the command line on a short run with dropout; the moment is drawn between the start of the process
and the time that a whole run takes, so that some kills hit set-up, steps, validations and writing of checkpoints.
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

SETTINGS = [
    "steps=120",
    "hidden_dim=32",
    "embed_dim=16",
    "dropout=0.2",
    "validate_every=30",
    "save_every=10",
    "average_last=2",
]
SETTINGS += ["device=cpu", "num_threads=1"]


def regard(*words: str) -> list[str]:
    return [sys.executable, "-m", "regard", *words]


def finish(run: Path) -> None:
    """Train to the end, from wherever the run is; a kill before the folder was made leaves nothing to resume."""
    started = (run / "run.json").is_file()
    if not started:
        shutil.rmtree(run, ignore_errors=True)
    words = ["resume", str(run)] if started else ["train", "reverse", *SETTINGS, "--out", str(run)]
    subprocess.run(regard(*words), check=True, capture_output=True)


def prints(run: Path) -> list[str]:
    """Fingerprints of the final weights: the last checkpoint's, the best, the averaged."""
    last = sorted((run / "checkpoints").iterdir())[-1]
    used = sorted((run / "weights").glob("*.safetensors"))  # an average is there only if it is of use
    files = [last / "model.safetensors", last / "training.safetensors", *used]
    return [file.name + hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]


def newest(run: Path) -> str:
    steps = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    return f"{int(steps[-1].removeprefix('step-'))}" if steps else "none"


def kill(run: Path, chance: random.Random, whole: float) -> float:
    """Begin the training and kill it at a random moment; once more if it was quicker."""
    while True:
        shutil.rmtree(run, ignore_errors=True)
        after = chance.uniform(0, whole)
        command = regard("train", "reverse", *SETTINGS, "--out", str(run))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return after


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.kills", description="Kill and resume.")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chance, lines, equal = random.Random(options.seed), [], 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        finish(Path(folder, "whole"))
        whole = time.perf_counter() - began
        wanted = prints(Path(folder, "whole"))
        for number in range(1, options.times + 1):
            run = Path(folder, f"killed{number}")
            moment = kill(run, chance, whole)
            kept = newest(run)
            finish(run)
            same = prints(run) == wanted
            equal += same
            lines.append(f"| {number} | {moment:.1f} s | {kept} | {'yes' if same else 'NO'} |")
            print(lines[-1], flush=True)
    head = [
        f"# {options.times} kills of a training, each resumed",
        "",
        "    python -m benchmarks.kills",
        "",
        f"`regard train reverse {' '.join(SETTINGS)}` takes {whole:.1f} s; killed by SIGKILL at a random moment, then",
        "`regard resume`. Equal means: last weights, optimizer, best and averaged weights are the same bytes as",
        f"those of the run that was left alone. Equal: {equal} of {options.times}.",
        "",
        "| kill | moment | newest checkpoint then | equal |",
        "|---|---|---|---|",
    ]
    if options.out:
        options.out.write_text("\n".join(head + lines) + "\n")
    print(f"{equal} of {options.times} equal")
    sys.exit(equal != options.times)


if __name__ == "__main__":
    main()
