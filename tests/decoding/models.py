"""Small models to decode with, and searches written as plain loops."""

import itertools
import math

import torch
from torch import nn

BOS, EOS, PAD = 2, 3, 0


class Table:
    """Logits that are a fixed random function of the source's first token and all tokens before.

    It is its own state, and records the number of rows of each step.
    """

    def __init__(self, vocab=7, seed=0, sharpness=2.0):
        self.vocab, self.seed, self.sharpness = vocab, seed, sharpness
        self.cache = {}
        self.sizes = []

    def logits(self, prefix):
        if prefix not in self.cache:
            generator = torch.Generator().manual_seed(hash((self.seed, *prefix)) % 2**40)
            self.cache[prefix] = self.sharpness * torch.randn(self.vocab, generator=generator)
        return self.cache[prefix]

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
    """A GRU with dot-product attention: a complete model for decoding."""

    def __init__(self, vocab=12, dim=8, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encode = nn.Linear(dim, dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.lm_head = nn.Linear(dim, vocab)
        with torch.no_grad():  # so far from uniform that searches differ
            self.lm_head.weight.mul_(6)

    def start_decoding(self, source, source_lengths):
        return TranslatorState(self, source, source_lengths)

    def forward(self, source, source_lengths, target_in):
        return self.lm_head(self.forward_hidden(source, source_lengths, target_in))

    def forward_hidden(self, source, source_lengths, target_in):
        state = self.start_decoding(source, source_lengths)
        return torch.stack([state.hidden(tokens) for tokens in target_in.T], 1)

    def attention_weights(self, source, source_lengths, target):
        state = self.start_decoding(source, source_lengths)
        weights = []
        for tokens in target[:, :-1].T:
            state.hidden(tokens)
            weights.append(state.weights())
        layer = torch.stack(weights, 1)[:, None]
        return [layer, layer]


class TranslatorState:
    def __init__(self, model, source, lengths):
        self.model = model
        self.memory = model.encode(model.embed(source)).tanh()
        self.mask = torch.arange(source.shape[1]) < lengths[:, None]
        self.state = torch.where(self.mask[..., None], self.memory, 0).sum(1)

    def hidden(self, tokens):
        scores = (self.memory @ self.state[:, :, None]).squeeze(2).masked_fill(~self.mask, -math.inf)
        self.attention = (3 * scores).softmax(1)
        context = (self.attention[:, None] @ self.memory).squeeze(1)
        self.state = self.model.cell(torch.cat((self.model.embed(tokens), context), 1), self.state)
        return self.model.dropout(self.state)

    def step(self, tokens):
        return self.model.lm_head(self.hidden(tokens))

    def weights(self):
        return self.attention

    def reorder(self, rows):
        self.memory, self.mask, self.state = self.memory[rows], self.mask[rows], self.state[rows]


def sources(*lengths, vocab=12):
    """Random sources of these lengths, EOS counted."""
    source = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, : length - 1] = torch.randint(4, vocab, (length - 1,))
        source[row, length - 1] = EOS
    return source, torch.tensor(lengths)


def all_targets(table, first, longest):
    """All token sequences that end within `longest` tokens, with their log-probabilities."""
    allowed = [token for token in range(table.vocab) if token not in (BOS, EOS, PAD)]
    for length in range(longest):
        for ids in itertools.product(allowed, repeat=length):
            total = sum(table.log_probs((first, BOS, *ids[:i]))[token] for i, token in enumerate((*ids, EOS)))
            yield list(ids), total


def loop_beam_search(table, first, config, longest):
    """Beam search of one sentence in loops, without the early stop: (ids, score) of the best finished ones."""
    beams, finished = [((), 0.0)], []
    for length in range(1, longest + 1):
        candidates = []
        for ids, total in beams:
            for token, log_prob in enumerate(table.log_probs((first, BOS, *ids))):
                if token not in (BOS, PAD) and not (token == EOS and length <= config.min_length):
                    candidates.append(((*ids, token), total + log_prob))
        candidates.sort(key=lambda pair: -pair[1])
        finished += [(ids, total) for ids, total in candidates[: config.beam_size] if ids[-1] == EOS]
        beams = [(ids, total) for ids, total in candidates if ids[-1] != EOS][: config.beam_size]
        if len(finished) >= config.patience * config.beam_size:
            break
    scored = [(list(ids[:-1]), total / config.length_norm(len(ids))) for ids, total in finished]
    return sorted(scored, key=lambda pair: -pair[1])[: config.num_best]


def token_ids(hypotheses):
    return [hypothesis.token_ids for hypothesis in hypotheses]


def scores(hypotheses):
    return [hypothesis.score for hypothesis in hypotheses]
