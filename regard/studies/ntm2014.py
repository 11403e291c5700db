"""Graves, Wayne and Danihelka (2014), found again: five tasks, a machine with a memory beside layers of LSTM."""

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
from regard.training.display import LogFn

NUM_TEST_SEQUENCES = 200  # sequences of each size


COLORS = {"ntm": "#0072B2", "lstm": "#D55E00"}


class AlgorithmTrial(NamedTuple):
    """One task: the size of the baseline (table 3), what to try, and what the paper found."""

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
    """Train both on the tasks, as many sequences each; try them beyond the sizes of training."""
    before = out / "numbers.json"
    rows: list[Row] = json.loads(before.read_text(encoding="utf-8"))["rows"] if before.is_file() else []
    for part in parts:
        rows = [row for row in rows if row["task"] != part]
        for model in COLORS:
            log(f"{part}, {model}:")
            rows += _train_and_test(part, model, out / f"{part}-{model}", values, log)
        _save_curves(out / f"{part}.png", out, part)
    if "copy" in parts:
        _draw_memory(out)
    rows.sort(key=lambda row: list(ALGORITHM_TRIALS).index(row["task"]))
    columns = {
        "task": "",
        "model": "",
        "tried": "",
        "bits": ".3f",
        "best": ".2f",
        "errors": ".3f",
        "exact": ".1f",
        "memory_rows": ",",
    }
    table = format_markdown_table(rows, {**columns, "sequences": ",", "minutes": ".0f", "paper": ""})
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"rows": rows, "table": table}


def _train_and_test(name: str, model: str, folder: Path, values: dict[str, Any], log: LogFn) -> list[Row]:
    """Train one of both, or take what is there, and try it: a row for each size."""
    part = ALGORITHM_TRIALS[name]
    settings = {"model": model, **({"hidden_dim": part.hidden_dim} if model == "lstm" else {}), **values}
    trained = run_trial(name, folder, log=log, **settings)
    predictor = load(folder)
    return [
        {
            "task": name,
            "model": model,
            "tried": ", ".join(f"{key} {value}" for key, value in sizes.items()),
            **_evaluate_sizes(predictor, sizes),
            "sequences": trained["steps"] * predictor.config.batch_size,
            "minutes": trained["minutes"],
            "paper": part.paper_result,
        }
        for sizes in part.test_sizes
    ]


def _evaluate_sizes(predictor: AlgorithmPredictor, sizes: dict[str, int], count: int | None = None) -> Row:
    """The row of the report for sequences of these sizes."""
    options = AlgorithmEvaluateOptions(num_sequences=count or NUM_TEST_SEQUENCES)
    return dict(predictor.evaluate([sizes], options).tables["sizes"][0])


def _save_curves(path: Path, out: Path, name: str) -> None:
    figure = _plot_curves(out, name)
    figure.savefig(path, dpi=150)
    require_extra("matplotlib.pyplot", extra="draw").close(figure)


def _plot_curves(out: Path, name: str) -> Any:
    """Learning curves: bits a sequence of the greatest size of training, by sequences seen."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    reached: list[float] = []
    for model, color in COLORS.items():
        points = _read_curve(RunFolder.open(out / f"{name}-{model}"))
        sequences, bits = [x for x, _ in points], [max(y, 1e-3) for _, y in points]
        axes.plot(sequences, bits, ".-", markersize=3, color=color, label=model.upper())
        reached.append(min(bits, default=0.0))
    axes.set(xlabel="sequences", ylabel="bits a sequence", title=name, yscale="log")
    if (best := _optimal_bits(out / f"{name}-ntm")) is not None:
        axes.axhline(best, color="black", linestyle="--", label="best possible")
        highest = max(best + 30, *(bits + 5 for bits in reached))  # about as in the paper's figure 13
        axes.set(yscale="linear", ylim=(best - 2, highest))
    axes.legend(frameon=False)
    return figure


def _read_curve(run: RunFolder) -> list[tuple[int, float]]:
    batch = run.read_record()["config"]["batch_size"]
    points = map(json.loads, run.metrics.read_text(encoding="utf-8").splitlines())
    return [(point["step"] * batch, point["valid"]["bits"]) for point in points if "valid" in point]


def _optimal_bits(folder: Path) -> float | None:
    """What the best possible guess costs on the sequences of the validation; None where no mistake is needed."""
    predictor = load(folder)
    return _evaluate_sizes(predictor, predictor.max_training_sizes, NUM_VALID_SEQUENCES).get("best")


def _draw_memory(out: Path) -> None:
    """The memory while a sequence is copied that is longer than any of training: figure 6 of the paper."""
    from regard.viewing import MemoryData, figures

    trace = load(out / "copy-ntm").explain(None, AlgorithmExplainOptions(length=40))
    data = MemoryData(
        write_weights=trace.write_weights[:, 0],
        read_weights=trace.read_weights[:, 0],
        inputs=trace.inputs,
        outputs=trace.masked_outputs,
        targets=trace.optimal_outputs,
        add_vectors=trace.add_vectors[:, 0],
        read_vectors=trace.read_vectors[:, 0],
    )
    figures.memory_timeline(data, title="copy, 40 vectors").save(out / "memory.png")
