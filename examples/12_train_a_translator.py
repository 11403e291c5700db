"""12. Train a translator without a recipe: data, a model and the training engine in your own program.

Number words from English to German, where the last two are swapped: "forty two" is "zwei und vierzig". One tenth is
held out for testing. `fit` saves checkpoints in a folder, from which the same call resumes; here it is temporary.
"""

from itertools import product
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import Additive, Attention
from regard.data import EOS_ID, PAD_ID, BatchingConfig, InMemoryPairs, PairBatch, SentencePair, Tokenizer
from regard.data.pair_sources import iter_eval_batches
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
train_pairs, test_pairs = [p for i, p in enumerate(pairs) if i % 10], pairs[::10]
english = Tokenizer.train((p.source for p in train_pairs), model_type="word")
german = Tokenizer.train((p.target for p in train_pairs), model_type="word")


def next_token_loss(model: nn.Module, batch: PairBatch) -> Loss:
    """The cross entropy of each target token, as a sum, and the number of tokens."""
    logits = model(batch.source, batch.source_lengths, batch.target[:, :-1])
    loss = F.cross_entropy(logits.mT, batch.target[:, 1:], ignore_index=PAD_ID, reduction="sum")
    return Loss(loss, count=batch.num_tokens)


torch.manual_seed(0)
model = RNNSeq2Seq(len(english), len(german), Attention(Additive(64, 64, 32)), embed_dim=32, hidden_dim=64)
data = InMemoryPairs(train_pairs, english, german, BatchingConfig(max_tokens=512))
with TemporaryDirectory() as folder:
    config = TrainingConfig(steps=100, lr=0.01, warmup_steps=20)
    fit(model, next_token_loss, data, config, RunFolder(folder), log=print)

batch, rows = next(iter_eval_batches(test_pairs, english, german))
hypotheses = greedy(model, batch.source, batch.source_lengths)
correct = sum(german.decode(h.token_ids) == test_pairs[row].target for h, row in zip(hypotheses, rows, strict=True))
print(f"\n{correct} of {len(rows)} test numbers are translated correctly. The attention weights of one of them:")
source = tuple(english.convert_ids_to_tokens(batch.source[-1].tolist()))
target = tuple(german.convert_ids_to_tokens([*hypotheses[-1].token_ids, EOS_ID]))
weights = attention_over_hypotheses(model, batch.source, batch.source_lengths, hypotheses)[-1]
words = Alignment(source, target, weights).merge_words()
print(heatmap(words.weights[0, 0], words.target, words.source))
