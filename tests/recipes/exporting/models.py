"""Small translators that have learned a little, in many kinds, and the engines they can be computed by."""

from functools import cache
from random import Random

import torch

from regard.data.batch import Batch
from regard.data.reverse import Reverse
from regard.data.tokenizer import Tokenizer
from regard.recipes import NextWord, Translator, recipe, settings_of
from regard.recipes.translation._models import build

LETTERS = "abcdefgh"
TEXTS = ["abc", "h", "gfedcba", "", "aa", "badcafe", "abc", "hgfedcbaabcdefgh"]
TRANSFORMERS = {
    "post": ["model=transformer", "heads=2", "layers=2", "dropout=0"],
    "pre": ["model=transformer", "heads=4", "layers=1", "norm=pre", "tied=all", "joint=on", "dropout=0"],
    "tied": ["model=transformer", "heads=1", "layers=1", "tied=output", "hidden_dim=24", "dropout=0"],
}
RECURRENT = {
    "additive": ["tied=output"],
    "luong": ["order=luong", "input_feeding=on", "score=dot", "cell=lstm", "layers=2"],
    "one way": ["bidirectional=off", "score=energy", "normalize=temperature(2)"],
    "deep": ["score=concat(2)", "layers=2", "order=luong"],
    "concat": ["score=concat", "embed_dim=12", "encoder_dim=5"],
    "local-m": ["scope=local-m", "score=scaleddot", "radius=2"],
    "local-p": ["scope=local-p", "score=bilinear", "order=luong", "radius=2"],
    "none": ["scope=none"],
    "average": ["score=constant", "normalize=sigmoid", "cell=lstm"],
}
KINDS = {**TRANSFORMERS, **RECURRENT}


@cache
def translator(kind: str) -> Translator:
    torch.manual_seed(0)
    settings = settings_of("reverse", ["dim=16", "embed_dim=16", "max_length=20", *KINDS[kind]])
    letters = Tokenizer.learn([LETTERS], kind="char", size=50)
    objective = NextWord(build(settings, len(letters), len(letters)), smoothing=0.0).train()
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    strings = Reverse(letters=LETTERS, longest=8)
    for step in range(50 if kind in TRANSFORMERS else 8):
        pairs = strings.make(Random(step), 16)
        batch = Batch.of([(letters.encode(pair.source), letters.encode(pair.target)) for pair in pairs])
        optimizer.zero_grad()
        (objective(batch).total / batch.tokens).backward()
        optimizer.step()
    return Translator(objective.model, letters, letters, settings, recipe("reverse"))
