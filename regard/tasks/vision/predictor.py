"""What a network said of an image, how surely, and where it looked before: to be drawn or told.

A trained network that puts images into classes: which one, how surely, and where it looked.

A trained network that answers questions about images: what it says, how surely, and where it looked.

How good those are who look at scenes: how often they are right, and how often they looked at what matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Attention, AttentionPool, Constant
from regard.data.images import IMAGE_BATCH_SIZE, ImageLike, load_gray_images, to_rgb
from regard.data.questions import (
    ANSWERS,
    QUESTION_TYPES,
    SINGLE_DIGIT_TYPES,
    ImageQuestions,
    QuestionBatch,
    encode_question,
)
from regard.data.scenes import RenderedScenes
from regard.errors import UnsupportedError
from regard.models.image_models import AttentionPoolClassifier, VisualQAModel
from regard.tasks.captioning.predictor import is_inside_box
from regard.tasks.classification import Classification, ranked_probabilities
from regard.tasks.vision.config import ImageClassificationConfig, VisualQAConfig

if TYPE_CHECKING:
    from regard.viewing.figures import Figure

NUM_SHOWN = 3  # answers that are told with their probabilities


@dataclass(frozen=True)
class GridExplanation:
    """An answer, the probability of each that is possible, and the weights of each look; None without attention.

    `names` are what the looks are called, `image` is what was seen, as (height, width, 3).
    """

    prediction: str
    probabilities: dict[str, float]
    names: list[str]
    weights: Float[Tensor, "looks down across"] | None
    image: Float[Tensor, "height width 3"]
    question: str | None = None

    @property
    def title(self) -> str:
        """What was asked, what was said, and how surely."""
        said = f"{self.prediction} ({self.probabilities[self.prediction]:.0%})"
        return said if self.question is None else f"{self.question}? {said}"

    def to_figure(self, title: str | None = None, smooth: bool = True) -> Figure:
        """The image, and for each look the same image, lit where it fell."""
        from regard.viewing import figures as pictures

        return pictures.image_overlay(
            self.image,
            self._require_weights(),
            self.names,
            smooth=smooth,
            title=self.title if title is None else title,
        )

    def to_text(self) -> str:
        """For the terminal: the likeliest answers, and the cell of each look with the largest weight."""
        likely = list(self.probabilities.items())[:NUM_SHOWN]
        lines = [f"{name:<14} {share:7.1%}" for name, share in likely]
        if self.weights is not None:
            lines.append("")
            lines += [
                _format_strongest_cell(name, grid)
                for name, grid in zip(self.names, self.weights, strict=True)
            ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        asked = {} if self.question is None else {"question": self.question}
        weights = None if self.weights is None else self.weights.tolist()
        return {
            **asked,
            "said": self.prediction,
            "probabilities": self.probabilities,
            "looks": self.names,
            "weights": weights,
        }

    def _require_weights(self) -> Float[Tensor, "looks down across"]:
        if self.weights is None:
            raise UnsupportedError("this model has no attention: there is no look to draw")
        return self.weights


def _format_strongest_cell(name: str, grid: Float[Tensor, "down across"]) -> str:
    row, column = divmod(int(grid.argmax()), grid.shape[1])
    return f"{name:<14} row {row}, column {column}: {float(grid.max()):.2f}"


class ImageClassifier:
    """A model with its classes. `regard.load(RUN)` gives one."""

    def __init__(
        self, model: AttentionPoolClassifier, labels: Sequence[str], config: ImageClassificationConfig
    ):
        self.model, self.labels, self.config = model.eval(), tuple(labels), config

    @property
    def device(self) -> torch.device:
        return self.model.classifier.weight.device

    @property
    def has_attention(self) -> bool:
        """Whether there are weights to look at."""
        pool = self.model.pool
        return isinstance(pool, AttentionPool) and not isinstance(pool.attention.score, Constant)

    def classify(self, images: Sequence[ImageLike]) -> list[Classification]:
        """The class of each image: a path, or an array (height, width) or (height, width, 3)."""
        if isinstance(images, str | Path):
            raise TypeError("classify takes many images: classify([image])")
        scores = self.compute_logits(load_gray_images(images, self.config.image_size))
        return [self._make_prediction(row) for row in scores]

    def explain(self, image: ImageLike) -> GridExplanation:
        """The class of an image, with the weights of its grid: one look, or one for each class, likeliest first."""
        picture = load_gray_images([image], self.config.image_size)
        probabilities = ranked_probabilities(self.compute_logits(picture)[0], self.labels)
        names, weights = [next(iter(probabilities))], None
        if self.has_attention:
            seen = self.compute_weights(picture)[0]
            if len(seen) > 1:
                names = list(probabilities)
                seen = seen[[self.labels.index(name) for name in names]]
            weights = seen.unflatten(-1, (math.isqrt(seen.shape[-1]), -1))
        return GridExplanation(next(iter(probabilities)), probabilities, names, weights, to_rgb(image))

    @torch.no_grad()
    def compute_logits(self, images: Float[Tensor, "rows 1 size size"]) -> Float[Tensor, "rows classes"]:
        """The scores of each class."""
        found = [self.model(some.to(self.device)).float().cpu() for some in images.split(IMAGE_BATCH_SIZE)]
        return torch.cat(found) if len(images) else torch.zeros(0, len(self.labels))

    @torch.no_grad()
    def compute_weights(
        self, images: Float[Tensor, "rows 1 size size"]
    ) -> Float[Tensor, "rows queries cells"]:
        """Where each query looked."""
        return torch.cat(
            [
                self.model.attention_weights(some.to(self.device)).cpu()
                for some in images.split(IMAGE_BATCH_SIZE)
            ]
        )

    def _make_prediction(self, logits: Float[Tensor, " classes"]) -> Classification:
        probabilities = ranked_probabilities(logits, self.labels)
        return Classification.from_probabilities(probabilities)


@dataclass(frozen=True)
class VisualAnswer:
    """The likeliest answer to a question, and the probability of each that is possible, the largest first."""

    answer: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        return self.probabilities[self.answer]

    def __str__(self) -> str:
        return self.answer

    def to_json(self) -> dict[str, Any]:
        return {"answer": self.answer, "probabilities": self.probabilities}


class VisualQA:
    """A model that can be asked. `regard.load(RUN)` gives one."""

    def __init__(self, model: VisualQAModel, config: VisualQAConfig):
        self.model, self.config = model.eval(), config

    @property
    def device(self) -> torch.device:
        return self.model.classifier.weight.device

    @property
    def has_attention(self) -> bool:
        """Whether there are weights to look at."""
        first = self.model.attentions[0]
        return not (isinstance(first, Attention) and isinstance(first.score, Constant))

    def predict(self, image: ImageLike, question: str) -> VisualAnswer:
        """What there is to say: of a path, or an array (height, width) or (height, width, 3)."""
        scores = self.compute_logits(
            load_gray_images([image], self.config.image_size), *_encode_question(question)
        )
        probabilities = ranked_probabilities(scores[0, 0], ANSWERS)
        return VisualAnswer(next(iter(probabilities)), probabilities)

    def explain(self, image: ImageLike, question: str) -> GridExplanation:
        """The same, with the weights of the grid for each look."""
        said, weights, names = self.predict(image, question), None, [""]
        if self.has_attention:
            seen = self.compute_weights(
                load_gray_images([image], self.config.image_size), *_encode_question(question)
            )[0, 0]
            weights = seen.unflatten(-1, (math.isqrt(seen.shape[-1]), -1))
            names = [f"look {place}" for place in range(1, len(seen) + 1)] if len(seen) > 1 else [said.answer]
        asked = question.strip().rstrip("?").strip()
        return GridExplanation(said.answer, said.probabilities, names, weights, to_rgb(image), asked)

    @torch.no_grad()
    def compute_logits(
        self,
        images: Float[Tensor, "rows 1 size size"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked answers"]:
        """The scores of each answer to questions that were read."""
        parts = (told.split(IMAGE_BATCH_SIZE) for told in (images, questions, lengths))
        return torch.cat(
            [self.model(*self._to_device(some)).float().cpu() for some in zip(*parts, strict=True)]
        )

    @torch.no_grad()
    def compute_weights(
        self,
        images: Float[Tensor, "rows 1 size size"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked looks cells"]:
        """Where each look fell."""
        parts = (told.split(IMAGE_BATCH_SIZE) for told in (images, questions, lengths))
        return torch.cat(
            [self.model.attention_weights(*self._to_device(some)).cpu() for some in zip(*parts, strict=True)]
        )

    def _to_device(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(told.to(self.device) for told in tensors)


def _encode_question(question: str) -> tuple[Int[Tensor, "1 1 words"], Int[Tensor, "1 1"]]:
    words = encode_question(question)
    return torch.tensor([[words]]), torch.tensor([[len(words)]])


def image_report(classifier: ImageClassifier, scenes: RenderedScenes) -> dict[str, Any]:
    """Images put into the right class, all and of each class, and looks within the digit's box, in a hundred."""
    images, labels = scenes.images[:, None], scenes.labels[:, 0]
    said = classifier.compute_logits(images).argmax(-1)
    found = {"images": len(scenes), **accuracy_with_error(said == labels)}
    classes = {
        name: accuracy_with_error((said == labels)[labels == place])["accuracy"]
        for place, name in enumerate(classifier.labels)
        if bool((labels == place).any())
    }
    if classifier.has_attention:
        weights = classifier.compute_weights(images)
        asked = said if weights.shape[1] > 1 else torch.zeros_like(said)  # the look of what was said
        look = weights[torch.arange(len(said)), asked][:, None, None]
        found["inside"] = to_percent(
            pointing_hits(look, scenes, torch.ones_like(scenes.is_large)[:, None]).flatten()
        )
    return {**found, "classes": classes}


def answer_report(predictor: VisualQA, questions: ImageQuestions) -> dict[str, Any]:
    """Questions answered rightly, all and of each kind, and looks within the boxes that matter, in a hundred.

    Of each kind, `inside` is that of each look; of all, it is how often any look of a question about one digit fell
    on that digit.
    """
    given = QuestionBatch.from_questions(questions).model_inputs
    right = predictor.compute_logits(*given).argmax(-1) == questions.answers
    inside = None
    if predictor.has_attention:
        inside = pointing_hits(predictor.compute_weights(*given), questions.scenes, questions.relevant_digits)
    known = questions.relevant_digits.any(-1)
    kinds: dict[str, dict[str, Any]] = {}
    for number, kind in enumerate(QUESTION_TYPES):
        here = questions.types == number
        if bool(here.any()):
            kinds[kind] = {"questions": int(here.sum()), **accuracy_with_error(right[here])}
        if inside is not None and bool((here & known).any()):
            kinds[kind]["inside"] = [to_percent(look) for look in inside[here & known].unbind(-1)]
    found = {"scenes": len(questions), "questions": right.numel(), **accuracy_with_error(right)}
    one = known & torch.isin(
        questions.types, torch.tensor([QUESTION_TYPES.index(kind) for kind in SINGLE_DIGIT_TYPES])
    )
    if inside is not None and bool(one.any()):
        found["inside"] = to_percent(inside[one].any(-1))
    return {**found, "kinds": kinds}


def pointing_hits(
    weights: Float[Tensor, "rows asked looks cells"],
    scenes: RenderedScenes,
    relevant_digits: Bool[Tensor, "rows asked digits"],
) -> Bool[Tensor, "rows asked looks"]:
    """Whether the most attended cell of each look lies in the box, grown by a cell, of a digit that matters."""
    side, size = math.isqrt(weights.shape[-1]), scenes.images.shape[-1]
    cells: Int[Tensor, "rows looks"] = weights.argmax(-1).flatten(1)
    found = [
        is_inside_box(cells, box[:, None].expand(-1, cells.shape[1], -1), size, side)
        for box in scenes.boxes.unbind(1)
    ]
    inside = torch.stack(found, -1).unflatten(1, weights.shape[1:3])
    return (inside & relevant_digits[:, :, None]).any(-1)


def accuracy_with_error(correct: Bool[Tensor, "*some"]) -> dict[str, float]:
    """How many are right in a hundred, and the standard error of that.

    >>> accuracy_with_error(torch.tensor([True, True, True, False]))
    {'accuracy': 75.0, 'error': 21.650635094610966}
    """
    share = float(correct.double().mean())
    return {"accuracy": 100 * share, "error": 100 * math.sqrt(share * (1 - share) / correct.numel())}


def to_percent(hits: Bool[Tensor, " some"]) -> float:
    return 100 * float(hits.double().mean())
