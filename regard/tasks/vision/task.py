"""Image classification and visual question answering: data, networks and loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from regard.attention.layers import AttentionPool, MaxPool
from regard.data import questions
from regard.data.images import ImageLike, load_gray_images
from regard.data.scenes import ImageBatch, RenderedScenes
from regard.data.sources import GeneratedBatches
from regard.data.tokenizer import pad_rows
from regard.models import image_models
from regard.tasks.classification import ClassificationTask, build_pooling_attention, select_weights
from regard.tasks.datasets import concatenate_examples
from regard.tasks.grid import make_mnist_scenes, make_scene_splits, make_sklearn_scenes
from regard.tasks.predictor import Metric
from regard.tasks.task import AnyTask, DataSplits, Processor
from regard.tasks.vision.config import ImageClassificationConfig, VisionConfig, VisualQAConfig
from regard.tasks.vision.predictor import ImageClassifier, VisualQA
from regard.training import BatchSource, load_into

__all__ = [
    "ImageClassificationProcessor", "ImageClassificationTask", "VisualQAProcessor", "VisualQATask",
    "digit_questions", "digits", "mnist_cluttered",
]  # fmt: skip

VALID_BATCH_SIZE = 100  # scenes


def digits(config: ImageClassificationConfig) -> DataSplits[RenderedScenes]:
    """Scenes of one of scikit-learn's digits among distractors.

    Args:
        config: the size of the images, and the number of distractors
    """
    return make_scene_splits(partial(make_sklearn_scenes, config, num_digits=1, num_distractors=config.num_distractors))


def mnist_cluttered(config: ImageClassificationConfig) -> DataSplits[RenderedScenes]:
    """Scenes of one MNIST digit among distractors.

    Args:
        config: the folder of MNIST, the size of the images, and the number of distractors
    """
    return make_scene_splits(partial(make_mnist_scenes, config, num_digits=1, num_distractors=config.num_distractors))


def digit_questions(config: VisualQAConfig) -> DataSplits[questions.ImageQuestions]:
    """Scenes of three of scikit-learn's digits among distractors, with questions about them.

    Args:
        config: the size of the images, and the number of distractors
    """
    counts = {"num_digits": 3, "num_distractors": config.num_distractors}
    return make_scene_splits(lambda split: questions.QuestionGenerator(make_sklearn_scenes(config, split, **counts)))


@dataclass(frozen=True)
class ImageClassificationProcessor(Processor):
    """What an image classifier needs in addition to its weights.

    Args:
        labels: the classes
        image_size: side of an image in pixels
    """

    labels: tuple[str, ...] = tuple("0123456789")
    image_size: int = 64

    def encode(self, images: Sequence[ImageLike]) -> tuple[Tensor]:
        """The arguments of the model."""
        return (load_gray_images(images, self.image_size),)

    def describe(self) -> dict[str, Any]:
        """The classes."""
        return {"labels": list(self.labels)}


@dataclass(frozen=True)
class VisualQAProcessor(Processor):
    """What visual question answering needs in addition to its weights.

    Args:
        words: the words of questions; the first one is padding
        answers: the possible answers
        image_size: side of an image in pixels
    """

    words: tuple[str, ...] = questions.QUESTION_WORDS
    answers: tuple[str, ...] = questions.ANSWERS
    image_size: int = 64

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes: the answers."""
        return self.answers

    def encode(self, inputs: Sequence[tuple[ImageLike, str]]) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of the model: images with one question each."""
        tokens, lengths = pad_rows([questions.encode_question(question) for _, question in inputs])
        images = load_gray_images([image for image, _ in inputs], self.image_size)
        return images, tokens[:, None], lengths[:, None]


class _VisionTask(ClassificationTask):
    """What both tasks share: their data are scenes, which a function converts to batches."""

    metrics = (
        *ClassificationTask.metrics[:2],
        Metric("inside", "largest weight inside the digit, %"),
        *ClassificationTask.metrics[2:],
    )
    example_class: ClassVar[type[RenderedScenes | questions.ImageQuestions]]
    make_batch: ClassVar[Any]

    def validate(self, config: VisionConfig, data: DataSplits[Any]) -> None:
        """Refuse mechanisms that do not go together."""
        self.build_model(config, self.processor_class())

    def build_processor(self, config: VisionConfig, data: DataSplits[Any]) -> Any:
        """The classes are always the same."""
        return cast(Any, self.processor_class)(image_size=config.image_size)

    def train_batches(self, config: VisionConfig, processor: Any, examples: Any) -> BatchSource:
        """Generated scenes."""
        return GeneratedBatches(examples.sample, self.make_batch, config.batch_size, config.seed)

    def eval_batches(self, config: VisionConfig, processor: Any, examples: Iterable[Any]) -> Iterator[Any]:
        """All scenes, in batches of about 100."""
        batch = self.make_batch(concatenate_examples(self.example_class, examples))
        num_parts = len(batch) // VALID_BATCH_SIZE + 1
        return (batch.shard(index, num_parts) for index in range(num_parts))


class ImageClassificationTask(_VisionTask):
    """From an image to its class."""

    name, verb = "image-classification", "classify"
    config_class = ImageClassificationConfig
    processor_class = ImageClassificationProcessor
    predictor_class = ImageClassifier
    example_class = RenderedScenes
    make_batch = ImageBatch.from_scenes

    def build_model(
        self, config: ImageClassificationConfig, processor: ImageClassificationProcessor
    ) -> image_models.AttentionPoolClassifier:
        """A convolutional network with attention pooling."""
        num_classes, options = len(processor.labels), _backbone_options(config)
        return image_models.AttentionPoolClassifier(num_classes, _build_pooling(config, num_classes), **options)


def _backbone_options(config: VisionConfig) -> dict[str, Any]:
    """The arguments of both networks: the backbone of gray images, the size of its features, and dropout."""
    backbone = image_models.ConvBackbone(1, config.feature_dim, width=config.conv_channels)
    return {"backbone": backbone, **config.select("feature_dim", "dropout")}


def _build_pooling(config: ImageClassificationConfig, num_classes: int) -> AttentionPool | MaxPool:
    if config.pooling == "max":
        return MaxPool()
    has_query = config.pooling == "attention" and config.learned_queries != "none"
    attention = build_pooling_attention(config, config.feature_dim, config.hidden_dim, has_query)
    num_queries = num_classes if config.learned_queries == "each" else 1
    return AttentionPool(attention, config.hidden_dim if has_query else None, num_queries=num_queries)


class VisualQATask(_VisionTask):
    """From an image and a question to an answer."""

    name, verb = "visual-question-answering", "ask"
    config_class = VisualQAConfig
    processor_class = VisualQAProcessor
    predictor_class = VisualQA
    example_class = questions.ImageQuestions
    make_batch = questions.QuestionBatch.from_questions

    def inherit_processor(
        self, config: VisualQAConfig, data: DataSplits[questions.ImageQuestions], other: AnyTask, folder: Any
    ) -> VisualQAProcessor:
        """The same: the other run may be one of image classification."""
        return self.build_processor(config, data)

    def build_model(self, config: VisualQAConfig, processor: VisualQAProcessor) -> image_models.VisualQAModel:
        """A convolutional network, an encoder of questions, and one attention for each hop."""
        num_words, dim = len(processor.words), config.hidden_dim
        encoder: nn.Module
        if config.question_encoder == "bag":
            encoder = image_models.BagOfWordsEncoder(num_words, dim)
        else:
            encoder = image_models.GRUEncoder(num_words, config.embed_dim, dim)
        attentions = [build_pooling_attention(config, config.feature_dim, dim) for _ in range(config.num_hops)]
        return image_models.VisualQAModel(encoder, attentions, len(processor.answers), **_backbone_options(config))

    def can_init_from(self, other: AnyTask) -> bool:
        """Also from an image classifier, whose backbone it takes."""
        return isinstance(other, _VisionTask)

    def init_model(self, model: nn.Module, other: AnyTask, weights: Mapping[str, Tensor], origin: str) -> None:
        """All weights; those of the backbone if the other run is one of image classification."""
        if isinstance(other, VisualQATask):
            super().init_model(model, other, weights, origin)
        else:
            load_into(model.get_submodule("backbone"), select_weights(weights, "backbone"), origin)
