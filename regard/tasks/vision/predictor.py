"""Trained vision models in use: image classification, visual question answering, attention over the grid."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Attention, Constant
from regard.attention.layers import AttentionPool
from regard.data.images import ImageLike, to_rgb
from regard.data.questions import QUESTION_TYPES, SINGLE_DIGIT_TYPES, ImageQuestions, QuestionBatch, encode_question
from regard.data.scenes import RenderedScenes
from regard.tasks.classification import Classification, ClassificationPredictor, accuracy_with_error
from regard.tasks.datasets import concatenate_examples
from regard.tasks.grid import GridExplanation, is_inside_box, make_grid_map, to_percent
from regard.tasks.predictor import AttentionMap, ExampleT, InputField, InputT, Report
from regard.tasks.vision.config import GridExplainOptions

__all__ = ["ImageClassifier", "VisionExplanation", "VisualQA", "pointing_hits"]

NUM_SHOWN = 3  # answers in the text form of an explanation


@dataclass(frozen=True)
class VisionExplanation(GridExplanation):
    """A class or an answer, with the weights of each query over the grid of the image.

    Args:
        question: the question, if there is one
        prediction: the class or the answer
    """

    prediction: Classification
    question: str | None = None

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each class or answer, the largest first."""
        return self.prediction.probabilities

    @property
    def title(self) -> str:
        """The question and the prediction with its probability."""
        answer = f"{self.prediction.text} ({self.prediction.score:.0%})"
        return answer if self.question is None else f"{self.question}? {answer}"

    @property
    def values(self) -> list[float]:
        """The probability of each query's class, or of the answer."""
        return [self.probabilities.get(name, self.prediction.score) for name in self.names]

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """The most probable answers, and the cell with the largest weight of each query."""
        lines = [self.title, ""]
        lines += [f"{name:<14} {value:7.1%}" for name, value in list(self.probabilities.items())[:NUM_SHOWN]]
        if cells := self._strongest_cells():
            lines += ["", *(f"{name:<14} {cell}" for name, cell in zip(self.names, cells, strict=True))]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return ({} if self.question is None else {"question": self.question}) | super().to_json()


class _GridPredictor(ClassificationPredictor[InputT, ExampleT]):
    """What both predictors share: explanations over the grid of the image."""

    explain_options = GridExplainOptions

    @torch.no_grad()
    def compute_weights(self, *inputs: Tensor) -> Tensor:
        """The attention weights, computed in batches; the arguments are those of `compute_logits`."""
        return self._compute_in_batches(self.model.attention_weights, inputs)

    def _explain(
        self, input: InputT, image: ImageLike, options: GridExplainOptions | None, question: str | None = None
    ) -> VisionExplanation:
        (prediction,) = self.predict([input])
        maps: tuple[AttentionMap, ...] = ()
        if self.has_attention:
            weights = self.compute_weights(*self.processor.encode([input])).flatten(0, -2)
            names = [prediction.text]
            if len(weights) > 1:
                names, weights = self._name_queries(prediction, weights)
            maps = make_grid_map(names, weights)
        return VisionExplanation(prediction, maps, to_rgb(image), (options or GridExplainOptions()).smooth, question)

    @abstractmethod
    def _name_queries(self, prediction: Classification, weights: Tensor) -> tuple[list[str], Tensor]:
        """The names of several queries, and their weights in the order of the names."""


class ImageClassifier(_GridPredictor[ImageLike, RenderedScenes]):
    """A trained image classifier: what `regard.load(RUN)` returns.

    An image is a path, a Pillow image, or an array (height, width) or (height, width, 3).

    Example:
        classifier = regard.load("runs/digits")
        classifier.predict(["seven.png"])[0].text  # "7"
    """

    inputs = (InputField("image", "image", "the image to classify"),)

    @property
    def has_attention(self) -> bool:
        """Whether the model has attention weights to show."""
        pool = self.model.pool
        return isinstance(pool, AttentionPool) and not isinstance(pool.attention.score, Constant)

    def describe(self) -> dict[str, Any]:
        """The classes and the size of the images."""
        return super().describe() | {"labels": list(self.labels), "image_size": self.processor.image_size}

    def get_input(self, example: RenderedScenes) -> ImageLike:
        """The image of a scene."""
        return example.images[0]

    def explain(self, input: ImageLike, options: Any = None) -> VisionExplanation:
        """The class of an image with the weights over its grid, for one query or for each class."""
        return self._explain(input, input, options)

    def _name_queries(self, prediction: Classification, weights: Tensor) -> tuple[list[str], Tensor]:
        names = list(prediction.probabilities)
        return names, weights[[self.labels.index(name) for name in names]]

    def evaluate(self, examples: Iterable[RenderedScenes], options: Any = None) -> Report:
        """Accuracy, in total and by class, and how often the largest weight is inside the box of the digit."""
        scenes = concatenate_examples(RenderedScenes, examples)
        images, labels = scenes.images[:, None], scenes.labels[:, 0]
        predicted = self.compute_logits(images).argmax(-1)
        is_right = predicted == labels
        metrics = accuracy_with_error(is_right)
        if self.has_attention:
            weights = self.compute_weights(images)
            query = predicted if weights.shape[1] > 1 else torch.zeros_like(predicted)  # of the prediction
            query_weights = weights[torch.arange(len(predicted)), query][:, None, None]
            is_relevant = torch.ones_like(scenes.is_large)[:, None]
            metrics["inside"] = to_percent(pointing_hits(query_weights, scenes, is_relevant))
        classes = []
        for index in labels.unique().tolist():
            rows = is_right[labels == index]
            classes.append({"label": self.labels[index], "examples": len(rows), "accuracy": to_percent(rows)})
        return Report(len(scenes), metrics, tables={"classes": classes})


class VisualQA(_GridPredictor[tuple[ImageLike, str], ImageQuestions]):
    """A trained model for questions about images: what `regard.load(RUN)` returns.

    An input is a pair of an image and a question.

    Example:
        model = regard.load("runs/digit-questions")
        model.predict([("scene.png", "how many 3s")])[0].text  # "1"
    """

    inputs = (
        InputField("image", "image", "the image that the question is about"),
        InputField("question", "text", "a question, such as how many 3s"),
    )

    @property
    def has_attention(self) -> bool:
        """Whether the model has attention weights to show."""
        first = self.model.attentions[0]
        return not (isinstance(first, Attention) and isinstance(first.score, Constant))

    def get_input(self, example: ImageQuestions) -> tuple[ImageLike, str]:
        """The image of a scene and the first question about it."""
        return example.scenes.images[0], example.get_question(0, 0)

    def check(self, inputs: Sequence[tuple[ImageLike, str]]) -> None:
        """Raise InputError for a question that is not in the grammar."""
        for _, question in inputs:
            encode_question(question)

    def explain(self, input: tuple[ImageLike, str], options: Any = None) -> VisionExplanation:
        """The answer to a question with the weights over the grid, for each hop."""
        image, question = input
        return self._explain(input, image, options, question.strip().rstrip("?").strip())

    def _name_queries(self, prediction: Classification, weights: Tensor) -> tuple[list[str], Tensor]:
        return [f"hop {number}" for number in range(1, len(weights) + 1)], weights

    def evaluate(self, examples: Iterable[ImageQuestions], options: Any = None) -> Report:
        """Accuracy, in total and by type of question, and how often a largest weight is inside a relevant box.

        `inside` in the table has one number for each hop; in total, it is the percentage of questions about a single
        digit for which any hop is inside its box.
        """
        questions = concatenate_examples(ImageQuestions, examples)
        inputs = QuestionBatch.from_questions(questions).model_inputs
        is_right = self.compute_logits(*inputs).argmax(-1) == questions.answers
        has_relevant, inside = questions.relevant_digits.any(-1), None
        if self.has_attention:
            inside = pointing_hits(self.compute_weights(*inputs), questions.scenes, questions.relevant_digits)
        rows: list[dict[str, Any]] = []
        for index in questions.types.unique().tolist():
            is_type = questions.types == index
            row = {"type": QUESTION_TYPES[index], "examples": int(is_type.sum())}
            rows.append(row | accuracy_with_error(is_right[is_type]))
            if inside is not None and bool((is_type & has_relevant).any()):
                rows[-1]["inside"] = [to_percent(hop) for hop in inside[is_type & has_relevant].unbind(-1)]
        metrics = accuracy_with_error(is_right)
        single_types = torch.tensor([QUESTION_TYPES.index(name) for name in SINGLE_DIGIT_TYPES])
        is_single = has_relevant & torch.isin(questions.types, single_types)
        if inside is not None and bool(is_single.any()):
            metrics["inside"] = to_percent(inside[is_single].any(-1))
        return Report(is_right.numel(), metrics, tables={"types": rows})


def pointing_hits(
    weights: Float[Tensor, "count questions hops cells"],
    scenes: RenderedScenes,
    relevant_digits: Bool[Tensor, "count questions digits"],
) -> Bool[Tensor, "count questions hops"]:
    """Whether the cell with the largest weight is inside the box of a relevant digit, enlarged by one cell.

    Args:
        weights: attention weights over a square grid
        scenes: the scenes, with the boxes of their digits
        relevant_digits: which digits count

    Shape:
        - weights: (count, questions, hops, cells), relevant_digits: (count, questions, digits)
        - returns: (count, questions, hops)

    Returns:
        True where the largest weight is inside such a box.
    """
    side, size = math.isqrt(weights.shape[-1]), scenes.images.shape[-1]
    cells: Int[Tensor, "count hops"] = weights.argmax(-1).flatten(1)
    hits = [
        is_inside_box(cells, box[:, None].expand(-1, cells.shape[1], -1), size, side) for box in scenes.boxes.unbind(1)
    ]
    inside = torch.stack(hits, -1).unflatten(1, weights.shape[1:3])
    return (inside & relevant_digits[:, :, None]).any(-1)
