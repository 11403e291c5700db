"""Translators of letters that have learned a little, for tests."""

from functools import cache
from random import Random

import torch

from regard.data.pair_batches import PairBatch
from regard.data.strings import Reverse
from regard.data.tokenizer import Tokenizer
from regard.tasks import Translator, make_config
from regard.tasks.translation.task import TranslationProcessor, build_loss, build_model
from regard.training.trainer import Objective

LETTERS = "abcdefgh"
TEXTS = ["abc", "h", "gfedcba", "aa", "badcafe", "abc"]
MODELS = {
    "additive": [],
    "luong": ["decoder_type=luong", "input_feeding=on", "score=dot", "cell_type=lstm"],
    "hard": ["normalize=sample"],
    "transformer": ["model=transformer", "num_heads=2", "num_layers=2", "norm_first=on", "dropout=0"],
}


@cache
def translator(*words, max_length=40):
    """A model that has learned a little: it has opinions, and mostly comes to an end."""
    torch.manual_seed(0)
    settings = make_config("reverse", ["hidden_dim=16", "embed_dim=16", f"max_length={max_length}", *words])
    letters = Tokenizer.train([LETTERS], model_type="char", vocab_size=50)
    objective = Objective(
        build_model(settings, len(letters), len(letters)), build_loss(settings.replace(label_smoothing=0.0))
    ).train()
    optimizer, strings = (torch.optim.Adam(objective.parameters(), lr=2e-2), Reverse(alphabet=LETTERS, max_length=8))
    for step in range(40):
        pairs = strings.sample(Random(step), 16)
        batch = PairBatch.from_pairs([(letters.encode(pair.source), letters.encode(pair.target)) for pair in pairs])
        optimizer.zero_grad()
        (objective(batch).total / batch.num_tokens).backward()
        optimizer.step()
    return Translator(objective.model, TranslationProcessor(letters, letters), settings)
