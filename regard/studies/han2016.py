"""Yang et al. (2016), found again on IMDB: attention beside its twins, and beside a linear model of counted words."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from regard._imports import require_extra
from regard.data.documents import Document
from regard.errors import UsageError
from regard.studies.runner import Row, format_markdown_table, run_trial
from regard.tasks.loading import load
from regard.tasks.registry import get_recipe, make_config
from regard.tasks.text_classification.predictor import TextClassifier
from regard.training.display import LogFn

SEEDS = (0, 1, 2)


POOLING = ("attention", "average", "max")


LINEAR_NAME = "TF-IDF + linear"


STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # of the linear model; the documents held out choose


QUICK_DOCUMENTS = 1000  # documents of each part


CORRECT_FILE = "right.json"  # in the folder of a model: which test documents it got right


def han2016(out: Path, name: str, values: dict[str, Any], log: LogFn, *, quick: bool = False) -> dict[str, Any]:
    """Train each way of pooling with each seed on the same documents, and a linear model; compare them in pairs.

    `given` needs the folder of IMDB as data; a seed among it is the only one.
    """
    values = dict(values)
    seeds = (values.pop("seed"),) if "seed" in values else SEEDS[: 1 if quick else None]
    data = make_config("imdb", **values).data_dir
    if data is None:
        raise UsageError("han2016 reads IMDB: --data FOLDER with train.tsv and test.tsv (label, rating, text)")
    get_recipe("imdb").load_data(make_config("imdb", **values))  # says what is missing before hours of training
    rows: list[Row] = []
    right: dict[str, list[list[bool]]] = {}
    for pooling in POOLING:
        for seed in seeds:
            log(f"{pooling}, seed {seed}:")
            folder = out / f"{pooling}-{seed}"
            row = run_trial("imdb", folder, split="valid", log=log, **values, pooling=pooling, seed=seed)
            marks = _correct_documents(folder, quick)
            found = {"held out": row.pop("accuracy"), "accuracy": 100 * mean(marks)}
            rows.append({"model": pooling, "seed": seed, **row, **found})
            right.setdefault(pooling, []).append(marks)
    log(f"{LINEAR_NAME}:")
    linear = _run_linear_model(out, values, quick)
    right[LINEAR_NAME] = [linear.pop("marks")]
    rows.append({"model": LINEAR_NAME, "seed": None, **linear})
    table = _format_tables(rows, right)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"rows": rows, "differences": compare_models(right), "table": table}


def _format_tables(rows: Sequence[Row], correct: Mapping[str, list[list[bool]]]) -> str:
    columns = {"model": "", "seed": "", "held out": ".2f", "accuracy": ".2f", "parameters": ","}
    columns |= {"steps": ",", "minutes": ".1f"}
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
    shown = {"model": "", "seeds": "", "accuracy": ".2f", "deviation of seeds": ".2f", "standard error": ".2f"}
    return "\n\n".join(
        (
            format_markdown_table(means, shown),
            "Differences of the means, in points of accuracy, with their standard errors (documents in pairs; for"
            " models of several seeds also with the chance of the seeds):\n\n"
            + format_markdown_table(
                compare_models(correct),
                {"models": "", "difference": "+.2f", "standard error": ".2f", "with seeds": ".2f"},
            ),
            "Every run:\n\n" + format_markdown_table(rows, columns),
        )
    )


def compare_models(correct: Mapping[str, list[list[bool]]]) -> list[Row]:
    """Attention against each of the others: the difference in accuracy, and how much of it chance can make.

    A document counts by how many seeds got it right; the standard error is that of the differences of these shares
    from document to document. With seeds, the variance from seed to seed is added.
    """
    first, *others = correct
    found = []
    for other in others:
        a, b = ([mean(marks) for marks in zip(*runs, strict=True)] for runs in (correct[first], correct[other]))
        documents = standard_error([x - y for x, y in zip(a, b, strict=True)])
        seeds = sum(_variance_of_mean([mean(marks) for marks in runs]) for runs in (correct[first], correct[other]))
        found.append(
            {
                "models": f"{first} - {other}",
                "difference": 100 * (mean(a) - mean(b)),
                "standard error": 100 * documents,
                "with seeds": 100 * math.sqrt(documents**2 + seeds),
            }
        )
    return found


def standard_error(values: Sequence[float]) -> float:
    """The standard error of a mean.

    >>> round(standard_error([0.0, 1.0, 0.0, 1.0]), 3)
    0.289
    """
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _variance_of_mean(means: Sequence[float]) -> float:
    return stdev(means) ** 2 / len(means) if len(means) > 1 else 0.0


def _correct_documents(folder: Path, quick: bool) -> list[bool]:
    """Which test documents a trained model gets right; kept, so that a study that goes on need not ask again."""
    kept = folder / CORRECT_FILE
    if not kept.is_file():
        classifier: TextClassifier = load(folder)
        test = _test_documents(classifier.config, quick)
        said = classifier.predict([document.text for document in test])
        marks = [one.text == document.label for one, document in zip(said, test, strict=True)]
        kept.write_text(json.dumps(marks), encoding="utf-8")
    return list(json.loads(kept.read_text(encoding="utf-8")))


def _test_documents(config: Any, quick: bool) -> list[Document]:
    every = [document for document in get_recipe("imdb").load_data(config).tests["test"] if document.full_text.strip()]
    return every[: QUICK_DOCUMENTS if quick else None]


def _run_linear_model(out: Path, values: dict[str, Any], quick: bool) -> Row:
    """A linear model of counted words on the same documents; kept, as the runs are."""
    kept = out / "linear.json"
    if not kept.is_file():
        settings, began = make_config("imdb", **values), time.perf_counter()
        shelves, some = get_recipe("imdb").load_data(settings), QUICK_DOCUMENTS if quick else None
        found = fit_linear_model(list(shelves.train)[:some], list(shelves.valid)[:some])
        test = _test_documents(settings, quick)
        said = found.model.predict(found.vectorizer.transform([one.full_text for one in test]))
        marks = [bool(label == one.label) for label, one in zip(said, test, strict=True)]
        row = {
            "held out": 100 * found.score,
            "accuracy": 100 * mean(marks),
            "C": found.strength,
            "parameters": found.model.coef_.size + 1,
            "minutes": (time.perf_counter() - began) / 60,
            "marks": marks,
        }
        kept.write_text(json.dumps(row), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


class LinearModel(NamedTuple):
    """A linear model, what counts the words for it, and how it was chosen."""

    score: float
    strength: float
    model: Any
    vectorizer: Any


def fit_linear_model(train: Sequence[Document], valid: Sequence[Document]) -> LinearModel:
    """Words and pairs of words, weighted by how rare they are, and a support vector machine: scikit-learn.

    How closely it fits is chosen by the documents held out, as the weights of the networks are.
    """
    text, svm = (require_extra("sklearn.feature_extraction.text", "sklearn"), require_extra("sklearn.svm", "sklearn"))
    counted = text.TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x, y = counted.fit_transform([one.full_text for one in train]), [one.label for one in train]
    held, right = counted.transform([one.full_text for one in valid]), [one.label for one in valid]
    tried = []
    for strength in STRENGTHS:
        model = svm.LinearSVC(C=strength, random_state=0).fit(x, y)
        tried.append(LinearModel(float(model.score(held, right)), strength, model, counted))
    return max(tried, key=lambda one: one.score)
