"""6. Multi-head attention: several looks at once, and how to bring your weights along from PyTorch."""

import torch
from torch import nn

from regard.attention import Additive, KVCache, MultiHead, causal, padding

torch.manual_seed(0)
x = torch.randn(2, 5, 16)  # batch, positions, dim

# Self-attention: queries, keys and values are projections of the same vectors.
heads = MultiHead(embed_dim=16, num_heads=4)
seen = heads(x, mask=causal() & padding([5, 3]))
print("context", tuple(seen.context.shape), "weights (batch, heads, queries, keys)", tuple(seen.weights.shape))

# Cross-attention: give keys (and values, if they are not the keys).
print("cross  ", tuple(heads(x, torch.randn(2, 9, 16)).weights.shape))

# Fewer heads of keys and values than of queries (grouped-query), or one for all (multi-query).
for kv_heads in (4, 2, 1):
    module = MultiHead(16, 4, num_kv_heads=kv_heads)
    print(f"kv_heads={kv_heads}: {sum(p.numel() for p in module.parameters())} parameters")

# Any score can have heads; a head has dim / heads features.
print("additive heads", tuple(MultiHead(16, 4, score=Additive(4, 4, 8))(x).context.shape))

# PyTorch's module with the same weights gives the same answer.
theirs = nn.MultiheadAttention(16, 4, batch_first=True)
ours = MultiHead.from_torch(theirs)
hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])  # there True means: must not be looked at
their_context, their_weights = theirs(x, x, x, key_padding_mask=hidden, average_attn_weights=False)
seen = ours(x, mask=padding([5, 3]))  # here True means: may be looked at
print("difference of contexts", (seen.context - their_context).abs().max().item())
print("difference of weights ", (seen.weights - their_weights).abs().max().item())

# Step by step, as a decoder does: the cache keeps the projected keys, so a step costs one query.
cache = KVCache()
with torch.no_grad():
    steps = [ours(x[:, t : t + 1], mask=causal(), cache=cache).context for t in range(5)]
    whole = ours(x, mask=causal()).context
print("difference of steps and whole", (torch.cat(steps, 1) - whole).abs().max().item())
