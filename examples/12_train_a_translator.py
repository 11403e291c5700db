"""12. A translator in a program of your own: data, a model and the training engine, without a recipe.

Numbers in words, English to German, where the last two change places: "forty two" is "zwei und vierzig". One in
ten is kept out of training. `fit` keeps checkpoints in a folder and goes on from the newest; here it is thrown away.
"""

from itertools import product
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import Additive, Attention
from regard.data import EOS, PAD, Batch, Corpus, Filling, Pair, Tokenizer, in_order
from regard.decoding import Alignment, greedy, look
from regard.models import Recurrent
from regard.training import Loss, Run, Settings, fit
from regard.viewing import heat

ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
EINER = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ZEHNER = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]

pairs = [
    Pair(f"{ONES[h]} hundred {TENS[t]} {ONES[o]}", f"{EINER[h]} hundert {EINER[o]} und {ZEHNER[t]}")
    for h, t, o in product(range(9), range(8), range(9))
]
known, new = [p for i, p in enumerate(pairs) if i % 10], pairs[::10]
english = Tokenizer.learn((p.source for p in known), kind="word")
german = Tokenizer.learn((p.target for p in known), kind="word")


class NextWord(nn.Module):
    """What is to be made small. The engine asks for nothing else: it knows neither words nor attention."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Loss:
        logits = self.model.output(self.model(batch.source, batch.source_lengths, batch.target[:, :-1]))
        loss = F.cross_entropy(logits.mT, batch.target[:, 1:], ignore_index=PAD, reduction="sum")
        return Loss(loss, count=batch.tokens)


torch.manual_seed(0)
model = Recurrent(len(english), len(german), Attention(Additive(64, 64, 32)), embed_dim=32, dim=64)
data = Corpus(known, english, german, Filling(tokens=512))
with TemporaryDirectory() as folder:
    fit(NextWord(model), data, Settings(steps=100, lr=0.01, warmup=20), Run(folder), say=print)

batch, rows = next(in_order(new, english, german))
found = greedy(model, batch.source, batch.source_lengths)
right = sum(german.decode(one.ids) == new[row].target for one, row in zip(found, rows, strict=True))
print(f"\n{right} of {len(rows)} numbers that it never saw are right. Where it looked, writing one of them:")
tokens = english.tokens(batch.source[-1].tolist()), german.tokens([*found[-1].ids, EOS])
seen = Alignment(*map(tuple, tokens), look(model, batch.source, batch.source_lengths, found)[-1]).words()
print(heat(seen.weights[0, 0], seen.target, seen.source))
