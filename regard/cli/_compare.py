"""`regard compare RECIPE key=a,b`: train the alternatives and put them in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli._combinations import combinations, folder_of, result_of
from regard.cli._files import TestFiles, TrainFiles, ValidFiles, check_files
from regard.cli._run import plain_settings
from regard.cli._say import AsJson, finite, note, say, say_json, table
from regard.errors import UsageError

COLUMNS = {
    "exact": ("exact", ".2f"),
    "bits": ("bits", ".3f"),
    "wrong %": ("errors", ".3f"),
    "accuracy": ("accuracy", ".2f"),
    "BLEU": ("bleu", ".2f"),
    "chrF": ("chrf", ".2f"),
    "AER": ("aer", ".4f"),
    "tokens/s": ("tokens_per_second", ",.0f"),
    "parameters": ("parameters", ","),
    "minutes": ("minutes", ".1f"),
}


def compare(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="What to train.")],
    words: Annotated[
        list[str],
        typer.Argument(metavar="KEY=A,B", help="Alternatives, and settings that all share."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and of the table.")],
    train: TrainFiles = None,
    valid: ValidFiles = None,
    test: TestFiles = None,
    as_json: AsJson = False,
) -> None:
    """Train alternatives and put them in one table.

    Every combination of the listed values is trained. Killed, it goes on with the same command.

    Example: regard compare dates score=dot,additive normalize=softmax,sparsemax steps=1000 --out runs/scores

    Example: regard compare translation --train a.en a.de --valid b.en b.de score=dot,additive --out runs/scores
    """
    from regard.tasks import make_config

    files = {"train_files": train, "valid_files": valid, "test_files": test}
    named = [f"{name}={','.join(paths)}" for name, paths in files.items() if paths]
    shared, choices = combinations([*named, *words])
    check_files(recipe, plain_settings(recipe, tuple(shared)))
    if len(choices) < 2:
        raise UsageError(
            "There is nothing to compare: list at least two values of a setting, such as score=dot,additive."
        )
    known = make_config(recipe, shared)
    for name, value in choices[0].items():
        if not hasattr(known, name):  # one value may be refused in the table, but a name is wrong in all rows
            make_config(recipe, [f"{name}={value}"])
    answer = _trained(recipe, shared, choices, out)
    if as_json:
        say_json(answer)
        return
    rows = _cells(answer)
    say(table((list(row.values()) for row in rows), list(rows[0]), range(len(choices[0]), len(rows[0]))))
    for line in _remarks(answer):
        typer.echo(line)
    typer.echo(f"\nThe table is in {out / 'table.md'} and {out / 'table.json'}.")


def _trained(recipe: str, shared: list[str], choices: list[dict[str, str]], out: Path) -> dict[str, Any]:
    """Train one after the other; the table is written after each."""
    rows: list[dict[str, Any]] = []
    answer = {"recipe": recipe, "shared": shared, "rows": rows}
    for place, choice in enumerate(choices, 1):
        name = folder_of(choice)
        note(f"{place} of {len(choices)}: {name}")
        words = [*shared, *(f"{key}={value}" for key, value in choice.items())]
        try:
            result = result_of(recipe, words, out / name)
        except KeyboardInterrupt:
            note("stopped; the same command goes on with it")
            raise
        rows.append({"settings": choice, "folder": name, **result})
        _write(out, answer)
    return answer


def _cells(answer: dict[str, Any]) -> list[dict[str, str]]:
    """The rows as people read them; a column that no row fills is left out."""
    rows = answer["rows"]
    filled = [name for name, (key, _) in COLUMNS.items() if any(row.get(key) is not None for row in rows)]
    return [{**row["settings"], **_numbers(row, filled or list(COLUMNS)[:1])} for row in rows]


def _numbers(row: dict[str, Any], shown: list[str]) -> dict[str, str]:
    if "refused" in row:
        return dict.fromkeys(shown, "") | {shown[0]: "refused"}
    return {name: _cell(row, *COLUMNS[name]) for name in shown}


def _cell(row: dict[str, Any], key: str, form: str) -> str:
    return "" if row.get(key) is None else format(row[key], form)


def _remarks(answer: dict[str, Any]) -> list[str]:
    """Why rows were refused, and whether the rest was measured on what their weights were chosen by."""
    rows = answer["rows"]
    reasons = [f"- {row['folder']}: {row['refused']}" for row in rows if "refused" in row]
    chosen = any(row.get("part") == "valid" for row in rows)
    return reasons + ["Measured on the validation part, as there is no other; --test names one."] * chosen


def _write(out: Path, answer: dict[str, Any]) -> None:
    """Keep the table as it stands, for people and for programs."""
    from regard.studies.runner import format_markdown_table

    rows = _cells(answer)
    title = f"{answer['recipe']} {' '.join(answer['shared'])}".strip()
    parts = [title, format_markdown_table(rows, dict.fromkeys(rows[0], "")), "\n".join(_remarks(answer))]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n\n".join(filter(None, parts)) + "\n", encoding="utf-8")
    plain = json.dumps(finite(answer), ensure_ascii=False, indent=2)
    (out / "table.json").write_text(plain + "\n", encoding="utf-8")
