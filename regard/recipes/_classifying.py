"""The task of classification: words, batches of documents, a network that reads them, and how often it is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.attention import Additive, Attention, Constant
from regard.data import Tokenizer
from regard.data.cutting import DocumentReport
from regard.data.shelf import DocumentBatch, Shelf, used
from regard.models.hierarchical import Hierarchical, Largest, Look
from regard.recipes._mechanisms import SCORES, looking, normalizer, score
from regard.recipes._mechanisms import named as mechanism
from regard.recipes._reviews import Shelves
from regard.recipes._task import Experiment, Recipe, Task
from regard.recipes.classifier import Classifier, cutting_of, judged
from regard.recipes.settings import Classification
from regard.training import Loss, Run, Settings, fill
from regard.training._files import write_whole

WORDS = ("tokenizer", "vocab", "lowercase")


class RightClass(nn.Module):
    """The cross entropy of each document's class, summed over a batch."""

    def __init__(self, model: Hierarchical):
        super().__init__()
        self.model = model

    def forward(self, batch: DocumentBatch) -> Loss:
        scores = self.model(batch.words, batch.lengths, batch.counts)
        total = nn.functional.cross_entropy(scores.float(), batch.labels, reduction="sum")
        return Loss(total, len(batch), {"right": (scores.argmax(-1) == batch.labels).sum().detach()})


class Classifying(Task[Classification]):
    """From a document to its class."""

    settings: ClassVar[type[Settings]] = Classification
    uses = ('classify {run} "..."', 'show {run} "..." --out x.html', "evaluate {run}", "info {run}")
    files = ("words.json", "labels.json")

    def check(self, recipe: Recipe, settings: Classification) -> None:
        recipe.material(settings)
        build(settings, 8, 2)

    def experiment(self, run: Run, recipe: Recipe, settings: Classification) -> Experiment[Classification]:
        words, labels = kept(run)
        shelves: Shelves = recipe.material(settings)
        data, valid = (
            Shelf(
                part(),
                words,
                cutting_of(settings),
                labels=labels,
                words=settings.batch_tokens,
                seed=settings.seed,
            )
            for part in (shelves.train, shelves.valid)
        )
        objective = RightClass(build(settings, len(words), len(labels)))
        reports = {"train": data.report, "valid": valid.report}
        return Experiment(
            run,
            settings,
            objective,
            data,
            Validation(objective, valid),
            {
                "vocabulary": len(words),
                "labels": list(labels),
                "data": {name: one.as_dict() for name, one in reports.items()},
            },
            [f"{name}: {one}" for name, one in reports.items()],
        )

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Classification,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Classifier:
        words, labels = kept(run)
        objective = RightClass(build(settings, len(words), len(labels)))
        fill(objective, dict(weights), where)
        return Classifier(objective.to(device).model, words, labels, settings)

    def judge(self, recipe: Recipe, made: Classifier, part: str | None = None) -> dict[str, Any]:
        shelves: Shelves = recipe.material(made.settings)
        known = {**shelves.tests, "valid": shelves.valid}
        chosen = part or next(iter(known))
        return {**judged(made, list(known[chosen]())), "part": chosen}

    def at_home(self, settings: Classification) -> Classification:
        train, valid, test = (
            tuple(str(Path(file).resolve()) for file in files)
            for files in (settings.train, settings.valid, settings.test)
        )
        data = None if settings.data is None else str(Path(settings.data).resolve())
        return replace(settings, train=train, valid=valid, test=test, data=data)

    def like(self, settings: Classification, kept: Mapping[str, Any]) -> Classification:
        return replace(settings, **{key: kept[key] for key in WORDS})

    def ready(self, run: Run, recipe: Recipe, settings: Classification, origin: Run | None) -> None:
        """The words and labels: learned from the training documents, or those of the run it begins with."""
        if origin is not None:
            words, labels = kept(origin)
        else:
            words, labels = learn(recipe.material(settings), settings)
        words.save(run.folder / "words.part")
        (run.folder / "words.part").replace(run.folder / self.files[0])
        write_whole(run.folder / self.files[1], (json.dumps(labels, ensure_ascii=False) + "\n").encode())


@dataclass(frozen=True)
class Validation:
    """How many of the documents are put into the right class, in a hundred, and the loss."""

    objective: RightClass
    valid: Shelf

    def __call__(self) -> dict[str, float]:
        device = self.objective.model.output.weight.device
        total = right = 0.0
        for batch in self.valid.in_order():
            loss = self.objective(batch.to(device))
            total, right = total + float(loss.total), right + float(loss.extra["right"])
        return {"accuracy": 100 * right / len(self.valid), "loss": total / len(self.valid)}


def learn(shelves: Shelves, settings: Classification) -> tuple[Tokenizer, tuple[str, ...]]:
    """The most frequent words of the training documents, and their labels."""
    cutting, found = cutting_of(settings), list(shelves.train())
    every = used(found, cutting, DocumentReport.of(cutting))
    texts = (" ".join(sentence) for _, cut in every for sentence in cut)
    tokenizer = Tokenizer.learn(texts, "word", settings.vocab, lowercase=settings.lowercase)
    return tokenizer, tuple(sorted({document.label for document in found if document.whole.strip()}))


def kept(run: Run) -> tuple[Tokenizer, tuple[str, ...]]:
    """The words and labels that a run keeps."""
    words, labels = (run.folder / name for name in Classifying.files)
    return Tokenizer.load(words), tuple(json.loads(labels.read_text(encoding="utf-8")))


def build(settings: Classification, words: int, classes: int) -> Hierarchical:
    """The network that the settings describe."""
    return Hierarchical(
        words,
        classes,
        pool(settings),
        pool(settings),
        embed_dim=settings.embed_dim,
        dim=settings.dim,
        dropout=settings.dropout,
    )


def pool(settings: Classification) -> Look | Largest:
    """What makes one vector of many: attention, or one of its twins."""
    if settings.pooling == "max":
        return Largest()
    if settings.pooling == "average":
        return Look(Attention(Constant()))
    dim, share = settings.dim, normalizer(settings.normalize)
    if mechanism("score", settings.score, SCORES)[0] == "Additive":
        return Look(looking("global", Additive(None, dim, dim), share, dim, dim, 1))
    how = score(settings.score, dim, dim, dim)
    return Look(looking("global", how, share, dim, dim, 1), query_dim=dim)
