"""6. Multi-head attention: self-attention, cross-attention, grouped queries, weights from PyTorch, a KV cache."""

import torch
from torch import nn

from regard.attention import Additive, KVCache, MultiHead, causal, padding

torch.manual_seed(0)
x = torch.randn(2, 5, 16)  # batch, positions, dim

# Self-attention: queries, keys and values are projections of the same vectors.
attention = MultiHead(embed_dim=16, num_heads=4)
output = attention(x, mask=causal() & padding([5, 3]))
print("context", tuple(output.context.shape), "weights (batch, heads, queries, keys)", tuple(output.weights.shape))

# Cross-attention: pass the keys, and the values if they differ from the keys.
print("cross  ", tuple(attention(x, torch.randn(2, 9, 16)).weights.shape))

# Fewer heads for keys and values than for queries (grouped-query), or one for all (multi-query).
for num_kv_heads in (4, 2, 1):
    module = MultiHead(16, 4, num_kv_heads=num_kv_heads)
    print(f"num_kv_heads={num_kv_heads}: {sum(p.numel() for p in module.parameters())} parameters")

# Any score works with heads; a head has embed_dim / num_heads features.
print("additive heads", tuple(MultiHead(16, 4, score=Additive(4, 4, 8))(x).context.shape))

# PyTorch's module with the same weights has the same output.
theirs = nn.MultiheadAttention(16, 4, batch_first=True)
ours = MultiHead.from_torch(theirs)
hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])  # in PyTorch, True means hidden
their_context, their_weights = theirs(x, x, x, key_padding_mask=hidden, average_attn_weights=False)
output = ours(x, mask=padding([5, 3]))  # in regard, True means visible
print("difference of contexts", (output.context - their_context).abs().max().item())
print("difference of weights ", (output.weights - their_weights).abs().max().item())

# Decoding step by step: the cache keeps projected keys and values, so a step costs one query.
cache = KVCache()
with torch.no_grad():
    steps = [ours(x[:, t : t + 1], mask=causal(), cache=cache).context for t in range(5)]
    full = ours(x, mask=causal()).context
print("difference of steps and full pass", (torch.cat(steps, 1) - full).abs().max().item())
