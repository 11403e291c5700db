"""The task of describing pictures: words, batches of pictures, a network that looks and writes, and how good it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from regard.attention import Attention, Constant, Sample
from regard.data import Tokenizer
from regard.data.captions import CaptionBatches, CaptionedImages, SceneCaptionCollator
from regard.data.parallel import pluralize
from regard.data.scenes import CAPTION_WORDS, SceneGenerator
from regard.data.segmentation import separate_characters
from regard.data.sources import GeneratedBatches
from regard.data.vocabulary import SPECIAL_TOKENS
from regard.errors import DataError
from regard.models.captioner import ShowAttendTell
from regard.models.image_models import ConvBackbone
from regard.tasks.captioning.config import CaptioningConfig
from regard.tasks.captioning.data import Gallery
from regard.tasks.captioning.predictor import ImageCaptioner, caption_bleu, caption_report, nearest_captions
from regard.tasks.datasets import describe_splits
from regard.tasks.legacy import Experiment, Recipe, Task
from regard.tasks.mechanisms import build_score
from regard.tasks.runner import build_and_load
from regard.tasks.sequence_loss import build_caption_loss
from regard.training import RunFolder, TrainingConfig
from regard.training.trainer import Objective

MIN_VOCAB_WORDS = 5  # words that are known, however rare they are


class ImageCaptioningTask(Task[CaptioningConfig]):
    """From a picture to a caption."""

    config_class: ClassVar[type[TrainingConfig]] = CaptioningConfig
    uses: ClassVar[tuple[str, ...]] = (
        "caption {run} IMAGE",
        "show {run} IMAGE --out x.png",
        "evaluate {run}",
        "info {run}",
    )
    files = ("words.json",)

    def validate(self, recipe: Recipe, config: CaptioningConfig) -> None:
        gallery: Gallery = recipe.data(config)
        build_model(config, 8, gallery.feature_dim)

    def experiment(self, run: RunFolder, recipe: Recipe, config: CaptioningConfig) -> Experiment[CaptioningConfig]:
        words, gallery = Tokenizer.load(run.folder / self.files[0]), recipe.data(config)
        objective = Objective(build_model(config, len(words), gallery.feature_dim), build_caption_loss(config))
        train, valid = gallery.train(), gallery.valid()
        data = (
            GeneratedBatches(train.sample, SceneCaptionCollator(words), config.batch_size, config.seed)
            if isinstance(train, SceneGenerator)
            else _make_batches("train", train, words, config)
        )
        album = _make_batches("valid", valid, words, config)
        validation = Validation(objective, ImageCaptioner(objective.model, words, config), valid, album)
        objective.train()
        reports = {"train": data.report} if isinstance(data, CaptionBatches) else {}
        reports["valid"] = album.report
        return Experiment(
            run,
            config,
            objective,
            data,
            validation,
            {"vocabulary": len(words), "data": {name: one.as_dict() for name, one in reports.items()}},
            describe_splits(reports, gallery.held, "image"),
            compile_mode="off",
        )

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: CaptioningConfig,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> ImageCaptioner:
        words = Tokenizer.load(run.folder / self.files[0])
        grid_dim = recipe.data(config).feature_dim
        model = build_and_load(lambda: build_model(config, len(words), grid_dim), weights, where)
        return ImageCaptioner(model.to(device), words, config)

    def judge(self, recipe: Recipe, made: ImageCaptioner, part: str | None = None) -> dict[str, Any]:
        gallery: Gallery = recipe.data(made.config)
        known = {**gallery.tests, "valid": gallery.valid}
        chosen = part or next(iter(known))
        pictures = known[chosen]()
        return {**caption_report(made, pictures), **nearest_neighbor_baseline(gallery, made, pictures), "part": chosen}

    def ready(self, run: RunFolder, recipe: Recipe, config: CaptioningConfig, origin: RunFolder | None) -> None:
        """The words: learned from the training captions, or those of the run it begins with."""
        name = self.files[0]
        if origin is not None:
            words = Tokenizer.load(origin.folder / name)
        else:
            words = train_tokenizer(recipe.data(config), config)
        words.save(run.folder / name)


class DescribingFeatures(ImageCaptioningTask):
    """From a grid of features to a caption: nobody can give it an image, but those of its test can be shown."""

    uses = ("show {run} --seed 3", "evaluate {run}", "info {run}")


@dataclass(frozen=True)
class Validation:
    """The loss on the pictures held out and, if that is watched, how good greedy captions of them are."""

    objective: Objective
    captioner: ImageCaptioner
    valid: CaptionedImages
    album: CaptionBatches  # the same as batches

    def __call__(self) -> dict[str, float]:
        captioner, settings = self.captioner, self.captioner.config
        total = count = 0.0
        for batch in self.album.iter_eval_batches():
            loss = self.objective(batch.to(captioner.device))
            total, count = total + float(loss.metrics["nll"]), count + loss.count
        scores = {"loss": total / count}
        if settings.monitor == "loss":
            return scores
        found = caption_report(captioner, self.valid, captioner.decoding_config(beam_size=1))
        names = ("captions", "digits", "inside", "bleu")
        return scores | {name: found[name] for name in names if name in found}


def nearest_neighbor_baseline(
    gallery: Gallery, captioner: ImageCaptioner, captioned: CaptionedImages
) -> dict[str, Any]:
    """What copying the caption of the nearest training picture would get, where pictures are features."""
    if gallery.feature_dim is None:
        return {}
    train = gallery.train()
    assert isinstance(train, CaptionedImages)
    said = [text.lower() if captioner.config.lowercase else text for text in nearest_captions(train, captioned)]
    floor = caption_bleu(said, captioned.captions, captioner.config.lowercase)
    return {"nearest": {name: value for name, value in floor.items() if isinstance(value, float)}}


def _make_batches(
    name: str, captioned: CaptionedImages, tokenizer: Tokenizer, config: CaptioningConfig
) -> CaptionBatches:
    try:
        return CaptionBatches(captioned, tokenizer, config.batch_size, max_length=config.max_length, seed=config.seed)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def train_tokenizer(gallery: Gallery, config: CaptioningConfig) -> Tokenizer:
    """The words of scenes, or those of the training captions that are there often enough."""
    train = gallery.train()
    if isinstance(train, SceneGenerator):
        return Tokenizer.train([" ".join(CAPTION_WORDS)], "word", len(SPECIAL_TOKENS) + len(CAPTION_WORDS))
    texts = [separate_characters(text) for captions in train.captions for text in captions]
    counts = _count_words(texts, config.lowercase)
    often = sum(count >= config.min_word_count for count in counts.values())
    if counts and not often:
        word, most = counts.most_common(1)[0]
        raise DataError(
            f"min_word_count={config.min_word_count}: no word is in the training captions so often; the most frequent,"
            f" {word!r}, is there {pluralize(most, 'time')}"
        )
    return Tokenizer.train(texts, "word", len(SPECIAL_TOKENS) + max(MIN_VOCAB_WORDS, often), lowercase=config.lowercase)


def _count_words(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    return Counter(word for text in texts for word in (text.lower() if lowercase else text).split())


def build_model(config: CaptioningConfig, vocab_size: int, feature_dim: int | None) -> ShowAttendTell:
    """The network that the settings describe; of pictures that are grids already, `grid_dim` is their size."""
    eyes = None
    if feature_dim is None:
        feature_dim = config.feature_dim
        eyes = ConvBackbone(3 if config.color else 1, feature_dim, width=config.conv_channels)
    if config.attention_scope == "none":
        attention = Attention(Constant())
    else:
        how = build_score(config.score, config.hidden_dim, feature_dim, config.hidden_dim // 2)
        attention = Attention(how, Sample() if config.attention_scope == "hard" else None)
    return ShowAttendTell(
        vocab_size,
        attention,
        backbone=eyes,
        feature_dim=feature_dim,
        embed_dim=config.embed_dim,
        hidden_dim=config.hidden_dim,
        dropout=config.dropout,
        soft_fraction=config.soft_fraction,
    )
