"""The task copy with five seeds: how reliably a Neural Turing Machine learns it, and to which lengths it generalizes.

    python -m benchmarks.copies --runs RUNS [--out benchmarks/results/ntm-copy.md]

Trains `regard train copy seed=S` for S = 0 to 4 into RUNS/S, and the LSTM of the paper's size with as many sequences
into RUNS/lstm; existing runs are resumed or only measured. One thread each. Rows are not parameters: training has 32,
and longer sequences are tested with proportionally more, or with the number in the column (128 as in the paper).

![Seed 0, 120 vectors: inputs, outputs, and the weights of the heads over time](ntm-copy.png)

    regard show RUNS/0 --length 120 --out benchmarks/results/ntm-copy.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from regard.studies.runner import format_markdown_table, run_trial
from regard.tasks import AlgorithmPredictor, load
from regard.tasks.algorithms.config import AlgorithmEvaluateOptions
from regard.training import RunFolder

RUNS: dict[str, dict[str, Any]] = {str(seed): {"seed": seed} for seed in range(5)}
RUNS["lstm"] = {"model": "lstm", "hidden_dim": 256}
NUM_SEQUENCES = 2000  # of the greatest training length, of which only rare ones are hard
LENGTHS = (20, 30, 50, 120)
LONG_LENGTHS = {"120, 128 rows": (20, 120, 128), "500": (4, 500, None), "1,000": (4, 1000, None)}
COLUMNS = {"run": "", "sequences": ",", "minutes": ".1f", "bits at 20": ".4f", "right of 2,000 at 20": ","}


def row(name: str, folder: Path) -> dict[str, Any]:
    """Train or load a run, and evaluate it on longer and longer sequences."""
    trained = run_trial("copy", folder, log=print, num_threads=1, **RUNS[name])
    machine: AlgorithmPredictor = load(folder)
    training_lengths = _evaluate(machine, NUM_SEQUENCES, 20)
    values: dict[str, Any] = {
        "run": name,
        "sequences": trained["steps"] * RunFolder.open(folder).read_record()["config"]["batch_size"],
        "minutes": trained["minutes"],
        "bits at 20": training_lengths["bits"],
        "right of 2,000 at 20": round(training_lengths["exact_match"] * NUM_SEQUENCES / 100),
    }
    for length in LENGTHS:
        values[f"wrong at {length}"] = _wrong(_evaluate(machine, 20, length))
    for tried, (sequences, length, rows) in LONG_LENGTHS.items() if name != "lstm" else ():
        values[f"wrong at {tried}"] = _wrong(_evaluate(machine, sequences, length, rows))
    return values


def _evaluate(machine: AlgorithmPredictor, count: int, length: int, memory_rows: int | None = None) -> dict[str, Any]:
    """The row of the report for sequences of one length."""
    options = AlgorithmEvaluateOptions(num_sequences=count, length=length, memory_rows=memory_rows)
    return dict(machine.evaluate((), options).tables["sizes"][0])


def _wrong(sizes: dict[str, Any]) -> str:
    return f"{sizes['wrong_bits']:,} of {sizes['target_bits']:,} ({sizes['errors']:.2f} %)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row(name, options.runs / name) for name in RUNS]
    table = format_markdown_table(rows, {**COLUMNS, **{key: "" for key in rows[0] if key.startswith("wrong")}})
    print(table)
    if options.out is not None:
        options.out.write_text(f"# Copy\n\n{(__doc__ or '').strip()}\n\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
