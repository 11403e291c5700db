"""`regard evaluate RUN` for a model of plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UnknownNameError, UsageError

NAMED = {
    "loss": ("nats a token", ".4f"),
    "perplexity": ("perplexity", ",.2f"),
    "bits_per_character": ("bits a character", ".4f"),
    "accuracy": ("hidden words guessed, in a hundred", ".2f"),
}


def is_of_text(run: Path) -> bool:
    """Whether a run is one of those."""
    from regard.tasks import get_recipe
    from regard.tasks.language_modeling.config import TextConfig
    from regard.training import RunFolder

    return issubclass(get_recipe(RunFolder.open(run).read_record()["recipe"]).config_class, TextConfig)


def model_of_text(run: Path, device: str) -> tuple[Any, str]:
    """What a run trained, a `Writer` or a `Guesser`, and the name of its recipe."""
    from regard.tasks import load
    from regard.training import RunFolder
    from regard.training.distributed import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    name = RunFolder.open(run).read_record()["recipe"]
    if not is_of_text(run):
        raise UsageError(f"{run} was trained for {name} and does not write; `regard info` says what it is.")
    return load(run, device=str(resolve_device(device))), name


def evaluate_text(
    run: Path, files: list[Path] | None, split: str | None, limit: int | None, device: str, as_json: bool
) -> None:
    """Print how well the model foretells text: files, or the parts of the recipe."""
    from regard.data.parallel import pluralize
    from regard.tasks import get_recipe

    model, name = model_of_text(run, device)
    task: Any = get_recipe(name).task
    found = {}
    for which, texts in _parts(name, model, files, split).items():
        print_status(f"{which}: reading {pluralize(len(texts[:limit]), 'document')}")
        found[which] = task.judged(model, texts[:limit])
    if as_json:
        print_json({"run": str(run), "recipe": name, "parts": found})
        return
    for which, report in found.items():
        print_blocks(f"{which}: {pluralize(report['read'], 'document')}, {pluralize(report['tokens'], 'token')}")
        rows = [(said, format(report[key], form)) for key, (said, form) in NAMED.items() if key in report]
        print_blocks(make_table(rows, numbers=[1]), "")


def _parts(name: str, model: Any, files: list[Path] | None, split: str | None) -> dict[str, list[str]]:
    from regard.data.passages import PlainTextFiles
    from regard.tasks import get_recipe

    if files:
        text = PlainTextFiles(files, model.config.document_separator)
        if not (found := list(text)):
            raise UsageError(f"There is nothing to read: {text} is empty.")
        return {"files": found}
    texts = get_recipe(name).load_data(model.config)
    known = texts.parts
    if split is not None and split not in known:
        raise UnknownNameError.among("split", split, known)
    return {which: list(known[which]()) for which in (known if split is None else [split])}
