"""Scores, normalizers and masks for the laws: those of the catalogue, and combinations of them.

Every mechanism of the catalogue is included. Queries and keys have 4 features,
the batch is (3 entries, 2 heads).
"""

import torch
from torch import nn

from regard.attention import (
    Additive,
    Alibi,
    Bilinear,
    Boxcar,
    Concat,
    Cosine,
    Dot,
    Dropout,
    Energy,
    Entmax,
    Epanechnikov,
    Gaussian,
    GaussianWindow,
    Gumbel,
    Location,
    RelativeBias,
    Rotary,
    Sample,
    ScaledDot,
    Score,
    SoftCap,
    StraightThrough,
    Temperature,
    WithSink,
    around,
    causal,
    dense,
    documents,
    kernel_sum,
    padding,
    prefix,
    softmax,
    sparsemax,
    window,
)
from regard.catalogue import MECHANISMS

BATCH = (3, 2)


def listed(*kinds):
    return {entry.name: entry.example for entry in MECHANISMS if entry.kind in kinds}


def parameter(*shape):
    return nn.Parameter(0.5 + torch.rand(shape))


LISTED_SCORES = {name: make for name, make in listed("score", "position").items() if isinstance(make(), Score)}
COMBINED_SCORES = {
    "Additive, pooling": lambda: Additive(None, 4, 5),
    "Additive, relu and bias": lambda: Additive(4, 4, 5, activation="relu", bias=True),
    "Additive, sigmoid": lambda: Additive(4, 4, 5, activation="sigmoid"),
    "Concat, deep": lambda: Concat(4, 4, 5, num_layers=3),
    "Cosine, learned": lambda: Cosine(3.0, learned=True),
    "Gaussian, learned": lambda: Gaussian(1.5, learned=True),
    "Gaussian, each feature": lambda: Gaussian(torch.tensor([0.5, 1.0, 1.5, 2.0])),
    "Gaussian, each feature learned": lambda: Gaussian(torch.tensor([0.5, 1.0, 1.5, 2.0]), learned=True),
    "Location, few keys": lambda: Location(4, 4),
    "number * ": lambda: 0.5 * Dot(),
    "parameter * ": lambda: Dot() * parameter(),
    "a parameter for each head * ": lambda: parameter(2, 1, 1) * Dot(),
    "a parameter * Location, few keys": lambda: parameter() * Location(4, 4),
    "- Location, few keys": lambda: -Location(4, 4),
    "Dot + a bias of each head": lambda: Dot() + torch.tensor([-1.0, 0.5])[:, None, None],
    "Dot + a learned bias": lambda: Dot() + parameter(1),
    "Dot + Cosine": lambda: Dot() + Cosine(2.0),
    "Gaussian + Bilinear - Energy": lambda: Gaussian() + 0.5 * Bilinear(4, 4) - Energy(4, 4),
    "ScaledDot + Additive": lambda: ScaledDot() + Additive(4, 4, 5),
    "ScaledDot + Alibi": lambda: ScaledDot() + Alibi(2),
    "ScaledDot + RelativeBias": lambda: ScaledDot() + RelativeBias(2, num_buckets=8, max_distance=10),
    "3 (Bilinear + RelativeBias)": lambda: 3 * (Bilinear(4, 4) + 5 * RelativeBias(2)),
    "Additive + Alibi": lambda: Additive(4, 4, 5) + Alibi(2),
    "Rotary, halves of a part, scaled": lambda: Rotary(
        interleaved=False, rotary_dim=2, scaling={"rope_type": "linear", "factor": 2.0}
    ),
    "Rotary Additive": lambda: Rotary(Additive(4, 4, 5)),
    "Rotary Cosine": lambda: Rotary(Cosine(2.0)),
    "Rotary (ScaledDot + Alibi)": lambda: Rotary(ScaledDot() + Alibi(2)),
    "Rotary ScaledDot + RelativeBias": lambda: Rotary(ScaledDot()) + RelativeBias(2),
    "SoftCap of Bilinear": lambda: SoftCap(Bilinear(4, 4), 1.5),
    "SoftCap of Location, few keys": lambda: SoftCap(Location(4, 4), 1.0),
    "SoftCap of Rotary": lambda: SoftCap(Rotary(ScaledDot()), 1.0),
    "Rotary of SoftCap": lambda: Rotary(SoftCap(ScaledDot(), 1.0)),
    "SoftCap of kernel values": lambda: SoftCap(Epanechnikov(width=3.0), 0.5),
    "SoftCap + Alibi": lambda: SoftCap(ScaledDot(), 1.0) + Alibi(2),
    "a function": lambda: lambda query, key: -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1),
    "number * Epanechnikov": lambda: 2 * Epanechnikov(width=2.5),
    "Epanechnikov, each feature": lambda: Epanechnikov(torch.tensor([1.5, 2.0, 2.5, 3.0])),
    "Boxcar + Epanechnikov": lambda: Boxcar(width=2.0) + Epanechnikov(width=3.0),
}
SCORES = LISTED_SCORES | COMBINED_SCORES

LISTED_NORMALIZERS = listed("normalizer")
COMBINED_NORMALIZERS = {
    "Temperature, learned": lambda: Temperature(parameter()),
    "Temperature, each head": lambda: Temperature(parameter(2, 1, 1)),
    "Gumbel, learned": lambda: Gumbel(parameter()),
    "Entmax, learned": lambda: Entmax(1.7, learned=True),
    "Entmax of each head": lambda: Entmax(torch.tensor([1.3, 2.5]).view(2, 1, 1)),
    "Entmax 3": lambda: Entmax(3.0),
    "GaussianWindow near the start": lambda: GaussianWindow(softmax, 1.5, parameter()),
    "StraightThrough Sample": lambda: StraightThrough(Sample()),
    "StraightThrough Gumbel": lambda: StraightThrough(Gumbel(0.5)),
    "WithSink of each head": lambda: WithSink(softmax, 2, sinks=parameter(2)),
    "WithSink of sparsemax": lambda: WithSink(sparsemax, 1),
    "Dropout of WithSink": lambda: Dropout(WithSink(softmax, 2), 0.4),
    "Dropout of sparsemax": lambda: Dropout(sparsemax, 0.4),
    "Dropout of Sample": lambda: Dropout(Sample(), 0.4),
    "Dropout of GaussianWindow": lambda: Dropout(GaussianWindow(softmax, 1.5, 2.0), 0.4),
    "GaussianWindow of kernel_sum": lambda: GaussianWindow(kernel_sum, 1.5, 2.0),
    "Dropout of kernel_sum": lambda: Dropout(kernel_sum, 0.4),
}
NORMALIZERS = LISTED_NORMALIZERS | COMBINED_NORMALIZERS


def _spread(queries, keys, batch=3):
    """Centers from left of the first key to right of the last one."""
    return torch.linspace(-3.0, keys + 2.0, batch * queries).reshape(batch, queries)


def _random_visible(*shape):
    """Random; the second query has no visible key, and the last key is visible to no query."""
    visible = torch.rand(*shape, generator=torch.Generator().manual_seed(5)) < 0.6
    visible[..., 1, :] = False
    visible[..., -1] = False
    return visible


def _lengths(keys):
    return torch.tensor([keys, 0, keys // 2])


MASKS = {
    "none": lambda q, k: None,
    "padding": lambda q, k: padding(_lengths(k)),
    "padding of each head": lambda q, k: padding(torch.tensor([[k, 2], [0, 1], [k - 1, k]])),
    "padding of a tokenizer": lambda q, k: padding(attention_mask=(torch.arange(k) >= _lengths(k)[:, None]).long()),
    "prefix": lambda q, k: prefix((torch.arange(q) * 2).clamp(max=k)),
    "prefix of each entry": lambda q, k: prefix((torch.arange(q) * _lengths(k)[:, None]).clamp(max=k)),
    "causal": lambda q, k: causal(),
    "causal, first queries blind": lambda q, k: causal(offset=-2),
    "window": lambda q, k: window(1, 2),
    "window off the keys": lambda q, k: window(0, 1, offset=k - 2),
    "around": lambda q, k: around(_spread(q, k), 1.5),
    "around one position": lambda q, k: around(2.0, 1),
    "documents": lambda q, k: documents(torch.arange(q) // 2, torch.arange(k) // 3),
    "documents of each entry": lambda q, k: documents(
        torch.stack([torch.arange(q) // s for s in (1, 2, 3)]), torch.stack([torch.arange(k) // s for s in (3, 1, 2)])
    ),
    "dense": lambda q, k: dense(_random_visible(q, k)),
    "dense of each head": lambda q, k: dense(_random_visible(2, q, k)),
    "dense of each entry": lambda q, k: dense(_random_visible(3, 1, q, k)),
    "and": lambda q, k: (
        causal(1)
        & padding(_lengths(k))
        & window(3, 1)
        & _random_visible(q, k)
        & documents(torch.arange(q) * 0, torch.arange(k) * 0)
    ),
    "around and padding": lambda q, k: padding(_lengths(k)) & around(_spread(q, k), 2),
    "or": lambda q, k: window(1, 0) | padding(_lengths(k)) | _random_visible(q, k),
    "not": lambda q, k: ~window(1, 1) & ~padding(torch.tensor([1, 0, k])),
    "none visible": lambda q, k: dense(torch.zeros(1, 1, dtype=torch.bool)),
}


def kind(part):
    """The kind of scores that it returns or expects: "logits" or "kernel"."""
    return getattr(part, "output_kind", getattr(part, "input_kind", "logits"))


def matching_pairs(scores, normalizers):
    """The pairs of names whose scores are of one kind."""
    return [(s, n) for s in scores for n in normalizers if kind(SCORES[s]()) == kind(NORMALIZERS[n]())]


def breaks_ties(normalize):
    """Whether keys with equal scores get different weights, so that their order matters."""
    weights = normalize(torch.zeros(2, 1, 4))
    return not torch.equal(weights, weights.flip(-1))
