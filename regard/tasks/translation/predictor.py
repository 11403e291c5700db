"""A trained translator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from regard.data import SentencePair
from regard.data.tokenizer import pad_rows
from regard.data.vocabulary import UNK_ID
from regard.decoding import (
    Alignment,
    DecodingConfig,
    GoldAlignment,
    Hypothesis,
    SearchTrace,
    decode,
    decode_with_trace,
    parse_gold,
)
from regard.decoding.streaming import ObservedModel, iterate_emitted
from regard.tasks.abilities import Tokenizable, Tokenization
from regard.tasks.predictor import Explanation, InputField, Report
from regard.tasks.task import LazyExamples
from regard.tasks.translation.config import EvaluateOptions, ExplainOptions, TranslateOptions
from regard.tasks.translation.inference import InferenceEngine, group_by_length, map_in_threads, warm_up
from regard.tasks.translation.prediction import Translation, check_head, too_long_error
from regard.tasks.translation.scorer import MAX_BATCH_TOKENS, TranslationScorer

__all__ = ["Translation", "Translator", "too_long_error"]


class Translator(TranslationScorer, Tokenizable):
    """A model with its tokenizers. `regard.load(run)` returns one.

    `config.beam_size` and `config.length_penalty` are how it translates unless other options are given.

    Args:
        model: the network, or an engine that computes an exported one
        processor: the tokenizers
        config: the config of the training
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
        if options.gold_alignments is None:
            return None
        from regard.data.text_files import read_lines

        path = options.gold_alignments
        return {"gold_alignments": LazyExamples(lambda: parse_gold(read_lines(Path(path)), path))}

    def check(self, inputs: Sequence[str]) -> None:
        """Raise InputTooLongError for a text with more tokens than the model was trained for."""
        self.encode(inputs)

    def predict(self, inputs: Sequence[str], options: TranslateOptions | None = None) -> list[Translation]:
        """One translation of each text, in order."""
        options = options or TranslateOptions()
        decoding, encoded = options.decoding_config(self), self.encode(inputs)
        if options.trace:
            both = [self.search_with_trace(text, decoding) for text in inputs]
            found, traces = [best for best, _ in both], [trace for _, trace in both]
        else:
            generator = options.make_generator(self.device)
            found, traces = self._search(inputs, encoded, decoding, generator), []
        predictions = self.make_predictions(inputs, found, options, [len(ids) - 1 for ids in encoded])
        if not options.trace:
            return predictions
        names = self.target.convert_ids_to_tokens
        steps = (trace.to_json(lambda token: names([token])[0])["steps"] for trace in traces)
        return [replace(one, search=tuple(some)) for one, some in zip(predictions, steps, strict=True)]

    def make_predictions(
        self,
        inputs: Sequence[str],
        found: Sequence[Sequence[Hypothesis]],
        options: TranslateOptions,
        num_source_tokens: Sequence[int] | None = None,
    ) -> list[Translation]:
        """The predictions of hypotheses that were found.

        Args:
            inputs: source texts
            found: the hypotheses of each text, best first
            options: whether to align and to replace unknown words
            num_source_tokens: tokens of each source text, if they were counted
        """
        flat = [(text, one) for text, best in zip(inputs, found, strict=True) for one in best]
        copies = options.replace_unknown and self.has_attention
        chosen = [i for i, (_, one) in enumerate(flat) if options.align or (copies and UNK_ID in one.token_ids)]
        aligned = self.align_token_ids([flat[i][0] for i in chosen], [flat[i][1].token_ids for i in chosen])
        alignments = dict(zip(chosen, aligned, strict=True))
        made = (self._make_prediction(one, alignments.get(i), options) for i, (_, one) in enumerate(flat))
        results = []
        for best, count in zip(found, num_source_tokens or [0] * len(found), strict=True):
            first, *others = [next(made) for _ in best] or [Translation("", 0.0)]
            results.append(replace(first, alternatives=tuple(others), num_source_tokens=count))
        return results

    def _make_prediction(
        self, hypothesis: Hypothesis, alignment: Alignment | None, options: TranslateOptions
    ) -> Translation:
        text = self.to_text(hypothesis)
        if options.replace_unknown and alignment is not None:
            text = self.replace_unknown(hypothesis.token_ids, alignment)
        if options.align and alignment is not None:
            check_head(options.layer, options.head, alignment.weights.shape[:2])
            if options.layer is not None or options.head is not None:
                alignment = alignment.select_head(options.layer, options.head)
        return Translation(
            text,
            hypothesis.score,
            hypothesis.log_prob,
            tuple(self.target.convert_ids_to_tokens(hypothesis.token_ids)),
            tuple(hypothesis.token_log_probs),
            hypothesis.finished,
            alignment=alignment.to_json() if options.align and alignment is not None else None,
            token_ids=tuple(hypothesis.token_ids),
        )

    def evaluate(
        self, examples: Iterable[SentencePair | GoldAlignment], options: EvaluateOptions | None = None
    ) -> Report:
        """Exact matches, BLEU, chrF and, if the pairs have gold links, the alignment error rate."""
        from regard.tasks.translation.evaluation import make_gold_report, make_report

        options = options or EvaluateOptions()
        pairs: list[Any] = list(examples)
        if pairs and isinstance(pairs[0], GoldAlignment):
            return make_gold_report(self, pairs)
        return make_report(self, pairs, options.decoding_config(self), options.bleu_tokenizer)

    def explain(self, input: str, options: ExplainOptions | None = None) -> Explanation:
        """A translation with its search, its alignment and how much it depends on the weights."""
        from regard.tasks.translation.explanation import explain

        options = options or ExplainOptions()
        return explain(self, input, options.target, options.decoding_config(self), view=options)

    def stream(self, input: str, options: TranslateOptions | None = None) -> Iterator[Translation]:
        """Ever longer translations, greedy or sampled; a beam search returns the complete one only."""
        options = options or TranslateOptions()
        yield from iterate_emitted(lambda emit: self.stream_batch([input], options, lambda row, one: emit(one)))

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
        decoding = options.decoding_config(self)
        takes_steps = not isinstance(self.model, InferenceEngine) or self.model.takes_steps
        rows = [row for row, text in enumerate(inputs) if text.strip()]
        if decoding.method == "beam" or not takes_steps or options.num_best > 1 or not rows:
            return self.predict(inputs, options)
        encoded, token_ids = self.encode(inputs), [list[int]() for _ in rows]

        def report(row: int, token: int) -> None:
            token_ids[row].append(token)
            tokens = tuple(self.target.convert_ids_to_tokens(token_ids[row]))
            ids = tuple(token_ids[row])
            partial = Translation(self.target.decode(ids), 0.0, tokens=tokens, finished=False, token_ids=ids)
            emit(rows[row], partial)

        source, lengths = (part.to(self.device) for part in pad_rows([encoded[row] for row in rows]))
        model, generator = ObservedModel(self.model, len(rows), report), options.make_generator(self.device)
        found = [list[Hypothesis]() for _ in inputs]
        for row, best in zip(rows, decode(model, source, lengths, decoding, generator=generator), strict=True):
            found[row] = best
        return self.make_predictions(inputs, found, options, [len(ids) - 1 for ids in encoded])

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

    def num_candidates(self, options: TranslateOptions | ExplainOptions) -> int:
        """Hypotheses that are kept side by side."""
        return options.num_candidates(self.config.beam_size)

    def warm_up(self, batch_size: int) -> None:
        """Translate random texts; see `warm_up`."""
        warm_up(self, batch_size)

    def tokenize(self, text: str, side: Literal["input", "target"] = "input") -> Tokenization:
        """The tokens of a source text or of a translation."""
        tokenizer = self.source if side == "input" else self.target
        token_ids = self.encode_source(text) if side == "input" else tokenizer.encode(text)
        unknown = tuple(index for index, token in enumerate(token_ids) if token == UNK_ID)
        return Tokenization(tuple(tokenizer.convert_ids_to_tokens(token_ids)), unknown, self.max_length)

    def decoding_config(self, **options: Any) -> DecodingConfig:
        """The options of a search: those of the run, with changes.

        Args:
            options: fields of `DecodingConfig`; None: as in the run
        """
        values: dict[str, Any] = {
            "beam_size": self.config.beam_size,
            "length_penalty": self.config.length_penalty,
            "max_length": self.max_length + 1,  # with the end of the sentence
        }
        values |= {name: value for name, value in options.items() if value is not None}
        if "method" not in values:
            values["method"] = "greedy" if values["beam_size"] == 1 and values.get("num_best", 1) == 1 else "beam"
        return DecodingConfig(**values)

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
        found = [best[:1] for best in self.search(inputs, self.decoding_config(**options))]
        chosen = TranslateOptions(replace_unknown=replace_unknown)
        answers = [one.text for one in self.make_predictions(inputs, found, chosen)]
        return answers[0] if isinstance(texts, str) else answers

    def to_text(self, hypothesis: Hypothesis | None) -> str:
        """The text of a hypothesis."""
        return "" if hypothesis is None else self.target.decode(hypothesis.token_ids)

    def search(
        self, texts: Sequence[str], options: DecodingConfig | None = None, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each text, best first; none for an empty text."""
        return self._search(texts, self.encode(texts), options or self.decoding_config(), generator)

    def _search(
        self,
        texts: Sequence[str],
        encoded: Sequence[list[int]],
        options: DecodingConfig,
        generator: torch.Generator | None,
    ) -> list[list[Hypothesis]]:
        if isinstance(self.model, InferenceEngine):
            return self._search_with_engine(self.model, texts, encoded, options, generator)
        model, found = self.model, [list[Hypothesis]() for _ in texts]

        def searched(batch: tuple[list[int], Tensor, Tensor]) -> None:
            rows, source, lengths = batch
            for row, several in zip(rows, decode(model, source, lengths, options, generator=generator), strict=True):
                found[row] = several

        batches = self._iter_batches(texts, encoded, options)
        if _must_run_sequentially(options, self.device):
            for batch in batches:
                searched(batch)
        else:
            map_in_threads(searched, batches)
        return found

    def with_model(self, model: InferenceEngine) -> Translator:
        """The same translator with another engine."""
        return Translator(model, self.processor, self.config)

    def _search_with_engine(
        self,
        engine: InferenceEngine,
        texts: Sequence[str],
        encoded: Sequence[list[int]],
        options: DecodingConfig,
        generator: torch.Generator | None,
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in texts]
        rows = [row for row, text in enumerate(texts) if text.strip()]
        best = engine.search([encoded[row] for row in rows], options, generator)
        for row, several in zip(rows, best, strict=True):
            found[row] = several
        return found

    def search_with_trace(
        self, text: str, options: DecodingConfig | None = None
    ) -> tuple[list[Hypothesis], SearchTrace]:
        """The hypotheses of a text with the search: every candidate, its score and its parent."""
        options = options or self.decoding_config()
        for _, source, lengths in self._iter_batches([text], self.encode([text]), options):
            return decode_with_trace(self.model, source, lengths, options)[0]
        return [], SearchTrace(())

    def _iter_batches(
        self, texts: Sequence[str], encoded: Sequence[list[int]], options: DecodingConfig
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Batches of texts of similar length; empty texts are left out."""
        width = options.beam_size if options.method == "beam" else options.num_best
        rows = [row for row, text in enumerate(texts) if text.strip()]
        together = 1 if _must_run_sequentially(options, self.device) else torch.get_num_threads()
        for group in group_by_length(
            rows, [len(numbers) for numbers in encoded], max(1, MAX_BATCH_TOKENS // width), together
        ):
            source, lengths = pad_rows([encoded[row] for row in group])
            yield group, source.to(self.device), lengths.to(self.device)


def _must_run_sequentially(options: DecodingConfig, device: torch.device) -> bool:
    """Whether batches are searched one after another: sampling depends on their order, and GPUs have one queue."""
    return options.method == "sample" or device.type != "cpu"
