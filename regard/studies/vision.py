"""Xu et al. (2015), found again on scenes of digits or on Flickr8k: soft, hard and no attention, side by side.

Images seen with and without attention, side by side: one digit among clutter, and questions about scenes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.data.questions import QUESTION_TYPES
from regard.errors import UsageError
from regard.studies.runner import Row, format_markdown_table, run_trial
from regard.tasks.loading import load
from regard.tasks.registry import get_recipe
from regard.tasks.vision.task import digit_questions
from regard.training.display import LogFn

SCOPES = ("soft", "hard", "none")


SCENE_COLUMNS = {"captions": ".2f", "digits": ".2f", "inside": ".2f"}


BLEU_COLUMNS = {f"bleu{order}{ending}": ".2f" for ending in ("", "_bare") for order in (1, 2, 3, 4)}


PAPER_ROWS: list[Row] = [  # table 1, Flickr8k; without brevity penalty, with VGG's 14 by 14 grid of 512 numbers
    {"scope": "paper, soft", "bleu1_bare": 67.0, "bleu2_bare": 44.8, "bleu3_bare": 29.9, "bleu4_bare": 19.5},
    {"scope": "paper, hard", "bleu1_bare": 67.0, "bleu2_bare": 45.7, "bleu3_bare": 31.4, "bleu4_bare": 21.3},
]


def xu2015(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """Train soft, hard and no attention on the same pictures, equally large and equally long; draw one caption.

    Without a folder of data, pictures are scenes of scikit-learn's digits; a folder is that of Flickr8k or MNIST.
    """
    recipe, rows = _choose_recipe(values), []
    for scope in SCOPES:
        log(f"{recipe}, {scope}:")
        row = run_trial(recipe, out / f"{recipe}-{scope}", log=log, **values, attention_scope=scope)
        rows.append({"scope": scope, **row, **_bleu_scores(row.get("comparison", ())[:2])})
    if recipe == "flickr8k":
        nearest = _bleu_scores(rows[0]["comparison"][2:])
        rows += [{"scope": "caption of the nearest training image", **nearest}, *PAPER_ROWS]
    else:
        _draw_captions(out, recipe)
    columns = {"scope": "", **(BLEU_COLUMNS if recipe == "flickr8k" else SCENE_COLUMNS)}
    table = format_markdown_table(rows, {**columns, "parameters": ",", "steps": ",", "minutes": ".1f"})
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"recipe": recipe, "rows": rows, "table": table}


def _bleu_scores(table: Sequence[Mapping[str, Any]]) -> Row:
    """BLEU with and without brevity penalty, from two rows of the table of a report."""
    return {
        f"{name}{ending}": value
        for row, ending in zip(table, ("", "_bare"), strict=False)
        for name, value in row.items()
        if name.startswith("bleu")
    }


def _choose_recipe(values: dict[str, Any]) -> str:
    """Which pictures: what is in the folder tells."""
    if "data_dir" not in values:
        return "digit-scenes"
    folder = Path(values["data_dir"])
    if (folder / "features.npz").is_file():
        return "flickr8k"
    if any(folder.glob("train-images-idx3-ubyte*")):
        return "mnist-scenes"
    raise UsageError(f"xu2015: {folder} holds neither Flickr8k (features.npz) nor the files of MNIST")


def _draw_captions(out: Path, recipe: str) -> None:
    """Figure 2 of the paper: the first scene of the test, word by word, with soft and with hard attention."""
    for scope in SCOPES[:2]:
        captioner = load(out / f"{recipe}-{scope}")
        example = next(iter(get_recipe(recipe).load_data(captioner.config).tests["test"]))
        explanation = replace(captioner.explain(captioner.get_input(example)), smooth=scope == "soft")
        if explanation.names:
            explanation.to_figure(f"{scope}: {explanation.prediction.text}").save(out / f"{scope}.png")


IMAGE_VARIANTS: dict[str, dict[str, Any]] = {
    "attention, one query": {},
    "attention, a query for each class": {"query_type": "each"},
    "attention, nobody asks": {"query_type": "none"},
    "average": {"pooling": "average"},
    "maximum": {"pooling": "max"},
}


QUESTION_VARIANTS: dict[str, dict[str, Any]] = {
    "attention, one look": {},
    "attention, two looks": {"num_hops": 2},
    "average": {"pooling": "average"},
}


SIZE_COLUMNS = {"parameters": ",", "steps": ",", "minutes": ".1f"}


def vision(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """Train each way of looking on the same scenes, equally long; draw where the answers to a scene came from.

    A folder of data is that of MNIST, for the images; the questions are always about scikit-learn's digits.
    """
    recipe = "mnist-cluttered" if "data_dir" in values else "digits"
    asked = {key: value for key, value in values.items() if key != "data_dir"}
    images = _run_variants(out, recipe, IMAGE_VARIANTS, values, log)
    questions = _run_variants(out, "digit-questions", QUESTION_VARIANTS, asked, log)
    for row in questions:
        row |= {one["type"]: one["accuracy"] for one in row["types"]}
    kinds = {"pooling": "", "accuracy": ".2f", **dict.fromkeys(QUESTION_TYPES, ".1f"), "inside": ".2f"}
    table = "\n\n".join(
        (
            format_markdown_table(images, {"pooling": "", "accuracy": ".2f", "inside": ".2f", **SIZE_COLUMNS}),
            format_markdown_table(questions, {**kinds, **SIZE_COLUMNS}),
        )
    )
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    _draw_questions(out)
    return {"images": images, "questions": questions, "table": table}


def _run_variants(out: Path, recipe: str, variants: dict[str, Any], values: dict[str, Any], log: LogFn) -> list[Row]:
    rows = []
    for way, settings in variants.items():
        log(f"{recipe}, {way}:")
        folder = out / f"{recipe}-{way.replace(', ', '-').replace(' ', '-')}"
        rows.append({"pooling": way, **run_trial(recipe, folder, log=log, **values, **settings)})
    return rows


def _draw_questions(out: Path) -> None:
    """The first scene of the test, and where each of its questions looked."""
    predictor = load(out / "digit-questions-attention-one-look")
    asked = digit_questions(predictor.config).tests["test"].load().head(1)
    for number, kind in enumerate(QUESTION_TYPES):
        explanation = predictor.explain((asked.scenes.images[0], asked.get_question(0, number)))
        explanation.to_figure().save(out / f"{kind}.png")
