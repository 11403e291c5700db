"""A trained translator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, overload

import torch

from regard import decoding
from regard.data import SentencePair
from regard.data.text_files import read_lines
from regard.data.vocabulary import EOS_ID, UNK_ID
from regard.decoding import Alignment, DecodingConfig, GoldAlignment, Hypothesis, SearchTrace
from regard.errors import UnknownNameError
from regard.tasks.abilities import AlignedText, AlignOptions, Tokenizable, Tokenization
from regard.tasks.predictor import Explanation, InputField, Report
from regard.tasks.task import LazyExamples
from regard.tasks.translation.config import EvaluateOptions, ExplainOptions, TranslateOptions
from regard.tasks.translation.inference import InferenceEngine, map_in_threads
from regard.tasks.translation.scorer import MAX_BATCH_TOKENS, Translation, TranslationScorer, group_by_length

__all__ = ["Translator", "check_head"]

WARM_UP_LENGTH = 40  # tokens: few sentences have more
NUM_WARM_UPS = 6  # full batches; after that, memory hardly grows


class Translator(TranslationScorer, Tokenizable):
    """A model with its tokenizers. `regard.load(run)` returns one.

    `config.beam_size` and `config.length_penalty` are how it translates unless other options are given.

    Args:
        model: the network, or an engine that computes an exported one
        processor: the tokenizers
        config: the config of the training

    Example:
        translator = regard.load("runs/en-de")
        options = translator.predict_options(beam_size=5, align=True)
        translator.predict(["A dog runs."], options)[0].text  # "Ein Hund läuft."
    """

    inputs = (InputField("text", "text", "a text to translate"),)
    prediction_class = Translation
    predict_options = TranslateOptions
    evaluate_options = EvaluateOptions
    explain_options = ExplainOptions

    @property
    def engine(self) -> str:
        """What computes the model."""
        return self.model.name if isinstance(self.model, InferenceEngine) else "torch"

    def get_input(self, example: SentencePair | GoldAlignment) -> str:
        """The source of a pair."""
        return self.join_words(example)[0] if isinstance(example, GoldAlignment) else example.source

    def join_words(self, gold: GoldAlignment) -> tuple[str, str]:
        """Source and target of a gold alignment; words of characters are not separated by spaces."""
        separators = ("" if side.model_type == "char" else " " for side in (self.source, self.target))
        source, target = (glue.join(words) for glue, words in zip(separators, (gold.source, gold.target), strict=True))
        return source, target

    def replace_input(self, example: SentencePair | GoldAlignment, input: str) -> SentencePair | None:
        """The pair with another source, without its links; None for a gold alignment, which has nothing else."""
        return None if isinstance(example, GoldAlignment) else SentencePair(input, example.target)

    def get_target(self, example: SentencePair) -> str:
        """The target of a pair."""
        return example.target

    def get_examples(self, options: EvaluateOptions) -> Mapping[str, Iterable[Any]] | None:
        """The gold alignments, if the options name a file of them."""
        if (path := options.gold_alignments) is None:
            return None
        return {"gold_alignments": LazyExamples(lambda: decoding.parse_gold(read_lines(Path(path)), path))}

    def check(self, inputs: Sequence[str]) -> None:
        """Raise InputTooLongError for a text with more tokens than the model was trained for."""
        self.encode(inputs)

    def predict(self, inputs: Sequence[str], options: TranslateOptions | None = None) -> list[Translation]:
        """One translation of each text, in order."""
        options = options or TranslateOptions()
        config = self.search_config(options)
        if not options.trace:
            return self.make_predictions(inputs, self.search(inputs, config, self._make_generator(options)), options)
        self.check(inputs)
        searches = [self.search_with_trace(text, config) for text in inputs]
        predictions = self.make_predictions(inputs, [hypotheses for hypotheses, _ in searches], options)
        name = self.target.convert_ids_to_tokens
        steps = (trace.to_json(lambda token: name([token])[0])["steps"] for _, trace in searches)
        return [replace(one, search=tuple(step)) for one, step in zip(predictions, steps, strict=True)]

    def _make_generator(self, options: TranslateOptions) -> torch.Generator | None:
        """The random number generator of sampling; None for a search."""
        if not options.sample:
            return None
        generator = torch.Generator(self.device)
        generator.manual_seed(generator.seed() if options.seed is None else options.seed)
        return generator

    def make_predictions(
        self, inputs: Sequence[str], hypotheses: Sequence[Sequence[Hypothesis]], options: TranslateOptions
    ) -> list[Translation]:
        """The predictions of the hypotheses of a search.

        Args:
            inputs: source texts
            hypotheses: those of each text, best first
            options: whether to align and to replace unknown words
        """
        copies = options.replace_unknown and self.has_attention
        pairs = [(text, one) for text, ranked in zip(inputs, hypotheses, strict=True) for one in ranked]
        rows = [row for row, (_, one) in enumerate(pairs) if options.align or (copies and UNK_ID in one.token_ids)]
        aligned = self.align_token_ids([pairs[row][0] for row in rows], [pairs[row][1].token_ids for row in rows])
        alignments = dict(zip(rows, aligned, strict=True))
        translations = (self._make_prediction(one, alignments.get(row), options) for row, (_, one) in enumerate(pairs))
        results = []
        for text, ranked in zip(inputs, hypotheses, strict=True):
            first, *others = list(islice(translations, len(ranked))) or [Translation("", 0.0)]
            count = len(self.encode_source(text))
            results.append(replace(first, alternatives=tuple(others), num_source_tokens=count))
        return results

    def _make_prediction(
        self, hypothesis: Hypothesis, alignment: Alignment | None, options: TranslateOptions
    ) -> Translation:
        text, displayed = self.to_text(hypothesis), None
        if options.replace_unknown and alignment is not None:
            text = self.replace_unknown(hypothesis.token_ids, alignment)
        if options.align and alignment is not None:
            check_head(options.layer, options.head, alignment.weights.shape[:2])
            is_part = options.layer is not None or options.head is not None
            displayed = (alignment.select_head(options.layer, options.head) if is_part else alignment).to_json()
        return Translation(
            text,
            hypothesis.score,
            hypothesis.log_prob,
            tuple(self.target.convert_ids_to_tokens(hypothesis.token_ids)),
            tuple(hypothesis.token_log_probs),
            hypothesis.finished,
            alignment=displayed,
            token_ids=tuple(hypothesis.token_ids),
        )

    def evaluate(
        self, examples: Iterable[SentencePair | GoldAlignment], options: EvaluateOptions | None = None
    ) -> Report:
        """Exact matches, BLEU, chrF and, if the pairs have gold links, the alignment error rate."""
        from regard.tasks.translation.evaluation import evaluate, make_gold_report, make_report

        options = options or EvaluateOptions()
        pairs: list[Any] = list(examples)
        if pairs and isinstance(pairs[0], GoldAlignment):
            return make_gold_report(self, pairs)
        return make_report(evaluate(self, pairs, self.search_config(options), options.bleu_tokenizer))

    def explain(self, input: str, options: ExplainOptions | None = None) -> Explanation:
        """A translation with its search, its alignment and how much it depends on the weights."""
        from regard.tasks.translation.explanation import explain

        return explain(self, input, options=options)

    def stream(self, input: str, options: TranslateOptions | None = None) -> Iterator[Translation]:
        """Ever longer translations, greedy or sampled; a beam search returns the complete one only."""
        options = options or TranslateOptions()
        yield from decoding.iterate_emitted(lambda emit: self.stream_batch([input], options, lambda _, one: emit(one)))

    def stream_batch(
        self, inputs: Sequence[str], options: TranslateOptions, emit: Callable[[int, Translation], None]
    ) -> list[Translation]:
        """Translate texts and report each token as soon as it is chosen, unless `beam_size` asks for a beam search.

        Args:
            inputs: the texts
            options: greedy without `sample` and `beam_size`
            emit: called with the row and its translation so far
        """
        if not options.sample and options.num_best == 1:
            options = options.replace(beam_size=options.beam_size or 1)
        config = self.search_config(options)
        takes_steps = not isinstance(self.model, InferenceEngine) or self.model.takes_steps
        rows = [row for row, text in enumerate(inputs) if text.strip()]
        if config.method == "beam" or not takes_steps or options.num_best > 1 or not rows:
            return self.predict(inputs, options)
        encoded, token_ids = self.encode(inputs), [list[int]() for _ in rows]

        def report(row: int, token: int) -> None:
            ids = token_ids[row]
            ids.append(token)
            tokens = tuple(self.target.convert_ids_to_tokens(ids))
            emit(rows[row], Translation(self.target.decode(ids), 0.0, 0.0, tokens, finished=False, token_ids=(*ids,)))

        model, generator = decoding.ObservedModel(self.model, len(rows), report), self._make_generator(options)
        hypotheses = decoding.decode(model, *self.pad([encoded[row] for row in rows]), config, generator=generator)
        return self.make_predictions(inputs, _fill_rows(len(inputs), rows, hypotheses), options)

    def align_texts(
        self, inputs: Sequence[str], targets: Sequence[str | None], options: AlignOptions | None = None
    ) -> list[AlignedText]:
        """Align texts with given translations; None stands for the best that the search returns."""
        options = options or AlignOptions()
        ids: list[list[int]] = [self.target.encode(target or "") for target in targets]
        hypotheses: dict[int, Hypothesis] = {}
        missing = [row for row, target in enumerate(targets) if target is None]
        for row, ranked in zip(missing, self.search([inputs[row] for row in missing]), strict=True):
            ids[row], hypotheses[row] = list(ranked[0].token_ids), ranked[0]
        scored = [row for row, target in enumerate(targets) if target is not None]
        if not isinstance(self.model, InferenceEngine):  # an engine does not compute their log-probabilities
            scores = self.score_token_ids([inputs[row] for row in scored], [ids[row] for row in scored])
            hypotheses.update(zip(scored, scores, strict=True))
        results = []
        for row, (alignment, target) in enumerate(zip(self.align_token_ids(inputs, ids), targets, strict=True)):
            text = self.target.decode(ids[row]) if target is None else target
            log_prob = hypotheses[row].log_prob if row in hypotheses else None
            results.append(_make_aligned_text(alignment, options, text, log_prob))
        return results

    def describe(self) -> dict[str, Any]:
        """The languages, the tokenizer and the sizes of the model."""
        source, _, target = (self.config.language_pair or "").partition("-")
        is_transformer = self.config.model == "transformer"
        return super().describe() | {
            "model": self.config.model,
            "source_language": source or None,
            "target_language": target or None,
            "tokenizer": self.source.model_type,
            "num_layers": self.config.num_layers if is_transformer else 1,
            "num_heads": self.config.num_heads if is_transformer else 1,
            "beam_size": self.config.beam_size,
            "max_length": self.max_length,
        }

    @property
    def quick_explain_options(self) -> ExplainOptions:
        """Without the measure of faithfulness."""
        return ExplainOptions(faithfulness=False)

    def is_random(self, options: TranslateOptions) -> bool:
        """Whether translations are sampled."""
        return options.sample

    def warm_up(self, batch_size: int) -> None:
        """Translate batches of random texts: first of long ones, then of all lengths.

        Most of the memory that full batches need is allocated then before the first request. Without it, the memory of
        a server grew for thousands of requests.
        """
        rng, tokenizer, longest = random.Random(0), self.source, min(WARM_UP_LENGTH, self.max_length)
        first = min(EOS_ID + 1, len(tokenizer) - 1)  # the last one of a vocabulary of special tokens
        for batch in range(NUM_WARM_UPS):
            lengths = [longest if batch == 0 else rng.randint(1, longest) for _ in range(batch_size)]
            texts = [tokenizer.decode(rng.choices(range(first, len(tokenizer)), k=length)) for length in lengths]
            short = [text for text in texts if len(self.encode_source(text)) <= self.max_length]
            self.search(short, self.decoding_config(max_length=longest))

    def tokenize(self, text: str, side: Literal["input", "target"] = "input") -> Tokenization:
        """The tokens of a source text or of a translation."""
        tokenizer = self.source if side == "input" else self.target
        token_ids = self.encode_source(text) if side == "input" else tokenizer.encode(text)
        unknown = tuple(index for index, token in enumerate(token_ids) if token == UNK_ID)
        return Tokenization(tuple(tokenizer.convert_ids_to_tokens(token_ids)), unknown, self.max_length)

    @overload
    def translate(self, texts: str, *, replace_unknown: bool = False, **options: Any) -> str: ...
    @overload
    def translate(self, texts: list[str], *, replace_unknown: bool = False, **options: Any) -> list[str]: ...

    def translate(self, texts: str | list[str], *, replace_unknown: bool = False, **options: Any) -> str | list[str]:
        """The best translation of each text.

        Args:
            texts: one text or a list
            replace_unknown: replace unknown words by the source words that they attend to
            options: fields of `DecodingConfig`
        """
        inputs = [texts] if isinstance(texts, str) else list(texts)
        best = [hypotheses[:1] for hypotheses in self.search(inputs, self.decoding_config(**options))]
        predictions = self.make_predictions(inputs, best, TranslateOptions(replace_unknown=replace_unknown))
        translations = [prediction.text for prediction in predictions]
        return translations[0] if isinstance(texts, str) else translations

    def to_text(self, hypothesis: Hypothesis | None) -> str:
        """The text of a hypothesis."""
        return "" if hypothesis is None else self.target.decode(hypothesis.token_ids)

    def search(
        self, texts: Sequence[str], options: DecodingConfig | None = None, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each text, best first; none for an empty text."""
        model, options, encoded = self.model, options or self.decoding_config(), self.encode(texts)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if isinstance(model, InferenceEngine):
            return _fill_rows(len(texts), rows, model.search([encoded[row] for row in rows], options, generator))
        # Sampling depends on the order of the batches, and GPUs have one queue.
        is_sequential = options.method == "sample" or self.device.type != "cpu"
        width = options.beam_size if options.method == "beam" else options.num_best
        num_threads = 1 if is_sequential else torch.get_num_threads()
        lengths = [len(token_ids) for token_ids in encoded]
        batches = list(group_by_length(rows, lengths, max(1, MAX_BATCH_TOKENS // width), num_threads))

        def decode_batch(batch: list[int]) -> list[list[Hypothesis]]:
            return decoding.decode(model, *self.pad([encoded[row] for row in batch]), options, generator=generator)

        parallel = not is_sequential and len(batches) > 1
        hypotheses = map_in_threads(decode_batch, batches) if parallel else map(decode_batch, batches)
        return _fill_rows(len(texts), chain.from_iterable(batches), chain.from_iterable(hypotheses))

    def with_model(self, model: InferenceEngine) -> Translator:
        """The same translator with another engine."""
        return Translator(model, self.processor, self.config)

    def search_with_trace(
        self, text: str, options: DecodingConfig | None = None
    ) -> tuple[list[Hypothesis], SearchTrace]:
        """The hypotheses of a text with the search: every candidate, its score and its parent."""
        encoded = self.encode([text])
        if not text.strip():
            return [], SearchTrace(())
        return decoding.decode_with_trace(self.model, *self.pad(encoded), options or self.decoding_config())[0]


def _fill_rows(num_rows: int, rows: Iterable[int], hypotheses: Iterable[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """The hypotheses of all rows, of which only some were searched; the others have none."""
    searched = dict(zip(rows, hypotheses, strict=True))
    return [searched.get(row, []) for row in range(num_rows)]


def check_head(layer: int | None, head: int | None, counts: Sequence[int]) -> None:
    """Refuse a layer or a head that a model does not have.

    Args:
        layer, head: counted from 0; None: all
        counts: how many layers and heads there are
    """
    for name, number, count in zip(("layer", "head"), (layer, head), counts, strict=True):
        if number is not None and number >= count:
            raise UnknownNameError(f"no {name} {number}: this model has {count}, counted from 0")


def _make_aligned_text(alignment: Alignment, options: AlignOptions, text: str, log_prob: float | None) -> AlignedText:
    for name, count in zip(("layer", "head"), alignment.weights.shape, strict=False):
        value = getattr(options, name)
        if value is not None and value >= count:
            raise options.option(name).error(value, f"this model has {count} {name}s, counted from 0")
    words = alignment.select_head(options.layer, options.head).merge_words()
    links = alignment.links(options.layer, options.head, options.method, options.threshold)
    weights = tuple(tuple(round(weight, 6) for weight in row) for row in words.weights[0, 0].tolist())
    return AlignedText(text, log_prob, tuple(words.source), tuple(words.target), weights, tuple(sorted(links)))
