"""Plain text to write on or to fill in, with the settings that go with it."""

from __future__ import annotations

from regard.recipes._task import Recipe
from regard.recipes.texts import _material as texts
from regard.recipes.texts._masking import Masking
from regard.recipes.texts._writing import Writing

TEXTS = {"schedule": "cosine", "lr": 2e-3, "warmup": 200, "steps": 5000}

RECIPES = (
    Recipe(
        "language",
        "Your own plain text, and what comes next (a decoder alone): --train a.txt; `regard write` goes on.",
        "你自己的纯文本，预测下文（单独的解码器）：--train a.txt；用 `regard write` 续写。",
        texts.from_files,
        TEXTS,
        task=Writing(),
    ),
    Recipe(
        "masked-language",
        "Your own plain text with hidden words to fill in (an encoder alone): --train a.txt.",
        "你自己的纯文本，填出被遮住的词（单独的编码器）：--train a.txt。",
        texts.from_files,
        {**TEXTS, "vocab": 30_000, "lowercase": True, "dim": 128},
        task=Masking(),
    ),
)
