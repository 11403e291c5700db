"""Text generation with a decoder and fill-mask with an encoder: data, tokenizers, batches and networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from regard.data import Tokenizer
from regard.data.passages import PassageBatches, PlainTextFiles, TextBatch
from regard.data.segmentation import SPLITTERS
from regard.errors import ConfigError
from regard.models.hybrid_encoder import ConvLayer, HybridEncoder, RNNLayer, SelfAttentionLayer
from regard.models.language_models import CausalLM, MaskedLM
from regard.tasks.datasets import EvalBatches, describe_reports, split_files
from regard.tasks.language_modeling.config import FillMaskConfig, LanguageModelingConfig, TextGenerationConfig
from regard.tasks.language_modeling.loss import causal_lm_loss, masked_token_loss
from regard.tasks.language_modeling.predictor import FillMask, TextGenerator, make_eval_batches, make_passages
from regard.tasks.predictor import Metric
from regard.tasks.task import DataSplits, LossFn, Task, TokenizerProcessor
from regard.tasks.text_classification.config import TextClassificationConfig
from regard.training import BatchSource, Loss

__all__ = [
    "FillMaskProcessor", "FillMaskTask", "TextGenerationProcessor", "TextGenerationTask", "build_encoder",
    "from_files",
]  # fmt: skip

ConfigT = TypeVar("ConfigT", bound=LanguageModelingConfig)
ProcessorT = TypeVar("ProcessorT", bound=TokenizerProcessor)

LOSS = Metric("loss", "loss, nats per token", lower_is_better=True, format=".4f")
PERPLEXITY = Metric("perplexity", "perplexity", lower_is_better=True, format=",.2f")


def from_files(config: LanguageModelingConfig) -> DataSplits[str]:
    """The files in the options of the config; without validation files, every twentieth document is held out.

    Args:
        config: the files and the separator of their documents
    """
    if not config.train_files:
        raise ConfigError("the recipe needs text to train on: --train a.txt, which may be compressed (.gz, .xz)")
    return split_files(config, lambda paths: PlainTextFiles(paths, config.document_separator))


@dataclass(frozen=True)
class TextGenerationProcessor(TokenizerProcessor):
    """What a text generator needs in addition to its weights.

    Args:
        tokenizer: the tokens
    """

    def preprocess(self, text: str) -> str:
        """The text itself."""
        return text


@dataclass(frozen=True)
class FillMaskProcessor(TokenizerProcessor):
    """What a masked language model needs in addition to its weights.

    Args:
        tokenizer: the words
        unit: unit of a text, word or char
    """

    unit: Literal["word", "char"] = "word"

    def preprocess(self, text: str) -> str:
        """The text with spaces between all words or characters, as text classification splits them."""
        return " ".join(SPLITTERS[self.unit](text))


class _LanguageModelingTask(Task[ConfigT, ProcessorT, str, Any]):
    """What both tasks share."""

    def validate(self, config: ConfigT, data: DataSplits[str]) -> None:
        """Refuse sizes that do not go together."""
        with torch.device("meta"):
            self._build(config, 8)

    def build_model(self, config: ConfigT, processor: ProcessorT) -> nn.Module:
        """The network over the vocabulary of the processor."""
        return self._build(config, len(processor.tokenizer))

    @abstractmethod
    def _build(self, config: ConfigT, vocab_size: int) -> nn.Module:
        """The network over a vocabulary of this size."""

    def train_batches(self, config: ConfigT, processor: ProcessorT, examples: Any) -> PassageBatches:
        """Passages in random order, in batches of similar length."""
        return make_passages(examples, processor, config)

    def eval_batches(self, config: ConfigT, processor: ProcessorT, examples: Iterable[str]) -> EvalBatches[Any]:
        """Every passage once."""
        return make_eval_batches(examples, processor, config)

    def compute_metrics(self, predictor: Any, loss: LossFn, batches: Any, examples: Any) -> dict[str, float]:
        """Those of an evaluation."""
        return predictor.compute_metrics(batches)

    def describe_data(self, config: ConfigT, batches: BatchSource, valid: Any) -> dict[str, Any]:
        """What was read, and whether validation documents were held out."""
        return describe_reports(config, batches, valid, "document")


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
        names = ("embed_dim", "num_heads", "num_layers", "ffn_dim", "dropout")
        return CausalLM(vocab_size, **config.select(*names))

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        """The cross entropy of each token given those before it, summed."""
        return causal_lm_loss(model, batch)


LAYER_TYPES: dict[str, Callable[[Any], nn.Module]] = {
    "attention": lambda config: SelfAttentionLayer(
        config.embed_dim, **config.select("num_heads", "ffn_dim", "dropout")
    ),
    "cnn": lambda config: ConvLayer(config.embed_dim, dropout=config.dropout),
    "gru": lambda config: RNNLayer(config.embed_dim, rnn_type=nn.GRU, dropout=config.dropout),
    "lstm": lambda config: RNNLayer(config.embed_dim, rnn_type=nn.LSTM, dropout=config.dropout),
}


def build_encoder(config: FillMaskConfig | TextClassificationConfig, vocab_size: int) -> HybridEncoder:
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
        texts = (" ".join(SPLITTERS[config.tokenizer](text)) for text in data.train)
        tokenizer = Tokenizer.train(texts, "word", config.vocab_size, lowercase=config.lowercase)
        return FillMaskProcessor(tokenizer, config.tokenizer)

    def _build(self, config: FillMaskConfig, vocab_size: int) -> MaskedLM:
        return MaskedLM(build_encoder(config, vocab_size + 1))  # the last is the mask

    def build_loss(self, config: FillMaskConfig) -> LossFn:
        """The cross entropy of masked words, summed."""
        return partial(masked_token_loss, mask_prob=config.mask_prob)
