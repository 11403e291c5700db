"""`regard evaluate RUN` for a model of plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.cli._say import note, say, say_json, table
from regard.errors import UnknownNameError, UsageError

NAMED = {
    "loss": ("nats a token", ".4f"),
    "perplexity": ("perplexity", ",.2f"),
    "bits_per_character": ("bits a character", ".4f"),
    "accuracy": ("hidden words guessed, in a hundred", ".2f"),
}


def is_of_text(run: Path) -> bool:
    """Whether a run is one of those."""
    from regard.recipes import recipe
    from regard.recipes.texts.settings import Text
    from regard.training import Run

    return issubclass(recipe(Run.open(run).read()["recipe"]).kind, Text)


def model_of_text(run: Path, device: str) -> tuple[Any, str]:
    """What a run trained, a `Writer` or a `Guesser`, and the name of its recipe."""
    from regard.recipes import load
    from regard.training import Run
    from regard.training.distributed import choose_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    name = Run.open(run).read()["recipe"]
    if not is_of_text(run):
        raise UsageError(f"{run} was trained for {name} and does not write; `regard info` says what it is.")
    return load(run, device=str(choose_device(device))), name


def evaluate_text(
    run: Path, files: list[Path] | None, part: str | None, limit: int | None, device: str, as_json: bool
) -> None:
    """Print how well the model foretells text: files, or the parts of the recipe."""
    from regard.data.report import counted
    from regard.recipes import recipe

    model, name = model_of_text(run, device)
    task: Any = recipe(name).task
    found = {}
    for which, texts in _parts(name, model, files, part).items():
        note(f"{which}: reading {counted(len(texts[:limit]), 'document')}")
        found[which] = task.judged(model, texts[:limit])
    if as_json:
        say_json({"run": str(run), "recipe": name, "parts": found})
        return
    for which, report in found.items():
        say(f"{which}: {counted(report['read'], 'document')}, {counted(report['tokens'], 'token')}")
        rows = [(said, format(report[key], form)) for key, (said, form) in NAMED.items() if key in report]
        say(table(rows, numbers=[1]), "")


def _parts(name: str, model: Any, files: list[Path] | None, part: str | None) -> dict[str, list[str]]:
    from regard.data.passages import PlainText
    from regard.recipes import recipe

    if files:
        text = PlainText(files, model.settings.apart)
        if not (found := list(text)):
            raise UsageError(f"There is nothing to read: {text} is empty.")
        return {"files": found}
    texts = recipe(name).material(model.settings)
    known = texts.parts
    if part is not None and part not in known:
        raise UnknownNameError.among("split", part, known)
    return {which: list(known[which]()) for which in (known if part is None else [part])}
