"""Plain text to write on or to fill in, with the settings that go with it."""

from __future__ import annotations

from regard.tasks.language_modeling import task as texts
from regard.tasks.language_modeling.task import FillMaskTask, TextGenerationTask
from regard.tasks.task import Recipe

DEFAULTS = {"schedule": "cosine", "lr": 2e-3, "warmup_steps": 200, "steps": 5000}


RECIPES = (
    Recipe(
        "language",
        "Your own plain text, and what comes next (a decoder alone): --train a.txt; `regard write` goes on.",
        "你自己的纯文本，预测下文（单独的解码器）：--train a.txt；用 `regard write` 续写。",
        texts.from_files,
        DEFAULTS,
        task=TextGenerationTask(),
    ),
    Recipe(
        "masked-language",
        "Your own plain text with hidden words to fill in (an encoder alone): --train a.txt.",
        "你自己的纯文本，填出被遮住的词（单独的编码器）：--train a.txt。",
        texts.from_files,
        {**DEFAULTS, "vocab_size": 30_000, "lowercase": True, "embed_dim": 128},
        task=FillMaskTask(),
    ),
)
