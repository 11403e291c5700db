"""A trained model in use: predictions, reports and explanations, the same for every task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.errors import InputTooLongError, UnsupportedError
from regard.files import write_json
from regard.tasks.registry import NoOptions
from regard.training.run import is_better

__all__ = ["AttentionMap", "Explanation", "InputField", "Metric", "NoOptions", "Prediction", "Predictor", "Report"]

ExampleT = TypeVar("ExampleT")
InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound="Prediction")


@dataclass(frozen=True)
class InputField:
    """One part of an input: its name on the command line and over HTTP, and what it is.

    Args:
        name: of the part
        kind: how it is written: a text, or the file of an image or a sound
        help: one line
        may_be_empty: whether an empty text is an input

    Example:
        >>> InputField("text", "text", "a text to translate").kind
        'text'
    """

    name: str
    kind: Literal["text", "image", "audio"]
    help: str
    may_be_empty: bool = False


@dataclass(frozen=True)
class Prediction:
    """The answer to one input. Subclasses add fields; all of them are values that JSON has.

    Args:
        text: the answer as one line
        score: log-probability of a sequence, probability of a class

    Example:
        >>> Prediction("yes", 0.9).to_json()
        {'text': 'yes', 'score': 0.9}
    """

    text: str
    score: float

    @property
    def token_counts(self) -> Mapping[str, int]:
        """The numbers of tokens that were read ("input") and written ("output"), where the model has tokens."""
        return {}

    def to_lines(self, number: int = 1) -> list[str]:
        """How the command line prints the prediction: as one line, its text.

        Args:
            number: of the input, from 1; for predictions of several lines
        """
        return [self.text]

    def remarks(self) -> list[str]:
        """Notes about the prediction that the command line prints, such as what was left out of the input."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Metric:
    """A number that a report may have: how it reads and which way is better.

    Args:
        name: its key in a report
        title: what people call it
        lower_is_better: whether a smaller number is better
        format: of the number

    Example:
        >>> Metric("bleu", "BLEU").is_better(31.0, 30.0), Metric("loss", "loss", True).is_better(2.0, 1.0)
        (True, False)
    """

    name: str
    title: str
    lower_is_better: bool = False
    format: str = ".2f"

    def is_better(self, score: float, best: float | None, by: float = 0.0) -> bool:
        """Whether a score beats the best so far, by more than a share of it; NaN never does."""
        return is_better(score, best, self.lower_is_better, by)


@dataclass(frozen=True)
class Report:
    """How good a model is on some examples.

    Args:
        num_examples: number of examples
        metrics: numbers by the names of the task's `metrics`
        signatures: how a number was computed, such as sacreBLEU's signature
        tables: breakdowns by name: rows of equal columns
        remarks: sentences about the examples, such as how many were truncated

    Example:
        >>> Report(2, {"accuracy": 50.0}).to_json()["metrics"]
        {'accuracy': 50.0}
    """

    num_examples: int
    metrics: Mapping[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return asdict(self)


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention: who attends to what.

    Args:
        name: of the attention, such as "cross"
        weights: (heads, queries, keys)
        queries, keys: how the positions read
        grid: (rows, columns) if the keys are cells of an image
        group: maps of the same group, such as the layers of a decoder, can be averaged; default: the name
        is_self: whether queries and keys are positions of the same sequence
        is_causal: whether a query attends to no later key
        query_words, key_words: words of several positions, each with its positions; none: a position is a word

    Example:
        >>> AttentionMap("cross", torch.ones(1, 2, 3) / 3, ["a", "b"], ["x", "y", "z"]).weights.shape
        torch.Size([1, 2, 3])
    """

    name: str
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]
    grid: tuple[int, int] | None = None
    group: str = ""
    is_self: bool = False
    is_causal: bool = False
    query_words: Sequence[tuple[str, Sequence[int]]] = ()
    key_words: Sequence[tuple[str, Sequence[int]]] = ()


@dataclass(frozen=True)
class Explanation:
    """A prediction with the weights behind it; it renders itself in every form.

    Subclasses override `to_text`, `to_figure` and `to_page` where they can show more than a matrix.

    Args:
        prediction: the prediction
        maps: the weights behind it

    Example:
        >>> Explanation(Prediction("yes", 0.9), ()).summary()
        'yes'
    """

    prediction: Prediction
    maps: tuple[AttentionMap, ...]

    def summary(self, language: str = "en") -> str:
        """What the command line prints when the explanation is saved: the text of the prediction.

        Args:
            language: "en" or "zh"
        """
        return self.prediction.text

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """For the terminal."""
        from regard.viewing.terminal import heatmap

        first = self._first_map()
        picture = heatmap(first.weights.mean(0), first.queries, first.keys, color=color, width=width, language=language)
        return f"{self.prediction.text}\n\n{picture}"

    def to_figure(self) -> Any:
        """A `Figure` for .png and .svg."""
        from regard.viewing.figures import heatmap

        first = self._first_map()
        return heatmap(first.weights.mean(0), first.queries, first.keys, title=self.prediction.text)

    def to_page(self, *, language: str | None = None) -> Any:
        """An `HtmlPage` in one file."""
        from regard.viewing.pages import head_grid

        first = self._first_map()
        return head_grid(first.weights[None], first.queries, first.keys, title=self.prediction.text, language=language)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        maps = [
            {"name": one.name, "queries": list(one.queries), "keys": list(one.keys), "weights": one.weights.tolist()}
            for one in self.maps
        ]
        return self.prediction.to_json() | {"attention": maps}

    def faithfulness_measure(self) -> Callable[[], Mapping[str, Any]] | None:
        """A function that measures how much the prediction depends on the weights; None if that is not possible."""
        return None

    def save(self, path: str | Path, *, language: str | None = None) -> None:
        """Write the form that the suffix names: .txt, .json, .html, .png or .svg."""
        path = Path(path)
        match path.suffix.lower():
            case ".txt":
                text = self.to_text(color=False, width=100, language=language or "en")
                path.write_text(text + "\n", encoding="utf-8", newline="\n")
            case ".json":
                write_json(path, self.to_json())
            case ".html":
                self.to_page(language=language).save(path)
            case ".png" | ".svg":
                self.to_figure().save(path)
            case _:
                raise UnsupportedError(f"cannot write {path}: its name must end in .txt, .json, .html, .png or .svg")

    def _first_map(self) -> AttentionMap:
        if not self.maps:
            raise UnsupportedError("this model has no attention: there are no weights to draw")
        return self.maps[0]


class Predictor(ABC, Generic[InputT, ExampleT, PredictionT]):
    """A trained model with its processor: what `regard.load(run)` returns.

    Args:
        model: the network, or an inference engine in its place
        processor: converts inputs to tensors
        config: the config of the training

    Example:
        predictor = regard.load("runs/dates")
        predictor.predict(["3. Mai 2021"])[0].text  # "2021-05-03"
    """

    model: Any
    inputs: ClassVar[tuple[InputField, ...]] = ()
    prediction_class: ClassVar[type[Prediction]] = Prediction
    predict_options: ClassVar[type[Config]] = NoOptions
    evaluate_options: ClassVar[type[Config]] = NoOptions
    explain_options: ClassVar[type[Config]] = NoOptions

    def __init__(self, model: Any, processor: Any, config: Any):
        self.model = model.eval() if isinstance(model, nn.Module) else model
        self.processor, self.config = processor, config

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(iter(self.model.parameters())).device

    @property
    def has_attention(self) -> bool:
        """Whether there are attention weights to explain predictions with."""
        return type(self).explain is not Predictor.explain

    def describe(self) -> dict[str, Any]:
        """What there is to say of the model, as plain values: labels, languages, sizes."""
        parameters = sum(one.numel() for one in self.model.parameters()) if isinstance(self.model, nn.Module) else None
        return {"has_attention": self.has_attention, "parameters": parameters}

    @property
    def quick_explain_options(self) -> Any:
        """Options of `explain` that compute nothing but the prediction and its weights; None: the defaults."""
        return None

    def is_random(self, options: Any) -> bool:
        """Whether predictions with these options are sampled, so that they depend on the rest of the batch."""
        return False

    def num_candidates(self, options: Any) -> int:
        """How many candidates of each input are computed side by side; a server limits them."""
        return 1

    def warm_up(self, batch_size: int) -> None:
        """Predict meaningless inputs before the first request; by default nothing.

        Args:
            batch_size: number of inputs of a full batch
        """

    def check(self, inputs: Sequence[InputT]) -> None:
        """Raise InputError, with the row, for an input that the model cannot take."""

    @property
    def engine(self) -> str:
        """What computes the model: "torch", or the name of another engine."""
        return "torch"

    def require_list(self, inputs: Any) -> None:
        """Raise TypeError for a single text or path in place of a list of inputs."""
        if isinstance(inputs, str | Path):
            kind = self.inputs[0].kind
            raise TypeError(f"predict expects a list of {kind}s: predict([{kind}])")

    def truncate(self, input: InputT) -> InputT:
        """The longest beginning of a text that the model can take; other inputs are returned as they are."""
        if not isinstance(input, str) or self._can_take(input):
            return input
        longest = bisect_left(range(1, len(input)), True, key=lambda end: not self._can_take(input[:end]))
        return cast(InputT, input[:longest])

    def _can_take(self, text: str) -> bool:
        try:
            self.check([cast(InputT, text)])
        except InputTooLongError:
            return False
        return True

    def get_input(self, example: ExampleT) -> InputT:
        """The input of an example of a split: the first parts of a tuple, else the example itself."""
        if not isinstance(example, tuple):
            return cast(InputT, example)
        return cast(InputT, example[0] if len(self.inputs) == 1 else tuple(example[: len(self.inputs)]))

    def replace_input(self, example: ExampleT, input: InputT) -> ExampleT | None:
        """The same example with another input, without what is known of the old one only; None if nothing remains."""
        if not isinstance(example, tuple):
            return cast(ExampleT, input)
        parts = (input,) if len(self.inputs) == 1 else cast("tuple[Any, ...]", input)
        return cast(ExampleT, (*parts, *example[len(parts) :]))

    def get_examples(self, options: Any) -> Mapping[str, Iterable[ExampleT]] | None:
        """Examples, by name, that options of `evaluate_options` bring; None: those of the recipe, or of files."""
        return None

    @abstractmethod
    def predict(self, inputs: Sequence[InputT], options: Any = None) -> list[PredictionT]:
        """One prediction for each input, in order."""

    @abstractmethod
    def evaluate(self, examples: Iterable[ExampleT], options: Any = None) -> Report:
        """How good the model is on these examples."""

    def explain(self, input: InputT, options: Any = None) -> Explanation:
        """One prediction with the weights behind it."""
        raise UnsupportedError(f"{type(self).__name__} has no attention to show")

    def stream(self, input: InputT, options: Any = None) -> Iterator[PredictionT]:
        """Ever longer predictions of one input; by default only the complete one."""
        yield from self.predict([input], options)

    def stream_batch(
        self, inputs: Sequence[InputT], options: Any, emit: Callable[[int, PredictionT], None]
    ) -> list[PredictionT]:
        """Predict several inputs and report every partial prediction; by default one input after another.

        Args:
            inputs: the inputs
            options: `predict_options`
            emit: called with the row and its prediction so far

        Returns:
            The complete predictions.
        """
        complete = []
        for row, input in enumerate(inputs):
            partial: list[PredictionT] = []
            for one in self.stream(input, options):
                if partial:
                    emit(row, partial[0])
                partial = [one]
            complete += partial
        return complete
