"""`regard evaluate RUN` and `regard show RUN` for a model that reads documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.info import describe_data
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from regard.data.documents import Document
    from regard.tasks import TextClassificationConfig, TextClassifier

ENDINGS = (".html", ".txt")


def is_classifier(run: Path) -> bool:
    """Whether a run is one of those."""
    from regard.tasks import TextClassificationConfig, get_recipe
    from regard.training import RunFolder

    return get_recipe(RunFolder.open(run).read_record()["recipe"]).config_class is TextClassificationConfig


def classifier_of(run: Path, device: str) -> tuple[TextClassifier, str]:
    """What a run trained, and the name of its recipe."""
    from regard.tasks import load
    from regard.training import RunFolder
    from regard.training.distributed import resolve_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UnknownNameError.among("device", device, ("auto", "cpu", "cuda", "mps"))
    name = RunFolder.open(run).read_record()["recipe"]
    if not is_classifier(run):
        raise UsageError(f"{run} was trained for {name} and cannot classify; `regard info` says what it is.")
    return load(run, device=str(resolve_device(device))), name


def evaluate_documents(
    run: Path,
    files: list[Path] | None,
    split: str | None,
    columns: str | None,
    limit: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Print accuracy, each class and the confusion, for the parts that are asked for."""
    from regard.data.parallel import pluralize
    from regard.tasks.text_classification.predictor import classification_report

    classifier, name = classifier_of(run, device)
    found = {}
    for which, documents in _parts(name, classifier.config, files, split, columns).items():
        print_status(f"{which}: reading {pluralize(len(documents[:limit]), 'document')}")
        found[which] = classification_report(classifier, documents[:limit])
    if as_json:
        print_json({"run": str(run), "recipe": name, "parts": found})
        return
    for which, report in found.items():
        _print(which, report)


def show_document(run: Path, text: str, out: Path | None, language: str | None, device: str, as_json: bool) -> None:
    """One document with its class and the weights of sentences and words: a page, a text file, or here."""
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f"A document is shown as {' or '.join(ENDINGS)}; --out {out} is neither.")
    classifier, name = classifier_of(run, device)
    spoken = language or "en"
    if not text.strip():
        raise UsageError("There is nothing to show: the text is empty.")
    reading = classifier.explain(text)
    told = "  ".join(f"{label} {share:.3f}" for label, share in reading.prediction.probabilities.items())
    if reading.prediction.truncation:
        print_status(f"{reading.prediction.truncation} left out: the text is longer than this model reads.")
    if out is not None and out.suffix.lower() == ".html":
        reading.to_page(title=f"{name}: {reading.prediction.label}", language=language).save(out)
    elif out is not None:
        drawn = reading.to_text(color=False, width=100, language=spoken)
        out.write_text(f"{told}\n\n{drawn}\n", encoding="utf-8", newline="\n")
    if as_json:
        print_json(reading.to_json() | ({} if out is None else {"out": str(out)}), indent=None)
    else:
        typer.echo(told if out is not None else f"{told}\n\n{reading.to_text(language=spoken)}")


def _parts(
    name: str, settings: TextClassificationConfig, files: list[Path] | None, split: str | None, columns: str | None
) -> dict[str, list[Document]]:
    from regard.tasks import get_recipe
    from regard.tasks.text_classification import data as reviews

    if files:
        chosen = () if columns is None else tuple(column.strip() for column in columns.split(","))
        asked = replace(settings, columns=chosen or settings.columns)
        return {"files": [document for document, _ in reviews.open_documents(map(str, files), asked)]}
    shelves = get_recipe(name).load_data(settings)
    known = {**shelves.tests, "valid": shelves.valid}
    if split is not None and split not in known:
        raise UnknownNameError.among("split", split, known)
    if split is None and not shelves.tests:
        raise UsageError("The run has no documents to test with: name files, or take --split valid.")
    wanted = list(shelves.tests) if split is None else [split]
    return {which: list(known[which]()) for which in wanted}


def _print(name: str, report: dict[str, Any]) -> None:
    from regard.data.parallel import pluralize

    ((_, became),) = describe_data({name: report["data"]})
    print_blocks(
        f"{name}: {pluralize(report['documents'], 'document')}, {report['right']:,} right:"
        f" accuracy {report['accuracy']:.2f} % (standard error {report['error']:.2f})",
        became,
        "",
    )
    rows = [
        (label, f"{one['documents']:,}", *(_percent(one[key]) for key in ("precision", "recall", "f1")))
        for label, one in report["classes"].items()
    ]
    print_blocks(make_table(rows, ("class", "documents", "precision", "recall", "F1"), numbers=[1, 2, 3, 4]), "")
    said = list(report["confusion"])
    counts = [(true, *(f"{row[label]:,}" for label in said)) for true, row in report["confusion"].items()]
    heads = ("true class", *(f"said {label}" for label in said))
    print_blocks(make_table(counts, heads, numbers=range(1, len(heads))), "")


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
