"""`regard bench translate RUN`: how fast a model translates, over engines and batch sizes."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._parts import to_translate
from regard.cli._say import AsJson, note, say, say_json, table
from regard.cli._translate import Device, loaded
from regard.errors import UnknownNameError

if TYPE_CHECKING:
    from regard.tasks import Translator
    from regard.tasks.benchmark import Throughput

HEAD = ("engine", "batch", "sentences/s", "tokens/s", "p50", "p95", "p99", "memory")


def bench(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="What to measure: translate.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    file: Annotated[
        Path | None,
        typer.Option(
            help="A file with one text a line; default: the recipe's tests, else its validation part."
        ),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="torch, ctranslate2 or onnx; may be given several times.")
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            min=0, help="Texts in a call; 0: all, grouped by the engine. May be given several times."
        ),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="Translations kept side by side; 1 is greedy.")] = 5,
    limit: Annotated[int, typer.Option(min=1, help="Only so many texts.")] = 200,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to compute with; default: all.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure how fast a model translates.

    Sentences and tokens a second, the seconds that one call takes (median, 95th and 99th percentile) and the most
    memory that the process held, for every engine and batch size. Without --batch: one by one, 32 at a time, and all
    at once.

    Example: regard bench translate runs/en-de --engine torch --engine onnx --batch 1 --batch 64
    """
    import torch

    from regard.tasks.benchmark import measure_throughput

    if what != "translate":
        raise UnknownNameError(f"There is no benchmark of {what!r}: write `regard bench translate RUN`.")
    if threads is not None:
        torch.set_num_threads(threads)
    found: list[Throughput] = []
    texts: list[str] = []
    for name in engine or ["torch"]:
        translator = loaded(run, device, name)
        texts = texts or _texts(translator, run, file, limit)
        for size in batch or [1, 32, 0]:
            note(f"{name}, batch {size or 'all'}: {len(texts):,} texts ...")
            found.append(measure_throughput(translator, texts, size, translator.decoding_config(beam=beam)))
    if as_json:
        facts = {"run": str(run), "beam": beam, "threads": torch.get_num_threads()}
        say_json({**facts, "speeds": [_as_dict(one) for one in found]})
    else:
        say(table(map(_row, found), HEAD, numbers=range(1, len(HEAD))))


def _texts(translator: Translator, run: Path, file: Path | None, limit: int) -> list[str]:
    from regard.data.text_files import read_lines
    from regard.tasks import recipe_name

    if file is not None:
        return list(islice(read_lines(file), limit))
    return to_translate(recipe_name(run), translator.config)[:limit]


def _as_dict(one: Throughput) -> dict[str, Any]:
    rates = {"sentences_per_second": one.sentences_per_second, "tokens_per_second": one.tokens_per_second}
    latency = dict(zip(("p50", "p95", "p99"), one.latency, strict=True))
    return {**asdict(one), **rates, "latency": latency}


def _row(one: Throughput) -> list[str]:
    rates = [f"{one.sentences_per_second:,.1f}", f"{one.tokens_per_second:,.0f}"]
    memory = "" if one.peak_memory_mb is None else f"{one.peak_memory_mb:,.0f} MB"
    return [one.engine, str(one.batch_size or "all"), *rates, *map(_time, one.latency), memory]


def _time(seconds: float) -> str:
    """
    >>> _time(0.0123), _time(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
