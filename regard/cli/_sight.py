"""Verbs for models that put images into classes, or answer questions about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._say import note, say, say_json, table
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.tasks.vision.predictor import GridExplanation

ENDINGS = (".png", ".svg", ".txt")


def is_glancer(run: Path) -> bool:
    """Whether a run puts images into classes."""
    from regard.tasks import ImageClassificationConfig

    return _kind(run) is ImageClassificationConfig


def is_respondent(run: Path) -> bool:
    """Whether a run answers questions about images."""
    from regard.tasks import VisualQAConfig

    return _kind(run) is VisualQAConfig


def _kind(run: Path) -> type:
    from regard.tasks import get_recipe
    from regard.training import RunFolder

    return get_recipe(RunFolder.open(run).read_record()["recipe"]).config_class


def sighted(run: Path, device: str) -> tuple[Any, str]:
    """The `Glancer` or `Respondent` that a run trained, and the name of its recipe."""
    from regard.tasks import load
    from regard.training import RunFolder
    from regard.training.distributed import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    return load(run, device=str(resolve_device(device))), RunFolder.open(run).read_record()["recipe"]


def tested(made: Any, name: str, which: int) -> Any:
    """The test of a recipe, if it has a scene of that number."""
    from regard.tasks import get_recipe

    test = next(iter(get_recipe(name).data(made.settings).parts.values()))()
    if not 0 <= which < len(test):
        raise UsageError(f"--seed {which} is none of the {len(test):,} scenes of the test, counted from 0.")
    return test


def classify_images(run: Path, images: list[str] | None, device: str, as_json: bool) -> None:
    """One line for each image: the file, a tab, the class, a tab, its probability."""
    if not images:
        raise UsageError("This model sees images: name one or more: regard classify RUN seven.png")
    glancer, _ = sighted(run, device)
    found = list(zip(images, glancer.classify(images), strict=True))
    if as_json:
        say_json({"run": str(run), "images": [{"image": image, **one.to_json()} for image, one in found]})
        return
    for image, one in found:
        typer.echo(f"{image}\t{one.label}\t{one.probability:.4f}")


def show_glance(
    run: Path, image: str | None, which: int, out: Path | None, device: str, as_json: bool
) -> None:
    """The class of an image, or of a scene of the recipe's test, and where the model looked."""
    glancer, name = sighted(run, device)
    if image is None:
        _show(glancer.look(tested(glancer, name, which).images[which]), out, as_json)
    else:
        _show(glancer.look(image), out, as_json)


def show_answer(
    run: Path,
    question: str | None,
    image: Path | None,
    which: int,
    out: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """The answer to a question about an image, or about a scene of the recipe's test, and where the model looked."""
    respondent, name = sighted(run, device)
    if image is not None and question is None:
        raise UsageError('Ask something about the image: regard show RUN "how many 3s" --image x.png')
    if image is not None:
        _show(respondent.look(image, question), out, as_json)
        return
    test = tested(respondent, name, which)
    question = test.question(which, which % len(test.types[0])) if question is None else question
    _show(respondent.look(test.scenes.images[which], question), out, as_json)


def _show(sight: GridExplanation, out: Path | None, as_json: bool) -> None:
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {out}: a look at an image is shown as {', '.join(ENDINGS)}.")
    if out is not None and out.suffix.lower() == ".txt":
        out.write_text(f"{sight.title}\n\n{sight.to_text()}\n", encoding="utf-8", newline="\n")
    elif out is not None:
        sight.to_figure().save(out)
    if as_json:
        say_json(sight.to_json() | ({} if out is None else {"out": str(out)}), indent=None)
    else:
        typer.echo(sight.title if out is not None else f"{sight.title}\n\n{sight.to_text()}")


def evaluate_sights(
    run: Path, files: list[Path] | None, part: str | None, limit: int | None, device: str, as_json: bool
) -> None:
    """Print how often a model is right, by class or kind of question, and how often it looked at what matters."""
    from regard.tasks import ImageClassifier, get_recipe
    from regard.tasks.vision.predictor import answer_report, image_report

    if files:
        raise UsageError(
            "This model is judged by the scenes of its recipe: take --part test or --part valid."
        )
    made, name = sighted(run, device)
    parts = get_recipe(name).data(made.settings).parts
    if part is not None and part not in parts:
        raise UnknownNameError.among("split", part, parts)
    chosen = part or next(iter(parts))
    held = parts[chosen]()
    if limit is not None:
        held = held.head(limit)
    note(f"{chosen}: looking at {len(held):,} scenes")
    found = (image_report if isinstance(made, ImageClassifier) else answer_report)(made, held)
    if as_json:
        say_json({"run": str(run), "recipe": name, "parts": {chosen: found}})
    else:
        _print(chosen, found)


def _print(name: str, report: dict[str, Any]) -> None:
    what = "images" if "images" in report else "questions"
    right = f"{report['accuracy']:.2f} % right (standard error {report['error']:.2f})"
    say(f"{name}: {report[what]:,} {what}, {right}")
    if "inside" in report:
        about = "" if what == "images" else ", of questions about one digit"
        say(f"looked at the digit: {report['inside']:.2f} %{about}")
    say("")
    if what == "images":
        say(
            table(
                [(label, f"{share:.2f}") for label, share in report["classes"].items()],
                ("class", "right"),
                [1],
            )
        )
        return
    rows = [
        (
            kind,
            f"{one['questions']:,}",
            f"{one['accuracy']:.2f}",
            *(f"{share:.2f}" for share in one.get("inside", ())),
        )
        for kind, one in report["kinds"].items()
    ]
    looks = max(len(row) for row in rows) - 3
    heads = ["kind", "questions", "right"]
    heads += ["looked at it"] if looks == 1 else [f"look {place}" for place in range(1, looks + 1)]
    say(table(rows, heads, numbers=range(1, len(heads))))
