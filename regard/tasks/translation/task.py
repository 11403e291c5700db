"""The translation task: tokenizers, batches, models and validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.attention import MultiHead
from regard.data import DataReport, PairBatch, ParallelFiles, SentencePair, Tokenizer, pair_batches, pair_sources
from regard.data.date_formats import normalize_text
from regard.data.text_files import check_readable
from regard.errors import ConfigError, DataError, RunFormatError
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks import mechanisms
from regard.tasks.datasets import EvalBatches
from regard.tasks.sequence_loss import NextTokenLoss, ReinforceLoss
from regard.tasks.task import AnyTask, DataSplits, LossFn, Processor, Task, sum_losses
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.data import TranslationSplits
from regard.tasks.translation.evaluation import METRICS, corpus_metrics, make_bleu
from regard.tasks.translation.predictor import Translator
from regard.training import BatchSource, TrainingConfig
from regard.training.engine import CompileMode

__all__ = [
    "CLEANERS", "EvalPairs", "TranslationProcessor", "TranslationTask", "build_loss", "build_model",
    "freeze_redundant_biases",
]  # fmt: skip

# Functions that normalize a source text; a run saves the name only, so loading one runs no code of its own.
CLEANERS: dict[str, Callable[[str], str]] = {"": str, "dates": normalize_text}


@dataclass(frozen=True)
class TranslationProcessor(Processor):
    """The tokenizers of both languages.

    Args:
        source, target: tokenizers
        cleaner: name of a function in `CLEANERS`, applied to source texts
        unaligned_words: target words that have no source word
    """

    files = ("source", "target")
    source: Tokenizer
    target: Tokenizer
    cleaner: str = ""
    unaligned_words: tuple[str, ...] = ()

    @property
    def clean(self) -> Callable[[str], str]:
        """The function that normalizes a source text."""
        if self.cleaner not in CLEANERS:
            raise RunFormatError(f"this version of regard has no cleaner {self.cleaner!r}; install a newer one")
        return CLEANERS[self.cleaner]

    def describe(self) -> dict[str, Any]:
        """The sizes of the vocabularies."""
        return {"vocab_size": {"source": len(self.source), "target": len(self.target)}}


class EvalPairs(EvalBatches[PairBatch]):
    """Batches of validation pairs, with a report of the pairs that were dropped or truncated.

    Args:
        pairs: the pairs
        report: of what was read
        processor: the tokenizers
    """

    def __init__(self, pairs: list[SentencePair], report: DataReport, processor: TranslationProcessor):
        batches = pair_sources.iter_eval_batches(pairs, processor.source, processor.target)
        super().__init__((batch for batch, _ in batches), report)
        self.pairs = pairs


class TranslationTask(Task[TranslationConfig, TranslationProcessor, SentencePair, PairBatch]):
    """Translation of a text into another language or notation."""

    name = "translation"
    verb = "translate"
    config_class: ClassVar[type[TrainingConfig]] = TranslationConfig
    processor_class = TranslationProcessor
    predictor_class = Translator
    metrics = METRICS

    def validate(self, config: TranslationConfig, data: DataSplits[SentencePair]) -> None:
        """Raise an error for unreadable files, missing packages of BLEU, and options that do not fit together."""
        for file in (*config.train_files, *config.valid_files, *config.test_files):
            check_readable(Path(file))
        if config.bleu_tokenizer != "auto":
            make_bleu(config)
        with torch.device("meta"):
            build_model(config, 8, 8)

    def build_processor(self, config: TranslationConfig, data: DataSplits[SentencePair]) -> TranslationProcessor:
        """Train the tokenizers."""
        assert isinstance(data, TranslationSplits)

        def train(texts: Iterable[str], kind: str) -> Tokenizer:
            return Tokenizer.train(texts, kind, config.vocab_size, nfkc=config.nfkc, lowercase=config.lowercase)

        pairs = data.vocabulary_pairs()
        if config.shared_vocab:
            source = target = train((text for p in pairs for text in (p.source, p.target)), config.tokenizer)
        else:
            source = train((pair.source for pair in pairs), config.tokenizer)
            target = train((pair.target for pair in pairs), config.target_tokenizer or config.tokenizer)
        return TranslationProcessor(source, target, data.cleaner, data.unaligned_words)

    def inherit_processor(
        self, config: TranslationConfig, data: DataSplits[SentencePair], other: AnyTask, folder: Path
    ) -> TranslationProcessor:
        """The tokenizers of the other run."""
        assert isinstance(data, TranslationSplits)
        return replace(TranslationProcessor.load(folder), cleaner=data.cleaner, unaligned_words=data.unaligned_words)

    def build_model(self, config: TranslationConfig, processor: TranslationProcessor) -> RNNSeq2Seq | Transformer:
        """The model of a config."""
        return build_model(config, len(processor.source), len(processor.target))

    def build_loss(self, config: TranslationConfig) -> NextTokenLoss:
        """Cross entropy; with sampled attention also REINFORCE."""
        return build_loss(config)

    def train_batches(self, config: TranslationConfig, processor: TranslationProcessor, examples: Any) -> BatchSource:
        """Batches of pairs of similar length."""
        sizes = {"max_pairs": config.batch_size, "dropout": config.bpe_dropout, "seed": config.seed}
        batching = _make_batching(config, config.batch_tokens, **sizes)
        if config.streaming and not isinstance(examples, ParallelFiles):
            raise ConfigError(
                "streaming=on needs training files, but this recipe does not read its training pairs from files"
            )
        arguments = examples, processor.source, processor.target, batching
        if config.streaming:
            return pair_sources.StreamedPairs(*arguments)
        return (pair_sources.GeneratedPairs if callable(examples) else pair_sources.InMemoryPairs)(*arguments)

    def eval_batches(self, config: TranslationConfig, processor: TranslationProcessor, examples: Any) -> EvalPairs:
        """The validation pairs within the length limit, in order."""
        name = str(examples) if isinstance(examples, ParallelFiles) else "the validation pairs"
        batching = _make_batching(config, config.max_length + 1)
        encoder = pair_batches.PairEncoder(processor.source, processor.target, batching, name)
        report = encoder.make_report()
        encoded = encoder.encode_all(pair_batches.with_line_numbers(examples), report)
        pairs = [_truncate_pair(pair, config.max_length, processor) for pair, _ in encoded]
        if not pairs:
            raise DataError(f"no validation pairs are left: {report}")
        return EvalPairs(pairs, report, processor)

    def compile_mode(self, config: TranslationConfig) -> CompileMode:
        """A Transformer as a whole; the loop over the steps of an RNN is not compiled."""
        return "whole" if config.model == "transformer" else "off"

    def describe_data(
        self, config: TranslationConfig, batches: Any, valid: Iterable[PairBatch]
    ) -> dict[str, DataReport]:
        """How many pairs were read, dropped and truncated."""
        assert isinstance(valid, EvalPairs)
        return {"train": batches.compute_report(), "valid": valid.report}

    def compute_metrics(
        self, predictor: Any, loss: LossFn, batches: Iterable[PairBatch], examples: Any
    ) -> dict[str, float]:
        """Cross entropy per token without label smoothing, its exponential, and the quality of greedy translations
        if that is monitored."""
        config: TranslationConfig = predictor.config
        _, count, sums = sum_losses(predictor, loss, batches)
        metrics = {"loss": sums["nll"] / count, "perplexity": math.exp(min(sums["nll"] / count, 100.0))}
        if config.monitor in metrics:
            return metrics
        assert isinstance(batches, EvalPairs)
        greedy = predictor.decoding_config(method="greedy")
        hypotheses = predictor.search([pair.source for pair in batches.pairs], greedy)
        translations = [predictor.to_text(best[0] if best else None) for best in hypotheses]
        quality = corpus_metrics(translations, [pair.target for pair in batches.pairs], config)
        names = ("exact_match",) if config.monitor == "exact_match" else ("bleu", "chrf")
        return metrics | {name: quality[name] for name in names}


def build_loss(config: TranslationConfig) -> NextTokenLoss:
    """Cross entropy; with sampled attention also REINFORCE.

    Args:
        config: of the training
    """
    entry, _ = mechanisms.parse_mechanism("normalize", config.normalize or "softmax", mechanisms.NORMALIZERS)
    if entry.name == "Sample" and config.attention_scope != "none":
        return ReinforceLoss(config.label_smoothing, config.entropy_bonus, config.reward_discount)
    return NextTokenLoss(config.label_smoothing)


def _make_batching(config: TranslationConfig, max_tokens: int, **values: Any) -> pair_batches.BatchingConfig:
    values |= {"max_length": config.max_length, "overflow": config.overflow}
    # The options that set `max_tokens` and `overflow`, for messages.
    return pair_batches.BatchingConfig(max_tokens=max_tokens, option_names=("batch_tokens", "overflow"), **values)


def _truncate_pair(pair: SentencePair, max_length: int, processor: TranslationProcessor) -> SentencePair:
    """A pair with at most `max_length` tokens; a truncated pair has no alignment links."""
    source = processor.source.truncate(pair.source, max_length)
    target = processor.target.truncate(pair.target, max_length)
    return pair if (source, target) == (pair.source, pair.target) else SentencePair(source, target)


def build_model(config: TranslationConfig, src_vocab_size: int, tgt_vocab_size: int) -> RNNSeq2Seq | Transformer:
    """The model of a config.

    Args:
        config: of the training
        src_vocab_size, tgt_vocab_size: sizes of the vocabularies
    """
    build = _build_transformer if config.model == "transformer" else _build_rnn
    return build(config, src_vocab_size, tgt_vocab_size)


def _build_transformer(config: TranslationConfig, src_vocab_size: int, tgt_vocab_size: int) -> Transformer:
    embed_dim, num_heads = config.embed_dim, config.num_heads
    max_positions = 2 * config.max_length + 2  # a translation may be twice as long as the longest training text

    sizes = embed_dim, num_heads, max_positions
    self_attn = config.self_score or "scaled-dot", config.self_normalize, *sizes, config.positions, "self_"
    model = Transformer(
        src_vocab_size,
        tgt_vocab_size,
        num_encoder_layers=config.num_layers,
        ffn_dim=config.ffn_dim or 4 * embed_dim,
        **config.select("embed_dim", "num_heads", "dropout", "norm_first", "tie_embeddings"),
        make_self_attn=lambda: mechanisms.build_multi_head(*self_attn),
        make_cross_attn=lambda: mechanisms.build_multi_head(config.score, config.normalize, *sizes),
        make_positions=lambda: mechanisms.build_positions(config.positions, embed_dim, max_positions),
    )
    return freeze_redundant_biases(model)


def _build_rnn(config: TranslationConfig, src_vocab_size: int, tgt_vocab_size: int) -> RNNSeq2Seq:
    hidden_dim, num_directions, scope = config.hidden_dim, 1 + config.bidirectional, config.attention_scope
    encoder_dim = config.encoder_hidden_dim or hidden_dim // num_directions
    attention = None
    if scope != "none":
        score = mechanisms.build_score(config.score, hidden_dim, num_directions * encoder_dim, hidden_dim)
        normalize = mechanisms.build_normalizer(config.normalize)
        attention = mechanisms.build_attention(scope, score, normalize, hidden_dim, hidden_dim, config.window_radius)
    return RNNSeq2Seq(
        src_vocab_size,
        tgt_vocab_size,
        attention,
        encoder_hidden_dim=encoder_dim,
        tie_embeddings=config.tie_embeddings != "none",
        **config.select("embed_dim", "hidden_dim", "num_layers", "cell_type", "bidirectional", "dropout"),
        **config.select("decoder_type", "input_feeding", "init_hidden", "readout_type"),
    )


def freeze_redundant_biases(model: Transformer) -> Transformer:
    """Freeze key biases that softmax cancels; otherwise their rounding errors differ with the number of processes.

    Args:
        model: is changed and returned
    """
    for part in model.modules():
        if isinstance(part, MultiHead) and part.k_proj.bias is not None and part.is_key_bias_redundant:
            part.k_proj.bias.requires_grad_(False)
    return model
