"""The task of classification: words, batches of documents, a network that reads them, and how often it is right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.attention import Additive, Attention, Constant
from regard.data import Tokenizer
from regard.data.cutting import DocumentReport
from regard.data.documents import Document
from regard.data.shelf import DocumentBatch, Shelf, used
from regard.errors import DataError
from regard.files import write_atomic
from regard.models.hierarchical import Hierarchical, Largest, Look
from regard.models.whole import Whole
from regard.recipes._held import told
from regard.recipes._mechanisms import SCORES, looking, normalizer, score
from regard.recipes._mechanisms import named as mechanism
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.documents._reviews import Shelves
from regard.recipes.documents.classifier import Classifier, cutting_of, judged
from regard.recipes.documents.settings import Classification
from regard.recipes.texts._layers import reader
from regard.recipes.texts._masking import Masking
from regard.training import Loss, Run, Settings, fill

READER, EMBEDDINGS = "model.reader.", "embed.words.weight"


class RightClass(nn.Module):
    """The cross entropy of each document's class, summed over a batch."""

    def __init__(self, model: Hierarchical | Whole):
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
            told(reports, held=bool(settings.train) and not settings.valid),
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
        objective = fitted(lambda: RightClass(build(settings, len(words), len(labels))), weights, where)
        return Classifier(objective.to(device).model, words, labels, settings)

    def judge(self, recipe: Recipe, made: Classifier, part: str | None = None) -> dict[str, Any]:
        shelves: Shelves = recipe.material(made.settings)
        known = {**shelves.tests, "valid": shelves.valid}
        chosen = part or next(iter(known))
        return {**judged(made, list(known[chosen]())), "part": chosen}

    def follows(self, other: Task[Any]) -> bool:
        return isinstance(other, Classifying | Masking)

    def like(self, settings: Classification, kept: Mapping[str, Any]) -> Classification:
        """Its words; of a run that filled in words, also its layers."""
        settings = settings.inherit_from(kept)
        if "share" not in kept:
            return settings
        sizes = {name: kept[name] for name in ("dim", "heads", "hidden_dim")}
        return settings.replace(model="mixed", layers=tuple(kept["layers"]), **sizes)

    def ready(self, run: Run, recipe: Recipe, settings: Classification, origin: Run | None) -> None:
        """The words and labels: learned from the training documents, or those of the run it begins with."""
        shelves: Shelves = recipe.material(settings)
        if origin is None:
            words, labels = learn(shelves, settings)
        elif (origin.folder / self.files[1]).is_file():
            words, labels = kept(origin)
        else:  # it filled in words, and knows no labels
            words, labels = Masking().kept(origin), labels_of(shelves.train())
        words.save(run.folder / self.files[0])
        write_atomic(run.folder / self.files[1], (json.dumps(labels, ensure_ascii=False) + "\n").encode())

    def begin_with(self, objective: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        """The weights of another run; of one that filled in words, those of what reads."""
        embeddings = weights.get(f"{READER}{EMBEDDINGS}")
        if embeddings is None or len(embeddings) != len(weights["model.output.weight"]):
            super().begin_with(objective, weights, where)
            return
        assert isinstance(objective, RightClass)
        assert isinstance(objective.model, Whole)
        read = {name.removeprefix(READER): one for name, one in weights.items() if name.startswith(READER)}
        fill(objective.model.reader, {**read, EMBEDDINGS: embeddings[:-1]}, where)  # the last is the mask's


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
    return tokenizer, labels_of(found)


def labels_of(documents: Iterable[Document]) -> tuple[str, ...]:
    """The names of the classes, in the order of the alphabet; one alone is refused."""
    found = [document for document in documents if document.whole.strip()]
    labels = tuple(sorted({document.label for document in found}))
    if len(labels) == 1:
        where = found[0].file or "the documents"
        raise DataError(
            f"{where}: all documents have the label {labels[0]!r}, and there is nothing to tell apart; train with"
            " documents of two classes or more."
        )
    return labels


def kept(run: Run) -> tuple[Tokenizer, tuple[str, ...]]:
    """The words and labels that a run keeps."""
    words, labels = (run.folder / name for name in Classifying.files)
    try:
        names = json.loads(labels.read_text(encoding="utf-8"))
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{labels} is damaged: it should be a list of labels; copy it again.")
    return Tokenizer.load(words), tuple(names)


def build(settings: Classification, words: int, classes: int) -> Hierarchical | Whole:
    """The network that the settings describe."""
    if settings.model == "mixed":
        read, dim = reader(settings, words), settings.dim
        return Whole(read, pool(settings), dim, classes, span=settings.span, dropout=settings.dropout)
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
