"""Yang et al. (2016) on IMDB: attention compared with other poolings and with a linear model of n-grams."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from regard._imports import require_extra
from regard.data.documents import Document
from regard.errors import UsageError
from regard.studies.runner import Row, format_markdown_table, run_trial
from regard.tasks.loading import load
from regard.tasks.registry import get_recipe, make_config
from regard.training.logging import LogFn

__all__ = ["compare_models", "fit_linear_model", "han2016", "standard_error"]

SEEDS = (0, 1, 2)
POOLING = ("attention", "average", "max")
LINEAR_NAME = "TF-IDF + linear"
STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # values of C of the linear model, chosen on the validation documents
QUICK_DOCUMENTS = 1000  # of each split
CORRECT_FILE = "right.json"  # in the folder of a run: which test documents it classifies correctly


def han2016(out: Path, name: str, values: dict[str, Any], log: LogFn, *, quick: bool = False) -> dict[str, Any]:
    """Train each pooling with each seed on the same documents, and a linear model, and compare them in pairs.

    Args:
        out: the folder to write
        name: not used
        values: options of all trainings, with the folder of IMDB as `data_dir`; a `seed` replaces `SEEDS`
        log: takes each line of progress
        quick: with one seed and few documents
    """
    seeds = (values["seed"],) if "seed" in values else SEEDS[: 1 if quick else None]
    values = {option: value for option, value in values.items() if option != "seed"}
    config = make_config("imdb", **values)
    if config.data_dir is None:
        raise UsageError("han2016 reads IMDB: --data FOLDER with train.tsv and test.tsv (label, rating, text)")
    data = get_recipe("imdb").load_data(config)  # reports missing files before hours of training
    limit = QUICK_DOCUMENTS if quick else None
    test = [document for document in data.tests["test"] if document.full_text.strip()][:limit]
    rows: list[Row] = []
    correct: dict[str, list[list[bool]]] = {}
    for pooling in POOLING:
        for seed in seeds:
            log(f"{pooling}, seed {seed}:")
            folder = out / f"{pooling}-{seed}"
            row = run_trial("imdb", folder, split="valid", log=log, **values, pooling=pooling, seed=seed)
            marks = _load_or_compute(folder / CORRECT_FILE, partial(_find_correct, folder, test))
            accuracies = {"held out": row.pop("accuracy"), "accuracy": 100 * mean(marks)}
            rows.append({"model": pooling, "seed": seed, **row, **accuracies})
            correct.setdefault(pooling, []).append(marks)
    log(f"{LINEAR_NAME}:")
    linear = _load_or_compute(
        out / "linear.json", lambda: _evaluate_linear_model(list(data.train)[:limit], list(data.valid)[:limit], test)
    )
    correct[LINEAR_NAME] = [linear.pop("marks")]
    rows.append({"model": LINEAR_NAME, "seed": None, **linear})
    differences = compare_models(correct)
    table = _format_tables(rows, correct, differences)
    return {"rows": rows, "differences": differences, "table": table}


def _load_or_compute(path: Path, compute: Callable[[], Any]) -> Any:
    """The content of a JSON file, which is computed and written if it does not exist."""
    if not path.is_file():
        path.write_text(json.dumps(compute()), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def _find_correct(folder: Path, test: Sequence[Document]) -> list[bool]:
    predictions = load(folder).predict([document.text for document in test])
    return [prediction.text == document.label for prediction, document in zip(predictions, test, strict=True)]


def _evaluate_linear_model(train: Sequence[Document], valid: Sequence[Document], test: Sequence[Document]) -> Row:
    start = time.perf_counter()
    score, strength, model, vectorizer = fit_linear_model(train, valid)
    labels = model.predict(vectorizer.transform([document.full_text for document in test]))
    marks = [bool(label == document.label) for label, document in zip(labels, test, strict=True)]
    return {
        "held out": 100 * score,
        "accuracy": 100 * mean(marks),
        "C": strength,
        "parameters": model.coef_.size + 1,
        "minutes": (time.perf_counter() - start) / 60,
        "marks": marks,
    }


def fit_linear_model(train: Sequence[Document], valid: Sequence[Document]) -> tuple[float, float, Any, Any]:
    """A support vector machine over TF-IDF of words and pairs of words, by scikit-learn.

    Args:
        train: the documents to fit
        valid: the documents that choose C from `STRENGTHS`, as they choose the weights of the networks

    Returns:
        the accuracy on `valid`, C, the model and the vectorizer
    """
    text, svm = require_extra("sklearn.feature_extraction.text", "sklearn"), require_extra("sklearn.svm", "sklearn")
    vectorizer = text.TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x, y = vectorizer.fit_transform([document.full_text for document in train]), [document.label for document in train]
    valid_x = vectorizer.transform([document.full_text for document in valid])
    valid_y = [document.label for document in valid]
    models = [(strength, svm.LinearSVC(C=strength, random_state=0).fit(x, y)) for strength in STRENGTHS]
    scores = [(float(model.score(valid_x, valid_y)), strength, model, vectorizer) for strength, model in models]
    return max(scores, key=lambda result: result[0])


def _format_tables(rows: Sequence[Row], correct: Mapping[str, list[list[bool]]], differences: Sequence[Row]) -> str:
    means = [
        {
            "model": model,
            "seeds": len(runs),
            "accuracy": 100 * mean(map(mean, runs)),
            "deviation of seeds": 100 * stdev(map(mean, runs)) if len(runs) > 1 else None,
            "standard error": 100 * standard_error([mean(marks) for marks in zip(*runs, strict=True)]),
        }
        for model, runs in correct.items()
    ]
    columns = {"model": "", "seed": "", "held out": ".2f", "accuracy": ".2f", "parameters": ",", "steps": ","}
    return "\n\n".join(
        (
            format_markdown_table(means, {"model": "", "seeds": "", **dict.fromkeys(list(means[0])[2:], ".2f")}),
            "Differences of the means, in points of accuracy, with their standard errors (documents in pairs; for"
            " models of several seeds also with the chance of the seeds):",
            format_markdown_table(
                differences, {"models": "", "difference": "+.2f", "standard error": ".2f", "with seeds": ".2f"}
            ),
            "Every run:",
            format_markdown_table(rows, {**columns, "minutes": ".1f"}),
        )
    )


def compare_models(correct: Mapping[str, list[list[bool]]]) -> list[Row]:
    """Differences in accuracy between the first model and each of the others, with standard errors.

    The score of a document is the share of seeds that classify it correctly; the standard error is that of the
    differences of these scores between documents. With seeds, the variance between seeds is added.

    Args:
        correct: by model: for each seed, whether each document is classified correctly

    Example:
        >>> compare_models({"a": [[True, True]], "b": [[True, False]]})[0]["difference"]
        50.0
    """
    first, *others = correct
    rows = []
    for other in others:
        pair = correct[first], correct[other]
        a, b = ([mean(marks) for marks in zip(*runs, strict=True)] for runs in pair)
        of_documents = standard_error([x - y for x, y in zip(a, b, strict=True)])
        of_seeds = sum(standard_error([mean(marks) for marks in runs]) ** 2 for runs in pair)
        rows.append(
            {
                "models": f"{first} - {other}",
                "difference": 100 * (mean(a) - mean(b)),
                "standard error": 100 * of_documents,
                "with seeds": 100 * math.sqrt(of_documents**2 + of_seeds),
            }
        )
    return rows


def standard_error(values: Sequence[float]) -> float:
    """The standard error of a mean; 0 for a single value.

    Args:
        values: a sample

    Example:
        >>> round(standard_error([0.0, 1.0, 0.0, 1.0]), 3)
        0.289
    """
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
