"""Pictures with captions by name, with the settings that go with them."""

from __future__ import annotations

from functools import partial

from regard.recipes._task import Recipe
from regard.recipes.captions import _material as pictures
from regard.recipes.captions._task import Describing, DescribingFeatures

captioning = partial(Recipe, task=Describing())

SCENES = {
    "watch": "captions",
    "schedule": "cosine",
    "lr": 3e-3,
    "warmup": 200,
    "steps": 6000,
    "batch": 32,
    "average": 3,
    "entropy": 0.001,  # looks are found softly; what would keep them open then only blurs them
}
PHOTOGRAPHS = {
    "watch": "bleu",
    "schedule": "cosine",
    "lr": 1e-3,
    "warmup": 400,
    "steps": 3000,
    "min_count": 5,
    "embed_dim": 256,
    "dim": 512,
    "dropout": 0.5,
    "penalty": 1.0,
    "beam": 5,
}

RECIPES = (
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
        {**SCENES, "size": 96, "width": 32, "steps": 15_000},
    ),
    captioning(
        "flickr8k",
        "Photographs as ready features, five captions each (data=FOLDER).",
        "以现成特征表示的照片，每张五条说明（data=文件夹）。",
        pictures.flickr8k,
        PHOTOGRAPHS,
        task=DescribingFeatures(),
    ),
    captioning(
        "captions",
        "Your own images and captions: --train x.jsonl --valid y.jsonl.",
        "你自己的图片及说明：--train x.jsonl --valid y.jsonl。",
        pictures.from_files,
        {"color": True, "schedule": "cosine", "dropout": 0.3, "min_count": 2, "beam": 5},
    ),
)
