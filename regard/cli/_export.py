"""`regard export RUN`: a trained model for other programs, in a folder of its own."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from regard.cli._say import AsJson, say, say_json, table


class Target(str, Enum):
    ctranslate2 = "ctranslate2"
    onnx = "onnx"
    safetensors = "safetensors"


class Bits(str, Enum):
    int8 = "int8"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    to: Annotated[Target, typer.Option(help="The engine it is for; safetensors: weights with a model card.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
    quantize: Annotated[Bits | None, typer.Option(help="Weights in eight bits: smaller.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="These weights; default: the averaged ones, else the best.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export a trained model.

    The folder needs neither the run nor its data; what an engine cannot compute is refused.

    Example: regard export runs/en-de --to onnx --quantize int8 --out en-de-int8

    Example: regard translate en-de-int8 "A dog runs."
    """
    from regard.export import export as exported

    folder = exported(run, to.value, out, None if quantize is None else quantize.value, weights)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if as_json:
        say_json({"run": str(run), "to": to.value, "out": str(folder), "files": files})
        return
    say(table(((name, f"{size:,} bytes") for name, size in files.items()), numbers=[1]), "")
    typer.echo(f"exported to {folder}; translate with: regard translate {folder}")
