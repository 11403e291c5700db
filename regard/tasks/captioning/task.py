"""The image captioning task: words, batches of images, a network that attends to a grid, and its loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from regard.attention import Attention, Constant, Sample
from regard.data import Tokenizer
from regard.data.captions import CaptionBatch, CaptionBatches, CaptionedImages, SceneCaptionCollator
from regard.data.parallel import pluralize
from regard.data.scenes import CAPTION_WORDS, SceneGenerator
from regard.data.segmentation import separate_characters
from regard.data.sources import GeneratedBatches
from regard.data.vocabulary import SPECIAL_TOKENS
from regard.errors import DataError
from regard.models.captioner import ShowAttendTell
from regard.models.image_models import ConvBackbone
from regard.tasks.captioning.config import CaptioningConfig, CaptionOptions
from regard.tasks.captioning.data import CaptionSplits
from regard.tasks.captioning.predictor import ImageCaptioner
from regard.tasks.datasets import EvalBatches, concatenate_examples, describe_reports
from regard.tasks.mechanisms import build_score
from regard.tasks.predictor import Metric
from regard.tasks.sequence_loss import build_caption_loss
from regard.tasks.task import AnyTask, DataSplits, LossFn, Task, TokenizerProcessor, sum_losses
from regard.training import BatchSource
from regard.training.engine import CompileMode

__all__ = ["CaptioningProcessor", "ImageCaptioningTask", "train_tokenizer"]

MIN_VOCAB_WORDS = 5  # words that are known, however rare they are


@dataclass(frozen=True)
class CaptioningProcessor(TokenizerProcessor):
    """What a captioner needs in addition to its weights.

    Args:
        tokenizer: the words
        image_size: side of an image in pixels
        color: whether images have colors
        feature_dim: size of a feature vector if inputs are grids of features; None for images
    """

    image_size: int = 64
    color: bool = False
    feature_dim: int | None = None


class ImageCaptioningTask(Task[CaptioningConfig, CaptioningProcessor, CaptionedImages, CaptionBatch]):
    """From an image, or a grid of features, to a caption."""

    name, verb = "image-to-text", "caption"
    config_class = CaptioningConfig
    processor_class = CaptioningProcessor
    predictor_class = ImageCaptioner
    metrics = (
        Metric("captions", "captions without a mistake, %"),
        Metric("digits", "digits named at their place, %"),
        Metric("inside", "largest weight inside the named digit, %"),
        Metric("bleu", "BLEU"),
        *(Metric(f"bleu{order}", f"BLEU-{order}") for order in (1, 2, 3, 4)),
        Metric("brevity_penalty", "brevity penalty", format=".3f"),
        Metric("loss", "loss, nats per word", lower_is_better=True, format=".4f"),
    )

    def validate(self, config: CaptioningConfig, data: DataSplits[CaptionedImages]) -> None:
        """Refuse mechanisms that do not go together."""
        _build_model(config, 8, _find_feature_dim(data))

    def build_processor(self, config: CaptioningConfig, data: DataSplits[CaptionedImages]) -> CaptioningProcessor:
        """The words of the training captions that are frequent enough."""
        tokenizer = train_tokenizer(data.train, config)
        return CaptioningProcessor(tokenizer, config.image_size, config.color, _find_feature_dim(data))

    def inherit_processor(
        self, config: CaptioningConfig, data: DataSplits[CaptionedImages], other: AnyTask, folder: Path
    ) -> CaptioningProcessor:
        """The words of the other run."""
        tokenizer = CaptioningProcessor.load(folder).tokenizer
        return CaptioningProcessor(tokenizer, config.image_size, config.color, _find_feature_dim(data))

    def build_model(self, config: CaptioningConfig, processor: CaptioningProcessor) -> ShowAttendTell:
        """An LSTM that attends to the grid of a backbone, or to a grid of features."""
        return _build_model(config, len(processor.tokenizer), processor.feature_dim)

    def train_batches(self, config: CaptioningConfig, processor: CaptioningProcessor, examples: Any) -> BatchSource:
        """Generated scenes, or captions in random order."""
        if isinstance(examples, SceneGenerator):
            collate = SceneCaptionCollator(processor.tokenizer)
            return GeneratedBatches(examples.sample, collate, config.batch_size, config.seed)
        return _make_batches("train", examples, config, processor)

    def eval_batches(
        self, config: CaptioningConfig, processor: CaptioningProcessor, examples: Iterable[CaptionedImages]
    ) -> EvalBatches[CaptionBatch]:
        """Every caption once, in order."""
        source = _make_batches("valid", examples, config, processor)
        return EvalBatches(source.iter_eval_batches(), source.report)

    def build_loss(self, config: CaptioningConfig) -> nn.Module:
        """The loss of the words; hard attention counts its batches and has a baseline."""
        return build_caption_loss(config)

    def compile_mode(self, config: CaptioningConfig) -> CompileMode:
        """Nothing: captions have many lengths."""
        return "off"

    def describe_data(self, config: CaptioningConfig, batches: BatchSource, valid: Any) -> dict[str, Any]:
        """What was read, and whether validation images were held out."""
        return describe_reports(config, batches, valid, "image")

    def compute_metrics(self, predictor: Any, loss: LossFn, batches: Any, examples: Any) -> dict[str, float]:
        """The loss without label smoothing and, if another metric is monitored, how good greedy captions are."""
        _, count, sums = sum_losses(predictor, loss, batches)
        metrics = {"loss": sums["nll"] / count}
        if predictor.config.monitor == "loss":
            return metrics
        report = predictor.evaluate(examples, CaptionOptions(beam_size=1))
        names = ("captions", "digits", "inside", "bleu")
        return metrics | {name: report.metrics[name] for name in names if name in report.metrics}


def _find_feature_dim(data: DataSplits[CaptionedImages]) -> int | None:
    return data.feature_dim if isinstance(data, CaptionSplits) else None


def _make_batches(
    split: str, examples: Any, config: CaptioningConfig, processor: CaptioningProcessor
) -> CaptionBatches:
    images = concatenate_examples(CaptionedImages, examples)
    try:
        return CaptionBatches(
            images, processor.tokenizer, config.batch_size, max_length=config.max_length, seed=config.seed
        )
    except DataError as error:
        raise DataError(f"{split}: {error}") from None


def train_tokenizer(examples: Any, config: CaptioningConfig) -> Tokenizer:
    """The words of scenes, or those that occur often enough in captions.

    Args:
        examples: a `SceneGenerator`, or captioned images
        config: how often, and whether in lowercase
    """
    if isinstance(examples, SceneGenerator):
        return Tokenizer.train([" ".join(CAPTION_WORDS)], "word", len(SPECIAL_TOKENS) + len(CAPTION_WORDS))
    images = concatenate_examples(CaptionedImages, examples)
    texts = [separate_characters(text) for captions in images.captions for text in captions]
    counts = Counter(word for text in texts for word in (text.lower() if config.lowercase else text).split())
    num_frequent = sum(count >= config.min_word_count for count in counts.values())
    if counts and not num_frequent:
        word, most = counts.most_common(1)[0]
        raise DataError(
            f"min_word_count={config.min_word_count}: no word of the training captions is so frequent; the most"
            f" frequent, {word!r}, occurs {pluralize(most, 'time')}"
        )
    size = len(SPECIAL_TOKENS) + max(MIN_VOCAB_WORDS, num_frequent)
    return Tokenizer.train(texts, "word", size, lowercase=config.lowercase)


def _build_model(config: CaptioningConfig, vocab_size: int, feature_dim: int | None) -> ShowAttendTell:
    """The network; without a backbone if inputs are grids of features of size `feature_dim`."""
    backbone = None
    if feature_dim is None:
        feature_dim = config.feature_dim
        backbone = ConvBackbone(3 if config.color else 1, feature_dim, width=config.conv_channels)
    if config.attention_scope == "none":
        attention = Attention(Constant())
    else:
        score = build_score(config.score, config.hidden_dim, feature_dim, config.hidden_dim // 2)
        attention = Attention(score, Sample() if config.attention_scope == "hard" else None)
    return ShowAttendTell(
        vocab_size,
        attention,
        backbone=backbone,
        feature_dim=feature_dim,
        embed_dim=config.embed_dim,
        hidden_dim=config.hidden_dim,
        dropout=config.dropout,
        soft_fraction=config.soft_fraction,
    )
