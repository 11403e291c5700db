"""Studies of images: Xu et al. (2015), and images and questions with and without attention.

Xu et al.: captions of scenes of digits or of Flickr8k with soft, hard and no attention. The other study classifies one
digit among clutter and answers questions about scenes.
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
from regard.training.logging import LogFn

__all__ = ["vision", "xu2015"]

SCOPES = ("soft", "hard", "none")
SCENE_COLUMNS = {"captions": ".2f", "digits": ".2f", "inside": ".2f"}
BLEU_COLUMNS = {f"bleu{order}{suffix}": ".2f" for suffix in ("", "_bare") for order in (1, 2, 3, 4)}
SIZE_COLUMNS = {"parameters": ",", "steps": ",", "minutes": ".1f"}
PAPER_ROWS: list[Row] = [  # table 1, Flickr8k; without brevity penalty, with VGG's 14 by 14 grid of 512 features
    {"scope": "paper, soft", "bleu1_bare": 67.0, "bleu2_bare": 44.8, "bleu3_bare": 29.9, "bleu4_bare": 19.5},
    {"scope": "paper, hard", "bleu1_bare": 67.0, "bleu2_bare": 45.7, "bleu3_bare": 31.4, "bleu4_bare": 21.3},
]


def xu2015(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """Train models of one size with soft, hard and no attention on the same images, and draw one caption.

    Args:
        out: the folder to write
        name: not used
        values: options of all trainings; `data_dir` is a folder of Flickr8k or MNIST, and without it the images are
            scenes of scikit-learn's digits
        log: takes each line of progress
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
    table = format_markdown_table(rows, {**columns, **SIZE_COLUMNS})
    return {"recipe": recipe, "rows": rows, "table": table}


def _bleu_scores(table: Sequence[Mapping[str, Any]]) -> Row:
    """BLEU with and without brevity penalty, from two rows of a table of a report."""
    return {
        f"{name}{suffix}": value
        for row, suffix in zip(table, ("", "_bare"), strict=False)
        for name, value in row.items()
        if name.startswith("bleu")
    }


def _choose_recipe(values: dict[str, Any]) -> str:
    """The recipe for the images of the data folder."""
    if "data_dir" not in values:
        return "digit-scenes"
    folder = Path(values["data_dir"])
    if (folder / "features.npz").is_file():
        return "flickr8k"
    if any(folder.glob("train-images-idx3-ubyte*")):
        return "mnist-scenes"
    raise UsageError(f"xu2015: {folder} holds neither Flickr8k (features.npz) nor the files of MNIST")


def _draw_captions(out: Path, recipe: str) -> None:
    """Figure 2 of the paper: the first test scene, word by word, with soft and with hard attention."""
    for scope in SCOPES[:2]:
        captioner = load(out / f"{recipe}-{scope}")
        example = next(iter(get_recipe(recipe).load_data(captioner.config).tests["test"]))
        explanation = replace(captioner.explain(captioner.get_input(example)), smooth=scope == "soft")
        if explanation.names:
            explanation.to_figure(f"{scope}: {explanation.prediction.text}").save(out / f"{scope}.png")


IMAGE_VARIANTS: dict[str, dict[str, Any]] = {
    "attention, one query": {},
    "attention, a query for each class": {"learned_queries": "each"},
    "attention, no query": {"learned_queries": "none"},
    "average": {"pooling": "average"},
    "maximum": {"pooling": "max"},
}
QUESTION_VARIANTS: dict[str, dict[str, Any]] = {
    "attention, one hop": {},
    "attention, two hops": {"num_hops": 2},
    "average": {"pooling": "average"},
}


def vision(out: Path, name: str, values: dict[str, Any], log: LogFn) -> dict[str, Any]:
    """Train each pooling on the same scenes, equally long, and draw the attention of answers to one scene.

    Args:
        out: the folder to write
        name: not used
        values: options of all trainings; `data_dir` is a folder of MNIST for the images, while questions are always
            about scikit-learn's digits
        log: takes each line of progress
    """
    recipe = "mnist-cluttered" if "data_dir" in values else "digits"
    question_values = {option: value for option, value in values.items() if option != "data_dir"}
    images = _run_variants(out, recipe, IMAGE_VARIANTS, values, log)
    questions = _run_variants(out, "digit-questions", QUESTION_VARIANTS, question_values, log)
    for row in questions:
        row |= {result["type"]: result["accuracy"] for result in row["types"]}
    image_columns = {"pooling": "", "accuracy": ".2f", "inside": ".2f", **SIZE_COLUMNS}
    question_columns = {"pooling": "", "accuracy": ".2f", **dict.fromkeys(QUESTION_TYPES, ".1f"), "inside": ".2f"}
    table = format_markdown_table(images, image_columns)
    table += "\n\n" + format_markdown_table(questions, {**question_columns, **SIZE_COLUMNS})
    _draw_questions(out)
    return {"images": images, "questions": questions, "table": table}


def _run_variants(out: Path, recipe: str, variants: dict[str, Any], values: dict[str, Any], log: LogFn) -> list[Row]:
    rows = []
    for label, options in variants.items():
        log(f"{recipe}, {label}:")
        folder = out / f"{recipe}-{label.replace(', ', '-').replace(' ', '-')}"
        rows.append({"pooling": label, **run_trial(recipe, folder, log=log, **values, **options)})
    return rows


def _draw_questions(out: Path) -> None:
    """The attention of each question about the first test scene."""
    predictor = load(out / "digit-questions-attention-one-hop")
    questions = digit_questions(predictor.config).tests["test"].load().head(1)
    for index, question_type in enumerate(QUESTION_TYPES):
        explanation = predictor.explain((questions.scenes.images[0], questions.get_question(0, index)))
        explanation.to_figure().save(out / f"{question_type}.png")
