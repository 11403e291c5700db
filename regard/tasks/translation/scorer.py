"""What a translation model says of given translations: log-probabilities, alignments, words to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from torch import Tensor

from regard.data import SentencePair
from regard.data.tokenizer import Tokenizer, pad_rows
from regard.data.vocabulary import BOS_ID, EOS_ID, UNK_ID
from regard.decoding import Alignment, DecodingConfig, Hypothesis, replace_unknown, score_targets
from regard.errors import InputTooLongError, UnsupportedError, UsageError
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks.abilities import Alignable, Scorable, ScoredTarget
from regard.tasks.predictor import Prediction, Predictor
from regard.tasks.translation.config import SearchOptions, TranslateOptions, TranslationConfig
from regard.tasks.translation.inference import InferenceEngine
from regard.training.weights import retain_freed_memory

if TYPE_CHECKING:
    from regard.tasks.translation.task import TranslationProcessor

__all__ = ["CANNOT_ALIGN", "MAX_BATCH_TOKENS", "Translation", "TranslationScorer", "group_by_length"]

ResultT = TypeVar("ResultT")
Target = str | list[int]  # a text, or token ids
WeightsFn = Callable[[Tensor, Tensor, Tensor], list[Tensor]]  # of source, lengths and target: the weights of each layer
MAX_BATCH_TOKENS = 16_000  # on all beams of a batch; larger ones are not faster on a CPU
CANNOT_ALIGN = "this model has no attention to align by; train one with attention_scope=global"
MIN_THREAD_LOAD = 10  # with less than a tenth of a batch for each thread, one batch with all threads is faster
TEXT_CACHE_SIZE = 1024  # a server checks a text before it translates it
SEARCH_CACHE_SIZE = 64  # requests to a server repeat the options of a search


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
        ranked = (self, *self.alternatives) if self.alternatives else ()
        lines = [f"{number}\t{one.score:.4f}\t{one.text}" for one in ranked] or [self.text]
        if self.alignment is not None and self.alignment["source_words"] and self.alignment["target_words"]:
            from regard.viewing.terminal import heatmap

            weights = torch.tensor(self.alignment["word_weights"]).mean((0, 1))
            lines += [*heatmap(weights, self.alignment["target_words"], self.alignment["source_words"]).split("\n"), ""]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        names = ("text", "score", "log_prob", "tokens", "token_ids", "token_log_probs", "finished")
        plain = {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in names}
        if self.alternatives:
            plain["alternatives"] = [one.to_json() for one in self.alternatives]
        if self.alignment is not None:
            plain["alignment"] = self.alignment
        return plain | ({} if self.search is None else {"search": list(self.search)})


class TranslationScorer(Predictor[str, SentencePair, Translation], Scorable, Alignable):
    """A translation model with its tokenizers, applied to given translations by teacher forcing.

    Args:
        model: the network, or an engine that computes an exported one
        processor: the tokenizers
        config: the config of the training
    """

    model: RNNSeq2Seq | Transformer | InferenceEngine
    processor: TranslationProcessor
    config: TranslationConfig

    def __init__(self, model: Any, processor: TranslationProcessor, config: TranslationConfig):
        retain_freed_memory()  # a step needs again what the last one freed
        super().__init__(model, processor, config)
        self.source, self.target = processor.source, processor.target
        self.max_length = config.max_length
        self.clean = processor.clean
        self.unaligned_words = frozenset(processor.unaligned_words)
        self._encode_text = lru_cache(TEXT_CACHE_SIZE)(lambda text: tuple(self.source.encode(self.clean(text))))
        self.search_config = lru_cache(SEARCH_CACHE_SIZE)(self._make_search_config)

    @property
    def device(self) -> torch.device:
        return self.model.device if isinstance(self.model, InferenceEngine) else self.model.lm_head.weight.device

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

    def encode_source(self, text: str) -> list[int]:
        """The tokens of a source text, without EOS and of any number.

        Args:
            text: a source text
        """
        return list(self._encode_text(text))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of source texts with EOS, encoded once for recent texts.

        Args:
            texts: source texts

        Raises:
            InputTooLongError: a text has more tokens than the model takes
        """
        encoded = [[*self.encode_source(text), EOS_ID] for text in texts]
        for row, length in enumerate(len(token_ids) - 1 for token_ids in encoded):
            if length > (limit := self.max_length):
                why = f"the text has {length:,} tokens, but this model takes {limit:,} (max_length); split it"
                raise InputTooLongError(why, row=row, length=length, limit=limit)
        return encoded

    def pad(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Tokens and lengths as tensors on the device of the model.

        Args:
            rows: token ids
        """
        tokens, lengths = pad_rows(rows)
        return tokens.to(self.device), lengths.to(self.device)

    def decoding_config(self, **options: Any) -> DecodingConfig:
        """The options of a search: those of the run, with changes.

        Args:
            options: fields of `DecodingConfig`; None: as in the run
        """
        return DecodingConfig.of_run(self.config, **options)

    def num_candidates(self, options: SearchOptions) -> int:
        """Hypotheses that are kept side by side."""
        beam_size = options.beam_size or self.config.beam_size
        if not isinstance(options, TranslateOptions):
            return beam_size
        return options.num_best if options.sample else max(options.num_best, beam_size)

    def _make_search_config(self, options: SearchOptions) -> DecodingConfig:
        """The options of a search or of sampling; None: as in the run."""
        beam_size = options.beam_size or self.num_candidates(options)
        if options.coverage_penalty and beam_size == 1:
            raise options.error("coverage_penalty", "needs beam_size=2 or more")
        names = ("num_best", "length_penalty", "coverage_penalty", "temperature", "top_k", "top_p")
        values = {name: getattr(options, name, None) for name in names}
        if isinstance(options, TranslateOptions) and options.sample:
            return self.decoding_config(method="sample", **values)
        return self.decoding_config(beam_size=beam_size, **values)

    def score(self, inputs: Sequence[str], targets: Sequence[str]) -> list[ScoredTarget]:
        """The log-probability of given translations, by token."""
        _require_lists("score", inputs, targets)
        results = []
        for one in self.score_token_ids(inputs, [self.target.encode(text) for text in targets]):
            tokens = self.target.convert_ids_to_tokens([*one.token_ids, EOS_ID])[: one.length]
            results.append(ScoredTarget(one.log_prob, tuple(tokens), tuple(one.token_log_probs), tuple(one.token_ids)))
        return results

    def score_token_ids(self, sources: Sequence[str], ids: Sequence[list[int]]) -> list[Hypothesis]:
        """As `score`, for translations given as token ids."""

        def score(source: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> list[Hypothesis]:
            return score_targets(self.torch_model, source, lengths, target, target_lengths, self.decoding_config())

        return self._map_batches(score, sources, ids)

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
        return self._align_with(self.model.attention_weights, source, target, spaced)

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
        return self._align_with(network.posterior_alignment, sources, targets, spaced)

    def align_token_ids(self, sources: Sequence[str], targets: Sequence[list[int]]) -> list[Alignment]:
        """As `align`, for translations given as token ids."""
        return self._align_with(self.model.attention_weights, sources, targets)

    def _align_with(
        self, weights_fn: WeightsFn, sources: Sequence[str], targets: Sequence[Target], spaced: bool | None = None
    ) -> list[Alignment]:
        """The alignment of each pair by the weights of a function, the ends of sentences included."""

        @torch.no_grad()
        def compute(source: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> list[Tensor]:
            if not (layers := weights_fn(source, lengths, target)):
                raise UnsupportedError(CANNOT_ALIGN)
            sizes = zip((target_lengths - 1).tolist(), lengths.tolist(), strict=True)
            rows = zip(torch.stack(layers, 1).cpu(), sizes, strict=True)
            return [weights[:, :, :tgt_len, :src_len].clone() for weights, (tgt_len, src_len) in rows]

        ids = [self.target.encode(target) if isinstance(target, str) else target for target in targets]
        weights = self._map_batches(compute, sources, ids)
        return [self._make_alignment(*part, spaced) for part in zip(sources, targets, ids, weights, strict=True)]

    def _make_alignment(
        self, source: str, target: str | Sequence[int], ids: Sequence[int], weights: Tensor, spaced: bool | None = None
    ) -> Alignment:
        """The alignment of two sentences; words of a text read as there, those of token ids as they are decoded."""
        sides = _tokenize_side("source", self.source, self.clean(source), self.encode_source(source), spaced)
        return Alignment(weights=weights, **sides, **_tokenize_side("target", self.target, target, ids, spaced))

    @torch.no_grad()
    def forced_pass(
        self, source: str, token_ids: Sequence[int], target: str | None = None
    ) -> tuple[Alignment | None, Tensor | None]:
        """The alignment of a given translation, and the probabilities of each next token, from one pass.

        Args:
            source: the source text
            token_ids: the translation
            target: its text, if it was given: the words of the alignment read as there

        Returns:
            The alignment, None without attention; probabilities (target tokens, vocabulary), the end of the sentence
            included, None of an engine.
        """
        tokens, lengths = self.pad(self.encode([source]))
        target_tokens, _ = self.pad([[BOS_ID, *token_ids, EOS_ID]])
        probabilities, weights = None, list[Tensor]()
        if not isinstance(self.model, InferenceEngine):
            logits, weights = self.model.forward_with_weights(tokens, lengths, target_tokens[:, :-1])
            probabilities = logits[0].float().softmax(-1)
        elif self.has_attention:
            weights = self.model.attention_weights(tokens, lengths, target_tokens)
        if not weights:
            return None, probabilities
        return self._make_alignment(source, target or token_ids, token_ids, torch.cat(weights).cpu()), probabilities

    def replace_unknown(self, token_ids: Sequence[int], alignment: Alignment) -> str:
        """The text of a translation, its unknown words replaced by the source words that they attend to."""
        unknown = {position for position, token in enumerate(token_ids) if token == UNK_ID}
        replacements: dict[int, str] = {}
        for word, group in zip(replace_unknown(alignment, unknown), alignment.word_groups("target"), strict=True):
            if not unknown.isdisjoint(group):
                replacements |= {**dict.fromkeys(group, ""), group[0]: word}
        return self.target.decode(token_ids, replacements)

    def _map_batches(
        self, compute: Callable[..., Iterable[ResultT]], sources: Sequence[str], targets: Sequence[list[int]]
    ) -> list[ResultT]:
        """The results of a function of the tokens and lengths of sources and given targets, computed in batches."""
        if len(sources) != len(targets):
            raise UsageError(f"there are {len(sources)} sources, but {len(targets)} translations of them")
        encoded = self.encode(sources)
        complete = [[BOS_ID, *token_ids, EOS_ID] for token_ids in targets]
        longest = [max(len(a), len(b)) for a, b in zip(encoded, complete, strict=True)]
        results: dict[int, ResultT] = {}
        for rows in group_by_length(list(range(len(sources))), longest, MAX_BATCH_TOKENS):
            batch = *self.pad([encoded[row] for row in rows]), *self.pad([complete[row] for row in rows])
            results.update(zip(rows, compute(*batch), strict=True))
        return [results[row] for row in range(len(sources))]


def group_by_length(
    rows: Sequence[int], lengths: Sequence[int], max_tokens: int, num_workers: int = 1
) -> Iterator[list[int]]:
    """Group rows of similar length, the longest first, so that all groups take about as long.

    Args:
        rows: indices
        lengths: number of tokens, by index
        max_tokens: about the largest size of a group; with padding at most twice as many
        num_workers: the number of groups becomes a multiple of it if there are enough tokens

    Example:
        >>> list(group_by_length([0, 1, 2, 3], [5, 1, 4, 2], max_tokens=10))
        [[0, 2], [3, 1]]
    """
    total = sum(lengths[row] for row in rows)
    num_groups = max(1, -(-total // max_tokens))
    if MIN_THREAD_LOAD * total > num_workers * max_tokens:
        num_groups = -(-num_groups // num_workers) * num_workers
    group: list[int] = []
    num_tokens = num_complete = 0
    for row in sorted(rows, key=lambda row: -lengths[row]):
        is_full = num_tokens * num_groups >= total * (num_complete + 1)
        if group and (is_full or lengths[group[0]] * (len(group) + 1) > 2 * max_tokens):
            yield group
            group, num_complete = [], num_complete + 1
        group.append(row)
        num_tokens += lengths[row]
    if group:
        yield group


def _tokenize_side(
    name: str, tokenizer: Tokenizer, text: str | Sequence[int], token_ids: Sequence[int], spaced: bool | None
) -> dict[str, Any]:
    """The tokens, the token indices of each word, and the words as in the text, even those without a token."""
    if isinstance(text, str):
        surfaces = tokenizer.surface_forms(text)
        groups = tokenizer.group_words(token_ids, surfaces, spaces_only=spaced)
        words = ["".join(surfaces[index] for index in group) for group in groups]
        if tokenizer.model_type != "char" and len(split := text.split()) == len(words):
            words = split  # surface forms are normalized, for example lowercased
    else:
        groups = tokenizer.group_words(token_ids)
        words = [tokenizer.decode([token_ids[index] for index in group]) for group in groups]
    tokens = tuple(tokenizer.convert_ids_to_tokens([*token_ids, EOS_ID]))
    return {name: tokens, f"{name}_groups": tuple(map(tuple, groups)), f"{name}_words": tuple(words)}


def _require_lists(name: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse a text, whose characters would be taken for texts."""
    if isinstance(sources, str) or isinstance(targets, str):
        raise TypeError(f"{name} takes two lists of texts; for one pair, {name}([source], [target])")
