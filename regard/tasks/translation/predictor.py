"""A trained translator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from regard.data import SentencePair
from regard.data.batching import pad_rows
from regard.data.vocabulary import BOS_ID, EOS_ID, UNK_ID
from regard.decoding import (
    Alignment,
    DecodingConfig,
    GoldAlignment,
    Hypothesis,
    SearchTrace,
    decode,
    decode_with_trace,
    parse_gold,
    replace_unknown,
    score_targets,
)
from regard.decoding.streaming import ObservedModel, iterate_emitted
from regard.errors import InputTooLongError, UnknownNameError, UnsupportedError, UsageError
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks.abilities import (
    Alignable,
    AlignedText,
    AlignOptions,
    Scorable,
    ScoredTarget,
    Tokenizable,
    Tokenization,
)
from regard.tasks.predictor import Explanation, InputField, Prediction, Predictor, Report
from regard.tasks.task import LazyExamples
from regard.tasks.translation.config import EvaluateOptions, ExplainOptions, TranslateOptions, TranslationConfig
from regard.tasks.translation.inference import InferenceEngine, group_by_length, map_in_threads, warm_up
from regard.tasks.translation.processor import TokenizedText, TranslationProcessor, make_alignment
from regard.training.engine import retain_freed_memory

__all__ = ["Translation", "Translator", "check_head", "too_long_error"]

WeightsFn = Callable[[Tensor, Tensor, Tensor], list[Tensor]]  # of source, lengths and target: the weights of each layer


MAX_BATCH_TOKENS = 16_000  # on all beams of a batch; larger ones are not faster on a CPU


def too_long_error(row: int, length: int, limit: int) -> InputTooLongError:
    """The error for a text with more tokens than the model was trained for; `row` is counted from 0."""
    return InputTooLongError(
        f"the text has {length:,} tokens, but this model takes {limit:,} (max_length); split it",
        row=row,
        length=length,
        limit=limit,
    )


def check_head(layer: int | None, head: int | None, counts: Sequence[int]) -> None:
    """Refuse a layer or a head that a model does not have.

    Args:
        layer, head: counted from 0; None: all
        counts: how many layers and heads there are
    """
    for name, number, count in zip(("layer", "head"), (layer, head), counts, strict=True):
        if number is not None and number >= count:
            raise UnknownNameError(f"no {name} {number}: this model has {count}, counted from 0")


@dataclass(frozen=True)
class Translation(Prediction):
    """A translation.

    Args:
        text: the translation; empty for an empty source
        score: its log-probability divided by the length penalty
        log_prob: its log-probability
        tokens: as the tokenizer writes them
        token_log_probs: of each token, the end of the sentence last if it is `finished`
        finished: whether the end of the sentence was reached
        alternatives: the other hypotheses, best first
        alignment: words and weights, if they were requested
        num_source_tokens: tokens of the source; 0 if they were not counted
        token_ids: the ids of `tokens`
        search: the candidates of each step, if they were requested
    """

    log_prob: float = 0.0
    tokens: tuple[str, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    finished: bool = True
    alternatives: tuple[Translation, ...] = ()
    alignment: Mapping[str, Any] | None = None
    num_source_tokens: int = 0
    token_ids: tuple[int, ...] = ()
    search: tuple[Any, ...] | None = None

    @property
    def token_counts(self) -> Mapping[str, int]:
        """The tokens of the source, and of all translations with the ends of the sentences."""
        output = sum(len(one.token_log_probs) for one in (self, *self.alternatives))
        return {"input": self.num_source_tokens, "output": output}

    def to_lines(self, number: int = 1) -> list[str]:
        """The text, or the number, score and text of each alternative; below it the alignment, if there is one."""
        several = (self, *self.alternatives) if self.alternatives else ()
        lines = [f"{number}\t{one.score:.4f}\t{one.text}" for one in several] or [self.text]
        if self.alignment is not None and self.alignment["source_words"] and self.alignment["target_words"]:
            from regard.viewing.terminal import heatmap

            weights = torch.tensor(self.alignment["word_weights"]).mean((0, 1))
            lines += [*heatmap(weights, self.alignment["target_words"], self.alignment["source_words"]).split("\n"), ""]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        plain = {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_ids": list(self.token_ids),
            "token_log_probs": list(self.token_log_probs),
            "finished": self.finished,
        }
        if self.alternatives:
            plain["alternatives"] = [one.to_json() for one in self.alternatives]
        plain |= {} if self.alignment is None else {"alignment": self.alignment}
        return plain | ({} if self.search is None else {"search": list(self.search)})


class Translator(Predictor[str, SentencePair, Translation], Scorable, Alignable, Tokenizable):
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
    model: RNNSeq2Seq | Transformer | InferenceEngine
    processor: TranslationProcessor
    config: TranslationConfig

    def __init__(
        self,
        model: RNNSeq2Seq | Transformer | InferenceEngine,
        processor: TranslationProcessor,
        config: TranslationConfig,
    ):
        retain_freed_memory()  # a step needs again what the last one freed
        super().__init__(model, processor, config)
        self.source, self.target = processor.source, processor.target
        self.max_length = config.max_length
        self.clean = processor.clean
        self.unaligned_words = frozenset(processor.unaligned_words)

    @property
    def device(self) -> torch.device:
        return self.model.device if isinstance(self.model, InferenceEngine) else self.model.lm_head.weight.device

    @property
    def engine(self) -> str:
        """What computes the model."""
        return self.model.name if isinstance(self.model, InferenceEngine) else "torch"

    @property
    def torch_model(self) -> RNNSeq2Seq | Transformer:
        """The PyTorch model; an engine has none."""
        if isinstance(self.model, InferenceEngine):
            raise UnsupportedError(
                f"this needs the PyTorch model, which {self.model.name} does not have; use the run it was exported from"
            )
        return self.model

    @property
    def has_attention(self) -> bool:
        """Whether there are attention weights."""
        if isinstance(self.model, InferenceEngine):
            return self.model.has_attention
        return not isinstance(self.model, RNNSeq2Seq) or self.model.attention is not None

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
        self._encode(inputs)

    def predict(self, inputs: Sequence[str], options: TranslateOptions | None = None) -> list[Translation]:
        """One translation of each text, in order."""
        options = options or TranslateOptions()
        decoding, encoded = options.decoding_config(self), self._encode(inputs)
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
        alignments: Sequence[Alignment | None] = [None] * len(flat)
        if flat and (options.align or options.replace_unknown) and (options.align or self.has_attention):
            alignments = self.align_token_ids([text for text, _ in flat], [one.token_ids for _, one in flat])
        made = (
            self._make_prediction(one, alignment, options) for (_, one), alignment in zip(flat, alignments, strict=True)
        )
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
        encoded, token_ids = self._encode(inputs), [list[int]() for _ in rows]

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
        token_ids = tokenizer.encode(self.clean(text) if side == "input" else text)
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
        found = [best[0] if best else None for best in self.search(inputs, self.decoding_config(**options))]
        answers = [self.to_text(one) for one in found]
        if replace_unknown:
            answers = self._replace_unknown(inputs, found, answers)
        return answers[0] if isinstance(texts, str) else answers

    def to_text(self, hypothesis: Hypothesis | None) -> str:
        """The text of a hypothesis."""
        return "" if hypothesis is None else self.target.decode(hypothesis.token_ids)

    def search(
        self, texts: Sequence[str], options: DecodingConfig | None = None, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each text, best first; none for an empty text."""
        return self._search(texts, self._encode(texts), options or self.decoding_config(), generator)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of source texts with EOS; InputTooLongError if there are more than the model takes."""
        encoded = [[*self.source.encode(self.clean(text)), EOS_ID] for text in texts]
        self._check_lengths(encoded)
        return encoded

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
        for _, source, lengths in self._iter_batches([text], self._encode([text]), options):
            return decode_with_trace(self.model, source, lengths, options)[0]
        return [], SearchTrace(())

    def score(self, inputs: Sequence[str], targets: Sequence[str]) -> list[ScoredTarget]:
        """The log-probability of given translations, by token."""
        _require_lists("score", inputs, targets)
        return [
            ScoredTarget(
                one.log_prob,
                tuple(self.target.convert_ids_to_tokens([*one.token_ids, EOS_ID])[: one.length]),
                tuple(one.token_log_probs),
                tuple(one.token_ids),
            )
            for one in self.score_token_ids(inputs, [self.target.encode(text) for text in targets])
        ]

    def score_token_ids(self, sources: Sequence[str], ids: Sequence[list[int]]) -> list[Hypothesis]:
        """As `score`, for translations given as token ids."""
        found: list[Any] = [None] * len(sources)
        for rows, source, lengths, target in self._forced_batches(sources, ids):
            known = torch.tensor([len(ids[row]) + 2 for row in rows], device=self.device)
            best = score_targets(self.torch_model, source, lengths, target, known, self.decoding_config())
            for row, one in zip(rows, best, strict=True):
                found[row] = one
        return found

    @overload
    def align(self, source: str, target: str, *, spaced: bool | None = None) -> Alignment: ...
    @overload
    def align(self, source: list[str], target: list[str], *, spaced: bool | None = None) -> list[Alignment]: ...

    def align(
        self, source: str | list[str], target: str | list[str], *, spaced: bool | None = None
    ) -> Alignment | list[Alignment]:
        """Align given translations by the attention weights.

        Args:
            source, target: two texts, or two lists of texts
            spaced: words are separated by spaces only, also in Chinese and Japanese, as in gold alignments
        """
        if isinstance(source, str) and isinstance(target, str):
            return self.align([source], [target], spaced=spaced)[0]
        if isinstance(source, str) or isinstance(target, str):
            raise TypeError("align takes two texts or two lists of texts, not one of each")
        return self._align_with(source, target, self.model.attention_weights, spaced)

    def align_texts(
        self, inputs: Sequence[str], targets: Sequence[str | None], options: AlignOptions | None = None
    ) -> list[AlignedText]:
        """Align texts with given translations; None stands for the best that the search finds."""
        from regard.tasks.translation.maps import align_texts

        return align_texts(self, inputs, targets, options or AlignOptions())

    @property
    def can_posterior_align(self) -> bool:
        """Whether `posterior_align` is possible: with an RNN that has attention."""
        return isinstance(self.model, RNNSeq2Seq) and self.has_attention

    def posterior_align(
        self, sources: Sequence[str], targets: Sequence[str], *, spaced: bool | None = None
    ) -> list[Alignment]:
        """Alignments by the posterior of the attention given each target word (Bayes' rule), for an RNN."""
        _require_lists("posterior_align", sources, targets)
        network = self.torch_model
        if not isinstance(network, RNNSeq2Seq):
            raise UnsupportedError("posterior_align needs one attention over the source; a Transformer has several")
        return self._align_with(sources, targets, network.posterior_alignment, spaced)

    def align_token_ids(self, sources: Sequence[str], targets: Sequence[list[int]]) -> list[Alignment]:
        """As `align`, for translations given as token ids."""
        weights = self._compute_weights(sources, targets, self.model.attention_weights)
        return [
            make_alignment(self._tokenize_source(text), TokenizedText.from_ids(self.target, ids), some)
            for text, ids, some in zip(sources, targets, weights, strict=True)
        ]

    def _align_with(
        self, sources: Sequence[str], targets: Sequence[str], weights_fn: WeightsFn, spaced: bool | None
    ) -> list[Alignment]:
        weights = self._compute_weights(sources, [self.target.encode(text) for text in targets], weights_fn)
        return [
            make_alignment(
                self._tokenize_source(text, spaced), TokenizedText.from_text(self.target, given, spaced), some
            )
            for text, given, some in zip(sources, targets, weights, strict=True)
        ]

    def _compute_weights(
        self, sources: Sequence[str], targets: Sequence[list[int]], weights_fn: WeightsFn
    ) -> list[Tensor]:
        """The weights (layers, heads, target tokens, source tokens) of each pair, the ends of sentences included."""
        found: list[Any] = [None] * len(sources)
        for rows, source, lengths, target in self._forced_batches(sources, targets):
            with torch.no_grad():
                looks = weights_fn(source, lengths, target)
            if not looks:
                raise UnsupportedError("this model has no attention to align by; train one with attention_scope=global")
            weights = torch.stack(looks, 1).cpu()
            for row, size, some in zip(rows, lengths.tolist(), weights, strict=True):
                found[row] = some[:, :, : len(targets[row]) + 1, :size].clone()
        return found

    def _tokenize_source(self, text: str, spaced: bool | None = None) -> TokenizedText:
        return TokenizedText.from_text(self.source, self.clean(text), spaced)

    def _replace_unknown(
        self, sources: Sequence[str], hypotheses: Sequence[Hypothesis | None], translations: Sequence[str]
    ) -> list[str]:
        """Replace unknown words by the source words that they attend to."""
        if not self.has_attention:
            return list(translations)
        copied, rows = (
            list(translations),
            [i for i, one in enumerate(hypotheses) if one is not None and UNK_ID in one.token_ids],
        )
        ids = [one.token_ids for one in hypotheses if one is not None and UNK_ID in one.token_ids]
        for row, numbers, seen in zip(rows, ids, self.align_token_ids([sources[i] for i in rows], ids), strict=True):
            copied[row] = self.replace_unknown(numbers, seen)
        return copied

    def replace_unknown(self, token_ids: Sequence[int], alignment: Alignment) -> str:
        """The text of a translation, its unknown words replaced by the source words that they attend to."""
        unknown = {place for place, number in enumerate(token_ids) if number == UNK_ID}
        replacements: dict[int, str] = {}
        for word, group in zip(replace_unknown(alignment, unknown), alignment.groups("target"), strict=True):
            if not unknown.isdisjoint(group):
                replacements |= {**dict.fromkeys(group, ""), group[0]: word}
        return self.target.decode(token_ids, replacements)

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

    def _forced_batches(
        self, sources: Sequence[str], targets: Sequence[list[int]]
    ) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
        """Batches of sources and given targets."""
        if len(sources) != len(targets):
            raise UsageError(f"there are {len(sources)} sources, but {len(targets)} translations of them")
        encoded = self._encode(sources)
        wanted = [[BOS_ID, *numbers, EOS_ID] for numbers in targets]
        longest = [max(len(a), len(b)) for a, b in zip(encoded, wanted, strict=True)]
        for group in group_by_length(list(range(len(sources))), longest, MAX_BATCH_TOKENS):
            source, lengths = pad_rows([encoded[row] for row in group])
            target, _ = pad_rows([wanted[row] for row in group])
            yield group, source.to(self.device), lengths.to(self.device), target.to(self.device)

    def _check_lengths(self, encoded: Sequence[Sequence[int]]) -> None:
        for row, numbers in enumerate(encoded):
            if len(numbers) > self.max_length + 1:
                raise too_long_error(row, len(numbers) - 1, self.max_length)


def _require_lists(name: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse a text, whose characters would be taken for texts."""
    if isinstance(sources, str) or isinstance(targets, str):
        raise TypeError(f"{name} takes two lists of texts; for one pair, {name}([source], [target])")


def _must_run_sequentially(options: DecodingConfig, device: torch.device) -> bool:
    """Whether batches are searched one after another: sampling depends on their order, and GPUs have one queue."""
    return options.method == "sample" or device.type != "cpu"
