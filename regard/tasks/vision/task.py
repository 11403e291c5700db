"""Image classification and visual question answering: data, networks and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from regard.attention import Additive, Attention, Constant
from regard.attention.pooling import AttentionPool, MaxPool
from regard.data.images import Digits, load_mnist, load_sklearn_digits
from regard.data.questions import ANSWERS, QUESTION_WORDS, ImageQuestions, QuestionBatch, QuestionGenerator
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
from regard.tasks.classification import classification_loss
from regard.tasks.datasets import MNIST_CONTENTS, SCENE_SEEDS, concatenate_examples, find_data_folder
from regard.tasks.mechanisms import build_attention, build_normalizer, build_score
from regard.tasks.predictor import Metric
from regard.tasks.task import DataSplits, LazyExamples, Processor, Task
from regard.tasks.vision.config import ImageClassificationConfig, VisionConfig, VisualQAConfig
from regard.tasks.vision.predictor import ImageClassifier, VisualQA
from regard.training import BatchSource, Loss, load_into

__all__ = [
    "ImageClassificationProcessor",
    "ImageClassificationTask",
    "VisualQAProcessor",
    "VisualQATask",
    "build_grid_attention",
    "digit_questions",
    "digits",
    "mnist_cluttered",
]

NUM_VALID_SCENES, NUM_TEST_SCENES = 500, 2000
VALID_BATCH_SIZE = 100  # scenes
BACKBONE, QUESTION_ENCODER = "backbone.", "question_encoder."  # prefixes of weights
DIGIT_LABELS = tuple(map(str, range(10)))

ConfigT = TypeVar("ConfigT", bound=VisionConfig)
ProcessorT = TypeVar("ProcessorT", bound=Processor)
ExampleT = TypeVar("ExampleT", RenderedScenes, ImageQuestions)


def digits(config: ImageClassificationConfig) -> DataSplits[RenderedScenes]:
    """Scenes of one of scikit-learn's digits among distractors."""
    return _make_splits(lambda split: _sklearn_scenes(config, split, 1))


def mnist_cluttered(config: ImageClassificationConfig) -> DataSplits[RenderedScenes]:
    """Scenes of one MNIST digit among distractors."""
    root = find_data_folder(config.data_dir, MNIST_CONTENTS)
    sizes = config.image_size * 7 // 48, config.image_size * 7 // 24  # 14 to 28 pixels of 96
    return _make_splits(
        lambda split: SceneGenerator(load_mnist(root, split), config.image_size, sizes, 1, config.num_distractors)
    )


def digit_questions(config: VisualQAConfig) -> DataSplits[ImageQuestions]:
    """Scenes of three of scikit-learn's digits among distractors, with questions about them."""
    return _make_splits(lambda split: QuestionGenerator(_sklearn_scenes(config, split, 3)))


def _sklearn_scenes(config: VisionConfig, split: Any, num_digits: int) -> SceneGenerator:
    source: Digits = load_sklearn_digits(split)
    sizes = config.image_size // 8, config.image_size // 4
    return SceneGenerator(source, config.image_size, sizes, num_digits, config.num_distractors)


def _make_splits(make_generator: Callable[[Any], SceneGenerator | QuestionGenerator]) -> DataSplits[Any]:
    def fixed(split: str, count: int) -> LazyExamples[Any]:
        return LazyExamples(lambda: make_generator(split).sample(seeded_generator(SCENE_SEEDS[split]), count))

    return DataSplits(
        make_generator("train"), fixed("valid", NUM_VALID_SCENES), {"test": fixed("test", NUM_TEST_SCENES)}
    )


@dataclass(frozen=True)
class ImageClassificationProcessor(Processor):
    """What an image classifier needs beside its weights.

    Args:
        labels: the classes
        image_size: side of an image in pixels
    """

    labels: tuple[str, ...] = DIGIT_LABELS
    image_size: int = 64

    def describe(self) -> dict[str, Any]:
        """The classes."""
        return {"labels": list(self.labels)}


@dataclass(frozen=True)
class VisualQAProcessor(Processor):
    """What visual question answering needs beside its weights.

    Args:
        words: the words of questions; the first one is padding
        answers: the possible answers
        image_size: side of an image in pixels
    """

    words: tuple[str, ...] = QUESTION_WORDS
    answers: tuple[str, ...] = ANSWERS
    image_size: int = 64


class _VisionTask(Task[ConfigT, ProcessorT, ExampleT, Any], Generic[ConfigT, ProcessorT, ExampleT]):
    """What both tasks share: metrics, loss and validation batches."""

    metrics = (
        Metric("accuracy", "accuracy, %"),
        Metric("error", "standard error, %", lower_is_better=True),
        Metric("inside", "largest weight inside the digit, %"),
        Metric("loss", "loss, nats", lower_is_better=True, format=".4f"),
    )

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The cross entropy of the labels, summed."""
        return classification_loss(model(*batch.model_inputs), batch.labels)


def _split_batch(batch: ImageBatch | QuestionBatch) -> Iterator[Any]:
    num_parts = len(batch) // VALID_BATCH_SIZE + 1
    return (batch.shard(index, num_parts) for index in range(num_parts))


class ImageClassificationTask(_VisionTask[ImageClassificationConfig, ImageClassificationProcessor, RenderedScenes]):
    """From an image to its class."""

    name, verb = "image-classification", "classify"
    config_class = ImageClassificationConfig
    processor_class = ImageClassificationProcessor
    predictor_class = ImageClassifier

    def validate(self, config: ImageClassificationConfig, data: DataSplits[RenderedScenes]) -> None:
        """Refuse mechanisms that do not go together."""
        self.build_model(config, ImageClassificationProcessor())

    def build_processor(
        self, config: ImageClassificationConfig, data: DataSplits[RenderedScenes]
    ) -> ImageClassificationProcessor:
        """The ten digits as classes."""
        return ImageClassificationProcessor(image_size=config.image_size)

    def build_model(
        self, config: ImageClassificationConfig, processor: ImageClassificationProcessor
    ) -> AttentionPoolClassifier:
        """A convolutional network with attention pooling."""
        num_classes = len(processor.labels)
        backbone = ConvBackbone(1, config.feature_dim, width=config.conv_channels)
        return AttentionPoolClassifier(
            num_classes,
            _build_pooling(config, num_classes),
            backbone=backbone,
            feature_dim=config.feature_dim,
            dropout=config.dropout,
        )

    def train_batches(
        self, config: ImageClassificationConfig, processor: ImageClassificationProcessor, examples: Any
    ) -> BatchSource:
        """Generated scenes."""
        return GeneratedBatches(examples.sample, ImageBatch.from_scenes, config.batch_size, config.seed)

    def eval_batches(
        self,
        config: ImageClassificationConfig,
        processor: ImageClassificationProcessor,
        examples: Iterable[RenderedScenes],
    ) -> Iterator[ImageBatch]:
        """All scenes, in batches of about 100."""
        return _split_batch(ImageBatch.from_scenes(concatenate_examples(RenderedScenes, examples)))


def _build_pooling(config: ImageClassificationConfig, num_classes: int) -> AttentionPool | MaxPool:
    if config.pooling == "max":
        return MaxPool()
    has_query = config.pooling == "attention" and config.query_type != "none"
    return AttentionPool(
        build_grid_attention(config, has_query),
        config.hidden_dim if has_query else None,
        num_queries=num_classes if config.query_type == "each" else 1,
    )


def build_grid_attention(config: VisionConfig, has_query: bool = True) -> Attention:
    """The attention over a grid that a config describes; its mean with `pooling=average`.

    Args:
        config: the score, the normalizer and the sizes
        has_query: whether it has a query
    """
    if getattr(config, "pooling", None) == "average":
        return Attention(Constant())
    dim, feature_dim = config.hidden_dim, config.feature_dim
    normalize = build_normalizer(config.normalize)
    if has_query:
        score = build_score(config.score, dim, feature_dim, dim)
    elif config.score == "additive":
        score = Additive(None, feature_dim, dim)
    else:
        raise ConfigError(f"score={config.score} needs a query; query_type=none requires score=additive")
    attention: Attention = build_attention("global", score, normalize, dim, dim, 1)
    return attention


class VisualQATask(_VisionTask[VisualQAConfig, VisualQAProcessor, ImageQuestions]):
    """From an image and a question to an answer."""

    name, verb = "visual-question-answering", "ask"
    config_class = VisualQAConfig
    processor_class = VisualQAProcessor
    predictor_class = VisualQA

    def validate(self, config: VisualQAConfig, data: DataSplits[ImageQuestions]) -> None:
        """Refuse mechanisms that do not go together."""
        self.build_model(config, VisualQAProcessor())

    def build_processor(self, config: VisualQAConfig, data: DataSplits[ImageQuestions]) -> VisualQAProcessor:
        """The words and answers of the grammar of questions."""
        return VisualQAProcessor(image_size=config.image_size)

    def inherit_processor(
        self, config: VisualQAConfig, data: DataSplits[ImageQuestions], other: Any, folder: Any
    ) -> VisualQAProcessor:
        """The same: the other run may be one of image classification."""
        return self.build_processor(config, data)

    def build_model(self, config: VisualQAConfig, processor: VisualQAProcessor) -> VisualQAModel:
        """A convolutional network, an encoder of questions, and one attention for each hop."""
        num_words, dim = len(processor.words), config.hidden_dim
        return VisualQAModel(
            BagOfWordsEncoder(num_words, dim)
            if config.question_encoder == "bag"
            else GRUEncoder(num_words, config.embed_dim, dim),
            [build_grid_attention(config) for _ in range(config.num_hops)],
            len(processor.answers),
            backbone=ConvBackbone(1, config.feature_dim, width=config.conv_channels),
            feature_dim=config.feature_dim,
            dropout=config.dropout,
        )

    def train_batches(self, config: VisualQAConfig, processor: VisualQAProcessor, examples: Any) -> BatchSource:
        """Generated scenes with questions."""
        return GeneratedBatches(examples.sample, QuestionBatch.from_questions, config.batch_size, config.seed)

    def eval_batches(
        self, config: VisualQAConfig, processor: VisualQAProcessor, examples: Iterable[ImageQuestions]
    ) -> Iterator[QuestionBatch]:
        """All scenes, in batches of about 100."""
        return _split_batch(QuestionBatch.from_questions(concatenate_examples(ImageQuestions, examples)))

    def can_init_from(self, other: Task[Any, Any, Any, Any]) -> bool:
        """Also from an image classifier, whose backbone it takes."""
        return isinstance(other, VisualQATask | ImageClassificationTask)

    def init_model(self, model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
        """All weights; those of the backbone if the other run is one of image classification."""
        if any(name.startswith(QUESTION_ENCODER) for name in weights):
            super().init_model(model, weights, origin)
            return
        assert isinstance(model, VisualQAModel)
        assert model.backbone is not None
        backbone = {
            name.removeprefix(BACKBONE): tensor for name, tensor in weights.items() if name.startswith(BACKBONE)
        }
        load_into(model.backbone, backbone, origin)
