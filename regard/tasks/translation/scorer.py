"""What a translation model says of given translations: log-probabilities, alignments, words to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

import torch
from torch import Tensor

from regard.data import SentencePair
from regard.data.tokenizer import pad_rows
from regard.data.vocabulary import BOS_ID, EOS_ID, UNK_ID
from regard.decoding import Alignment, Hypothesis, replace_unknown, score_targets
from regard.errors import UnsupportedError, UsageError
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks.abilities import Alignable, AlignedText, AlignOptions, Scorable, ScoredTarget
from regard.tasks.predictor import Predictor
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.inference import InferenceEngine, group_by_length
from regard.tasks.translation.prediction import Translation, too_long_error
from regard.tasks.translation.processor import TokenizedText, TranslationProcessor, make_alignment
from regard.training.weights import retain_freed_memory

__all__ = ["MAX_BATCH_TOKENS", "TranslationScorer"]

WeightsFn = Callable[[Tensor, Tensor, Tensor], list[Tensor]]  # of source, lengths and target: the weights of each layer
MAX_BATCH_TOKENS = 16_000  # on all beams of a batch; larger ones are not faster on a CPU
NUM_KEPT_TEXTS = 1024  # a server checks a text before it translates it


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
        self._encode_text = lru_cache(NUM_KEPT_TEXTS)(lambda text: tuple(self.source.encode(self.clean(text))))

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
        for row, token_ids in enumerate(encoded):
            if len(token_ids) > self.max_length + 1:
                raise too_long_error(row, len(token_ids) - 1, self.max_length)
        return encoded

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
        return TokenizedText.from_text(self.source, self.clean(text), spaced, self.encode_source(text))

    def replace_unknown(self, token_ids: Sequence[int], alignment: Alignment) -> str:
        """The text of a translation, its unknown words replaced by the source words that they attend to."""
        unknown = {place for place, number in enumerate(token_ids) if number == UNK_ID}
        replacements: dict[int, str] = {}
        for word, group in zip(replace_unknown(alignment, unknown), alignment.groups("target"), strict=True):
            if not unknown.isdisjoint(group):
                replacements |= {**dict.fromkeys(group, ""), group[0]: word}
        return self.target.decode(token_ids, replacements)

    def _forced_batches(
        self, sources: Sequence[str], targets: Sequence[list[int]]
    ) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
        """Batches of sources and given targets."""
        if len(sources) != len(targets):
            raise UsageError(f"there are {len(sources)} sources, but {len(targets)} translations of them")
        encoded = self.encode(sources)
        wanted = [[BOS_ID, *numbers, EOS_ID] for numbers in targets]
        longest = [max(len(a), len(b)) for a, b in zip(encoded, wanted, strict=True)]
        for group in group_by_length(list(range(len(sources))), longest, MAX_BATCH_TOKENS):
            source, lengths = pad_rows([encoded[row] for row in group])
            target, _ = pad_rows([wanted[row] for row in group])
            yield group, source.to(self.device), lengths.to(self.device), target.to(self.device)


def _require_lists(name: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse a text, whose characters would be taken for texts."""
    if isinstance(sources, str) or isinstance(targets, str):
        raise TypeError(f"{name} takes two lists of texts; for one pair, {name}([source], [target])")
