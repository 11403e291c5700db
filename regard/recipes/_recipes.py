"""The recipes by name: each is a task, data for it, and the settings that go with them."""

from __future__ import annotations

from functools import partial

from regard.recipes import _material as material
from regard.recipes import _pictures as pictures
from regard.recipes import _remembering as algorithms
from regard.recipes import _reviews as reviews
from regard.recipes import _sights as sights
from regard.recipes import _texts as texts
from regard.recipes._answering import Questioning
from regard.recipes._captioning import Describing
from regard.recipes._classifying import Classifying
from regard.recipes._glancing import Sorting
from regard.recipes._hansards import hansards
from regard.recipes._masked import Masking
from regard.recipes._parse import SettingError, nearest
from regard.recipes._task import Recipe
from regard.recipes._translation import Translating
from regard.recipes._writing import Writing

translation = partial(Recipe, task=Translating())
remembering = partial(Recipe, task=algorithms.Recalling())
classification = partial(Recipe, task=Classifying())
captioning = partial(Recipe, task=Describing())
glancing = partial(Recipe, task=Sorting())
questioning = partial(Recipe, task=Questioning())
writing = partial(Recipe, task=Writing())
masking = partial(Recipe, task=Masking())


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

BITS = {
    "watch": "bits",
    "optimizer": "rmsprop",
    "lr": 3e-4,
    "beta2": 0.95,
    "momentum": 0.9,
    "eps": 1e-4,
    "surprise": 2.0,
    "schedule": "constant",
    "warmup": 0,
    "steps": 5000,
    "validate_every": 250,
    "save_every": 250,
}

CLASS = {
    "watch": "accuracy",
    "schedule": "cosine",
    "lr": 2e-3,
    "warmup": 100,
    "steps": 1500,
    "validate_every": 250,
    "save_every": 250,
}

TEXTS = {"schedule": "cosine", "lr": 2e-3, "warmup": 200, "steps": 5000}

SCENES = {
    "watch": "captions",
    "schedule": "cosine",
    "lr": 3e-3,
    "warmup": 200,
    "steps": 5000,
    "batch": 32,
}
PHOTOGRAPHS = {
    "watch": "bleu",
    "schedule": "cosine",
    "lr": 1e-3,
    "warmup": 400,
    "steps": 5000,
    "min_count": 5,
    "embed_dim": 256,
    "dim": 512,
    "dropout": 0.5,
    "penalty": 1.0,
    "beam": 5,
}

GLANCES = {
    "watch": "accuracy",
    "schedule": "cosine",
    "lr": 3e-3,
    "warmup": 100,
    "steps": 1500,
    "validate_every": 250,
    "save_every": 250,
}
QUESTIONS = {**GLANCES, "warmup": 200, "steps": 6000, "validate_every": 500, "save_every": 500}


def _plain_date(text: str) -> str:
    from regard.data.dates import plain

    return plain(text)


RECIPES = {
    recipe.name: recipe
    for recipe in (
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
            {**TEXT, **TINY, "pair": "en-de"},
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
            partial(material.tatoeba, first="en", second="zh"),
            {**TEXT, "pair": "zh-en", "joint": False},
        ),
        translation(
            "tatoeba-fr-en",
            "French sentences of daily life into English, or back with pair=en-fr.",
            "日常法语句子译成英语；pair=en-fr 则反过来。",
            partial(material.tatoeba, first="en", second="fr"),
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
        remembering(
            "copy",
            "See vectors of bits and say them again (Neural Turing Machine).",
            "读一串比特向量，再原样说出来（神经图灵机）。",
            algorithms.copy,
            {**BITS, "rows": 32},  # few: who walks the wrong way meets what was written, and learns not to
        ),
        remembering(
            "repeat-copy",
            "See vectors and a number, and say them so often.",
            "读一串向量和一个数字，按该次数重复说出。",
            algorithms.repeat_copy,
            {**BITS, "longest": 10},
        ),
        remembering(
            "recall",
            "See items, then one of them again, and say the one that followed it.",
            "读若干项，再给出其中一项，说出它后面的那一项。",
            algorithms.recall,
            {**BITS, "shortest": 2, "longest": 6, "bits": 6},
        ),
        remembering(
            "ngrams",
            "Foretell each bit of a source with a memory of five; the best possible guess is known.",
            "预测每一个比特，信号源依赖前五位；最优预测是已知的。",
            algorithms.ngrams,
            {**BITS, "shortest": 200, "longest": 200, "bits": 1},
        ),
        remembering(
            "sort",
            "See vectors with priorities, and say them in that order.",
            "读带优先级的向量，按优先级顺序说出来。",
            algorithms.sort,
            {**BITS, "shortest": 20, "longest": 20},
        ),
        classification(
            "documents",
            "Your own documents and their classes: --train x.tsv --valid y.tsv (hierarchical attention).",
            "你自己的文档及其类别：--train x.tsv --valid y.tsv（层次注意力）。",
            reviews.from_files,
            CLASS,
        ),
        classification(
            "imdb",
            "Film reviews in English, positive or negative (IMDB).",
            "英文影评，褒或贬（IMDB）。",
            reviews.imdb,
            CLASS,
        ),
        classification(
            "movie-reviews",
            "Film reviews that are split into sentences, in ten folds (Pang and Lee 2004).",
            "已切分成句的影评，分十折（Pang、Lee 2004）。",
            reviews.movie_reviews,
            {**CLASS, "max_sentences": 80, "steps": 1000, "validate_every": 100},
        ),
        classification(
            "chnsenticorp",
            "Chinese reviews of hotels, computers and books, positive or negative (ChnSentiCorp).",
            "中文评论（酒店、电脑、图书），褒或贬（ChnSentiCorp）。",
            reviews.chnsenticorp,
            {**CLASS, "tokenizer": "char", "vocab": 8000, "steps": 800, "validate_every": 100},
        ),
        classification(
            "mixed",
            "Your own documents, read by convolution, self-attention and recurrence: layers=cnn,attention,gru.",
            "你自己的文档，由卷积、自注意力、循环层混合读取：layers=cnn,attention,gru。",
            reviews.from_files,
            {**CLASS, "model": "mixed", "dim": 96, "dropout": 0.3, "lr": 1e-3},
        ),
        writing(
            "language",
            "Your own plain text, and what comes next (a decoder alone): --train a.txt; `regard write` goes on.",
            "你自己的纯文本，预测下文（单独的解码器）：--train a.txt；用 `regard write` 续写。",
            texts.from_files,
            TEXTS,
        ),
        masking(
            "masked-language",
            "Your own plain text with hidden words to fill in (an encoder alone): --train a.txt.",
            "你自己的纯文本，填出被遮住的词（单独的编码器）：--train a.txt。",
            texts.from_files,
            {**TEXTS, "vocab": 30_000, "lowercase": True, "dim": 128},
        ),
        captioning(
            "digit-scenes",
            "Scenes of handwritten digits, described from left to right; the digits come with scikit-learn.",
            "由手写数字拼成的画面，从左到右描述；数字来自 scikit-learn 自带的数据。",
            pictures.digit_scenes,
            SCENES,
        ),
        captioning(
            "mnist-scenes",
            "The same, larger, of the digits of MNIST (data=FOLDER).",
            "同上，画面更大，数字来自 MNIST（data=文件夹）。",
            pictures.mnist_scenes,
            {**SCENES, "size": 96},
        ),
        captioning(
            "flickr8k",
            "Photographs as ready features, five captions each (data=FOLDER).",
            "以现成特征表示的照片，每张五条说明（data=文件夹）。",
            pictures.flickr8k,
            PHOTOGRAPHS,
        ),
        captioning(
            "captions",
            "Your own images and captions: --train x.jsonl --valid y.jsonl.",
            "你自己的图片及说明：--train x.jsonl --valid y.jsonl。",
            pictures.from_files,
            {"color": True, "schedule": "cosine", "dropout": 0.3, "min_count": 2, "beam": 5},
        ),
        glancing(
            "digits",
            "One handwritten digit among clutter, found by a learned query; the digits come with scikit-learn.",
            "杂乱碎片中的一个手写数字，由学到的查询找出；数字来自 scikit-learn 自带的数据。",
            sights.digits,
            GLANCES,
        ),
        glancing(
            "mnist-cluttered",
            "The same, larger, of the digits of MNIST (data=FOLDER).",
            "同上，画面更大，数字来自 MNIST（data=文件夹）。",
            sights.mnist_cluttered,
            {**GLANCES, "size": 96},
        ),
        questioning(
            "digit-questions",
            'Questions about scenes of digits ("how many 3s", "what is left of the 4"), answered by looking.',
            "关于数字画面的提问（“how many 3s”“what is left of the 4”），看图作答。",
            sights.digit_questions,
            QUESTIONS,
        ),
    )
}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise SettingError(f"There is no recipe {name!r}; {nearest(name, list(RECIPES), 'recipes')}")
    return RECIPES[name]
