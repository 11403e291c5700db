"""The scenes of each recipe of images: what to train on, to choose by, and to judge by.

What the tasks of images have in common: how they run, a loss, a validation, and attention over a grid.

The task of putting images into classes: scenes of one digit, and a network that glances at them.

The task of answering questions about images: a network that is asked, and how often it is right.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn

from regard.attention import Additive, Attention, AttentionPool, Constant, MaxPool
from regard.data.images import Digits, load_mnist, load_sklearn_digits
from regard.data.questions import (
    ANSWERS,
    QUESTION_WORDS,
    ImageQuestions,
    QuestionBatch,
    QuestionGenerator,
)
from regard.data.scenes import ImageBatch, RenderedScenes, SceneGenerator
from regard.data.sources import GeneratedBatches, seeded_generator
from regard.errors import ConfigError
from regard.models.image_models import (
    AttentionPoolClassifier,
    BagOfWordsEncoder,
    ConvBackbone,
    GRUEncoder,
    VisualQAModel,
)
from regard.tasks.captioning.data import HELD
from regard.tasks.datasets import find_data_folder
from regard.tasks.legacy import Experiment, Recipe, Task
from regard.tasks.mechanisms import build_attention, build_normalizer, build_score
from regard.tasks.runner import build_and_load
from regard.tasks.vision.config import ImageClassificationConfig, VisionConfig, VisualQAConfig
from regard.tasks.vision.predictor import ImageClassifier, VisualQA, answer_report, image_report
from regard.training import BatchSource, Loss, RunFolder, TrainingConfig, load_into

NUM_VALID_SCENES, NUM_TEST_SCENES = 500, 2000  # scenes


MNIST_CONTENTS = "the four files of MNIST, such as train-images-idx3-ubyte.gz"


DigitsOfSplit = Callable[[Any], Digits]  # from the name of a part to its digits


@dataclass(frozen=True)
class Sights:
    """Where scenes come from: made by chance to train on, always the same ones to choose by and to test."""

    train: Callable[[], SceneGenerator | QuestionGenerator]
    valid: Callable[[], RenderedScenes | ImageQuestions]
    tests: Mapping[str, Callable[[], RenderedScenes | ImageQuestions]]

    @property
    def parts(self) -> dict[str, Callable[[], RenderedScenes | ImageQuestions]]:
        """All that can be judged by, the usual one first."""
        return {**self.tests, "valid": self.valid}


def digits(config: ImageClassificationConfig) -> Sights:
    """One of scikit-learn's digits among clutter."""
    return _make_splits(lambda part: _small_scenes(config, part, 1))


def mnist_cluttered(config: ImageClassificationConfig) -> Sights:
    """One of MNIST's digits among clutter."""
    root = find_data_folder(config.data_dir, MNIST_CONTENTS)
    sides = config.image_size * 7 // 48, config.image_size * 7 // 24  # 14 to 28 pixels of 96
    return _make_splits(
        lambda part: SceneGenerator(
            load_mnist(root, part), config.image_size, sides, 1, config.num_distractors
        )
    )


def digit_questions(config: VisualQAConfig) -> Sights:
    """Three of scikit-learn's digits among clutter, and a question about them."""
    return _make_splits(lambda part: QuestionGenerator(_small_scenes(config, part, 3)))


def _small_scenes(config: VisionConfig, split: Any, count: int) -> SceneGenerator:
    sides = config.image_size // 8, config.image_size // 4
    return SceneGenerator(load_sklearn_digits(split), config.image_size, sides, count, config.num_distractors)


def _make_splits(make_generator: Callable[[Any], SceneGenerator | QuestionGenerator]) -> Sights:
    def held(part: str, count: int) -> Callable[[], RenderedScenes | ImageQuestions]:
        return lambda: make_generator(part).sample(seeded_generator(HELD[part]), count)

    return Sights(
        lambda: make_generator("train"),
        held("valid", NUM_VALID_SCENES),
        {"test": held("test", NUM_TEST_SCENES)},
    )


VALID_BATCH_SIZE = 100  # scenes of the validation that are seen together


ConfigT = TypeVar("ConfigT", bound=VisionConfig)


class VisionTask(Task[ConfigT]):
    """From an image, and perhaps a question, to one of a few answers."""

    facts: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def objective(self, config: ConfigT) -> RightChoice:
        """The network that the settings describe, with its loss."""

    @abstractmethod
    def scenes(self, sights: Sights, config: ConfigT) -> tuple[BatchSource, Any]:
        """What to train on, and a batch of all that was held out."""

    @abstractmethod
    def judged(self, made: Any, held: Any) -> dict[str, Any]:
        """How often it is right about these, and where it looked."""

    def validate(self, recipe: Recipe, config: ConfigT) -> None:
        recipe.data(config).train()
        self.objective(config)

    def experiment(self, run: RunFolder, recipe: Recipe, config: ConfigT) -> Experiment[ConfigT]:
        data, held = self.scenes(recipe.data(config), config)
        several = len(held) // VALID_BATCH_SIZE + 1
        parts = [held.shard(rank, several) for rank in range(several)]
        objective = self.objective(config)
        return Experiment(run, config, objective, data, Validation(objective, parts), self.facts)

    def judge(self, recipe: Recipe, made: Any, part: str | None = None) -> dict[str, Any]:
        parts = recipe.data(made.config).parts
        chosen = part or next(iter(parts))
        return {**self.judged(made, parts[chosen]()), "part": chosen}


class RightChoice(nn.Module):
    """The cross entropy of what should be said of each image, summed over a batch."""

    def __init__(self, model: AttentionPoolClassifier | VisualQAModel):
        super().__init__()
        self.model = model

    def forward(self, batch: ImageBatch | QuestionBatch) -> Loss:
        scores = self.model(*batch.model_inputs)
        total = nn.functional.cross_entropy(
            scores.flatten(0, -2).float(), batch.labels.flatten(), reduction="sum"
        )
        return Loss(total, batch.num_tokens, {"right": (scores.argmax(-1) == batch.labels).sum().detach()})


@dataclass(frozen=True)
class Validation:
    """How often it is right about what was held out, in a hundred, and the loss."""

    objective: RightChoice
    held: Sequence[Any]  # batches

    def __call__(self) -> dict[str, float]:
        device = self.objective.model.classifier.weight.device
        total = right = count = 0.0
        for batch in self.held:
            with torch.no_grad():
                loss = self.objective(batch.to(device))
            total, right = total + float(loss.total), right + float(loss.metrics["right"])
            count += loss.count
        return {"accuracy": 100 * right / count, "loss": total / count}


def build_grid_attention(config: VisionConfig, pooling: str, has_query: bool = True) -> Attention:
    """A look at the grid as the settings say; the mean of it where they ask for no attention."""
    if pooling == "average":
        return Attention(Constant())
    dim, grid, share = config.hidden_dim, config.feature_dim, build_normalizer(config.normalize)
    if not has_query:
        if config.score != "additive":
            raise ConfigError(f"score={config.score} needs a query; query_type=none goes with score=additive")
        how = Additive(None, grid, dim)
    else:
        how = build_score(config.score, dim, grid, dim)
    return build_attention("global", how, share, dim, dim, 1)


DIGIT_LABELS = tuple(map(str, range(10)))


class ImageClassificationTask(VisionTask[ImageClassificationConfig]):
    """From an image to its class."""

    config_class: ClassVar[type[TrainingConfig]] = ImageClassificationConfig
    uses = ("classify {run} IMAGE", "show {run} IMAGE --out x.png", "evaluate {run}", "info {run}")
    facts: ClassVar[dict[str, Any]] = {"labels": list(DIGIT_LABELS)}

    def objective(self, config: ImageClassificationConfig) -> RightChoice:
        return RightChoice(build_image_classifier(config))

    def scenes(self, sights: Sights, config: ImageClassificationConfig) -> tuple[BatchSource, ImageBatch]:
        sample = cast(SceneGenerator, sights.train()).sample
        data = GeneratedBatches(sample, ImageBatch.from_scenes, config.batch_size, config.seed)
        return data, ImageBatch.from_scenes(cast(RenderedScenes, sights.valid()))

    def judged(self, made: ImageClassifier, held: RenderedScenes) -> dict[str, Any]:
        return image_report(made, held)

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: ImageClassificationConfig,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> ImageClassifier:
        model = build_and_load(lambda: self.objective(config).model, weights, where)
        return ImageClassifier(cast(AttentionPoolClassifier, model.to(device)), DIGIT_LABELS, config)


def build_image_classifier(config: ImageClassificationConfig) -> AttentionPoolClassifier:
    """The network that the settings describe."""
    eyes = ConvBackbone(1, config.feature_dim, width=config.conv_channels)
    return AttentionPoolClassifier(
        len(DIGIT_LABELS),
        build_pooling(config),
        backbone=eyes,
        feature_dim=config.feature_dim,
        dropout=config.dropout,
    )


def build_pooling(config: ImageClassificationConfig) -> AttentionPool | MaxPool:
    """What makes one vector of many: attention, or one of its twins."""
    if config.pooling == "max":
        return MaxPool()
    asked = config.pooling == "attention" and config.query_type != "none"
    queries = len(DIGIT_LABELS) if config.query_type == "each" else 1
    return AttentionPool(
        build_grid_attention(config, config.pooling, asked),
        config.hidden_dim if asked else None,
        num_queries=queries,
    )


BACKBONE, QUESTION_ENCODER = "backbone.", "question_encoder."


class VisualQATask(VisionTask[VisualQAConfig]):
    """From an image and a question to an answer."""

    config_class: ClassVar[type[TrainingConfig]] = VisualQAConfig
    uses = (
        'answer {run} IMAGE "how many 3s"',
        'show {run} "how many 3s" --out x.png',
        "evaluate {run}",
        "info {run}",
    )

    def objective(self, config: VisualQAConfig) -> RightChoice:
        return RightChoice(build_vqa_model(config))

    def scenes(self, sights: Sights, config: VisualQAConfig) -> tuple[BatchSource, QuestionBatch]:
        sample = cast(QuestionGenerator, sights.train()).sample
        data = GeneratedBatches(sample, QuestionBatch.from_questions, config.batch_size, config.seed)
        return data, QuestionBatch.from_questions(cast(ImageQuestions, sights.valid()))

    def judged(self, made: VisualQA, held: ImageQuestions) -> dict[str, Any]:
        return answer_report(made, held)

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: VisualQAConfig,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> VisualQA:
        model = build_and_load(lambda: self.objective(config).model, weights, where)
        return VisualQA(cast(VisualQAModel, model.to(device)), config)

    def can_init_from(self, other: Task[Any]) -> bool:
        return isinstance(other, VisualQATask | ImageClassificationTask)

    def init_model(self, model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        """The weights of another run; of an image classifier, those of its backbone."""
        if any(name.startswith(QUESTION_ENCODER) for name in weights):
            super().init_model(model, weights, where)
            return
        assert isinstance(model, VisualQAModel)
        assert model.backbone is not None
        backbone = {
            name.removeprefix(BACKBONE): tensor
            for name, tensor in weights.items()
            if name.startswith(BACKBONE)
        }
        load_into(model.backbone, backbone, where)


def build_vqa_model(config: VisualQAConfig) -> VisualQAModel:
    """The network that the settings describe."""
    words, dim = len(QUESTION_WORDS), config.hidden_dim
    return VisualQAModel(
        BagOfWordsEncoder(words, dim)
        if config.question_encoder == "bag"
        else GRUEncoder(words, config.embed_dim, dim),
        [build_grid_attention(config, config.pooling) for _ in range(config.num_hops)],
        len(ANSWERS),
        backbone=ConvBackbone(1, config.feature_dim, width=config.conv_channels),
        feature_dim=config.feature_dim,
        dropout=config.dropout,
    )
