"""Translations by name, with the settings that go with them."""

from __future__ import annotations

from functools import partial

from regard.tasks.legacy import Recipe
from regard.tasks.translation import data as material
from regard.tasks.translation.data import hansards, tatoeba
from regard.tasks.translation.task import TranslationTask

translation_recipe = partial(Recipe, task=TranslationTask())


TEXT_DEFAULTS = {"monitor": "bleu", "average_last": 5, "beam_size": 5}


CHARACTER_DEFAULTS = {
    "monitor": "exact",
    "tokenizer": "char",
    "shared_vocab": False,
    "beam_size": 1,
    "label_smoothing": 0.0,
}


TRANSFORMER_TINY = {
    "model": "transformer",
    "dim": 128,
    "num_layers": 4,
    "num_heads": 4,
    "ffn_dim": 256,
    "dropout": 0.3,
    "tie_embeddings": "all",
    "vocab_size": 10_000,
    "lr": 5e-3,
    "warmup_steps": 2000,
    "label_smoothing": 0.1,
}


def _normalize_date(text: str) -> str:
    from regard.data.dates.formats import normalize_text

    return normalize_text(text)


RECIPES = (
    translation_recipe(
        "dates",
        "Dates as people write them in many languages, to ISO 8601; made on the fly.",
        "把多种语言书写的日期转成 ISO 8601；数据即时生成。",
        material.dates,
        {
            **CHARACTER_DEFAULTS,
            "dim": 128,
            "embed_dim": 64,
            "steps": 1000,
            "validate_every": 250,
            "save_every": 250,
            "lr": 4e-3,
            "warmup_steps": 100,
            "schedule": "cosine",
        },
        clean=_normalize_date,
        unaligned_words=frozenset("-"),
    ),
    translation_recipe(
        "reverse",
        "Letters from behind: a task of seconds.",
        "把字母倒过来：几秒钟就能学会的任务。",
        material.reverse,
        {
            **CHARACTER_DEFAULTS,
            "max_length": 8,
            "batch_tokens": 512,
            "dim": 64,
            "embed_dim": 32,
            "steps": 300,
            "lr": 1e-2,
            "warmup_steps": 50,
            "schedule": "cosine",
        },
    ),
    translation_recipe(
        "pinyin",
        "Chinese phrases to their syllables; the phrases come with pypinyin.",
        "汉语短语转成拼音；短语来自 pypinyin 自带的数据。",
        material.pinyin,
        {
            **CHARACTER_DEFAULTS,
            "target_tokenizer": "word",
            "dim": 256,
            "embed_dim": 128,
            "steps": 1500,
            "validate_every": 250,
            "save_every": 250,
            "lr": 3e-3,
            "warmup_steps": 200,
            "schedule": "cosine",
        },
    ),
    translation_recipe(
        "g2p",
        "Spelling to sounds (SIGMORPHON 2021); pair is the language, such as eng_us.",
        "由拼写得到读音（SIGMORPHON 2021）；pair 是语言，例如 eng_us。",
        material.g2p,
        {
            **CHARACTER_DEFAULTS,
            "target_tokenizer": "word",
            "language_pair": "eng_us",
            "dim": 256,
            "embed_dim": 128,
        },
    ),
    translation_recipe(
        "multi30k",
        "Image captions, English, German and French (raw text).",
        "图片说明的翻译：英语、德语、法语（原始文本）。",
        material.multi30k,
        # with the published 5e-3 it may take thousands of steps until it begins to look at the source
        {**TEXT_DEFAULTS, **TRANSFORMER_TINY, "lr": 2.5e-3, "language_pair": "en-de"},
    ),
    translation_recipe(
        "multi30k-tok",
        "The same in the form in which results are published: small letters, tokenized.",
        "同上，但用论文报告结果时的形式：小写、已分词。",
        material.multi30k_tok,
        {**TEXT_DEFAULTS, **TRANSFORMER_TINY, "language_pair": "en-de", "bleu_tokenizer": "none"},
    ),
    translation_recipe(
        "tatoeba-zh-en",
        "Chinese sentences of daily life into English, or back with language_pair=en-zh.",
        "日常汉语句子译成英语；language_pair=en-zh 则反过来。",
        partial(tatoeba, first="en", second="zh"),
        {**TEXT_DEFAULTS, "language_pair": "zh-en", "shared_vocab": False},
    ),
    translation_recipe(
        "tatoeba-fr-en",
        "French sentences of daily life into English, or back with language_pair=en-fr.",
        "日常法语句子译成英语；language_pair=en-fr 则反过来。",
        partial(tatoeba, first="en", second="fr"),
        {**TEXT_DEFAULTS, "language_pair": "fr-en"},
    ),
    translation_recipe(
        "hansards",
        "English and French, judged by the word links of the Hansards (alignment error rate).",
        "英法双语，用 Hansards 的人工词对齐评判（对齐错误率）。",
        hansards,
        {
            **TEXT_DEFAULTS,
            "language_pair": "en-fr",
            "lowercase": True,
            "dim": 256,
            "average_last": 0,
            "length_penalty": 0.6,
        },
    ),
    translation_recipe(
        "translation",
        "Your own text: --train a.en a.de --valid b.en b.de.",
        "你自己的文本：--train a.en a.de --valid b.en b.de。",
        material.from_files,
        TEXT_DEFAULTS,
    ),
)
