"""Images in classes, and questions about images, by name, with the settings that go with them."""

from __future__ import annotations

from functools import partial

from regard.recipes._task import Recipe
from regard.recipes.sights import _material as sights
from regard.recipes.sights._answering import Questioning
from regard.recipes.sights._glancing import Sorting

glancing = partial(Recipe, task=Sorting())
questioning = partial(Recipe, task=Questioning())

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

RECIPES = (
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
