"""The task of translation: tokenizers, batches of pairs, a model that writes the next word, and how good it is.

A model from settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.attention import MultiHead
from regard.data import (
    BatchingConfig,
    DataReport,
    GeneratedPairs,
    InMemoryPairs,
    SentencePair,
    StreamedPairs,
    Tokenizer,
    iter_eval_batches,
)
from regard.data.pair_batches import PairEncoder, with_line_numbers
from regard.data.parallel import ParallelFiles
from regard.data.text_files import check_readable
from regard.errors import ConfigError, DataError
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks.legacy import Experiment, Recipe, Task
from regard.tasks.mechanisms import build_attention, build_normalizer, build_score
from regard.tasks.runner import build_and_load
from regard.tasks.sequence_loss import NextTokenLoss
from regard.tasks.translation import task as _models
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.data import Material, iter_pairs
from regard.tasks.translation.evaluation import corpus_metrics, evaluate, make_bleu
from regard.tasks.translation.predictor import Translator
from regard.training import RunFolder, TrainingConfig

OPTION_NAMES = ("batch_tokens", "overflow")  # the options for max_tokens and overflow of a BatchingConfig


class TranslationTask(Task[TranslationConfig]):
    """From one text to another."""

    config_class: ClassVar[type[TrainingConfig]] = TranslationConfig
    uses = ('translate {run} "..."', "evaluate {run}", "info {run}")
    files = ("source.json", "target.json")

    def available_commands(self, config: TranslationConfig) -> tuple[str, ...]:
        if config.train_files and not config.test_files:
            return tuple(f"{use} --split valid" if use.startswith("evaluate") else use for use in self.uses)
        return self.uses

    def validate(self, recipe: Recipe, config: TranslationConfig) -> None:
        recipe.data(config)
        for file in (*config.train_files, *config.valid_files, *config.test_files):
            check_readable(Path(file))
        if config.bleu_tokenizer != "auto":
            make_bleu(config)  # which refuses, if it needs another package
        with torch.device("meta"):
            _models.build_model(config, 8, 8)

    def experiment(
        self, run: RunFolder, recipe: Recipe, config: TranslationConfig
    ) -> Experiment[TranslationConfig]:
        source, target = load_tokenizers(run)
        objective = _build_loss(config, source, target)
        material = recipe.data(config)
        data, report = _make_batches(material, config, source, target)
        valid, checked = _usable_pairs(material.valid, config, source, target)
        translator = Translator(objective.model, source, target, config, recipe)
        reports = {"train": report, "valid": checked}
        return Experiment(
            run,
            config,
            objective,
            data,
            Validation(objective, translator, valid),
            {
                "words": [len(source), len(target)],
                "data": {name: one.as_dict() for name, one in reports.items()},
            },
            [f"{name}: {one}" for name, one in reports.items() if one.read],
            compile_mode="whole" if config.model == "transformer" else "off",
        )

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: TranslationConfig,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Translator:
        source, target = load_tokenizers(run)
        model = build_and_load(lambda: _build_loss(config, source, target).model, weights, where)
        return Translator(model.to(device), source, target, config, recipe)

    def judge(self, recipe: Recipe, made: Translator, part: str | None = None) -> dict[str, Any]:
        material = recipe.data(made.config)
        parts = material.tests or {"valid": material.valid}
        chosen = part or next(iter(parts))
        return {**evaluate(made, list(iter_pairs(parts[chosen]))), "part": chosen}

    def ready(
        self, run: RunFolder, recipe: Recipe, config: TranslationConfig, origin: RunFolder | None
    ) -> None:
        """The tokenizers: learned from the text, or those of the run it starts from."""
        both = train_tokenizers(recipe.data(config), config) if origin is None else load_tokenizers(origin)
        for tokenizer, name in zip(both, self.files, strict=True):
            tokenizer.save(run.folder / name)


@dataclass(frozen=True)
class Validation:
    """The loss on the validation text, and the quality of greedy translations of it if that is watched."""

    objective: NextTokenLoss
    translator: Translator
    valid: Sequence[SentencePair]

    def __call__(self) -> dict[str, float]:
        translator, watch = self.translator, self.translator.config.monitor
        scores = loss_on(self.objective, translator, self.valid)
        if watch in ("bleu", "chrf", "exact"):
            greedy = translator.decoding_config(method="greedy")
            best = translator.search([pair.source for pair in self.valid], greedy)
            answers = [translator.to_text(several[0] if several else None) for several in best]
            found = corpus_metrics(answers, [pair.target for pair in self.valid], translator.config)
            scores |= {name: found[name] for name in (("exact",) if watch == "exact" else ("bleu", "chrf"))}
        return scores


def loss_on(
    objective: NextTokenLoss, translator: Translator, part: Sequence[SentencePair]
) -> dict[str, float]:
    """Cross entropy a token, without smoothing, and its exponential."""
    total = count = 0.0
    for batch, _ in iter_eval_batches(part, translator.source, translator.target):
        loss = objective(batch.to(translator.device))
        total, count = total + float(loss.metrics["nll"]), count + loss.count
    return {"loss": total / count, "perplexity": math.exp(min(total / count, 100.0))}


def train_tokenizers(material: Material, config: TranslationConfig) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides; one and the same if they are joint."""

    def cut(texts: Iterable[str], kind: str) -> Tokenizer:
        return Tokenizer.train(texts, kind, config.vocab_size, nfkc=config.nfkc, lowercase=config.lowercase)

    if config.shared_vocab:
        both = cut(
            (text for pair in material.texts() for text in (pair.source, pair.target)), config.tokenizer
        )
        return both, both
    return (
        cut((pair.source for pair in material.texts()), config.tokenizer),
        cut((pair.target for pair in material.texts()), config.target_tokenizer or config.tokenizer),
    )


def load_tokenizers(run: RunFolder) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers that a run keeps."""
    source, target = (Tokenizer.load(run.folder / name) for name in TranslationTask.files)
    return source, target


def _build_loss(config: TranslationConfig, source: Tokenizer, target: Tokenizer) -> NextTokenLoss:
    model = _models.build_model(config, len(source), len(target))
    return NextTokenLoss(model, config.label_smoothing, config.entropy_bonus, config.reward_discount)


def _make_batches(
    material: Material, config: TranslationConfig, source: Tokenizer, target: Tokenizer
) -> tuple[InMemoryPairs | StreamedPairs | GeneratedPairs, DataReport]:
    filling = BatchingConfig(
        max_tokens=config.batch_tokens,
        max_length=config.max_length,
        overflow=config.overflow,
        dropout=config.bpe_dropout,
        seed=config.seed,
        option_names=OPTION_NAMES,
    )
    if config.streaming:
        if not isinstance(material.train, ParallelFiles):
            raise ConfigError(
                "streaming=on is for files; this recipe does not read its training text from any"
            )
        stream = StreamedPairs(material.train, source, target, filling)
        return stream, stream.compute_report()
    if callable(material.train):
        made = GeneratedPairs(material.train, source, target, filling)
        return made, made.compute_report()
    corpus = InMemoryPairs(material.train, source, target, filling)
    return corpus, corpus.report


def _usable_pairs(
    split: ParallelFiles | Sequence[SentencePair],
    config: TranslationConfig,
    source: Tokenizer,
    target: Tokenizer,
) -> tuple[list[SentencePair], DataReport]:
    """The pairs of a validation set within the limits, and a count of the others; alone, none is too wide."""
    filling = BatchingConfig(
        max_tokens=config.max_length + 1,
        max_length=config.max_length,
        overflow=config.overflow,
        option_names=OPTION_NAMES,
    )
    name = str(split) if isinstance(split, ParallelFiles) else "the pairs to validate with"
    encoder = PairEncoder(source, target, filling, name)
    report = encoder.make_report()
    used = [
        _truncate_pair(pair, config.max_length, source, target)
        for pair, _ in encoder.encode_all(with_line_numbers(split), report)
    ]
    if not used:
        raise DataError(f"nothing is left to validate with: {report}")
    return used, report


def _truncate_pair(pair: SentencePair, max_length: int, source: Tokenizer, target: Tokenizer) -> SentencePair:
    """A pair of so many tokens at most; one that loses words loses its links, too."""
    cut = SentencePair(source.truncate(pair.source, max_length), target.truncate(pair.target, max_length))
    return pair if (cut.source, cut.target) == (pair.source, pair.target) else cut


def build_model(
    config: TranslationConfig, src_vocab_size: int, tgt_vocab_size: int
) -> RNNSeq2Seq | Transformer:
    """The network that the settings describe, for vocabularies of these sizes."""
    if config.model == "transformer":
        return freeze_redundant_biases(
            Transformer(
                src_vocab_size,
                tgt_vocab_size,
                embed_dim=config.dim,
                num_heads=config.num_heads,
                num_encoder_layers=config.num_layers,
                ffn_dim=config.ffn_dim or 4 * config.dim,
                dropout=config.dropout,
                norm_first=config.norm == "pre",
                tie_embeddings=config.tie_embeddings,
            )
        )
    ways = 1 + config.bidirectional
    encoder_dim = config.encoder_hidden_dim or config.dim // ways
    attention = None
    if config.attention_scope != "none":
        how = build_score(config.score, config.dim, ways * encoder_dim, config.dim)
        share = build_normalizer(config.normalize)
        attention = build_attention(
            config.attention_scope, how, share, config.dim, config.dim, config.window_radius
        )
    return RNNSeq2Seq(
        src_vocab_size,
        tgt_vocab_size,
        attention,
        embed_dim=config.embed_dim or config.dim,
        hidden_dim=config.dim,
        encoder_hidden_dim=encoder_dim,
        num_layers=config.num_layers,
        cell_type=config.cell_type,
        bidirectional=config.bidirectional,
        order=config.order,
        input_feeding=config.input_feeding,
        dropout=config.dropout,
        tie_embeddings=config.tie_embeddings != "none",
    )


def freeze_redundant_biases(model: Transformer) -> Transformer:
    """Biases of keys that no weight shows stay as they begin: so two processes end with the weights of one."""
    for part in model.modules():
        if isinstance(part, MultiHead) and part.k_proj.bias is not None and part.is_key_bias_redundant:
            part.k_proj.bias.requires_grad_(False)
    return model
