"""1. The attention equation: four lines of plain PyTorch, and the same four lines as one call.

Attention is a weighted average of values. The weight of a value depends on the score of its key for the query.
"""

import math

import torch

from regard.attention.equation import attend
from regard.viewing import heatmap

query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # two queries: "right" and "up"
key = torch.tensor([[3.0, 0.0], [0.0, 3.0], [2.0, 2.0], [9.0, 9.0]])  # four keys
value = torch.tensor([[10.0], [20.0], [30.0], [99.0]])  # one value for each key
mask = torch.tensor([True, True, True, False])  # True = visible; the last key is hidden

# Scores: dot products, scaled by the square root of the dimension.            (queries, keys)
scores = query @ key.T / math.sqrt(query.shape[-1])

# Mask: the score of a hidden key is -inf.
scores = scores.masked_fill(~mask, -math.inf)

# Normalize: positive weights that sum to 1 in each row.                       (queries, keys)
weights = torch.softmax(scores, -1)

# Context: the weighted average of the values.                                 (queries, value_dim)
context = weights @ value

print(
    "weights by hand, one row per query:\n" + heatmap(weights, row_labels=["right", "up"], column_labels=list("abcd"))
)
print("context by hand:", context.flatten().tolist())

# The same in one call.
output = attend(query, key, value, mask)
print("context of attend:", output.context.flatten().tolist())
assert torch.allclose(output.context, context)
assert torch.allclose(output.weights, weights)  # computed when they are read
assert output.weights[:, 3].tolist() == [0.0, 0.0]  # the weight of a hidden key is exactly 0
