"""A trained network that describes pictures: what it says, how sure it is, and where it looked for each word.

How good captions are: of scenes, what was named rightly and looked at; of photographs, BLEU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from regard.attention import Constant
from regard.data import BOS_ID, EOS_ID, UNK_ID, Tokenizer
from regard.data.batching import pad_rows
from regard.data.captions import CaptionedImages
from regard.data.images import IMAGE_BATCH_SIZE, ImageLike, load_image, to_rgb
from regard.data.scenes import WORDS_PER_DIGIT
from regard.data.segmentation import join_characters, separate_characters
from regard.decoding import DecodingConfig, Hypothesis, decode
from regard.errors import DataError, InputError, UnsupportedError, UsageError
from regard.models.captioner import CaptionDecoderState, ShowAttendTell
from regard.tasks.captioning.config import CaptioningConfig

if TYPE_CHECKING:
    from regard.viewing.figures import Figure
    from regard.viewing.pages import HtmlPage


@dataclass(frozen=True)
class CaptionExplanation:
    """A caption with the weight of each cell of the grid for each of its words; None without attention.

    `image` is what was described, as (height, width, 3); of a grid of features, nothing is there to be seen.
    """

    words: list[str]
    weights: Float[Tensor, "words down across"] | None
    probabilities: list[float]
    image: Float[Tensor, "height width 3"]

    @property
    def caption(self) -> str:
        return join_characters(" ".join(self.words))

    def to_figure(self, title: str | None = None, smooth: bool = True) -> Figure:
        """The image, and for each word the same image, lit where it looked."""
        from regard.viewing import figures as pictures

        return pictures.image_overlay(self.image, self._require_weights(), self.words, smooth=smooth, title=title)

    def to_page(self, title: str | None = None, language: str | None = None) -> HtmlPage:
        """A page in one file: the image, lit word by word."""
        from regard.viewing import pages as players

        return players.caption_page(
            self.image, self.words, self.weights, self.probabilities, title=title, language=language
        )

    def to_text(self) -> str:
        """For the terminal: each word, how sure it was, and the row and column of the cell with the largest weight."""
        seen = self._require_weights()
        rows = []
        for word, share, grid in zip(self.words, self.probabilities, seen, strict=True):
            cell = int(grid.argmax())
            row, column = divmod(cell, grid.shape[1])
            rows.append(f"{word:<12} {share:7.1%}   row {row}, column {column}: {float(grid.max()):.2f}")
        return "\n".join(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        seen = None if self.weights is None else self.weights.tolist()
        return {"caption": self.caption, "words": self.words, "probabilities": self.probabilities, "weights": seen}

    def _require_weights(self) -> Float[Tensor, "words down across"]:
        if self.weights is None:
            raise UnsupportedError("this model has no attention: it sees the mean of the grid for every word")
        return self.weights


class ImageCaptioner:
    """A model with its words. `regard.load(RUN)` gives one."""

    def __init__(self, model: ShowAttendTell, tokenizer: Tokenizer, config: CaptioningConfig):
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config

    @property
    def device(self) -> torch.device:
        return self.model.lm_head.weight.device

    @property
    def has_attention(self) -> bool:
        """Whether there are weights to look at."""
        return not isinstance(self.model.attention.score, Constant)

    def decoding_config(self, **changes: Any) -> DecodingConfig:
        """The search that the settings ask for, or another."""
        settings = self.config
        usual = {
            "method": "greedy" if settings.beam_size == 1 else "beam",
            "beam_size": settings.beam_size,
            "length_penalty": settings.length_penalty,
            "max_length": settings.max_length + 1,
        }
        if "beam_size" in changes:
            usual["method"] = "greedy" if changes["beam_size"] == 1 else "beam"
        return DecodingConfig(max_length_ratio=0.0, max_length_offset=settings.max_length + 1, **{**usual, **changes})

    def caption(self, images: Sequence[ImageLike], options: DecodingConfig | None = None) -> list[str]:
        """What there is to say of each image: a path, or an array (height, width) or (height, width, 3)."""
        if isinstance(images, str | Path):
            raise TypeError("caption takes many images: caption([image])")
        found = []
        for start in range(0, len(images), IMAGE_BATCH_SIZE):
            some = torch.stack([self.to_model_input(image) for image in images[start : start + IMAGE_BATCH_SIZE]])
            found += [self.to_text(best) for best in self.search(some, options)]
        return found

    def explain(self, image: ImageLike, options: DecodingConfig | None = None) -> CaptionExplanation:
        """What there is to say of an image, with the weights of its grid for each word."""
        picture = self.to_model_input(image)[None]
        (best,) = self.search(picture, options)
        return self.explain_hypothesis(picture, best, self.to_display(image))

    def explain_hypothesis(self, images: Tensor, hypothesis: Hypothesis, display_image: Tensor) -> CaptionExplanation:
        """A caption that was found, with the weights of its words."""
        seen = None
        if self.has_attention and hypothesis.token_ids:
            weights = self.compute_weights(images, torch.tensor([[BOS_ID, *hypothesis.token_ids]]))[0]
            seen = weights.unflatten(-1, self.grid_shape(weights.shape[-1]))
        shares = [math.exp(told) for told in hypothesis.token_log_probs[: len(hypothesis.token_ids)]]
        words = [token.removeprefix("▁") for token in self.tokenizer.convert_ids_to_tokens(hypothesis.token_ids)]
        return CaptionExplanation(words, seen, shares, display_image)

    def search(self, images: Float[Tensor, "rows *picture"], options: DecodingConfig | None = None) -> list[Hypothesis]:
        """The best caption of each picture, as the network is given them: see `pictured`."""
        options, found = options or self.decoding_config(), []
        for some in images.split(IMAGE_BATCH_SIZE):
            rows = torch.arange(len(some), device=self.device)[:, None]
            lengths = torch.ones(len(some), dtype=torch.long, device=self.device)
            found += [
                best[0] for best in decode(CaptioningSource(self.model, some.to(self.device)), rows, lengths, options)
            ]
        return found

    @torch.no_grad()
    def compute_weights(
        self, images: Float[Tensor, "rows *picture"], captions: Int[Tensor, "rows words"]
    ) -> Float[Tensor, "rows words-1 cells"]:
        """Where each word of captions looked that begin with BOS."""
        return self.model.attention_weights(images.to(self.device), captions.to(self.device)).cpu()

    def to_text(self, hypothesis: Hypothesis) -> str:
        return join_characters(self.tokenizer.decode(hypothesis.token_ids))

    def grid_shape(self, num_cells: int) -> tuple[int, int]:
        """How many rows and columns of cells there are: pictures are square."""
        side = math.isqrt(num_cells)
        if side * side != num_cells:
            raise UsageError(f"{num_cells} cells are no square grid")
        return side, side

    def to_model_input(self, image: ImageLike) -> Float[Tensor, "..."]:
        """An image as the network takes it; a grid of features, (cells, dim), for one that was trained on these."""
        if self.model.backbone is None:
            if isinstance(image, str | Path) or np.ndim(image) != 2:
                raise InputError(
                    "this model was trained on ready features and cannot see images; give it grids (cells,"
                    f" {self.model.feature_dim})"
                )
            return torch.as_tensor(image, dtype=torch.float32)
        return load_image(image, self.config.image_size, self.config.color)

    def to_display(self, image: ImageLike) -> Float[Tensor, "height width 3"]:
        """The image as people see it; plain gray for a grid of features."""
        if self.model.backbone is None:
            return torch.full((56, 56, 3), 0.8)
        return to_rgb(image)


@dataclass(frozen=True)
class CaptioningSource:
    """A model before pictures, as a search wants it: its sources are the numbers of their rows."""

    model: ShowAttendTell
    images: Float[Tensor, "rows *picture"]

    def start_decoding(self, source: Tensor, lengths: Tensor) -> KnownWordsState:
        return KnownWordsState(self.model.start_decoding(self.images[source[:, 0]]))


@dataclass(frozen=True)
class KnownWordsState:
    """Steps that never write a word that is not known."""

    state: CaptionDecoderState

    def step(self, words: Tensor) -> Tensor:
        scores = self.state.step(words)
        scores[:, UNK_ID] = -torch.inf
        return scores

    def reorder(self, rows: Tensor) -> None:
        self.state.reorder(rows)


BLEU_ORDERS = (1, 2, 3, 4)  # of BLEU


def caption_report(
    captioner: ImageCaptioner, captioned: CaptionedImages, options: DecodingConfig | None = None
) -> dict[str, Any]:
    """All that can be said of a model on these pictures, as plain numbers."""
    if not len(captioned):
        raise DataError("there is nothing to evaluate: no pictures were given")
    best: list[Hypothesis] = []
    for rows in torch.arange(len(captioned)).split(IMAGE_BATCH_SIZE):
        best += captioner.search(captioned.images.select(rows), options)
    said = [captioner.to_text(one) for one in best]
    if captioned.boxes is None:
        return {"pictures": len(said), **caption_bleu(said, captioned.captions, captioner.config.lowercase)}
    found = {"pictures": len(said), **caption_accuracy(said, [captions[0] for captions in captioned.captions])}
    if captioner.has_attention:
        found["inside"] = pointing_accuracy(captioner, captioned, best)
    return found


def caption_accuracy(captions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Of scenes: captions without any mistake, and digits named rightly at their place, in a hundred.

    >>> caption_accuracy(["small 1 above , small 2 above"], ["small 1 above , large 3 above"])
    {'captions': 0.0, 'digits': 50.0}
    """
    digits = right = 0
    for told, truth in zip(captions, references, strict=True):
        names, wanted = told.split()[1::WORDS_PER_DIGIT], truth.split()[1::WORDS_PER_DIGIT]
        digits += len(wanted)
        right += sum(name == digit for name, digit in zip(names, wanted, strict=False))
    exact = sum(told == truth for told, truth in zip(captions, references, strict=True))
    return {"captions": 100 * exact / len(references), "digits": 100 * right / digits}


def pointing_accuracy(captioner: ImageCaptioner, captioned: CaptionedImages, hypotheses: Sequence[Hypothesis]) -> float:
    """How often the most attended cell lies in the box of the digit that is named, grown by one cell, in a hundred."""
    boxes, inside = captioned.boxes, []
    assert boxes is not None
    for rows in torch.arange(len(hypotheses)).split(IMAGE_BATCH_SIZE):
        pictures = captioned.images.select(rows)
        written, _ = pad_rows([[BOS_ID, *hypotheses[row].token_ids, EOS_ID] for row in rows.tolist()])
        weights = captioner.compute_weights(pictures, written)
        side, cells = captioner.grid_shape(weights.shape[-1])[0], weights.argmax(-1)
        pad = max(0, WORDS_PER_DIGIT * boxes.shape[1] - 1 - cells.shape[1])  # a caption that ended too soon
        cells = torch.nn.functional.pad(cells, (0, pad), value=-1)[:, 1::WORDS_PER_DIGIT][:, : boxes.shape[1]]
        inside.append(is_inside_box(cells, boxes[rows], pictures.shape[-1], side))
    return 100 * float(torch.cat(inside).float().mean())


def is_inside_box(
    cells: Int[Tensor, "rows things"], boxes: Int[Tensor, "rows things 4"], size: int, side: int
) -> Bool[Tensor, "rows things"]:
    """Which cells of a grid of `side` by `side` lie in boxes grown by a cell, in a picture of `size` pixels.

    >>> is_inside_box(torch.tensor([[9, 10]]), torch.tensor([[[12, 12, 20, 20], [40, 40, 48, 48]]]), 64, 8).tolist()
    [[True, False]]
    """
    cell = size / side
    left, top = (cells % side) * cell, (cells // side) * cell
    x0, y0, x1, y1 = boxes.unbind(-1)
    across = (left >= x0 - cell) & (left <= x1)
    return across & (top >= y0 - cell) & (top <= y1) & (cells >= 0)


def caption_bleu(captions: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> dict[str, Any]:
    """BLEU of one to four words by sacrebleu, with and without its penalty for short captions.

    Words are what stands between spaces, and each Han character or kana. The paper's figures are those without the
    penalty.
    """
    from sacrebleu.metrics.bleu import BLEU

    most = max(map(len, references))
    wanted: list[Any] = [[_normalize_reference(told, place, lowercase) for told in references] for place in range(most)]
    found: dict[str, Any] = {}
    for order in BLEU_ORDERS:
        metric = BLEU(tokenize="none", max_ngram_order=order, force=True)
        score = metric.corpus_score([separate_characters(one) for one in captions], wanted)
        found |= {f"bleu{order}": score.score, f"bleu{order}_bare": score.score / max(score.bp, 1e-9)}
    signature = str(metric.get_signature())
    return {**found, "bleu": found["bleu4"], "brevity_penalty": score.bp, "bleu_signature": signature}


def _normalize_reference(references: Sequence[str], index: int, lowercase: bool) -> str | None:
    if index >= len(references):
        return None
    text = " ".join(separate_characters(references[index]).split())
    return text.lower() if lowercase else text


def nearest_captions(train: CaptionedImages, test: CaptionedImages) -> list[str]:
    """The floor: the first caption of the training picture whose mean is the nearest, by cosine."""
    known, asked = (
        torch.cat([_mean_features(part, rows) for rows in torch.arange(len(part)).split(1000)])
        for part in (train, test)
    )
    return [train.captions[row][0] for row in (asked @ known.T).argmax(1).tolist()]


def _mean_features(captioned: CaptionedImages, rows: Tensor) -> Tensor:
    """The mean of each grid of features, of length 1."""
    return normalize(captioned.images.select(rows).mean(1), dim=-1)
