"""`regard caption RUN IMAGE ...`: images in, captions out, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli._picture import captioner_of
from regard.cli.arguments import AsJson, Device
from regard.cli.output import print_json
from regard.errors import UsageError


def caption(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    images: Annotated[list[Path] | None, typer.Argument(metavar="IMAGE", help="Image files.")] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="Captions kept side by side; 1 is greedy.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Say in words what there is to see on images.

    One line out for each image, in order: the file, a tab, the caption.

    Example: regard caption runs/captions dog.jpg boat.png
    """
    if not images:
        raise UsageError("Name one image or more: regard caption RUN dog.jpg")
    captioner, _ = captioner_of(run, device)
    options = captioner.decoding_config(**({} if beam_size is None else {"beam_size": beam_size}))
    found = captioner.caption(images, options)
    if as_json:
        told = [{"image": str(image), "caption": text} for image, text in zip(images, found, strict=True)]
        print_json({"run": str(run), "images": told})
        return
    for image, text in zip(images, found, strict=True):
        typer.echo(f"{image}\t{text}")
