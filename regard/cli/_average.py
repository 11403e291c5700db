"""`regard average RUN`: the mean of the last weights, which is often better than any of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli._parts import from_recipe
from regard.cli._say import AsJson, note, say, say_json, table
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.training import RunFolder

SCORES = ("exact", "bleu", "chrf")


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    last: Annotated[int, typer.Option(min=1, help="So many, the newest.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Where to; default: the run's weights/average.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Translate the validation text with the old and the new weights.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Average the last weights of a run.

    Those of its validations, if it was trained with average_last=5, say; else those of its checkpoints.

    Example: regard average runs/en-de --last 5 --check
    """
    from regard.training import RunFolder, save_weights
    from regard.training import average_weights as mean

    here = RunFolder.open(run)
    paths = _newest(here, last)
    target = here.average if out is None else out
    scores: dict[str, Any] = {}
    if check:
        scores["before"] = _scores(here, here.find_weights())
    save_weights(mean(paths.values()), target)
    if check:
        scores["after"] = _scores(here, target)
    steps = list(paths)
    if as_json:
        say_json({"run": str(run), "steps": steps, "weights": str(target), "scores": scores})
        return
    typer.echo(f"averaged the weights of steps {', '.join(f'{step:,}' for step in steps)} into {target}")
    if scores:
        rows = [(when, *(f"{found[name]:.2f}" for name in SCORES)) for when, found in scores.items()]
        say("", table(rows, ("", "exact", "BLEU", "chrF"), numbers=[1, 2, 3]))


def _newest(run: RunFolder, last: int) -> dict[int, Path]:
    """The newest weights by step: those of validations if they were kept, else those in checkpoints."""
    from regard.training import checkpoint

    found = {int(path.stem[5:]): path for path in sorted(run.recent.glob("step-*.safetensors"))}
    if len(found) < 2:
        folders = checkpoint.list_steps(run.checkpoints)
        found = {step: folder / checkpoint.MODEL_FILE for step, folder in folders.items() if step}
    if len(found) < 2:
        raise UsageError(
            f"{run.folder} has no two weights to average; train with average_last=5, or with a smaller save_every "
            "and keep_checkpoints=5."
        )
    if len(found) < last:
        note(f"there are {len(found)} weights, not {last}")
    return dict(sorted(found.items())[-last:])


def _scores(run: RunFolder, weights: Path) -> dict[str, float]:
    """Greedy translations of the validation text, measured."""
    from regard.tasks import evaluate, load_translator

    translator = load_translator(run.folder, weights=weights)
    pairs = from_recipe(run.read_record()["recipe"], translator.config, "valid")["valid"]
    usable = [pair for pair in pairs if len(translator.source.encode(pair.source)) <= translator.max_length]
    found = evaluate(translator, usable, translator.decoding_config(method="greedy"))
    return {name: found[name] for name in SCORES}
