"""The task of classification: words, batches of documents, a network that reads them, and how often it is right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.attention import Additive, Attention, AttentionPool, Constant, MaxPool
from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches, iter_usable
from regard.data.document_splitter import DocumentReport
from regard.data.documents import Document
from regard.errors import DataError
from regard.files import write_atomic
from regard.models.flat_document import FlatDocumentClassifier
from regard.models.hierarchical import HierarchicalAttentionNetwork
from regard.tasks.datasets import describe_splits
from regard.tasks.language_modeling.task import FillMaskTask, build_encoder
from regard.tasks.legacy import Experiment, Recipe, Task
from regard.tasks.mechanisms import SCORES, build_attention, build_normalizer, build_score
from regard.tasks.mechanisms import parse_mechanism as mechanism
from regard.tasks.runner import build_and_load
from regard.tasks.text_classification.config import TextClassificationConfig
from regard.tasks.text_classification.data import Shelves
from regard.tasks.text_classification.predictor import TextClassifier, classification_report, make_splitter
from regard.training import Loss, RunFolder, TrainingConfig, load_into

ENCODER, EMBEDDINGS = "encoder.", "embed.weight"


class RightClass(nn.Module):
    """The cross entropy of each document's class, summed over a batch."""

    def __init__(self, model: HierarchicalAttentionNetwork | FlatDocumentClassifier):
        super().__init__()
        self.model = model

    def forward(self, batch: DocumentBatch) -> Loss:
        scores = self.model(batch.token_ids, batch.lengths, batch.sentences_per_document)
        total = nn.functional.cross_entropy(scores.float(), batch.labels, reduction="sum")
        return Loss(total, len(batch), {"right": (scores.argmax(-1) == batch.labels).sum().detach()})


class TextClassificationTask(Task[TextClassificationConfig]):
    """From a document to its class."""

    config_class: ClassVar[type[TrainingConfig]] = TextClassificationConfig
    uses = ('classify {run} "..."', 'show {run} "..." --out x.html', "evaluate {run}", "info {run}")
    files = ("words.json", "labels.json")

    def validate(self, recipe: Recipe, config: TextClassificationConfig) -> None:
        recipe.data(config)
        build_model(config, 8, 2)

    def experiment(
        self, run: RunFolder, recipe: Recipe, config: TextClassificationConfig
    ) -> Experiment[TextClassificationConfig]:
        words, labels = load_processor(run)
        shelves: Shelves = recipe.data(config)
        data, valid = (
            DocumentBatches(
                part(),
                words,
                make_splitter(config),
                labels=labels,
                max_tokens=config.batch_tokens,
                seed=config.seed,
            )
            for part in (shelves.train, shelves.valid)
        )
        objective = RightClass(build_model(config, len(words), len(labels)))
        reports = {"train": data.report, "valid": valid.report}
        return Experiment(
            run,
            config,
            objective,
            data,
            Validation(objective, valid),
            {
                "vocabulary": len(words),
                "labels": list(labels),
                "data": {name: one.as_dict() for name, one in reports.items()},
            },
            describe_splits(reports, held=bool(config.train_files) and not config.valid_files),
        )

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: TextClassificationConfig,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> TextClassifier:
        words, labels = load_processor(run)
        model = build_and_load(lambda: build_model(config, len(words), len(labels)), weights, where)
        return TextClassifier(model.to(device), words, labels, config)

    def judge(self, recipe: Recipe, made: TextClassifier, part: str | None = None) -> dict[str, Any]:
        shelves: Shelves = recipe.data(made.config)
        known = {**shelves.tests, "valid": shelves.valid}
        chosen = part or next(iter(known))
        return {**classification_report(made, list(known[chosen]())), "part": chosen}

    def can_init_from(self, other: Task[Any]) -> bool:
        return isinstance(other, TextClassificationTask | FillMaskTask)

    def like(self, config: TextClassificationConfig, kept: Mapping[str, Any]) -> TextClassificationConfig:
        """Its words; of a run that filled in words, also its layers."""
        config = config.inherit_from(kept)
        if "mask_prob" not in kept:
            return config
        sizes = {name: kept[name] for name in ("embed_dim", "num_heads", "ffn_dim")}
        return config.replace(model="mixed", layer_types=tuple(kept["layer_types"]), **sizes)

    def ready(
        self, run: RunFolder, recipe: Recipe, config: TextClassificationConfig, origin: RunFolder | None
    ) -> None:
        """The words and labels: learned from the training documents, or those of the run it begins with."""
        shelves: Shelves = recipe.data(config)
        if origin is None:
            words, labels = fit_processor(shelves, config)
        elif (origin.folder / self.files[1]).is_file():
            words, labels = load_processor(origin)
        else:  # it filled in words, and knows no labels
            words, labels = FillMaskTask().load_processor(origin), collect_labels(shelves.train())
        words.save(run.folder / self.files[0])
        write_atomic(run.folder / self.files[1], (json.dumps(labels, ensure_ascii=False) + "\n").encode())

    def init_model(self, model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        """The weights of another run; of a masked language model, those of its encoder."""
        embeddings, head = weights.get(f"{ENCODER}{EMBEDDINGS}"), weights.get("lm_head.weight")
        if embeddings is None or head is None or len(embeddings) != len(head):
            super().init_model(model, weights, where)
            return
        assert isinstance(model, FlatDocumentClassifier)
        encoder = {
            name.removeprefix(ENCODER): tensor for name, tensor in weights.items() if name.startswith(ENCODER)
        }
        load_into(
            model.encoder, {**encoder, EMBEDDINGS: embeddings[:-1]}, where
        )  # the last is that of the mask


@dataclass(frozen=True)
class Validation:
    """How many of the documents are put into the right class, in a hundred, and the loss."""

    objective: RightClass
    valid: DocumentBatches

    def __call__(self) -> dict[str, float]:
        device = self.objective.model.classifier.weight.device
        total = right = 0.0
        for batch in self.valid.iter_eval_batches():
            loss = self.objective(batch.to(device))
            total, right = total + float(loss.total), right + float(loss.metrics["right"])
        return {"accuracy": 100 * right / len(self.valid), "loss": total / len(self.valid)}


def fit_processor(shelves: Shelves, config: TextClassificationConfig) -> tuple[Tokenizer, tuple[str, ...]]:
    """The most frequent words of the training documents, and their labels."""
    cutting, found = make_splitter(config), list(shelves.train())
    every = iter_usable(found, cutting, DocumentReport.from_splitter(cutting))
    texts = (" ".join(sentence) for _, cut in every for sentence in cut)
    tokenizer = Tokenizer.train(texts, "word", config.vocab_size, lowercase=config.lowercase)
    return tokenizer, collect_labels(found)


def collect_labels(documents: Iterable[Document]) -> tuple[str, ...]:
    """The names of the classes, in the order of the alphabet; one alone is refused."""
    found = [document for document in documents if document.full_text.strip()]
    labels = tuple(sorted({document.label for document in found}))
    if len(labels) == 1:
        where = found[0].file or "the documents"
        raise DataError(
            f"{where}: all documents have the label {labels[0]!r}, and there is nothing to tell apart; train with"
            " documents of two classes or more."
        )
    return labels


def load_processor(run: RunFolder) -> tuple[Tokenizer, tuple[str, ...]]:
    """The words and labels that a run keeps."""
    words, labels = (run.folder / name for name in TextClassificationTask.files)
    try:
        names = json.loads(labels.read_text(encoding="utf-8"))
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{labels} is damaged: it should be a list of labels; copy it again.")
    return Tokenizer.load(words), tuple(names)


def build_model(
    config: TextClassificationConfig, vocab_size: int, num_classes: int
) -> HierarchicalAttentionNetwork | FlatDocumentClassifier:
    """The network that the settings describe."""
    if config.model == "mixed":
        read, dim = build_encoder(config, vocab_size), config.embed_dim
        return FlatDocumentClassifier(
            read, build_pooling(config), dim, num_classes, max_span=config.max_span, dropout=config.dropout
        )
    return HierarchicalAttentionNetwork(
        vocab_size,
        num_classes,
        build_pooling(config),
        build_pooling(config),
        embed_dim=config.embed_dim,
        hidden_dim=config.hidden_dim,
        dropout=config.dropout,
    )


def build_pooling(config: TextClassificationConfig) -> AttentionPool | MaxPool:
    """What makes one vector of many: attention, or one of its twins."""
    if config.pooling == "max":
        return MaxPool()
    if config.pooling == "average":
        return AttentionPool(Attention(Constant()))
    dim = config.embed_dim if config.model == "mixed" else config.hidden_dim
    share = build_normalizer(config.normalize)
    if mechanism("score", config.score, SCORES)[0] == "Additive":
        return AttentionPool(build_attention("global", Additive(None, dim, dim), share, dim, dim, 1))
    how = build_score(config.score, dim, dim, dim)
    return AttentionPool(
        build_attention("global", how, share, dim, dim, 1), query_dim=dim, init_std=dim**-0.5
    )
