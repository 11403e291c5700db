"""`regard export RUN` and `regard bench VERB RUN`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard import tasks
from regard.cli.arguments import AsJson, Device, Run, find_task, load_predictor
from regard.cli.evaluate import load_splits
from regard.cli.info import list_file_sizes, make_file_table
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UnknownNameError, UnsupportedError
from regard.tasks.registry import get_entry, list_verbs

if TYPE_CHECKING:
    from regard.tasks.benchmark import Throughput

__all__ = ["bench", "export"]

HEAD = ("engine", "batch", "inputs/s", "tokens/s", "p50", "p95", "p99", "memory")
Target = Literal["ctranslate2", "onnx", "safetensors", "transformers"]


def export(
    run: Run,
    to: Annotated[Target, typer.Option(help="The engine or library; safetensors: weights of regard.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
    quantize: Annotated[Literal["int8"] | None, typer.Option(help="Smaller weights, of eight bits.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="File of weights; default: the averaged ones, else the best.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export a model for other programs.

    The folder needs neither the run nor its data. What an engine cannot compute is refused.

    Example: regard export runs/en-de --to onnx --quantize int8 --out en-de-int8

    Example: regard translate en-de-int8 "A dog runs."

    Example: regard export runs/en-de --to transformers --out en-de-hf
    """
    from regard.export import export as export_run

    folder = export_run(run, to, out, quantize, weights)
    files = list_file_sizes(folder)
    if as_json:
        print_json({"run": str(run), "to": to, "out": str(folder), "files": files})
        return
    print_blocks(make_file_table(files), "")
    typer.echo(f"exported to {folder}; use it: regard {get_entry(find_task(run)).verb} {folder}")


def bench(
    verb: Annotated[str, typer.Argument(metavar="VERB", help="What to measure: the command of the run's task.")],
    run: Run,
    file: Annotated[
        Path | None, typer.Option(help="A file with one text per line; default: the test splits, else validation.")
    ] = None,
    engine: Annotated[list[str] | None, typer.Option(help="torch, ctranslate2 or onnx; can be repeated.")] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=0, help="Inputs of a call; 0: all, grouped by the engine. Can be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of inputs, at most.")] = 200,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to compute with; default: all.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
    options: Mapping[str, Any] = {},
) -> None:
    """Measure how fast a model is.

    For every engine and batch size: inputs and tokens per second, the time of one call (median, 95th and 99th
    percentile) and the peak memory of the process. Default of --batch: 1, 32 and all.

    The options of the task are those of the run: regard bench VERB RUN --help

    Example: regard bench translate runs/en-de --engine torch --engine onnx --batch 1 --batch 64 --beam-size 5
    """
    import torch

    from regard.tasks.benchmark import measure_throughput

    UnknownNameError.check("benchmark", verb, list_verbs())
    find_task(run, verb)
    if threads is not None:
        torch.set_num_threads(threads)
    speeds: list[Throughput] = []
    inputs: list[Any] = []
    chosen: Any = None
    for name in engine or ["torch"]:
        predictor = load_predictor(run, device, name)
        chosen = predictor.predict_options(**options)
        inputs = inputs or _read_inputs(predictor, run, file, limit)
        for size in batch or [1, 32, 0]:
            print_status(f"{name}, batch {size or 'all'}: {len(inputs):,} inputs ...")
            speeds.append(measure_throughput(predictor, inputs, size, chosen))
    if as_json:
        facts = {"run": str(run), "options": chosen.to_dict(), "threads": torch.get_num_threads()}
        print_json({**facts, "speeds": [_as_dict(one) for one in speeds]})
    else:
        print_blocks(make_table(map(_row, speeds), HEAD, numbers=range(1, len(HEAD))))


def _read_inputs(predictor: tasks.Predictor[Any, Any, Any], run: Path, file: Path | None, limit: int) -> list[Any]:
    from regard.data.text_files import read_lines

    if not predictor.inputs:
        raise UnsupportedError(f"{run} takes no input, so there is nothing to measure")
    if file is not None:
        return list(islice(read_lines(file), limit))
    splits = load_splits(predictor, run).values()
    return [predictor.get_input(one) for one in islice(chain.from_iterable(splits), limit)]


def _as_dict(one: Throughput) -> dict[str, Any]:
    rates = {"inputs_per_second": one.inputs_per_second, "tokens_per_second": one.tokens_per_second}
    latency = dict(zip(("p50", "p95", "p99"), one.latency, strict=True))
    return {**asdict(one), **rates, "latency": latency}


def _row(one: Throughput) -> list[str]:
    rates = [f"{one.inputs_per_second:,.1f}", f"{one.tokens_per_second:,.0f}"]
    memory = "" if one.peak_memory_mb is None else f"{one.peak_memory_mb:,.0f} MB"
    return [one.engine, str(one.batch_size or "all"), *rates, *map(_format_time, one.latency), memory]


def _format_time(seconds: float) -> str:
    """A time in milliseconds or seconds.

    >>> _format_time(0.0123), _format_time(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
