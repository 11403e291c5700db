"""Recipes of image classification and visual question answering."""

from __future__ import annotations

from functools import partial

from regard.tasks.legacy import Recipe
from regard.tasks.vision import task as sights
from regard.tasks.vision.task import ImageClassificationTask, VisualQATask

image_classification_recipe = partial(Recipe, task=ImageClassificationTask())


visual_qa_recipe = partial(Recipe, task=VisualQATask())


IMAGE_DEFAULTS = {
    "monitor": "accuracy",
    "schedule": "cosine",
    "lr": 3e-3,
    "warmup_steps": 100,
    "steps": 1500,
    "validate_every": 250,
    "save_every": 250,
}


QUESTION_DEFAULTS = {
    **IMAGE_DEFAULTS,
    "warmup_steps": 200,
    "steps": 6000,
    "validate_every": 500,
    "save_every": 500,
}


RECIPES = (
    image_classification_recipe(
        "digits",
        "One handwritten digit among distractors, found by a learned query; the digits come with scikit-learn.",
        "在干扰碎片中识别一个手写数字，由学到的查询定位；数字来自 scikit-learn 自带的数据集。",
        sights.digits,
        IMAGE_DEFAULTS,
    ),
    image_classification_recipe(
        "mnist-cluttered",
        "One MNIST digit among distractors, in larger images (data_dir=FOLDER).",
        "在更大的图片中识别干扰碎片里的一个 MNIST 数字（data_dir=文件夹）。",
        sights.mnist_cluttered,
        {**IMAGE_DEFAULTS, "image_size": 96},
    ),
    visual_qa_recipe(
        "digit-questions",
        'Questions about scenes of digits ("how many 3s", "what is left of the 4"), answered with attention.',
        "关于数字场景的视觉问答（“how many 3s”“what is left of the 4”），用注意力回答。",
        sights.digit_questions,
        QUESTION_DEFAULTS,
    ),
)
