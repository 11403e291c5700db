"""The recipes of translation."""

from typing import Any

from regard.config import split_override
from regard.tasks.registry import Recipe
from regard.tasks.translation.config import TranslationConfig

__all__ = ["RECIPES"]

# Defaults as on the command line; of an option that is repeated, the last value counts.
TEXTS = "monitor=bleu average_last=5 beam_size=5"
CHARACTERS = "monitor=exact tokenizer=char shared_vocab=off beam_size=1 label_smoothing=0"
SYLLABLES = f"{CHARACTERS} target_tokenizer=word hidden_dim=256 embed_dim=128"
PERIODS = "validate_every=250 save_every=250 schedule=cosine"
TRANSFORMER_TINY = (
    "model=transformer embed_dim=128 hidden_dim=128 num_layers=4 num_heads=4 ffn_dim=256 dropout=0.3"
    " tie_embeddings=all vocab_size=10000 lr=5e-3 warmup_steps=2000 label_smoothing=0.1 language_pair=en-de"
)


def _recipe(name: str, summary: str, summary_zh: str, *defaults: str, function: str = "", **values: Any) -> Recipe:
    """A recipe whose data is a function of its name in the module `data`."""
    overrides = dict(split_override(text) for text in " ".join(defaults).split())
    return Recipe(
        name,
        "translation",
        f"regard.tasks.translation.data:{function or name.replace('-', '_')}",
        summary,
        summary_zh,
        {option: TranslationConfig.option(option).parse(text) for option, text in overrides.items()},
        **values,
    )


RECIPES = (
    _recipe(
        "dates",
        "Dates in many languages to ISO 8601; generated.",
        "把多种语言书写的日期转成 ISO 8601；数据即时生成。",
        CHARACTERS,
        PERIODS,
        "hidden_dim=128 embed_dim=64 steps=1000 lr=4e-3 warmup_steps=100",
    ),
    _recipe(
        "reverse",
        "Reversed strings: a task of seconds.",
        "字符串反转：几秒钟就能学会的任务。",
        CHARACTERS,
        "max_length=8 batch_tokens=512 hidden_dim=64 embed_dim=32 steps=300 lr=1e-2 warmup_steps=50 schedule=cosine",
    ),
    _recipe(
        "pinyin",
        "Chinese phrases to their syllables; the phrases come with pypinyin.",
        "汉语短语转成拼音；短语来自 pypinyin 自带的数据。",
        SYLLABLES,
        PERIODS,
        "steps=1500 lr=3e-3 warmup_steps=200",
    ),
    _recipe(
        "g2p",
        "Spelling to pronunciation (SIGMORPHON 2021); language_pair is the language, such as eng_us.",
        "由拼写预测读音（SIGMORPHON 2021）；language_pair 是语言，例如 eng_us。",
        SYLLABLES,
        "language_pair=eng_us",
    ),
    _recipe(
        "multi30k",
        "Image captions in English, German and French (raw text).",
        "图片说明的翻译：英语、德语、法语（原始文本）。",
        TEXTS,
        TRANSFORMER_TINY,
        "lr=2.5e-3",  # with the published 5e-3, attention to the source may begin only after thousands of steps
    ),
    _recipe(
        "multi30k-tok",
        "The same lowercased and tokenized, the form in which results are published.",
        "同上，但用论文报告结果时的形式：小写、已分词。",
        TEXTS,
        TRANSFORMER_TINY,
        "bleu_tokenizer=none",
    ),
    _recipe(
        "tatoeba-zh-en",
        "Everyday Chinese sentences to English; language_pair=en-zh for the other direction.",
        "日常汉语句子译成英语；language_pair=en-zh 则反过来。",
        TEXTS,
        "language_pair=zh-en shared_vocab=off",
    ),
    _recipe(
        "tatoeba-fr-en",
        "Everyday French sentences to English; language_pair=en-fr for the other direction.",
        "日常法语句子译成英语；language_pair=en-fr 则反过来。",
        TEXTS,
        "language_pair=fr-en",
    ),
    _recipe(
        "hansards",
        "English and French, evaluated with the gold alignments of the Hansards (alignment error rate).",
        "英法双语，用 Hansards 的人工词对齐评估（对齐错误率）。",
        TEXTS,
        "language_pair=en-fr lowercase=on hidden_dim=256 embed_dim=256 average_last=0 length_penalty=0.6",
    ),
    _recipe(
        "translation",
        "Your own files: --train a.en a.de --valid b.en b.de.",
        "你自己的文本：--train a.en a.de --valid b.en b.de。",
        TEXTS,
        function="from_files",
        reads_files=True,
    ),
)
