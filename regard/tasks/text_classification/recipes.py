"""Recipes of text classification."""

from __future__ import annotations

from functools import partial

from regard.tasks.legacy import Recipe
from regard.tasks.text_classification import data as reviews
from regard.tasks.text_classification.task import TextClassificationTask

classification_recipe = partial(Recipe, task=TextClassificationTask())


DEFAULTS = {
    "monitor": "accuracy",
    "schedule": "cosine",
    "lr": 2e-3,
    "warmup_steps": 100,
    "steps": 1500,
    "validate_every": 250,
    "save_every": 250,
}


RECIPES = (
    classification_recipe(
        "documents",
        "Your own labeled documents: --train x.tsv --valid y.tsv (hierarchical attention network).",
        "你自己的带类别的文档：--train x.tsv --valid y.tsv（层次注意力网络）。",
        partial(reviews.from_files, "documents"),
        DEFAULTS,
    ),
    classification_recipe(
        "imdb",
        "English film reviews, positive or negative (IMDB).",
        "英文影评的情感分类（IMDB）。",
        reviews.imdb,
        DEFAULTS,
    ),
    classification_recipe(
        "movie-reviews",
        "English film reviews, split into sentences, in ten folds (Pang and Lee 2004).",
        "已分句的英文影评，十折交叉验证（Pang、Lee 2004）。",
        reviews.movie_reviews,
        {**DEFAULTS, "max_sentences": 80, "steps": 1000, "validate_every": 100},
    ),
    classification_recipe(
        "chnsenticorp",
        "Chinese reviews of hotels, computers and books, positive or negative (ChnSentiCorp).",
        "中文评论（酒店、电脑、图书）的情感分类（ChnSentiCorp）。",
        reviews.chnsenticorp,
        {**DEFAULTS, "tokenizer": "char", "vocab_size": 8000, "steps": 800, "validate_every": 100},
    ),
    classification_recipe(
        "mixed",
        "Your own labeled documents, encoded by a stack of layers: layer_types=cnn,attention,gru.",
        "你自己的带类别的文档，由卷积、自注意力、循环层混合编码：layer_types=cnn,attention,gru。",
        partial(reviews.from_files, "mixed"),
        {**DEFAULTS, "model": "mixed", "embed_dim": 96, "dropout": 0.3, "lr": 1e-3},
    ),
)
