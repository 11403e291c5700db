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
from regard.recipes._recipes import recipe
from regard.recipes._runs import load, settings_of
from regard.recipes._task import Say
from regard.recipes.documents.classifier import Classifier
from regard.recipes.trials import Row, markdown, trial

SEEDS = (0, 1, 2)
POOLING = ("attention", "average", "max")
LINEAR = "TF-IDF + linear"
STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # of the linear model; the documents held out choose
QUICK = 1000  # documents of each part
RIGHT = "right.json"  # in the folder of a model: which test documents it got right


def han2016(out: Path, name: str, given: dict[str, Any], say: Say, *, quick: bool = False) -> dict[str, Any]:
    """Train each way of pooling with each seed on the same documents, and a linear model; compare them in pairs.

    `given` needs the folder of IMDB as data; a seed among it is the only one.
    """
    given = dict(given)
    seeds = (given.pop("seed"),) if "seed" in given else SEEDS[: 1 if quick else None]
    data = settings_of("imdb", **given).data
    if data is None:
        raise UsageError(
            "han2016 reads IMDB: --data FOLDER with train.tsv and test.tsv (label, rating, text)"
        )
    recipe("imdb").material(settings_of("imdb", **given))  # says what is missing before hours of training
    rows: list[Row] = []
    right: dict[str, list[list[bool]]] = {}
    for pooling in POOLING:
        for seed in seeds:
            say(f"{pooling}, seed {seed}:")
            folder = out / f"{pooling}-{seed}"
            row = trial("imdb", folder, part="valid", say=say, **given, pooling=pooling, seed=seed)
            marks = _marks(folder, quick)
            found = {"held out": row.pop("accuracy"), "accuracy": 100 * mean(marks)}
            rows.append({"model": pooling, "seed": seed, **row, **found})
            right.setdefault(pooling, []).append(marks)
    say(f"{LINEAR}:")
    linear = _linear(out, given, quick)
    right[LINEAR] = [linear.pop("marks")]
    rows.append({"model": LINEAR, "seed": None, **linear})
    table = _table(rows, right)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"rows": rows, "differences": differences(right), "table": table}


def _table(rows: Sequence[Row], right: Mapping[str, list[list[bool]]]) -> str:
    columns = {"model": "", "seed": "", "held out": ".2f", "accuracy": ".2f", "parameters": ","}
    columns |= {"steps": ",", "minutes": ".1f"}
    means = [
        {
            "model": model,
            "seeds": len(runs),
            "accuracy": 100 * mean(map(mean, runs)),
            "deviation of seeds": 100 * stdev(map(mean, runs)) if len(runs) > 1 else None,
            "standard error": 100 * error([mean(marks) for marks in zip(*runs, strict=True)]),
        }
        for model, runs in right.items()
    ]
    shown = {
        "model": "",
        "seeds": "",
        "accuracy": ".2f",
        "deviation of seeds": ".2f",
        "standard error": ".2f",
    }
    return "\n\n".join(
        (
            markdown(means, shown),
            "Differences of the means, in points of accuracy, with their standard errors (documents in pairs; for"
            " models of several seeds also with the chance of the seeds):\n\n"
            + markdown(
                differences(right),
                {"models": "", "difference": "+.2f", "standard error": ".2f", "with seeds": ".2f"},
            ),
            "Every run:\n\n" + markdown(rows, columns),
        )
    )


def differences(right: Mapping[str, list[list[bool]]]) -> list[Row]:
    """Attention against each of the others: the difference in accuracy, and how much of it chance can make.

    A document counts by how many seeds got it right; the standard error is that of the differences of these shares
    from document to document. With seeds, the variance from seed to seed is added.
    """
    first, *others = right
    found = []
    for other in others:
        a, b = ([mean(marks) for marks in zip(*runs, strict=True)] for runs in (right[first], right[other]))
        documents = error([x - y for x, y in zip(a, b, strict=True)])
        seeds = sum(_variance([mean(marks) for marks in runs]) for runs in (right[first], right[other]))
        found.append(
            {
                "models": f"{first} - {other}",
                "difference": 100 * (mean(a) - mean(b)),
                "standard error": 100 * documents,
                "with seeds": 100 * math.sqrt(documents**2 + seeds),
            }
        )
    return found


def error(values: Sequence[float]) -> float:
    """The standard error of a mean.

    >>> round(error([0.0, 1.0, 0.0, 1.0]), 3)
    0.289
    """
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _variance(means: Sequence[float]) -> float:
    return stdev(means) ** 2 / len(means) if len(means) > 1 else 0.0


def _marks(folder: Path, quick: bool) -> list[bool]:
    """Which test documents a trained model gets right; kept, so that a study that goes on need not ask again."""
    kept = folder / RIGHT
    if not kept.is_file():
        classifier: Classifier = load(folder)
        test = _test(classifier.settings, quick)
        said = classifier.classify([document.text for document in test])
        marks = [one.label == document.label for one, document in zip(said, test, strict=True)]
        kept.write_text(json.dumps(marks), encoding="utf-8")
    return list(json.loads(kept.read_text(encoding="utf-8")))


def _test(settings: Any, quick: bool) -> list[Document]:
    every = [
        document for document in recipe("imdb").material(settings).tests["test"]() if document.whole.strip()
    ]
    return every[: QUICK if quick else None]


def _linear(out: Path, given: dict[str, Any], quick: bool) -> Row:
    """A linear model of counted words on the same documents; kept, as the runs are."""
    kept = out / "linear.json"
    if not kept.is_file():
        settings, began = settings_of("imdb", **given), time.perf_counter()
        shelves, some = recipe("imdb").material(settings), QUICK if quick else None
        found = fitted(list(shelves.train())[:some], list(shelves.valid())[:some])
        test = _test(settings, quick)
        said = found.model.predict(found.counted.transform([one.whole for one in test]))
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


class Fitted(NamedTuple):
    """A linear model, what counts the words for it, and how it was chosen."""

    score: float
    strength: float
    model: Any
    counted: Any


def fitted(train: Sequence[Document], valid: Sequence[Document]) -> Fitted:
    """Words and pairs of words, weighted by how rare they are, and a support vector machine: scikit-learn.

    How closely it fits is chosen by the documents held out, as the weights of the networks are.
    """
    text, svm = (
        require_extra("sklearn.feature_extraction.text", "sklearn"),
        require_extra("sklearn.svm", "sklearn"),
    )
    counted = text.TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x, y = counted.fit_transform([one.whole for one in train]), [one.label for one in train]
    held, right = counted.transform([one.whole for one in valid]), [one.label for one in valid]
    tried = []
    for strength in STRENGTHS:
        model = svm.LinearSVC(C=strength, random_state=0).fit(x, y)
        tried.append(Fitted(float(model.score(held, right)), strength, model, counted))
    return max(tried, key=lambda one: one.score)
