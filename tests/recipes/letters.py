"""Translators of letters that have learned a little, for tests."""

from functools import cache
from random import Random

import torch

from regard.data.batch import Batch
from regard.data.reverse import Reverse
from regard.data.tokenizer import Tokenizer
from regard.recipes import NextWord, Translator, settings_of
from regard.recipes.translation._models import build

LETTERS = "abcdefgh"
TEXTS = ["abc", "h", "gfedcba", "aa", "badcafe", "abc"]
MODELS = {
    "additive": [],
    "luong": ["order=luong", "input_feeding=on", "score=dot", "cell=lstm"],
    "hard": ["normalize=sample"],
    "transformer": ["model=transformer", "heads=2", "layers=2", "norm=pre", "dropout=0"],
}


@cache
def translator(*words, max_length=40):
    """A model that has learned a little: it has opinions, and mostly comes to an end."""
    torch.manual_seed(0)
    settings = settings_of("reverse", ["dim=16", "embed_dim=16", f"max_length={max_length}", *words])
    letters = Tokenizer.learn([LETTERS], kind="char", size=50)
    objective = NextWord(build(settings, len(letters), len(letters)), smoothing=0.0).train()
    optimizer, strings = (
        torch.optim.Adam(objective.parameters(), lr=2e-2),
        Reverse(letters=LETTERS, longest=8),
    )
    for step in range(40):
        pairs = strings.make(Random(step), 16)
        batch = Batch.of([(letters.encode(pair.source), letters.encode(pair.target)) for pair in pairs])
        optimizer.zero_grad()
        (objective(batch).total / batch.tokens).backward()
        optimizer.step()
    return Translator(objective.model, letters, letters, settings)
