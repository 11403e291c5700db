"""The plain text of a recipe: what to train on, to choose by, and to judge by.

What the tasks of plain text have in common: a tokenizer of their own, passages, and how they run.

The task of a language model: a tokenizer, passages of text, a decoder alone, and how well it foretells.

Layers from names: "cnn,attention,gru" becomes a stack.

The task of filling in: words hidden in plain text, an encoder alone that says what they were.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from regard.data import Tokenizer
from regard.data.passages import PassageBatches, PlainTextFiles, TextBatch, mask_tokens
from regard.errors import ConfigError, DataError
from regard.models.hybrid_encoder import ConvLayer, HybridEncoder, RNNLayer, SelfAttentionLayer
from regard.models.language_models import CausalLM, MaskedLM
from regard.tasks.datasets import describe_splits, held_out, not_held_out
from regard.tasks.language_modeling.config import FillMaskConfig, TextConfig, TextGenerationConfig
from regard.tasks.language_modeling.predictor import FillMask, TextGenerator, make_word_spacer, text_metrics
from regard.tasks.legacy import Experiment, Recipe, Task
from regard.tasks.runner import build_and_load
from regard.training import Loss, RunFolder, TrainingConfig, linear_cross_entropy

LoadTexts = Callable[[], Iterable[str]]  # read when it is asked for


@dataclass(frozen=True)
class Texts:
    """Where the documents come from: to train on, to choose by, and tests by name."""

    train: LoadTexts
    valid: LoadTexts
    tests: Mapping[str, LoadTexts] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, LoadTexts]:
        """All that can be judged by, the usual one first."""
        return {**self.tests, "valid": self.valid}


def from_files(config: TextConfig) -> Texts:
    """Files that somebody names."""
    if not config.train_files:
        raise ConfigError("the recipe needs text to train on: --train a.txt, which may be packed (.gz, .xz)")
    train = PlainTextFiles(config.train_files, config.document_separator)
    tests: dict[str, LoadTexts] = {}
    if config.test_files:
        test = PlainTextFiles(config.test_files, config.document_separator)
        tests = {"test": lambda: test}
    if config.valid_files:
        valid = PlainTextFiles(config.valid_files, config.document_separator)
        return Texts(lambda: train, lambda: valid, tests)
    return Texts(lambda: not_held_out(train), lambda: held_out(train), tests)


ConfigT = TypeVar("ConfigT", bound=TextConfig)


class LanguageModelingTask(Task[ConfigT]):
    """Plain text in passages, and what is learned of it; `gives` is what uses the model."""

    predictor_class: ClassVar[type[Any]]

    @abstractmethod
    def train_tokenizer(self, texts: Texts, config: ConfigT) -> Tokenizer:
        """The tokenizer of the training text."""

    @abstractmethod
    def make_batches(self, texts: Iterable[str], tokenizer: Tokenizer, config: ConfigT) -> PassageBatches:
        """Texts as the model reads them."""

    @abstractmethod
    def objective(self, config: ConfigT, tokens: int) -> Any:
        """The network that the settings describe, over so many tokens, with its loss."""

    @abstractmethod
    def validation(self, objective: Any, valid: PassageBatches) -> Callable[[], dict[str, float]]:
        """How well it does on what was held out."""

    @abstractmethod
    def judged(self, made: Any, texts: Iterable[str]) -> dict[str, Any]:
        """The same of what `load` gave, on any texts."""

    def load_processor(self, run: RunFolder) -> Tokenizer:
        """The tokenizer that a run keeps."""
        return Tokenizer.load(run.folder / self.files[0])

    def validate(self, recipe: Recipe, config: ConfigT) -> None:
        recipe.data(config)
        with torch.device("meta"):
            self.objective(config, 8)

    def experiment(self, run: RunFolder, recipe: Recipe, config: ConfigT) -> Experiment[ConfigT]:
        tokenizer, texts = self.load_processor(run), recipe.data(config)
        data, valid = (self.make_batches(part(), tokenizer, config) for part in (texts.train, texts.valid))
        objective: nn.Module = self.objective(config, len(tokenizer))
        reports = {"train": data.report, "valid": valid.report}
        return Experiment(
            run,
            config,
            objective,
            data,
            self.validation(objective, valid),
            {"vocabulary": len(tokenizer), "data": {name: one.as_dict() for name, one in reports.items()}},
            describe_splits(reports, held=not config.valid_files),
        )

    def judge(self, recipe: Recipe, made: Any, part: str | None = None) -> dict[str, Any]:
        parts = recipe.data(made.config).parts
        chosen = part or next(iter(parts))
        return {**self.judged(made, parts[chosen]()), "part": chosen}

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: ConfigT,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Any:
        tokenizer = self.load_processor(run)
        model = build_and_load(lambda: self.objective(config, len(tokenizer)).model, weights, where)
        return self.predictor_class(model.to(device), tokenizer, config)

    def ready(self, run: RunFolder, recipe: Recipe, config: ConfigT, origin: RunFolder | None) -> None:
        """The tokenizer: learned from the text, or that of the run it begins with."""
        found = (
            self.train_tokenizer(recipe.data(config), config)
            if origin is None
            else self.load_processor(origin)
        )
        found.save(run.folder / self.files[0])


class CausalLMLoss(nn.Module):
    """The cross entropy of each token after those before it, summed over a batch."""

    def __init__(self, model: CausalLM):
        super().__init__()
        self.model = model

    def forward(self, batch: TextBatch) -> Loss:
        hidden = self.model.forward_hidden(batch.token_ids[:, :-1]).flatten(0, 1)
        words = batch.token_ids[:, 1:].flatten()
        steps = torch.arange(batch.token_ids.shape[1] - 1, device=words.device)
        real = (steps < (batch.lengths - 1)[:, None]).flatten().nonzero().squeeze(1)
        if len(real) < len(words):
            hidden, words = hidden.index_select(0, real), words.index_select(0, real)
        total, _ = linear_cross_entropy(hidden, self.model.lm_head.weight, None, words)
        return Loss(total, batch.num_tokens)


class TextGenerationTask(LanguageModelingTask[TextGenerationConfig]):
    """From a beginning to what follows."""

    config_class: ClassVar[type[TrainingConfig]] = TextGenerationConfig
    uses = ('write {run} "..."', "evaluate {run}", "info {run}")
    files = ("tokens.json",)
    predictor_class = TextGenerator

    def train_tokenizer(self, texts: Texts, config: TextGenerationConfig) -> Tokenizer:
        return Tokenizer.train(texts.train(), config.tokenizer, config.vocab_size, lowercase=config.lowercase)

    def make_batches(
        self, texts: Iterable[str], tokenizer: Tokenizer, config: TextGenerationConfig
    ) -> PassageBatches:
        return PassageBatches(
            texts, tokenizer, length=config.passage_length, max_tokens=config.batch_tokens, seed=config.seed
        )

    def objective(self, config: TextGenerationConfig, tokens: int) -> CausalLMLoss:
        return CausalLMLoss(build_causal_lm(config, tokens))

    def validation(self, objective: CausalLMLoss, valid: PassageBatches) -> TextGenerationValidation:
        return TextGenerationValidation(objective, valid)

    def judged(self, made: TextGenerator, texts: Iterable[str]) -> dict[str, Any]:
        return made.evaluate(texts)


@dataclass(frozen=True)
class TextGenerationValidation:
    """What a token of the text costs, its exponential, and the same in bits a character."""

    objective: CausalLMLoss
    valid: PassageBatches

    def __call__(self) -> dict[str, float]:
        device, total = self.objective.model.lm_head.weight.device, 0.0
        for batch in self.valid.iter_eval_batches():
            total += float(self.objective(batch.to(device)).total)
        return text_metrics(total, self.valid.report)


def build_causal_lm(config: TextGenerationConfig, vocab_size: int) -> CausalLM:
    """The network that the settings describe."""
    return CausalLM(
        vocab_size,
        embed_dim=config.embed_dim,
        num_heads=config.num_heads,
        num_layers=config.num_layers,
        ffn_dim=config.ffn_dim,
        dropout=config.dropout,
    )


@runtime_checkable
class StackSizes(Protocol):
    """The settings that say how large a stack is."""

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


LAYERS: dict[str, Callable[[Any], nn.Module]] = {
    "attention": lambda s: SelfAttentionLayer(
        s.embed_dim, num_heads=s.num_heads, ffn_dim=s.ffn_dim, dropout=s.dropout
    ),
    "cnn": lambda s: ConvLayer(s.embed_dim, dropout=s.dropout),
    "gru": lambda s: RNNLayer(s.embed_dim, rnn_type=nn.GRU, dropout=s.dropout),
    "lstm": lambda s: RNNLayer(s.embed_dim, rnn_type=nn.LSTM, dropout=s.dropout),
}


def build_encoder(config: StackSizes, vocab_size: int) -> HybridEncoder:
    """The stack that the settings describe, over a vocabulary of this size."""
    if not config.layer_types:
        raise ConfigError(f"invalid value 'none' for layer_types: name one or more of {', '.join(LAYERS)}")
    if strange := [name for name in config.layer_types if name not in LAYERS]:
        raise ConfigError(f"layer_types: no layer {strange[0]!r}; the layers are {', '.join(LAYERS)}")
    if config.embed_dim % config.num_heads or config.embed_dim % 2:
        raise ConfigError(
            f"embed_dim={config.embed_dim} must be even and a multiple of num_heads={config.num_heads}"
        )
    layers = [LAYERS[name](config) for name in config.layer_types]
    return HybridEncoder(vocab_size, config.embed_dim, layers, dropout=config.dropout)


class MaskedTokenLoss(nn.Module):
    """The cross entropy of each hidden word, summed over a batch."""

    def __init__(self, model: MaskedLM, mask_prob: float):
        super().__init__()
        self.model, self.mask_prob = model, mask_prob

    def forward(self, batch: TextBatch, generator: torch.Generator | None = None) -> Loss:
        output = self.model.lm_head
        words, asked = mask_tokens(batch, self.mask_prob, len(output.weight) - 1, generator)
        states = self.model.forward_hidden(words, batch.lengths)[asked]
        right = batch.token_ids[asked]
        total, _ = linear_cross_entropy(states, output.weight, output.bias, right)
        if self.training:
            return Loss(total, len(right))
        hits = (output(states).argmax(-1) == right).sum()
        return Loss(total, len(right), {"right": hits})


class FillMaskTask(LanguageModelingTask[FillMaskConfig]):
    """From text with gaps to the words in them."""

    config_class: ClassVar[type[TrainingConfig]] = FillMaskConfig
    uses = (
        'write {run} "Fill ___ in."',
        "train documents --init-from {run} ...",
        "evaluate {run}",
        "info {run}",
    )
    files = ("words.json",)
    predictor_class = FillMask

    def train_tokenizer(self, texts: Texts, config: FillMaskConfig) -> Tokenizer:
        """The most frequent words, as the recipes of documents know them."""
        cut = make_word_spacer(config.tokenizer)
        return Tokenizer.train(map(cut, texts.train()), "word", config.vocab_size, lowercase=config.lowercase)

    def make_batches(
        self, texts: Iterable[str], tokenizer: Tokenizer, config: FillMaskConfig
    ) -> PassageBatches:
        return PassageBatches(
            texts,
            tokenizer,
            length=config.passage_length,
            max_tokens=config.batch_tokens,
            seed=config.seed,
            preprocess=make_word_spacer(config.tokenizer),
        )

    def objective(self, config: FillMaskConfig, tokens: int) -> MaskedTokenLoss:
        return MaskedTokenLoss(build_masked_lm(config, tokens), config.mask_prob)

    def validation(self, objective: MaskedTokenLoss, valid: PassageBatches) -> FillMaskValidation:
        return FillMaskValidation(objective, valid)

    @torch.no_grad()
    def judged(self, made: FillMask, texts: Iterable[str]) -> dict[str, Any]:
        given = self.make_batches(texts, made.tokenizer, made.config)
        objective = MaskedTokenLoss(made.model, made.config.mask_prob).eval()
        return {**given.report.as_dict(), **FillMaskValidation(objective, given)()}


@dataclass(frozen=True)
class FillMaskValidation:
    """What a hidden word costs, its exponential, and how many in a hundred are guessed; each time the same words."""

    objective: MaskedTokenLoss
    valid: PassageBatches

    def __call__(self) -> dict[str, float]:
        device, generator = self.objective.model.lm_head.weight.device, torch.Generator()
        total = right = count = 0.0
        for number, batch in enumerate(self.valid.iter_eval_batches()):
            loss = self.objective(batch.to(device), generator.manual_seed(number))
            total, count = total + float(loss.total), count + loss.count
            right += float(loss.metrics["right"])
        if not count:
            raise DataError(
                "There is no word in the text that could be hidden: the model knows none of them; give it other text,"
                " or train with a larger vocab."
            )
        each = total / count
        return {
            "loss": each,
            "perplexity": math.exp(min(each, 100.0)),
            "accuracy": 100 * right / count,
        }


def build_masked_lm(config: FillMaskConfig, vocab_size: int) -> MaskedLM:
    """The network that the settings describe; after the last word comes the mask."""
    return MaskedLM(build_encoder(config, vocab_size + 1))
