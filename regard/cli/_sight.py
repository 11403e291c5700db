"""Verbs for models that put images into classes, or answer questions about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._say import note, say, say_json, table
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Report
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

    test = next(iter(get_recipe(name).load_data(made.config).select().values())).load()
    if not 0 <= which < len(test):
        raise UsageError(f"--seed {which} is none of the {len(test):,} scenes of the test, counted from 0.")
    return test


def classify_images(run: Path, images: list[str] | None, device: str, as_json: bool) -> None:
    """One line for each image: the file, a tab, the class, a tab, its probability."""
    if not images:
        raise UsageError("This model sees images: name one or more: regard classify RUN seven.png")
    glancer, _ = sighted(run, device)
    found = list(zip(images, glancer.predict(images), strict=True))
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
        _show(glancer.explain(tested(glancer, name, which).images[which]), out, as_json)
    else:
        _show(glancer.explain(image), out, as_json)


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
        _show(respondent.explain((image, question)), out, as_json)
        return
    test = tested(respondent, name, which)
    question = test.get_question(which, which % len(test.types[0])) if question is None else question
    _show(respondent.explain((test.scenes.images[which], question)), out, as_json)


def _show(sight: GridExplanation, out: Path | None, as_json: bool) -> None:
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {out}: a look at an image is shown as {', '.join(ENDINGS)}.")
    if out is not None and out.suffix.lower() == ".txt":
        out.write_text(f"{sight.to_text()}\n", encoding="utf-8", newline="\n")
    elif out is not None:
        sight.to_figure().save(out)
    if as_json:
        say_json(sight.to_json() | ({} if out is None else {"out": str(out)}), indent=None)
    else:
        typer.echo(sight.title if out is not None else sight.to_text())


def evaluate_sights(
    run: Path, files: list[Path] | None, part: str | None, limit: int | None, device: str, as_json: bool
) -> None:
    """Print how often a model is right, by class or kind of question, and how often it looked at what matters."""
    from regard.tasks import get_recipe

    if files:
        raise UsageError(
            "This model is judged by the scenes of its recipe: take --part test or --part valid."
        )
    made, name = sighted(run, device)
    ((chosen, examples),) = get_recipe(name).load_data(made.config).select(part).items()
    scenes = examples.load()[:limit]
    note(f"{chosen}: {len(scenes):,} scenes")
    report = made.evaluate(scenes)
    if as_json:
        say_json({"run": str(run), "recipe": name, "parts": {chosen: report.to_json()}})
    else:
        _print(chosen, report)


def _print(name: str, report: Report) -> None:
    is_classification = "classes" in report.tables
    noun, metrics = "images" if is_classification else "questions", report.metrics
    right = f"{metrics['accuracy']:.2f} % right (standard error {metrics['error']:.2f})"
    say(f"{name}: {report.num_examples:,} {noun}, {right}")
    if "inside" in metrics:
        about = "" if is_classification else ", of questions about one digit"
        say(f"largest weight inside the digit: {metrics['inside']:.2f} %{about}")
    say("")
    if is_classification:
        cells = [(row["label"], f"{row['accuracy']:.2f}") for row in report.tables["classes"]]
        say(table(cells, ("class", "right"), [1]))
        return
    rows = [
        (
            row["type"],
            f"{row['examples']:,}",
            f"{row['accuracy']:.2f}",
            *(f"{value:.2f}" for value in row.get("inside", ())),
        )
        for row in report.tables["types"]
    ]
    num_hops = max(len(row) for row in rows) - 3
    heads = ["type", "questions", "right"]
    heads += ["inside"] if num_hops == 1 else [f"inside, hop {hop}" for hop in range(1, num_hops + 1)]
    say(table(rows, heads, numbers=range(1, len(heads))))
