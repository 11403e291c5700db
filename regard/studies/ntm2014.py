"""Graves, Wayne and Danihelka (2014): five algorithmic tasks, for a Neural Turing Machine and for LSTM layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard._imports import require_extra
from regard.studies.runner import Row, format_markdown_table, run_trial
from regard.tasks.algorithms.config import AlgorithmEvaluateOptions, AlgorithmExplainOptions
from regard.tasks.algorithms.data import NUM_VALID_SEQUENCES
from regard.tasks.algorithms.predictor import AlgorithmPredictor
from regard.tasks.loading import load
from regard.training import RunFolder
from regard.training.logging import LogFn
from regard.training.run import read_points

__all__ = ["ALGORITHM_TRIALS", "AlgorithmTrial", "ntm2014"]

NUM_TEST_SEQUENCES = 200  # of each size
COLORS = {"ntm": "#0072B2", "lstm": "#D55E00"}


class AlgorithmTrial(NamedTuple):
    """One task of the paper.

    Args:
        hidden_dim: of the LSTM (table 3)
        test_sizes: sizes of the test sequences
        paper_result: the result of the paper

    Example:
        >>> ALGORITHM_TRIALS["sort"].test_sizes
        ({'length': 20},)
    """

    hidden_dim: int
    test_sizes: tuple[dict[str, int], ...]
    paper_result: str


ALGORITHM_TRIALS = {
    "copy": AlgorithmTrial(
        256,
        tuple({"length": length} for length in (20, 30, 50, 120)),
        "120: one vector twice and a few wrong bits; LSTM fails soon after 20",
    ),
    "repeat-copy": AlgorithmTrial(
        512,
        ({"length": 10, "repeats": 10}, {"length": 10, "repeats": 20}, {"length": 20, "repeats": 10}),
        "more repeats and longer sequences continue, but it loses count; LSTM fails at both",
    ),
    "recall": AlgorithmTrial(
        256,
        tuple({"items": items} for items in (6, 8, 10, 12, 15, 20)),
        "nearly perfect at 12 items, below 1 bit at 15; LSTM never reaches 0 in training",
    ),
    "ngrams": AlgorithmTrial(128, ({"length": 200},), "a little better than LSTM, never quite the best possible"),
    "sort": AlgorithmTrial(128, ({"length": 20},), "much better than LSTM"),
}


def ntm2014(out: Path, name: str, values: dict[str, Any], log: LogFn, parts: Sequence[str]) -> dict[str, Any]:
    """Train both models on the same number of sequences of each task, and test them beyond the sizes of training.

    Args:
        out: the folder to write
        name: not used
        values: options of all trainings
        log: takes each line of progress
        parts: the tasks to train; the rows of the others come from numbers.json of an earlier run
    """
    numbers = out / "numbers.json"
    rows: list[Row] = json.loads(numbers.read_text(encoding="utf-8"))["rows"] if numbers.is_file() else []
    for part in parts:
        rows = [row for row in rows if row["task"] != part]
        for model in COLORS:
            log(f"{part}, {model}:")
            rows += _train_and_test(part, model, out / f"{part}-{model}", values, log)
        figure = _plot_curves(out, part)
        figure.savefig(out / f"{part}.png", dpi=150)
        require_extra("matplotlib.pyplot", extra="draw").close(figure)
    if "copy" in parts:
        _plot_memory(out)
    rows.sort(key=lambda row: list(ALGORITHM_TRIALS).index(row["task"]))
    columns = {
        "task": "",
        "model": "",
        "tried": "",
        "bits": ".3f",
        "best": ".2f",
        "errors": ".3f",
        "exact_match": ".1f",
    }
    columns |= {"memory_rows": ",", "sequences": ",", "minutes": ".0f", "paper": ""}
    table = format_markdown_table(rows, columns)
    return {"rows": rows, "table": table}


def _train_and_test(name: str, model: str, folder: Path, values: dict[str, Any], log: LogFn) -> list[Row]:
    """Train a model, or load the trained one, and test it: a row for each size."""
    trial = ALGORITHM_TRIALS[name]
    hidden_dim = {"hidden_dim": trial.hidden_dim} if model == "lstm" else {}
    result = run_trial(name, folder, log=log, **{"model": model, **hidden_dim, **values})
    predictor = load(folder)
    return [
        {
            "task": name,
            "model": model,
            "tried": ", ".join(f"{key} {value}" for key, value in sizes.items()),
            **_evaluate_sizes(predictor, sizes),
            "sequences": result["steps"] * predictor.config.batch_size,
            "minutes": result["minutes"],
            "paper": trial.paper_result,
        }
        for sizes in trial.test_sizes
    ]


def _evaluate_sizes(predictor: AlgorithmPredictor, sizes: dict[str, int], count: int | None = None) -> Row:
    """The results for sequences of these sizes."""
    options = AlgorithmEvaluateOptions(num_sequences=count or NUM_TEST_SEQUENCES)
    return dict(predictor.evaluate([sizes], options).tables["sizes"][0])


def _plot_curves(out: Path, name: str) -> Any:
    """Learning curves: bits per sequence of the largest training size, by training sequences."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    lowest: list[float] = []
    for model, color in COLORS.items():
        run = RunFolder.open(out / f"{name}-{model}")
        batch_size = run.read_record()["config"]["batch_size"]
        points = [point for point in read_points(run.metrics)[0] if "valid" in point]
        sequences = [point["step"] * batch_size for point in points]
        bits = [max(point["valid"]["bits"], 1e-3) for point in points]
        axes.plot(sequences, bits, ".-", markersize=3, color=color, label=model.upper())
        lowest.append(min(bits, default=0.0))
    axes.set(xlabel="sequences", ylabel="bits per sequence", title=name, yscale="log")
    predictor = load(out / f"{name}-ntm")
    best = _evaluate_sizes(predictor, predictor.max_training_sizes, NUM_VALID_SEQUENCES).get("best")
    if best is not None:  # the cost of the optimal predictor, where it is above 0
        axes.axhline(best, color="black", linestyle="--", label="best possible")
        highest = max(best + 30, *(bits + 5 for bits in lowest))  # about as in the paper's figure 13
        axes.set(yscale="linear", ylim=(best - 2, highest))
    axes.legend(frameon=False)
    return figure


def _plot_memory(out: Path) -> None:
    """The memory while a sequence longer than those of training is copied: figure 6 of the paper."""
    from regard.viewing import MemoryData, figures

    trace = load(out / "copy-ntm").explain(None, AlgorithmExplainOptions(length=40))
    names = ("write_weights", "read_weights", "add_vectors", "read_vectors")
    heads = {name: getattr(trace, name)[:, 0] for name in names}
    data = MemoryData(inputs=trace.inputs, outputs=trace.masked_outputs, targets=trace.optimal_outputs, **heads)
    figures.memory_timeline(data, title="copy, 40 vectors").save(out / "memory.png")
