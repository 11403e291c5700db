"""Trained language models in use: text generation, and words for gaps."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from regard.data import BOS_ID, EOS_ID, UNK_ID, Tokenizer
from regard.data.passages import PassageBatches
from regard.decoding import DecodingConfig, ObservedModel, decode, iterate_emitted
from regard.errors import DataError, InputError, InputTooLongError
from regard.tasks.abilities import Tokenizable, Tokenization
from regard.tasks.datasets import EvalBatches
from regard.tasks.language_modeling import loss as losses
from regard.tasks.language_modeling.config import FillMaskConfig, FillOptions, GenerateOptions
from regard.tasks.predictor import InputField, Prediction, PredictionT, Predictor, Report
from regard.tasks.task import LazyExamples, sum_losses

__all__ = [
    "FillMask", "FilledText", "GeneratedText", "TextGenerator", "TokenGuess", "make_eval_batches", "make_passages",
]  # fmt: skip

MASK_MARK = "___"
MAX_EXPONENT = 100.0  # of a perplexity


def make_passages(texts: Iterable[str], processor: Any, config: Any) -> PassageBatches:
    """The passages of texts.

    Args:
        texts: the documents
        processor: its `preprocess` is applied to each text, then its `tokenizer`
        config: `passage_length`, `batch_tokens`, `batch_size` and `seed`
    """
    texts = texts.load() if isinstance(texts, LazyExamples) else texts
    limits = {"length": config.passage_length, "max_tokens": config.batch_tokens, "max_rows": config.batch_size}
    return PassageBatches(texts, processor.tokenizer, **limits, seed=config.seed, preprocess=processor.preprocess)


def make_eval_batches(texts: Iterable[str], processor: Any, config: Any) -> EvalBatches[Any]:
    """Every passage of texts once; of a masked language model, with masks that are always the same.

    Args:
        texts: the documents
        processor, config: as for `make_passages`
    """
    passages = make_passages(texts, processor, config)
    batches: Iterable[Any] = passages.iter_eval_batches()
    if isinstance(config, FillMaskConfig):
        batches = losses.mask_batches(batches, config.mask_prob, len(processor.tokenizer))
    return EvalBatches(batches, passages.report)


class _LanguageModelPredictor(Predictor[str, str, PredictionT]):
    """What both predictors share: texts of limited length, and reports with the table `data`."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        return self.processor.tokenizer

    @torch.no_grad()
    def evaluate(self, examples: Iterable[str], options: Any = None) -> Report:
        """Loss, perplexity, and the metric of the task.

        The table `data` counts documents, passages, tokens and characters.
        """
        batches = make_eval_batches(examples, self.processor, self.config)
        return Report(batches.report.read, self.compute_metrics(batches), tables={"data": [batches.report.as_dict()]})

    @abstractmethod
    def compute_metrics(self, batches: EvalBatches[Any]) -> dict[str, float]:
        """The metrics of a report.

        Args:
            batches: of `make_eval_batches`
        """

    def _check_length(self, text: str, ids: Sequence[int], unit: str, row: int | None) -> None:
        """Raise InputTooLongError for a text with more tokens than a passage has."""
        limit = self.config.passage_length - 1
        if len(ids) > limit:
            count = f"the {text} has {len(ids):,} {unit}"
            raise InputTooLongError(f"{count}, but this model takes {limit:,} (passage_length); shorten it", row=row)


def _token_metrics(total: float, count: float) -> dict[str, float]:
    """The mean loss of a token in nats, and its exponential.

    >>> _token_metrics(100.0, 50)["perplexity"] == math.exp(2)
    True
    """
    return {"loss": total / count, "perplexity": math.exp(min(total / count, MAX_EXPONENT))}


@dataclass(frozen=True)
class GeneratedText(Prediction):
    """A prompt with its continuation.

    Args:
        text: both
        score: the log-probability of the continuation
        num_tokens: the tokens of the continuation
        finished: whether it ended before the maximum length
        samples: all continuations, if several were asked for
        seed: a random seed that gives the same texts again; None if a seed was given, or nothing was sampled
    """

    num_tokens: int = 0
    finished: bool = True
    samples: tuple[GeneratedText, ...] = ()
    seed: int | None = None

    def to_lines(self, number: int = 1) -> list[str]:
        """The texts, with "..." after one that was cut off at the maximum length, and empty lines between them."""
        texts = [one.text + ("" if one.finished else " ...") for one in self.samples or (self,)]
        return "\n\n".join(texts).split("\n")

    def remarks(self) -> list[str]:
        """How to get the same texts again."""
        return [] if self.seed is None else [f"seed {self.seed} gives the same text again"]

    def to_json(self) -> dict[str, Any]:
        """Plain values; `samples` only if there are several, `seed` only if there is one."""
        values = {name: value for name, value in vars(self).items() if name != "samples" and value is not None}
        return values | ({"samples": [one.to_json() for one in self.samples]} if self.samples else {})


class TextGenerator(_LanguageModelPredictor[GeneratedText], Tokenizable):
    """A trained text generator: what `regard.load(RUN)` returns.

    Example:
        generator = regard.load("runs/language")
        options = generator.predict_options(max_tokens=20, seed=0)
        generator.predict(["Once upon a time"], options)[0].text
    """

    inputs = (InputField("text", "text", "the beginning of the text", may_be_empty=True),)
    prediction_class = GeneratedText
    predict_options = GenerateOptions

    def check(self, inputs: Sequence[str]) -> None:
        """Raise InputTooLongError for a prompt that leaves no room for a continuation."""
        for row, prompt in enumerate(inputs):
            self._encode(prompt, row)

    def predict(self, inputs: Sequence[str], options: Any = None) -> list[GeneratedText]:
        """A continuation of each prompt; with `num_samples` above 1, all of them are in `samples`."""
        return self.stream_batch(inputs, options)

    def stream(self, input: str, options: Any = None) -> Iterator[GeneratedText]:
        """Ever longer texts; several samples are complete at once."""
        yield from iterate_emitted(lambda emit: self.stream_batch([input], options, lambda row, one: emit(one)))

    def stream_batch(
        self, inputs: Sequence[str], options: Any = None, emit: Callable[[int, GeneratedText], None] | None = None
    ) -> list[GeneratedText]:
        """Continue prompts, one after another, and report each token as soon as it is chosen.

        Args:
            inputs: the prompts
            options: `GenerateOptions`
            emit: called with the row and its text so far, if one sample is requested; None: nothing is reported

        Returns:
            The complete texts.
        """
        self.require_list(inputs)
        self.check(inputs)
        options = options or GenerateOptions()
        generator = torch.Generator(self.device)
        seed = generator.seed() % (1 << 63) if options.seed is None else options.seed
        generator.manual_seed(seed)
        is_unseeded = options.method == "sample" and options.seed is None
        settings = {name: value for name, value in options.to_dict().items() if name != "seed"}
        predictions = []
        for row, prompt in enumerate(inputs):
            emit_text = None if emit is None else partial(emit, row)
            samples = self.generate(prompt, generator=generator, emit=emit_text, **settings)
            all_samples = tuple(samples) if options.num_samples > 1 else ()
            predictions.append(replace(samples[0], samples=all_samples, seed=seed if is_unseeded else None))
        return predictions

    def is_random(self, options: GenerateOptions) -> bool:
        """Whether continuations are sampled."""
        return options.method == "sample"

    def num_candidates(self, options: GenerateOptions) -> int:
        """Continuations of each prompt."""
        return options.num_samples

    def tokenize(self, text: str, side: Literal["input", "target"] = "input") -> Tokenization:
        """The tokens of a text; a prompt and its continuation have the same tokenizer."""
        token_ids = self.tokenizer.encode(text)
        unknown = tuple(index for index, token in enumerate(token_ids) if token == UNK_ID)
        limit = self.config.passage_length - 1
        return Tokenization(tuple(self.tokenizer.convert_ids_to_tokens(token_ids)), unknown, limit)

    def generate(
        self,
        prompt: str = "",
        num_samples: int = 1,
        *,
        max_tokens: int | None = None,
        generator: torch.Generator | None = None,
        emit: Callable[[GeneratedText], None] | None = None,
        **options: Any,
    ) -> list[GeneratedText]:
        """Continuations of a prompt.

        Args:
            prompt: the beginning of the text
            num_samples: number of continuations
            max_tokens: maximum tokens of a continuation; never more than fit into a training passage after the prompt
            generator: source of randomness
            emit: called with the text so far after each token, for one continuation
            options: fields of `DecodingConfig`; the method is `sample` by default
        """
        ids = self._encode(prompt)
        limit = self.config.passage_length - len(ids)
        limit = min(limit, max_tokens or limit)
        search = DecodingConfig(
            **{"method": "sample", **options}, num_best=num_samples, max_length=limit, max_length_offset=limit
        )
        prefix = torch.tensor([[BOS_ID, *ids]], device=self.device)
        lengths = torch.tensor([prefix.shape[1]], device=self.device)
        surfaces = self.tokenizer.surface_forms(prompt)
        unknown = {index: surfaces[index] for index, token in enumerate(ids) if token == UNK_ID}

        def make(token_ids: Sequence[int], score: float = 0.0, finished: bool = False) -> GeneratedText:
            return GeneratedText(self.tokenizer.decode([*ids, *token_ids], unknown), score, len(token_ids), finished)

        model: Any = self.model
        if emit is not None and num_samples == 1:
            token_ids: list[int] = []

            def report(row: int, token: int) -> None:
                token_ids.append(token)
                emit(make(token_ids))

            model = ObservedModel(self.model, 1, report)
        hypotheses = decode(model, prefix, lengths, search, generator=generator)[0]
        return [make(one.token_ids, one.log_prob, one.finished) for one in hypotheses]

    def compute_metrics(self, batches: EvalBatches[Any]) -> dict[str, float]:
        """Loss, perplexity and bits per character."""
        total, _, _ = sum_losses(self, losses.causal_lm_loss, batches)
        bits = total / math.log(2) / batches.report.characters
        return {**_token_metrics(total, batches.report.tokens), "bits_per_character": bits}

    def _encode(self, prompt: str, row: int | None = None) -> list[int]:
        ids = self.tokenizer.encode(prompt)
        self._check_length("prompt", ids, "tokens", row)
        return ids


@dataclass(frozen=True)
class TokenGuess:
    """A word for a gap.

    Args:
        word: the word
        probability: its probability
    """

    word: str
    probability: float


@dataclass(frozen=True)
class FilledText(Prediction):
    """A text with its gaps filled.

    Args:
        text: the text with the most probable word in each gap
        score: the product of their probabilities
        gaps: the most probable words of each gap
    """

    gaps: tuple[tuple[TokenGuess, ...], ...] = ()

    def to_lines(self, number: int = 1) -> list[str]:
        """The text; if several words were asked for, a line for each gap below it."""
        rows = [
            f"gap {i}\t" + "\t".join(f"{one.word} {one.probability:.3f}" for one in gap)
            for i, gap in enumerate(self.gaps, 1)
            if len(gap) > 1
        ]
        return [self.text, *rows]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        gaps = [[asdict(guess) for guess in gap] for gap in self.gaps]
        return {"text": self.text, "score": self.score, "gaps": gaps}


class FillMask(_LanguageModelPredictor[FilledText]):
    """A trained masked language model: what `regard.load(RUN)` returns. Gaps of a text are written ___.

    Example:
        model = regard.load("runs/masked-language")
        model.predict(["a dog ___ in the park"])[0].text
    """

    inputs = (InputField("text", "text", f"a text with gaps: {MASK_MARK}"),)
    prediction_class = FilledText
    predict_options = FillOptions

    def check(self, inputs: Sequence[str]) -> None:
        """Raise InputError for a text without gaps or with too many words."""
        for row, text in enumerate(inputs):
            self._encode(text, row)

    def predict(self, inputs: Sequence[str], options: Any = None) -> list[FilledText]:
        """Each text with its gaps filled, and the most probable words of each gap."""
        self.require_list(inputs)
        options = options or FillOptions()
        return [self._fill(text, row, options.num_best) for row, text in enumerate(inputs)]

    @torch.no_grad()
    def _fill(self, text: str, row: int, num_best: int) -> FilledText:
        ids, positions = self._encode(text, row)
        tokens = torch.tensor([[BOS_ID, *ids, EOS_ID]], device=self.device)
        lengths = torch.tensor([tokens.shape[1]], device=self.device)
        logits = self.model.lm_head(self.model.forward_hidden(tokens, lengths)[0, positions])
        logits[:, : EOS_ID + 1] = logits[:, -1] = -torch.inf  # neither special tokens nor the mask
        values, indices = logits.softmax(-1).topk(min(num_best, len(self.tokenizer) - EOS_ID - 1))
        guesses = [[self.tokenizer.decode([index]) for index in row] for row in indices.tolist()]
        gaps = tuple(tuple(map(TokenGuess, *row)) for row in zip(guesses, values.tolist(), strict=True))
        words = [*(gap[0].word for gap in gaps), ""]
        filled = "".join(part + word for part, word in zip(text.split(MASK_MARK), words, strict=True))
        return FilledText(filled, math.prod(gap[0].probability for gap in gaps), gaps)

    def compute_metrics(self, batches: EvalBatches[Any]) -> dict[str, float]:
        """Loss, perplexity and accuracy of masked words."""
        loss = partial(losses.masked_token_loss, mask_prob=self.config.mask_prob)
        total, count, sums = sum_losses(self, loss, batches)
        if not count:
            raise DataError(
                "There is no word in the text that could be masked: all are unknown; take other text, or train with a"
                " larger vocab_size."
            )
        return {**_token_metrics(total, count), "accuracy": sums["accuracy"] / count}

    def _encode(self, text: str, row: int | None = None) -> tuple[list[int], list[int]]:
        """The token ids with the mask in each gap, and the positions of the gaps after BOS."""
        ids: list[int] = []
        positions: list[int] = []
        for number, part in enumerate(text.split(MASK_MARK)):
            if number:
                positions.append(len(ids) + 1)
                ids.append(len(self.tokenizer))
            ids += self.tokenizer.encode(self.processor.preprocess(part))
        if not positions:
            raise InputError(f"there is no gap to fill; write {MASK_MARK} in place of a word", row=row)
        self._check_length("text", ids, "words", row)
        return ids, positions
