"""A trained image captioner in use: captions, the weights behind each word, and how good captions are.

Captions of scenes are compared word by word, and the weights with the boxes of digits; captions of photographs by BLEU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Constant
from regard.data import BOS_ID, EOS_ID, UNK_ID, Tokenizer
from regard.data.captions import CaptionedImages
from regard.data.images import IMAGE_BATCH_SIZE, ImageLike, load_image, to_rgb
from regard.data.scenes import WORDS_PER_DIGIT
from regard.data.segmentation import join_characters, separate_characters
from regard.data.tokenizer import pad_rows
from regard.decoding import DecodingConfig, Hypothesis, decode
from regard.errors import DataError, InputError, UnsupportedError
from regard.models.captioner import ShowAttendTell
from regard.tasks.captioning.config import CaptionExplainOptions, CaptionOptions
from regard.tasks.datasets import concatenate_examples
from regard.tasks.grid import GridExplanation, is_inside_box, make_grid_map
from regard.tasks.predictor import AttentionMap, InputField, Prediction, Predictor, Report

if TYPE_CHECKING:
    from regard.viewing.pages import HtmlPage

__all__ = ["Caption", "CaptionExplanation", "ImageCaptioner", "caption_accuracy", "caption_bleu"]

BLEU_ORDERS = (1, 2, 3, 4)
BLEU_METRICS = (*(f"bleu{order}" for order in BLEU_ORDERS), "bleu", "brevity_penalty")  # of a report
BLANK_IMAGE = torch.full((56, 56, 3), 0.8)  # gray, in place of a grid of features
MAX_WORD_WIDTH = 12  # in the text form of an explanation


@dataclass(frozen=True)
class Caption(Prediction):
    """The caption of an image.

    Args:
        text: the caption
        score: its log-probability
        words: its words
        probabilities: the probability of each word
    """

    words: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class CaptionExplanation(GridExplanation):
    """A caption with the weights of each of its words over the grid of the image.

    Args:
        prediction: the caption
    """

    prediction: Caption

    @property
    def values(self) -> list[float]:
        """The probability of each word."""
        return list(self.prediction.probabilities)

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """The caption, and for each word its probability and the cell with the largest weight."""
        cells = self._strongest_cells()
        lines = [
            f"{word:<{MAX_WORD_WIDTH}} {probability:7.1%}" + (f"   {cells[index]}" if cells else "")
            for index, (word, probability) in enumerate(zip(self.prediction.words, self.values, strict=True))
        ]
        return "\n".join([self.title, "", *lines] if lines else [self.title])

    def to_page(self, *, language: str | None = None) -> HtmlPage:
        """An HTML page with the image, lit word by word; without weights for a model without attention."""
        from regard.viewing import pages

        words = self._require_words()
        return pages.caption_page(self.image, words, self.weights, self.values, title=self.title, language=language)

    def _require_words(self) -> tuple[str, ...]:
        if not self.prediction.words:
            raise UnsupportedError("the caption is empty: there is nothing to draw")
        return self.prediction.words

    def _require_weights(self) -> Float[Tensor, "queries rows columns"]:
        self._require_words()
        return super()._require_weights()


class ImageCaptioner(Predictor[ImageLike, CaptionedImages, Caption]):
    """A trained image captioner: what `regard.load(RUN)` returns.

    An image is a path, a Pillow image, or an array (height, width) or (height, width, 3); for a model that was trained
    on features, an array (cells, dim).

    Example:
        captioner = regard.load("runs/captions")
        captioner.predict(["dog.jpg"])[0].text
        captioner.explain("dog.jpg").save("dog.html")  # where each word attends to
    """

    inputs = (InputField("image", "image", "the image to caption"),)
    prediction_class = Caption
    predict_options = evaluate_options = CaptionOptions
    explain_options = CaptionExplainOptions

    @property
    def tokenizer(self) -> Tokenizer:
        """The words."""
        return self.processor.tokenizer

    @property
    def has_attention(self) -> bool:
        """Whether the model has attention weights to show."""
        return not isinstance(self.model.attention.score, Constant)

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary and of the images."""
        processor = self.processor
        return super().describe() | {"image_size": processor.image_size, "vocab_size": len(processor.tokenizer)}

    def num_candidates(self, options: CaptionOptions) -> int:
        """The hypotheses of the beam."""
        return self.config.beam_size if options.beam_size is None else options.beam_size

    def decoding_config(self, options: CaptionOptions | None = None) -> DecodingConfig:
        """The options of the search.

        Args:
            options: None: those of the config
        """
        options, limit = options or CaptionOptions(), self.config.max_length + 1
        changes = {"beam_size": options.beam_size, "length_penalty": options.length_penalty}
        return DecodingConfig.of_run(self.config, max_length_offset=limit, **changes)

    def check(self, inputs: Sequence[ImageLike]) -> None:
        """Raise InputError for an image if the model was trained on features, and for features otherwise."""
        if self.model.backbone is not None:
            return
        for row, image in enumerate(inputs):
            if isinstance(image, str | Path) or np.ndim(image) != 2:
                raise InputError(
                    "this model was trained on features and cannot read images; its input is an array (cells,"
                    f" {self.model.feature_dim})",
                    row=row,
                )

    def get_input(self, example: CaptionedImages) -> ImageLike:
        """The image of an example, (height, width, channels), or its grid of features."""
        image = example.images.select(slice(1))[0]
        return image if self.model.backbone is None else image.permute(1, 2, 0)

    def predict(self, inputs: Sequence[ImageLike], options: Any = None) -> list[Caption]:
        """A caption of each image."""
        self.require_list(inputs)
        if not len(inputs):
            return []
        self.check(inputs)
        images = torch.stack([self._load(image) for image in inputs])
        return [self._to_caption(hypothesis) for hypothesis in self.search(images, options)]

    def explain(self, input: ImageLike, options: Any = None) -> CaptionExplanation:
        """A caption of an image, with the weights of each word over its grid."""
        options = options or CaptionExplainOptions()
        self.check([input])
        images = self._load(input)[None]
        (hypothesis,) = self.search(images, options)
        prediction = self._to_caption(hypothesis)
        maps: tuple[AttentionMap, ...] = ()
        if self.has_attention and hypothesis.token_ids:
            weights = self.compute_weights(images, torch.tensor([[BOS_ID, *hypothesis.token_ids]]))[0]
            maps = make_grid_map(prediction.words, weights)
        image = BLANK_IMAGE if self.model.backbone is None else to_rgb(input)
        return CaptionExplanation(prediction, maps, image, options.smooth)

    def evaluate(self, examples: Iterable[CaptionedImages], options: Any = None) -> Report:
        """Of scenes: exact captions, digits, and how often the largest weight is at the digit; else BLEU."""
        images = concatenate_examples(CaptionedImages, examples)
        if not len(images):
            raise DataError("there is nothing to evaluate: there are no images")
        hypotheses: list[Hypothesis] = []
        inside: list[Tensor] = []
        for rows in torch.arange(len(images)).split(IMAGE_BATCH_SIZE):
            inputs = images.images.select(rows)
            best = self.search(inputs, options)
            hypotheses += best
            if images.boxes is not None and self.has_attention:
                inside.append(self._pointing_hits(inputs, images.boxes[rows], best))
        captions = [self.to_text(hypothesis) for hypothesis in hypotheses]
        if images.boxes is not None:
            metrics = caption_accuracy(captions, [references[0] for references in images.captions])
            if inside:
                metrics["inside"] = 100 * float(torch.cat(inside).float().mean())
            return Report(len(captions), metrics)
        lowercase = self.config.lowercase
        scores, signature = caption_bleu(captions, images.captions, lowercase)
        table = _bleu_rows("of the model", scores)
        if images.baselines:
            baselines = [text.lower() if lowercase else text for text in images.baselines]
            table += _bleu_rows("of the nearest training image", caption_bleu(baselines, images.captions, lowercase)[0])
        metrics = {name: scores[name] for name in BLEU_METRICS}
        return Report(len(captions), metrics, {"bleu": signature}, {"comparison": table})

    @torch.no_grad()
    def search(self, images: Float[Tensor, "rows *image"], options: CaptionOptions | None = None) -> list[Hypothesis]:
        """The best caption of each image.

        Args:
            images: the input of the model
            options: of the search
        """
        config, hypotheses = self.decoding_config(options), []
        for part in images.split(IMAGE_BATCH_SIZE):
            rows = torch.arange(len(part), device=self.device)[:, None]
            lengths = torch.ones(len(part), dtype=torch.long, device=self.device)
            search = _CaptionSearch(self.model, part.to(self.device))
            hypotheses += [best[0] for best in decode(search, rows, lengths, config)]
        return hypotheses

    @torch.no_grad()
    def compute_weights(
        self, images: Float[Tensor, "rows *image"], captions: Int[Tensor, "rows words"]
    ) -> Float[Tensor, "rows words-1 cells"]:
        """The weights of each word of captions that begin with BOS.

        Args:
            images: the input of the model
            captions: token ids
        """
        return self.model.attention_weights(images.to(self.device), captions.to(self.device)).cpu()

    def _pointing_hits(
        self, images: Tensor, boxes: Int[Tensor, "rows digits 4"], hypotheses: Sequence[Hypothesis]
    ) -> Bool[Tensor, "rows digits"]:
        """Whether the largest weight of each digit's name is in the box of the digit, enlarged by one cell."""
        captions, _ = pad_rows([[BOS_ID, *hypothesis.token_ids, EOS_ID] for hypothesis in hypotheses])
        weights = self.compute_weights(images, captions)
        side, cells = math.isqrt(weights.shape[-1]), weights.argmax(-1)
        num_missing = max(0, WORDS_PER_DIGIT * boxes.shape[1] - 1 - cells.shape[1])  # of a caption that ended too soon
        cells = torch.nn.functional.pad(cells, (0, num_missing), value=-1)
        return is_inside_box(cells[:, 1::WORDS_PER_DIGIT][:, : boxes.shape[1]], boxes, images.shape[-1], side)

    def to_text(self, hypothesis: Hypothesis) -> str:
        """The caption that a search found."""
        return join_characters(self.tokenizer.decode(hypothesis.token_ids))

    def _to_caption(self, hypothesis: Hypothesis) -> Caption:
        words = tuple(one.removeprefix("▁") for one in self.tokenizer.convert_ids_to_tokens(hypothesis.token_ids))
        probabilities = tuple(math.exp(log_prob) for log_prob in hypothesis.token_log_probs[: len(words)])
        return Caption(self.to_text(hypothesis), hypothesis.log_prob, words, probabilities)

    def _load(self, image: ImageLike) -> Float[Tensor, "*image"]:
        """An image as the model takes it."""
        if self.model.backbone is None:
            return torch.as_tensor(image, dtype=torch.float32)
        return load_image(image, self.processor.image_size, self.processor.color)


class _CaptionSearch:
    """A model with its images, as a search takes it: sources are numbers of rows. The unknown word is never written."""

    def __init__(self, model: ShowAttendTell, images: Float[Tensor, "rows *image"]):
        self.model, self.images = model, images

    def start_decoding(self, source: Tensor, lengths: Tensor) -> _CaptionSearch:
        self.state = self.model.start_decoding(self.images[source[:, 0]])
        return self

    def step(self, tokens: Tensor) -> Tensor:
        logits = self.state.step(tokens)
        logits[:, UNK_ID] = -torch.inf
        return logits

    def reorder(self, rows: Tensor) -> None:
        self.state.reorder(rows)


def caption_accuracy(captions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The percentages of captions without a mistake, and of digits that are named at their place.

    Args:
        captions: of the model
        references: the correct captions of the scenes

    Example:
        >>> caption_accuracy(["small 1 above , small 2 above"], ["small 1 above , large 3 above"])
        {'captions': 0.0, 'digits': 50.0}
    """
    num_digits = num_right = num_exact = 0
    for caption, reference in zip(captions, references, strict=True):
        predicted, digits = (text.split()[1::WORDS_PER_DIGIT] for text in (caption, reference))
        num_digits += len(digits)
        num_right += sum(word == digit for word, digit in zip(predicted, digits, strict=False))
        num_exact += caption == reference
    return {"captions": 100 * num_exact / len(references), "digits": 100 * num_right / num_digits}


def caption_bleu(
    captions: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool
) -> tuple[dict[str, float], str]:
    """BLEU-1 to BLEU-4 of sacreBLEU with and without ("_bare") the brevity penalty, and its signature.

    Words are separated by spaces; each Han character or kana is one. Published results are often without the penalty.

    Args:
        captions: of the model
        references: the captions of each image
        lowercase: whether references are converted to lowercase

    Returns:
        The scores by name, and the signature.
    """
    from sacrebleu.metrics.bleu import BLEU

    normalized = ([_normalize_reference(text, lowercase) for text in texts] for texts in references)
    columns: list[Any] = [list(column) for column in zip_longest(*normalized)]
    scores: dict[str, float] = {}
    for order in BLEU_ORDERS:
        metric = BLEU(tokenize="none", max_ngram_order=order, force=True)
        score = metric.corpus_score([separate_characters(caption) for caption in captions], columns)
        scores |= {f"bleu{order}": score.score, f"bleu{order}_bare": score.score / max(score.bp, 1e-9)}
    return {**scores, "bleu": scores["bleu4"], "brevity_penalty": score.bp}, str(metric.get_signature())


def _bleu_rows(name: str, scores: dict[str, float]) -> list[dict[str, Any]]:
    """Two rows of a table: with the brevity penalty, and without it."""
    return [
        {"captions": name + more} | {f"bleu{order}": scores[f"bleu{order}{ending}"] for order in BLEU_ORDERS}
        for more, ending in (("", ""), (", without brevity penalty", "_bare"))
    ]


def _normalize_reference(text: str, lowercase: bool) -> str:
    text = " ".join(separate_characters(text).split())
    return text.lower() if lowercase else text
