"""Recipes of image captioning."""

from __future__ import annotations

from functools import partial

from regard.tasks.captioning import data as pictures
from regard.tasks.captioning.task import DescribingFeatures, ImageCaptioningTask
from regard.tasks.legacy import Recipe

captioning_recipe = partial(Recipe, task=ImageCaptioningTask())


SCENE_DEFAULTS = {
    "monitor": "captions",
    "schedule": "cosine",
    "lr": 3e-3,
    "warmup_steps": 200,
    "steps": 6000,
    "batch_size": 32,
    "average_last": 3,
    "entropy_bonus": 0.001,  # soft attention finds the digits; a larger bonus only blurs it
}


PHOTOGRAPH_DEFAULTS = {
    "monitor": "bleu",
    "schedule": "cosine",
    "lr": 1e-3,
    "warmup_steps": 400,
    "steps": 3000,
    "min_word_count": 5,
    "embed_dim": 256,
    "hidden_dim": 512,
    "dropout": 0.5,
    "doubly_stochastic_weight": 1.0,
    "beam_size": 5,
}


RECIPES = (
    captioning_recipe(
        "digit-scenes",
        "Captions of scenes of handwritten digits, from left to right; the digits come with scikit-learn.",
        "为手写数字场景生成从左到右的描述；数字来自 scikit-learn 自带的数据集。",
        pictures.digit_scenes,
        SCENE_DEFAULTS,
    ),
    captioning_recipe(
        "mnist-scenes",
        "Captions of larger scenes of MNIST digits (data_dir=FOLDER).",
        "为更大的 MNIST 数字场景生成描述（data_dir=文件夹）。",
        pictures.mnist_scenes,
        {**SCENE_DEFAULTS, "image_size": 96, "conv_channels": 32, "steps": 15_000},
    ),
    captioning_recipe(
        "flickr8k",
        "Photographs as precomputed features, five captions each (data_dir=FOLDER).",
        "照片（预先计算的特征），每张五条描述（data_dir=文件夹）。",
        pictures.flickr8k,
        PHOTOGRAPH_DEFAULTS,
        task=DescribingFeatures(),
    ),
    captioning_recipe(
        "captions",
        "Your own images and captions: --train x.jsonl --valid y.jsonl.",
        "你自己的图片及描述：--train x.jsonl --valid y.jsonl。",
        pictures.from_files,
        {"color": True, "schedule": "cosine", "dropout": 0.3, "min_word_count": 2, "beam_size": 5},
    ),
)
