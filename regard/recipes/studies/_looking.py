"""Images seen with and without attention, side by side: one digit among clutter, and questions about scenes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from regard.data._question_words import KINDS
from regard.data.questions import Asked
from regard.recipes._runs import load
from regard.recipes._task import Say
from regard.recipes.sights._material import digit_questions
from regard.recipes.trials import Row, markdown, trial

GLANCES: dict[str, dict[str, Any]] = {
    "attention, one query": {},
    "attention, a query for each class": {"queries": "each"},
    "attention, nobody asks": {"queries": "none"},
    "average": {"pooling": "average"},
    "maximum": {"pooling": "max"},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "attention, one look": {},
    "attention, two looks": {"looks": 2},
    "average": {"pooling": "average"},
}
SIZES = {"parameters": ",", "steps": ",", "minutes": ".1f"}


def looking(out: Path, name: str, given: dict[str, Any], say: Say) -> dict[str, Any]:
    """Train each way of looking on the same scenes, equally long; draw where the answers to a scene came from.

    A folder of data is that of MNIST, for the images; the questions are always about scikit-learn's digits.
    """
    recipe = "mnist-cluttered" if "data" in given else "digits"
    asked = {key: value for key, value in given.items() if key != "data"}
    images = _rows(out, recipe, GLANCES, given, say)
    questions = _rows(out, "digit-questions", ANSWERS, asked, say)
    for row in questions:
        row |= {kind: one["accuracy"] for kind, one in row["kinds"].items()}
    kinds = {"pooling": "", "accuracy": ".2f", **dict.fromkeys(KINDS, ".1f"), "inside": ".2f"}
    table = "\n\n".join(
        (
            markdown(images, {"pooling": "", "accuracy": ".2f", "inside": ".2f", **SIZES}),
            markdown(questions, {**kinds, **SIZES}),
        )
    )
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    _draw(out)
    return {"images": images, "questions": questions, "table": table}


def _rows(out: Path, recipe: str, ways: dict[str, Any], given: dict[str, Any], say: Say) -> list[Row]:
    rows = []
    for way, settings in ways.items():
        say(f"{recipe}, {way}:")
        folder = out / f"{recipe}-{way.replace(', ', '-').replace(' ', '-')}"
        rows.append({"pooling": way, **trial(recipe, folder, say=say, **given, **settings)})
    return rows


def _draw(out: Path) -> None:
    """The first scene of the test, and where each of its questions looked."""
    respondent = load(out / "digit-questions-attention-one-look")
    asked = cast(Asked, digit_questions(respondent.settings).tests["test"]()).first(1)
    for number, kind in enumerate(KINDS):
        sight = respondent.look(asked.painted.images[0], asked.question(0, number))
        sight.picture().save(out / f"{kind}.png")
