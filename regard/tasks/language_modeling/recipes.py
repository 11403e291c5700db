"""Recipes of text generation and fill-mask."""

from __future__ import annotations

from regard.tasks.language_modeling import task as texts
from regard.tasks.language_modeling.task import FillMaskTask, TextGenerationTask
from regard.tasks.legacy import Recipe

DEFAULTS = {"schedule": "cosine", "lr": 2e-3, "warmup_steps": 200, "steps": 5000}


RECIPES = (
    Recipe(
        "language",
        "Language model of your own plain text (decoder only): --train a.txt.",
        "用你自己的纯文本训练语言模型（仅解码器）：--train a.txt。",
        texts.from_files,
        DEFAULTS,
        task=TextGenerationTask(),
    ),
    Recipe(
        "masked-language",
        "Masked language model of your own plain text (encoder only): --train a.txt.",
        "用你自己的纯文本训练掩码语言模型（仅编码器）：--train a.txt。",
        texts.from_files,
        {**DEFAULTS, "vocab_size": 30_000, "lowercase": True, "embed_dim": 128},
        task=FillMaskTask(),
    ),
)
