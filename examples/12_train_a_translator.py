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
from regard.data import (
    EOS_ID,
    PAD_ID,
    BatchingConfig,
    InMemoryPairs,
    PairBatch,
    SentencePair,
    Tokenizer,
    iter_eval_batches,
)
from regard.decoding import Alignment, attention_over_hypotheses, greedy
from regard.models import RNNSeq2Seq
from regard.training import Loss, RunFolder, TrainingConfig, fit
from regard.viewing import heatmap

ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
EINER = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ZEHNER = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]

pairs = [
    SentencePair(f"{ONES[h]} hundred {TENS[t]} {ONES[o]}", f"{EINER[h]} hundert {EINER[o]} und {ZEHNER[t]}")
    for h, t, o in product(range(9), range(8), range(9))
]
known, new = [p for i, p in enumerate(pairs) if i % 10], pairs[::10]
english = Tokenizer.train((p.source for p in known), model_type="word")
german = Tokenizer.train((p.target for p in known), model_type="word")


def next_token_loss(model: nn.Module, batch: PairBatch) -> Loss:
    """The cross entropy of each target token, as a sum, and the number of tokens."""
    logits = model(batch.source, batch.source_lengths, batch.target[:, :-1])
    loss = F.cross_entropy(logits.mT, batch.target[:, 1:], ignore_index=PAD_ID, reduction="sum")
    return Loss(loss, count=batch.num_tokens)


torch.manual_seed(0)
model = RNNSeq2Seq(len(english), len(german), Attention(Additive(64, 64, 32)), embed_dim=32, hidden_dim=64)
data = InMemoryPairs(known, english, german, BatchingConfig(max_tokens=512))
with TemporaryDirectory() as folder:
    config = TrainingConfig(steps=100, lr=0.01, warmup_steps=20)
    fit(model, next_token_loss, data, config, RunFolder(folder), log=print)

batch, rows = next(iter_eval_batches(new, english, german))
found = greedy(model, batch.source, batch.source_lengths)
right = sum(german.decode(one.token_ids) == new[row].target for one, row in zip(found, rows, strict=True))
print(f"\n{right} of {len(rows)} numbers that it never saw are right. Where it looked, writing one of them:")
tokens = (
    english.convert_ids_to_tokens(batch.source[-1].tolist()),
    german.convert_ids_to_tokens([*found[-1].token_ids, EOS_ID]),
)
seen = Alignment(
    *map(tuple, tokens), attention_over_hypotheses(model, batch.source, batch.source_lengths, found)[-1]
).merge_words()
print(heatmap(seen.weights[0, 0], seen.target, seen.source))
