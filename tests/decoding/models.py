"""Small models for the searches, and the searches once more in plain loops."""

import itertools
import math

import torch
from torch import nn

BOS, EOS, PAD = 2, 3, 0


class Table:
    """Logits that are a fixed random function of the source's first token and all tokens before.

    It is its own steps, and notes how many rows each step had.
    """

    def __init__(self, vocab=7, seed=0, sharpness=2.0):
        self.vocab, self.seed, self.sharpness = vocab, seed, sharpness
        self.known = {}
        self.sizes = []

    def logits(self, prefix):
        if prefix not in self.known:
            generator = torch.Generator().manual_seed(hash((self.seed, *prefix)) % 2**40)
            self.known[prefix] = self.sharpness * torch.randn(self.vocab, generator=generator)
        return self.known[prefix]

    def log_probs(self, prefix):
        return self.logits(tuple(prefix)).log_softmax(-1).tolist()

    def start_decoding(self, source, source_lengths):
        self.prefixes = [(first,) for first in source[:, 0].tolist()]
        return self

    def step(self, tokens):
        self.sizes.append(len(tokens))
        self.prefixes = [(*p, t) for p, t in zip(self.prefixes, tokens.tolist(), strict=True)]
        return torch.stack([self.logits(p) for p in self.prefixes])

    def reorder(self, rows):
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]


class Translator(nn.Module):
    """A GRU that looks at its source with dot products: the whole protocol on one page."""

    def __init__(self, vocab=12, dim=8, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encode = nn.Linear(dim, dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.lm_head = nn.Linear(dim, vocab)
        with torch.no_grad():  # far enough from uniform that searches differ
            self.lm_head.weight.mul_(6)

    def start_decoding(self, source, source_lengths):
        return Steps(self, source, source_lengths)

    def forward(self, source, source_lengths, target_in):
        steps = self.start_decoding(source, source_lengths)
        return torch.stack([steps.hidden(tokens) for tokens in target_in.T], 1)

    def attention_weights(self, source, source_lengths, target):
        steps = self.start_decoding(source, source_lengths)
        seen = []
        for tokens in target[:, :-1].T:
            steps.hidden(tokens)
            seen.append(steps.weights())
        one = torch.stack(seen, 1)[:, None]
        return [one, one]


class Steps:
    def __init__(self, model, source, lengths):
        self.model = model
        self.memory = model.encode(model.embed(source)).tanh()
        self.real = torch.arange(source.shape[1]) < lengths[:, None]
        self.state = torch.where(self.real[..., None], self.memory, 0).sum(1)

    def hidden(self, tokens):
        scores = (self.memory @ self.state[:, :, None]).squeeze(2).masked_fill(~self.real, -math.inf)
        self.seen = (3 * scores).softmax(1)
        context = (self.seen[:, None] @ self.memory).squeeze(1)
        self.state = self.model.cell(torch.cat((self.model.embed(tokens), context), 1), self.state)
        return self.model.dropout(self.state)

    def step(self, tokens):
        return self.model.output(self.hidden(tokens))

    def weights(self):
        return self.seen

    def reorder(self, rows):
        self.memory, self.real, self.state = self.memory[rows], self.real[rows], self.state[rows]


def sources(*lengths, vocab=12):
    """Random sources of these lengths, EOS counted."""
    source = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, : length - 1] = torch.randint(4, vocab, (length - 1,))
        source[row, length - 1] = EOS
    return source, torch.tensor(lengths)


def every_translation(table, first, longest):
    """All token sequences that end within `longest` tokens, with their log-probabilities."""
    words = [token for token in range(table.vocab) if token not in (BOS, EOS, PAD)]
    for length in range(longest):
        for ids in itertools.product(words, repeat=length):
            total = sum(table.log_probs((first, BOS, *ids[:i]))[token] for i, token in enumerate((*ids, EOS)))
            yield list(ids), total


def plain_beam(table, first, options, longest):
    """Beam search of one sentence in loops, without the bound: (ids, score) of the best that ended."""
    beams, ended = [((), 0.0)], []
    for length in range(1, longest + 1):
        grown = []
        for ids, total in beams:
            for token, own in enumerate(table.log_probs((first, BOS, *ids))):
                if token not in (BOS, PAD) and not (token == EOS and length <= options.min_length):
                    grown.append(((*ids, token), total + own))
        grown.sort(key=lambda one: -one[1])
        ended += [(ids, total) for ids, total in grown[: options.beam] if ids[-1] == EOS]
        beams = [(ids, total) for ids, total in grown if ids[-1] != EOS][: options.beam]
        if len(ended) >= options.patience * options.beam:
            break
    scored = [(list(ids[:-1]), total / options.penalty(len(ids))) for ids, total in ended]
    return sorted(scored, key=lambda one: -one[1])[: options.best]
