"""Translations by name, with the settings that go with them."""

from __future__ import annotations

from functools import partial

from regard.recipes._task import Recipe
from regard.recipes.translation import _material as material
from regard.recipes.translation._hansards import hansards
from regard.recipes.translation._task import Translating
from regard.recipes.translation._tatoeba import tatoeba

translation = partial(Recipe, task=Translating())

TEXT = {"watch": "bleu", "average": 5, "beam": 5}
LETTERS = {"watch": "exact", "tokenizer": "char", "joint": False, "beam": 1, "smoothing": 0.0}
TINY = {
    "model": "transformer",
    "dim": 128,
    "layers": 4,
    "heads": 4,
    "hidden_dim": 256,
    "dropout": 0.3,
    "tied": "all",
    "vocab": 10_000,
    "lr": 5e-3,
    "warmup": 2000,
    "smoothing": 0.1,
}


def _plain_date(text: str) -> str:
    from regard.data.dates import plain

    return plain(text)


RECIPES = (
    translation(
        "dates",
        "Dates as people write them in many languages, to ISO 8601; made on the fly.",
        "把多种语言书写的日期转成 ISO 8601；数据即时生成。",
        material.dates,
        {
            **LETTERS,
            "dim": 128,
            "embed_dim": 64,
            "steps": 1000,
            "validate_every": 250,
            "save_every": 250,
            "lr": 4e-3,
            "warmup": 100,
            "schedule": "cosine",
        },
        clean=_plain_date,
        unlinked=frozenset("-"),
    ),
    translation(
        "reverse",
        "Letters from behind: a task of seconds.",
        "把字母倒过来：几秒钟就能学会的任务。",
        material.reverse,
        {
            **LETTERS,
            "max_length": 8,
            "batch_tokens": 512,
            "dim": 64,
            "embed_dim": 32,
            "steps": 300,
            "lr": 1e-2,
            "warmup": 50,
            "schedule": "cosine",
        },
    ),
    translation(
        "pinyin",
        "Chinese phrases to their syllables; the phrases come with pypinyin.",
        "汉语短语转成拼音；短语来自 pypinyin 自带的数据。",
        material.pinyin,
        {
            **LETTERS,
            "target_tokenizer": "word",
            "dim": 256,
            "embed_dim": 128,
            "steps": 1500,
            "validate_every": 250,
            "save_every": 250,
            "lr": 3e-3,
            "warmup": 200,
            "schedule": "cosine",
        },
    ),
    translation(
        "g2p",
        "Spelling to sounds (SIGMORPHON 2021); pair is the language, such as eng_us.",
        "由拼写得到读音（SIGMORPHON 2021）；pair 是语言，例如 eng_us。",
        material.g2p,
        {**LETTERS, "target_tokenizer": "word", "pair": "eng_us", "dim": 256, "embed_dim": 128},
    ),
    translation(
        "multi30k",
        "Image captions, English, German and French (raw text).",
        "图片说明的翻译：英语、德语、法语（原始文本）。",
        material.multi30k,
        # with the published 5e-3 it may take thousands of steps until it begins to look at the source
        {**TEXT, **TINY, "lr": 2.5e-3, "pair": "en-de"},
    ),
    translation(
        "multi30k-tok",
        "The same in the form in which results are published: small letters, tokenized.",
        "同上，但用论文报告结果时的形式：小写、已分词。",
        material.multi30k_tok,
        {**TEXT, **TINY, "pair": "en-de", "bleu": "none"},
    ),
    translation(
        "tatoeba-zh-en",
        "Chinese sentences of daily life into English, or back with pair=en-zh.",
        "日常汉语句子译成英语；pair=en-zh 则反过来。",
        partial(tatoeba, first="en", second="zh"),
        {**TEXT, "pair": "zh-en", "joint": False},
    ),
    translation(
        "tatoeba-fr-en",
        "French sentences of daily life into English, or back with pair=en-fr.",
        "日常法语句子译成英语；pair=en-fr 则反过来。",
        partial(tatoeba, first="en", second="fr"),
        {**TEXT, "pair": "fr-en"},
    ),
    translation(
        "hansards",
        "English and French, judged by the word links of the Hansards (alignment error rate).",
        "英法双语，用 Hansards 的人工词对齐评判（对齐错误率）。",
        hansards,
        {**TEXT, "pair": "en-fr", "lowercase": True, "dim": 256, "average": 0, "length_penalty": 0.6},
    ),
    translation(
        "translation",
        "Your own text: --train a.en a.de --valid b.en b.de.",
        "你自己的文本：--train a.en a.de --valid b.en b.de。",
        material.from_files,
        TEXT,
    ),
)
