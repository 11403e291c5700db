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
        bahdanau2015,
    ),
    "luong2015": Study(
        "The order of the gains: none, global, input feeding, local-p; scores dot, general, concat, location.",
        luong2015,
    ),
    "ntm2014": Study(
        "Five tasks for a Neural Turing Machine and for LSTM, beyond the sizes of training.",
        ntm2014,
        tuple(ALGORITHM_TRIALS),
        takes_data=False,
    ),
    "han2016": Study(
        "Hierarchical attention on IMDB compared with average, maximum and a linear model of n-grams (--data FOLDER).",
        han2016,
        has_quick_form=True,
    ),
    "costs": Study(
        "What self-attention, local attention, recurrence and convolution cost over the length, counted and measured.",
        costs,
        takes_data=False,
        trains_models=False,
        has_quick_form=True,
    ),
    "xu2015": Study(
        "Soft, hard and no attention over pictures: scenes of digits, MNIST's or Flickr8k (--data FOLDER).", xu2015
    ),
    "vision": Study(
        "Images with and without attention: one digit among clutter, and questions about scenes (--data: MNIST).",
        vision,
    ),
}
