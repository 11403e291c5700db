"""The studies by name."""

from __future__ import annotations

from regard.studies.bahdanau_luong import bahdanau2015, luong2015
from regard.studies.costs import costs
from regard.studies.han2016 import han2016
from regard.studies.ntm2014 import ALGORITHM_TRIALS, ntm2014
from regard.studies.runner import Study
from regard.studies.vision import vision, xu2015

__all__ = ["STUDIES"]

STUDIES = {
    "bahdanau2015": Study(
        "With and without attention: quality by source length, and the gradient at the first source words.",
        "有无注意力的对比：译文质量随源句长度的变化，以及传到源句开头各词的梯度。",
        bahdanau2015,
    ),
    "luong2015": Study(
        "The order of the gains: none, global, input feeding, local-p; scores dot, general, concat, location.",
        "各项改进的先后：无注意力、全局、输入馈送、local-p；打分函数 dot、general、concat、location。",
        luong2015,
    ),
    "ntm2014": Study(
        "Five tasks for a Neural Turing Machine and for LSTM, beyond the sizes of training.",
        "神经图灵机与 LSTM 的五个任务，测试超出训练时的长度。",
        ntm2014,
        tuple(ALGORITHM_TRIALS),
        takes_data=False,
    ),
    "han2016": Study(
        "Hierarchical attention on IMDB compared with average, maximum and a linear model of n-grams (--data FOLDER).",
        "IMDB 上的层次注意力，与平均、最大值以及 n 元词线性模型对比（--data 文件夹）。",
        han2016,
        has_quick_form=True,
    ),
    "costs": Study(
        "What self-attention, local attention, recurrence and convolution cost over the length, counted and measured.",
        "自注意力、局部注意力、循环与卷积的代价随长度的变化：既计数又实测。",
        costs,
        takes_data=False,
        trains_models=False,
        has_quick_form=True,
    ),
    "xu2015": Study(
        "Soft, hard and no attention over pictures: scenes of digits, MNIST's or Flickr8k (--data FOLDER).",
        "图像上的软注意力、硬注意力与无注意力：数字画面、MNIST 画面或 Flickr8k（--data 文件夹）。",
        xu2015,
    ),
    "vision": Study(
        "Images with and without attention: one digit among clutter, and questions about scenes (--data: MNIST).",
        "有无注意力的看图：杂乱碎片中的一个数字，以及关于画面的提问（--data：MNIST）。",
        vision,
    ),
}
