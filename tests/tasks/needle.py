"""Find the one digit in a row of letters: a complete task in one file."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from regard.attention import Additive, Attention, padding
from regard.config import option
from regard.tasks.classification import ClassificationPredictor, ClassificationTask
from regard.tasks.predictor import AttentionMap, Explanation, InputField
from regard.tasks.registry import Recipe
from regard.tasks.task import DataSplits, Processor
from regard.training import TrainingConfig

LETTERS, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"


@dataclass(frozen=True, kw_only=True)
class NeedleConfig(TrainingConfig):
    length: int = option(12, "characters in a row", ge=2)
    embed_dim: int = option(32, "size of a character's vector", ge=1)
    batch_size: int = option(64, "rows in a batch", ge=1)


@dataclass(frozen=True)
class NeedleProcessor(Processor):
    labels: tuple[str, ...] = tuple(DIGITS)

    def encode(self, rows):
        tokens = [torch.tensor([(LETTERS + DIGITS).index(sign) for sign in row]) for row in rows]
        return pad_sequence(tokens, batch_first=True), torch.tensor([len(row) for row in rows])


class NeedleModel(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.embed, self.classifier = nn.Embedding(36, embed_dim), nn.Linear(embed_dim, 10)
        self.attention = Attention(Additive(None, embed_dim, embed_dim))

    def forward(self, tokens, lengths):
        return self.classifier(self.attend(tokens, lengths).context.squeeze(-2))

    def attend(self, tokens, lengths):
        keys = self.embed(tokens)
        return self.attention(None, keys, keys, padding(lengths))


class NeedlePredictor(ClassificationPredictor):
    inputs = (InputField("text", "text", "a row of letters with one digit"),)

    def explain(self, input, options=None):
        (prediction,) = self.predict([input])
        weights = self.model.attend(*self.processor.encode([input])).weights
        return Explanation(prediction, (AttentionMap("pooling", weights, [prediction.text], list(input)),))


class NeedleTask(ClassificationTask):
    name, verb, config_class = "needle", "find", NeedleConfig
    processor_class, predictor_class = NeedleProcessor, NeedlePredictor

    def build_processor(self, config, data):
        return NeedleProcessor()

    def build_model(self, config, processor):
        return NeedleModel(config.embed_dim)


def rows(config):
    def make(seed, count):
        rng = random.Random(seed)
        for _ in range(count):
            row, digit = rng.choices(LETTERS, k=config.length), rng.choice(DIGITS)
            row[rng.randrange(config.length)] = digit
            yield "".join(row), digit

    return DataSplits(list(make(0, 4000)), list(make(1, 200)), {"test": list(make(2, 200))})


RECIPES = (
    Recipe(
        "needle",
        "needle",
        f"{__name__}:rows",
        "Find the digit.",
        defaults={"steps": 100, "lr": 1e-2, "warmup_steps": 10, "validate_every": 50, "monitor": "accuracy"},
    ),
)
