"""The definitions as plain loops over Python numbers."""

import math

import torch


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


def norm(vector):
    return math.sqrt(sum(x * x for x in vector))


def softmax(scores):
    """Softmax of scores that are -inf for hidden keys; zeros if all are hidden."""
    top = max(scores, default=-math.inf)
    if top == -math.inf:
        return [0.0] * len(scores)
    powers = [math.exp(s - top) for s in scores]
    return [p / sum(powers) for p in powers]


def scores(pair, query, key):
    """pair(q, k, i, j) for every query and key of one sequence: (queries, keys)."""
    query, key = query.tolist(), key.tolist()
    rows = [[pair(q, k, i, j) for j, k in enumerate(key)] for i, q in enumerate(query)]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(query), len(key))


def attend(pair, query, key, value, visible=None, normalize=softmax):
    """Context and weights of one sequence, by the four lines of the equation."""
    value = value.tolist()
    table = scores(pair, query, key).tolist()
    weights, context = [], []
    for i, row in enumerate(table):
        is_visible = [visible is None or bool(visible[i][j]) for j in range(len(row))]
        row = normalize([s if may else -math.inf for s, may in zip(row, is_visible, strict=True)])
        weights.append(row)
        context.append([sum(w * v[c] for w, v in zip(row, value, strict=True)) for c in range(len(value[0]))])
    return torch.tensor(context, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


def mask(rule, queries, keys):
    """rule(i, j) for every query and key."""
    rows = [[bool(rule(i, j)) for j in range(keys)] for i in range(queries)]
    return torch.tensor(rows, dtype=torch.bool).reshape(queries, keys)
