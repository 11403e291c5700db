"""Text generation with a decoder and fill-mask with an encoder: data, tokenizers, batches and networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import nn

from regard.data import Tokenizer
from regard.data.passages import PassageBatches, PlainTextFiles, TextBatch
from regard.errors import ConfigError
from regard.files import write_json
from regard.models.hybrid_encoder import ConvLayer, HybridEncoder, RNNLayer, SelfAttentionLayer
from regard.models.language_models import CausalLM, MaskedLM
from regard.tasks.datasets import EvalBatches, describe_reports, held_out, not_held_out
from regard.tasks.language_modeling.config import FillMaskConfig, TextConfig, TextGenerationConfig
from regard.tasks.language_modeling.loss import MaskedTextBatch, causal_lm_loss, mask_batches, masked_token_loss
from regard.tasks.language_modeling.predictor import (
    FillMask,
    TextGenerator,
    make_passages,
    make_word_spacer,
    masked_lm_metrics,
    text_metrics,
)
from regard.tasks.predictor import Metric, Predictor
from regard.tasks.task import DataSplits, LazyExamples, Processor, Task
from regard.training import BatchSource, Loss

__all__ = [
    "FillMaskProcessor",
    "FillMaskTask",
    "StackSizes",
    "TextGenerationProcessor",
    "TextGenerationTask",
    "build_encoder",
    "from_files",
]

ConfigT = TypeVar("ConfigT", bound=TextConfig)
ProcessorT = TypeVar("ProcessorT", bound=Processor)

LOSS = Metric("loss", "loss, nats a token", lower_is_better=True, format=".4f")
PERPLEXITY = Metric("perplexity", "perplexity", lower_is_better=True, format=",.2f")


def from_files(config: TextConfig) -> DataSplits[str]:
    """The files in the options of the config; without validation files, every twentieth document is held out."""
    if not config.train_files:
        raise ConfigError("the recipe needs text to train on: --train a.txt, which may be compressed (.gz, .xz)")
    train = PlainTextFiles(config.train_files, config.document_separator)
    tests = {}
    if config.test_files:
        tests = {"test": PlainTextFiles(config.test_files, config.document_separator)}
    files = tuple(map(Path, (*config.train_files, *config.valid_files)))
    if config.valid_files:
        return DataSplits(train, PlainTextFiles(config.valid_files, config.document_separator), tests, files)
    return DataSplits(LazyExamples(lambda: not_held_out(train)), LazyExamples(lambda: held_out(train)), tests, files)


@dataclass(frozen=True)
class TextGenerationProcessor(Processor):
    """What a text generator needs beside its weights.

    Args:
        tokenizer: the tokens
    """

    tokenizer: Tokenizer

    def save(self, folder: Path) -> None:
        """Write tokenizer.json."""
        self.tokenizer.save(folder / "tokenizer.json")

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary."""
        return {"vocab_size": len(self.tokenizer)}

    @classmethod
    def load(cls, folder: Path) -> TextGenerationProcessor:
        """Read what `save` wrote."""
        return cls(Tokenizer.load(folder / "tokenizer.json"))


@dataclass(frozen=True)
class FillMaskProcessor(Processor):
    """What a masked language model needs beside its weights.

    Args:
        tokenizer: the words
        unit: unit of a text, word or char
    """

    tokenizer: Tokenizer
    unit: str = "word"

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and processor.json."""
        self.tokenizer.save(folder / "tokenizer.json")
        write_json(folder / "processor.json", {"unit": self.unit})

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary."""
        return {"vocab_size": len(self.tokenizer)}

    @classmethod
    def load(cls, folder: Path) -> FillMaskProcessor:
        """Read what `save` wrote."""
        return cls(Tokenizer.load(folder / "tokenizer.json"), **cls.read_values(folder))


class _LanguageModelingTask(Task[ConfigT, ProcessorT, str, Any], Generic[ConfigT, ProcessorT]):
    """What both tasks share."""

    def validate(self, config: ConfigT, data: DataSplits[str]) -> None:
        """Refuse sizes that do not go together."""
        with torch.device("meta"):
            self._build(config, 8)

    def build_model(self, config: ConfigT, processor: ProcessorT) -> nn.Module:
        """The network over the vocabulary of the processor."""
        return self._build(config, len(cast(Any, processor).tokenizer))

    def _build(self, config: ConfigT, vocab_size: int) -> nn.Module:
        raise NotImplementedError

    def describe_data(self, config: ConfigT, batches: BatchSource, valid: Iterable[Any]) -> Mapping[str, Any]:
        """What was read, and whether validation documents were held out."""
        return describe_reports(batches, valid, None if config.valid_files else "document")


class TextGenerationTask(_LanguageModelingTask[TextGenerationConfig, TextGenerationProcessor]):
    """From the beginning of a text to its continuation."""

    name, verb = "text-generation", "generate"
    config_class = TextGenerationConfig
    processor_class = TextGenerationProcessor
    predictor_class = TextGenerator
    metrics = (LOSS, PERPLEXITY, Metric("bits_per_character", "bits a character", lower_is_better=True, format=".4f"))

    def build_processor(self, config: TextGenerationConfig, data: DataSplits[str]) -> TextGenerationProcessor:
        """A tokenizer of the training text."""
        return TextGenerationProcessor(
            Tokenizer.train(data.train, config.tokenizer, config.vocab_size, lowercase=config.lowercase)
        )

    def _build(self, config: TextGenerationConfig, vocab_size: int) -> CausalLM:
        return CausalLM(
            vocab_size,
            embed_dim=config.embed_dim,
            num_heads=config.num_heads,
            num_layers=config.num_layers,
            ffn_dim=config.ffn_dim,
            dropout=config.dropout,
        )

    def train_batches(
        self, config: TextGenerationConfig, processor: TextGenerationProcessor, examples: Any
    ) -> PassageBatches:
        """Passages in random order, in batches of similar length."""
        return make_passages(examples, processor.tokenizer, config)

    def eval_batches(
        self, config: TextGenerationConfig, processor: TextGenerationProcessor, examples: Iterable[str]
    ) -> EvalBatches[TextBatch]:
        """Every passage once."""
        passages = make_passages(examples, processor.tokenizer, config)
        return EvalBatches(passages.iter_eval_batches(), passages.report)

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        """The cross entropy of each token given those before it, summed."""
        return causal_lm_loss(model, batch)

    def compute_metrics(
        self,
        config: TextGenerationConfig,
        predictor: Predictor[Any, Any, Any],
        loss: Callable[[nn.Module, TextBatch], Loss],
        batches: Iterable[TextBatch],
        examples: Iterable[str],
    ) -> dict[str, float]:
        """Loss, perplexity and bits a character."""
        total = 0.0
        for batch in batches:
            total += float(loss(predictor.model, batch.to(predictor.device)).total)
        assert isinstance(batches, EvalBatches)
        return text_metrics(total, batches.report)


@runtime_checkable
class StackSizes(Protocol):
    """The options of a config that `build_encoder` reads."""

    @property
    def embed_dim(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def ffn_dim(self) -> int | None: ...
    @property
    def dropout(self) -> float: ...
    @property
    def layer_types(self) -> tuple[str, ...]: ...


LAYER_TYPES: dict[str, Callable[[Any], nn.Module]] = {
    "attention": lambda config: SelfAttentionLayer(
        config.embed_dim, num_heads=config.num_heads, ffn_dim=config.ffn_dim, dropout=config.dropout
    ),
    "cnn": lambda config: ConvLayer(config.embed_dim, dropout=config.dropout),
    "gru": lambda config: RNNLayer(config.embed_dim, rnn_type=nn.GRU, dropout=config.dropout),
    "lstm": lambda config: RNNLayer(config.embed_dim, rnn_type=nn.LSTM, dropout=config.dropout),
}


def build_encoder(config: StackSizes, vocab_size: int) -> HybridEncoder:
    """A stack of layers.

    Args:
        config: the types of the layers and their sizes
        vocab_size: size of the vocabulary
    """
    known = ", ".join(LAYER_TYPES)
    if not config.layer_types:
        raise ConfigError(f"invalid value 'none' for layer_types: name one or more of {known}")
    if unknown := [name for name in config.layer_types if name not in LAYER_TYPES]:
        raise ConfigError(f"layer_types: no layer {unknown[0]!r}; the layers are {known}")
    if config.embed_dim % config.num_heads or config.embed_dim % 2:
        raise ConfigError(f"embed_dim={config.embed_dim} must be even and a multiple of num_heads={config.num_heads}")
    layers = [LAYER_TYPES[name](config) for name in config.layer_types]
    return HybridEncoder(vocab_size, config.embed_dim, layers, dropout=config.dropout)


class FillMaskTask(_LanguageModelingTask[FillMaskConfig, FillMaskProcessor]):
    """From a text with gaps to the words in them."""

    name, verb = "fill-mask", "fill"
    config_class = FillMaskConfig
    processor_class = FillMaskProcessor
    predictor_class = FillMask
    metrics = (LOSS, PERPLEXITY, Metric("accuracy", "masked words predicted, %"))

    def build_processor(self, config: FillMaskConfig, data: DataSplits[str]) -> FillMaskProcessor:
        """The most frequent words, as text classification splits them."""
        texts = map(make_word_spacer(config.tokenizer), data.train)
        tokenizer = Tokenizer.train(texts, "word", config.vocab_size, lowercase=config.lowercase)
        return FillMaskProcessor(tokenizer, config.tokenizer)

    def _build(self, config: FillMaskConfig, vocab_size: int) -> MaskedLM:
        return MaskedLM(build_encoder(config, vocab_size + 1))  # the last is the mask

    def train_batches(self, config: FillMaskConfig, processor: FillMaskProcessor, examples: Any) -> PassageBatches:
        """Passages in random order, in batches of similar length."""
        return make_passages(examples, processor.tokenizer, config, make_word_spacer(processor.unit))

    def eval_batches(
        self, config: FillMaskConfig, processor: FillMaskProcessor, examples: Iterable[str]
    ) -> EvalBatches[MaskedTextBatch]:
        """Every passage once, with masks that are always the same."""
        passages = make_passages(examples, processor.tokenizer, config, make_word_spacer(processor.unit))
        batches = passages.iter_eval_batches()
        masked = mask_batches(batches, config.mask_prob, len(processor.tokenizer))
        return EvalBatches(masked, passages.report)

    def build_loss(self, config: FillMaskConfig) -> Callable[[nn.Module, TextBatch], Loss]:
        """The cross entropy of masked words, summed."""
        return partial(masked_token_loss, mask_prob=config.mask_prob)

    def compute_metrics(
        self,
        config: FillMaskConfig,
        predictor: Predictor[Any, Any, Any],
        loss: Callable[[nn.Module, Any], Loss],
        batches: Iterable[MaskedTextBatch],
        examples: Iterable[str],
    ) -> dict[str, float]:
        """Loss, perplexity and accuracy of masked words."""
        return masked_lm_metrics(predictor, loss, batches)
