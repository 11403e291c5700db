"""1. The equation by hand: four lines of plain PyTorch, and the same four lines as one call.

A query asks, keys are what is asked, values are what can be seen. Attention is a weighted average of the
values.
"""

import math

import torch

from regard.attention.equation import attend
from regard.viewing import heatmap

query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # two questions: "how much to the right?", "how much upwards?"
key = torch.tensor([[3.0, 0.0], [0.0, 3.0], [2.0, 2.0], [9.0, 9.0]])  # four places that can be looked at
value = torch.tensor([[10.0], [20.0], [30.0], [99.0]])  # and what stands there
mask = torch.tensor([True, True, True, False])  # the last one must not be looked at

# How alike are query and key? Dot products, scaled by the root of their size.      (queries, keys)
scores = query @ key.T / math.sqrt(query.shape[-1])

# Who may be looked at? -inf means: whatever happens, not this one.
scores = scores.masked_fill(~mask, -math.inf)

# How is regard shared out? Positive weights that sum to 1 in every row.             (queries, keys)
weights = torch.softmax(scores, -1)

# What is seen? The values in the proportion of their weights.                       (queries, value_dim)
context = weights @ value

print(
    "weights by hand, a row for each query:\n"
    + heatmap(weights, row_labels=["right", "up"], column_labels=list("abcd"))
)
print("context by hand:", context.flatten().tolist())

# The same in one call. True in a mask means: may be looked at.
seen = attend(query, key, value, mask)
print("context of attend:", seen.context.flatten().tolist())
assert torch.allclose(seen.context, context)
assert torch.allclose(seen.weights, weights)  # computed now, because somebody reads them
assert seen.weights[:, 3].tolist() == [0.0, 0.0]  # hidden means exactly 0
