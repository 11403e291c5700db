"""The image captioning task: the data of its recipes, words, batches of images, and a network with attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from regard.attention import Attention, Constant, Sample
from regard.data import GeneratedBatches, Tokenizer
from regard.data import captions as caption_data
from regard.data.captions import CaptionBatch, CaptionedImages, ImageArray
from regard.data.parallel import pluralize
from regard.data.scenes import CAPTION_WORDS, RenderedScenes, SceneGenerator
from regard.data.segmentation import separate_characters
from regard.data.text_files import read_lines
from regard.data.vocabulary import SPECIAL_TOKENS
from regard.errors import ConfigError, DataError
from regard.models import ConvBackbone, ShowAttendTell
from regard.tasks import datasets, grid
from regard.tasks.captioning.config import CaptioningConfig, CaptionOptions
from regard.tasks.captioning.predictor import ImageCaptioner
from regard.tasks.mechanisms import build_score
from regard.tasks.predictor import Metric
from regard.tasks.sequence_loss import CaptionLoss, HardCaptionLoss
from regard.tasks.task import AnyTask, DataSplits, LazyExamples, Task, TokenizerProcessor, sum_losses
from regard.training import BatchSource
from regard.training.engine import CompileMode

__all__ = [
    "CaptionSplits", "CaptioningProcessor", "ImageCaptioningTask", "captions", "digit_scenes", "flickr8k",
    "make_scenes", "mnist_scenes", "nearest_captions", "train_tokenizer",
]  # fmt: skip

FLICKR_SPLITS = ("train", "dev", "test")
MAX_ROWS = 1000  # images whose features are averaged at once
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


@dataclass(frozen=True)
class CaptionSplits(DataSplits[CaptionedImages]):
    """Grids of features with captions, by split.

    Args:
        feature_dim: size of a feature vector
    """

    feature_dim: int = 0


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
            collate = caption_data.SceneCaptionCollator(processor.tokenizer)
            return GeneratedBatches(examples.sample, collate, config.batch_size, config.seed)
        return _make_batches("train", examples, config, processor)

    def eval_batches(
        self, config: CaptioningConfig, processor: CaptioningProcessor, examples: Iterable[CaptionedImages]
    ) -> datasets.EvalBatches[CaptionBatch]:
        """Every caption once, in order."""
        source = _make_batches("valid", examples, config, processor)
        return datasets.EvalBatches(source.iter_eval_batches(), source.report)

    def build_loss(self, config: CaptioningConfig) -> nn.Module:
        """The loss of the words; hard attention counts its batches and has a baseline."""
        if config.attention_scope == "hard":
            num_soft_batches = config.soft_warmup * config.steps * config.grad_accumulation
            names = ("label_smoothing", "entropy_bonus", "reward_discount", "soft_fraction")
            return HardCaptionLoss(num_soft_batches=num_soft_batches, **config.select(*names))
        weight = config.doubly_stochastic_weight if config.attention_scope == "soft" else 0.0
        return CaptionLoss(config.label_smoothing, weight)

    def compile_mode(self, config: CaptioningConfig) -> CompileMode:
        """Nothing: captions have many lengths."""
        return "off"

    def describe_data(self, config: CaptioningConfig, batches: BatchSource, valid: Any) -> dict[str, Any]:
        """What was read, and whether validation images were held out."""
        return datasets.describe_reports(config, batches, valid, "image")

    def compute_metrics(self, predictor: Any, loss: Any, batches: Any, examples: Any) -> dict[str, float]:
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
) -> caption_data.CaptionBatches:
    images = datasets.concatenate_examples(CaptionedImages, examples)
    options = config.select("batch_size", "max_length", "seed")
    try:
        return caption_data.CaptionBatches(images, processor.tokenizer, **options)
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
    images = datasets.concatenate_examples(CaptionedImages, examples)
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
    options = config.select("embed_dim", "hidden_dim", "dropout", "soft_fraction")
    return ShowAttendTell(vocab_size, attention, backbone=backbone, feature_dim=feature_dim, **options)


def make_scenes(config: CaptioningConfig, recipe: str, make: Callable[..., Any]) -> DataSplits[CaptionedImages]:
    """Scenes of digits with captions.

    Args:
        config: the size of the images and, for MNIST, its folder; `color` must be off
        recipe: its name, for errors
        make: makes the scenes of a split
    """
    if config.color:
        raise ConfigError(f"invalid value 'on' for color: the digits of {recipe} are gray")
    return grid.make_scene_splits(partial(make, config), _add_captions)


digit_scenes = partial(make_scenes, recipe="digit-scenes", make=grid.make_sklearn_scenes)
mnist_scenes = partial(make_scenes, recipe="mnist-scenes", make=grid.make_mnist_scenes)


def _add_captions(scenes: RenderedScenes) -> CaptionedImages:
    images = ImageArray(scenes.images[:, None], scale=1.0)
    return CaptionedImages(images, [[text] for text in scenes.format_captions()], boxes=scenes.boxes)


def captions(config: CaptioningConfig) -> DataSplits[CaptionedImages]:
    """The files in the options; without validation files, every twentieth training image is held out.

    Args:
        config: the files, and the size and color of the images
    """
    if not config.train_files:
        raise ConfigError(
            'captions needs files to train on: --train x.jsonl, where each line is {"image": path, "captions": [...]}'
        )
    if missing := [path for path in (*config.train_files, *config.valid_files) if not Path(path).is_file()]:
        raise ConfigError(f"no such file: {missing[0]}")

    def open_images(names: tuple[str, ...]) -> LazyExamples[CaptionedImages]:
        read = partial(caption_data.read_captioned_images, names, config.image_size, config.color)
        return LazyExamples(cache(read), " and ".join(names))

    return datasets.split_files(config, open_images, partial(datasets.concatenate_examples, CaptionedImages))


def flickr8k(config: CaptioningConfig) -> CaptionSplits:
    """Photographs as precomputed grids of features, five captions each.

    Args:
        config: the folder of the data

    Reference: Hodosh, Young and Hockenmaier (2013), "Framing Image Description as a Ranking Task".
    """
    root = datasets.find_data_folder(
        config.data_dir, "captions.tsv (image, split, captions; with tabs) and features.npz"
    )
    texts, features = datasets.find_file(root, "captions.tsv"), root / "features.npz"
    if not features.is_file():
        raise ConfigError(f"data_dir={root}: there is no features.npz")
    train = LazyExamples(cache(lambda: _read_flickr(texts, features, "train")))  # read once, when they are needed

    def read_with_baselines(split: str) -> CaptionedImages:
        images = _read_flickr(texts, features, split)
        return replace(images, baselines=nearest_captions(cast(Any, train.load()), images))

    valid, test = (LazyExamples(cache(partial(read_with_baselines, split))) for split in ("dev", "test"))
    return CaptionSplits(train, valid, {"test": test}, feature_dim=_read_features(features).shape[0])


def nearest_captions(train: CaptionedImages, test: CaptionedImages) -> list[str]:
    """A baseline: the first caption of the training image whose mean feature vector is the nearest, by cosine.

    Args:
        train: grids of features with captions
        test: grids of features
    """
    keys, queries = (
        torch.cat([_mean_features(split, rows) for rows in torch.arange(len(split)).split(MAX_ROWS)])
        for split in (train, test)
    )
    return [train.captions[row][0] for row in (queries @ keys.T).argmax(1).tolist()]


def _mean_features(images: CaptionedImages, rows: Tensor) -> Tensor:
    """The mean of each grid of features, of length 1."""
    return normalize(images.images.select(rows).mean(1), dim=-1)


def _read_flickr(texts: Path, features: Path, split: str) -> CaptionedImages:
    """One split of the file of captions, and the features of these names, scaled to a mean square of 1."""
    grids = _read_features(features)
    image_names = _read_array(features, "image")
    if image_names.shape != (grids.shape[1],) or image_names.dtype.kind != "U":
        raise DataError(f"{features}: image must be the names of the {grids.shape[1]:,} images of q; download it again")
    indices = {name: index for index, name in enumerate(image_names.tolist())}
    rows, names, captions = [], [], []
    for number, line in enumerate(read_lines(texts), 1):
        if not line.strip():
            continue
        name, line_split, line_captions = _parse_caption_line(f"{texts}, line {number}", line)
        if name not in indices:
            raise DataError(f"{texts}, line {number}: {features} has no features of {name}; download both again")
        if line_split == split:
            rows.append(indices[name])
            names.append(name)
            captions.append(line_captions)
    if not rows:
        raise DataError(f"{texts}: no line is of the split {split}; download it again")
    values = torch.from_numpy(np.ascontiguousarray(grids[:, rows].transpose(1, 2, 0)))
    scale = float(np.square(grids[:, ::7].astype(np.float32)).mean()) ** -0.5
    return CaptionedImages(ImageArray(values, scale), captions, names)


def _parse_caption_line(location: str, line: str) -> tuple[str, str, list[str]]:
    """The image, the split and the captions of one line."""
    name, _, rest = line.partition("\t")
    split, *captions = rest.split("\t")
    if split not in FLICKR_SPLITS:
        splits = ", ".join(FLICKR_SPLITS)
        raise DataError(
            f"{location}: the second field must be the split ({splits}), not {split!r}; fields are separated by tabs"
        )
    if not any(one.strip() for one in captions):
        raise DataError(f"{location}: {name} has no captions; add one after the split, or delete the line")
    return name, split, captions


def _read_features(path: Path) -> NDArray[Any]:
    """The features, (dim, images, cells)."""
    grids = _read_array(path, "q")
    if grids.ndim != 3 or grids.dtype.kind not in "iuf" or not grids.size:
        raise DataError(f"{path}: q must be numbers (dim, images, cells), not {grids.dtype} {grids.shape}.")
    return grids


def _read_array(path: Path, name: str) -> NDArray[Any]:
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            return np.asarray(file[name])
    except KeyError:
        raise DataError(f"{path} has no array {name!r}; download it again") from None
    except Exception:  # of zipfile, zlib or NumPy, whose advice is to load it unsafely
        raise DataError(f"{path} is damaged: it must be a NumPy archive of features; download it again") from None
