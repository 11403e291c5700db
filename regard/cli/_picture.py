"""`regard evaluate RUN` and `regard show RUN` for a model that describes pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.data.captions import CaptionedImages
    from regard.tasks import ImageCaptioner


def is_captioner(run: Path) -> bool:
    """Whether a run is one of those."""
    from regard.tasks import CaptioningConfig, get_recipe
    from regard.training import RunFolder

    return get_recipe(RunFolder.open(run).read_record()["recipe"]).config_class is CaptioningConfig


def captioner_of(run: Path, device: str) -> tuple[ImageCaptioner, str]:
    """What a run trained, and the name of its recipe."""
    from regard.tasks import load
    from regard.training import RunFolder
    from regard.training.distributed import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    name = RunFolder.open(run).read_record()["recipe"]
    if not is_captioner(run):
        raise UsageError(f"{run} was trained for {name} and describes no pictures; `regard info` says what it is.")
    return load(run, device=str(resolve_device(device))), name


def show_picture(
    run: Path,
    image: str | None,
    which: int,
    beam_size: int | None,
    out: Path | None,
    language: str | None,
    device: str,
    as_json: bool,
) -> None:
    """The caption of an image, or of a picture of the recipe's test, and where each of its words looked."""
    captioner, name = captioner_of(run, device)
    options = captioner.decoding_config(**({} if beam_size is None else {"beam_size": beam_size}))
    if image is not None:
        looked = captioner.explain(Path(image), options)
    else:
        looked = captioner.explain(_tested(captioner, name, which), options)
    if out is not None and not looked.words:
        raise UsageError("This model says nothing of the picture, so there is nothing to show.")
    if out is not None and out.suffix.lower() == ".html":
        looked.to_page(language=language).save(out)
    elif out is not None and out.suffix.lower() == ".txt":
        out.write_text(f"{looked.caption}\n\n{looked.to_text()}\n", encoding="utf-8", newline="\n")
    elif out is not None:
        looked.to_figure(title=looked.caption).save(out)
    if as_json:
        print_json(looked.to_json() | ({} if out is None else {"out": str(out)}), indent=None)
    elif out is not None or looked.weights is None:
        typer.echo(looked.caption)
    else:
        typer.echo(f"{looked.caption}\n\n{looked.to_text()}")


def _tested(captioner: ImageCaptioner, name: str, which: int) -> Any:
    """One picture of the recipe's test: an image (height, width, channels), or a grid of features."""
    parts = _known(captioner, name)
    pictures = next(iter(parts.values()))().images
    if not 0 <= which < len(pictures):
        raise UsageError(f"--seed {which} is none of the {len(pictures):,} pictures of the test, counted from 0.")
    picture = pictures.select(slice(which, which + 1))[0]
    return picture if captioner.model.backbone is None else picture.permute(1, 2, 0)


def evaluate_pictures(
    run: Path,
    files: list[Path] | None,
    split: str | None,
    beam_size: int | None,
    limit: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Print how many captions are right, or BLEU, for the parts that are asked for."""
    from regard.data.parallel import pluralize
    from regard.tasks import get_recipe
    from regard.tasks.captioning.predictor import caption_report
    from regard.tasks.captioning.task import nearest_neighbor_baseline

    captioner, name = captioner_of(run, device)
    options = captioner.decoding_config(**({} if beam_size is None else {"beam_size": beam_size}))
    found = {}
    for which, pictures in _parts(captioner, name, files, split).items():
        some = pictures() if limit is None else pictures().head(limit)
        print_status(f"{which}: describing {pluralize(len(some), 'picture')}")
        found[which] = caption_report(captioner, some, options)
        if not files:
            found[which] |= nearest_neighbor_baseline(get_recipe(name).load_data(captioner.config), captioner, some)
    if as_json:
        print_json({"run": str(run), "recipe": name, "parts": found})
        return
    for which, report in found.items():
        _print(which, report)


def _known(captioner: ImageCaptioner, name: str) -> dict[str, Callable[[], CaptionedImages]]:
    from regard.tasks import get_recipe

    gallery = get_recipe(name).load_data(captioner.config)
    return {**gallery.tests, "valid": gallery.valid}


def _parts(
    captioner: ImageCaptioner, name: str, files: list[Path] | None, split: str | None
) -> dict[str, Callable[[], CaptionedImages]]:
    if files:
        from regard.data.captions import read_captioned_images

        if captioner.model.backbone is None:
            raise UsageError("This model was trained on ready features and cannot see images; take --split test.")
        size, color = captioner.config.image_size, captioner.config.color
        return {"files": lambda: read_captioned_images([str(file) for file in files], size, color)}
    known = _known(captioner, name)
    if split is not None and split not in known:
        raise UnknownNameError.among("split", split, known)
    wanted = split if split is not None else next(iter(known))
    return {wanted: known[wanted]}


def _print(name: str, report: dict[str, Any]) -> None:
    from regard.data.parallel import pluralize

    print_blocks(f"{name}: {pluralize(report['pictures'], 'picture')}")
    if "captions" in report:
        rows = [("captions right", f"{report['captions']:.2f} %"), ("digits right", f"{report['digits']:.2f} %")]
        if "inside" in report:
            rows.append(("looked at the digit it named", f"{report['inside']:.2f} %"))
        print_blocks(make_table(rows, numbers=[1]))
        return
    print_blocks(
        make_table(list(_bleu_rows(report)), ("", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"), numbers=range(1, 5)), ""
    )
    print_blocks(f"brevity penalty {report['brevity_penalty']:.3f}; {report['bleu_signature']}")


def _bleu_rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    def row(name: str, found: dict[str, Any], ending: str) -> tuple[str, ...]:
        return (name, *(f"{found[f'bleu{order}{ending}']:.2f}" for order in range(1, 5)))

    rows = [row("captions", report, ""), row("without brevity penalty", report, "_bare")]
    if "nearest" in report:
        rows.append(row("caption of the nearest picture", report["nearest"], ""))
    return rows
