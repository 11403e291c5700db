"""5. Masks: named rules for which keys are visible to a query, combined with & | ~. True means visible."""

import torch

from regard.attention import around, causal, documents, padding, window
from regard.attention.equation import attend


def show(name: str, visible: torch.Tensor) -> None:
    print(f"\n{name}")
    for row in visible:
        print("  " + " ".join("#" if cell else "." for cell in row))


show("causal(): no later keys", causal().materialize(6, 6))
show("window(1, 2): one key before, two after", window(1, 2).materialize(6, 6))
show("padding(4): the last two keys are padding", padding(4).materialize(6, 6))
show("documents([0, 0, 0, 1, 1, 1]): two texts in one sequence", documents(torch.arange(6) // 3).materialize(6, 6))
show("around([0, 1.5, 3, ...], 1): a center for each query", around(torch.arange(6) * 1.5, 1).materialize(6, 6))
show("causal() & ~window(1, 0): earlier keys, except the nearest", (causal() & ~window(1, 0)).materialize(6, 6))

# By default the last query has the position of the last key, so that a decoding step sees all earlier keys.
# With offset=0, query i has the position of key i.
show("causal() for 2 queries and 6 keys", causal().materialize(2, 6))
show("causal(offset=0) for 2 queries and 6 keys", causal(offset=0).materialize(2, 6))

# Lengths have the leading batch axes; axes for heads and queries are inserted after them.
query, key, value = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8), torch.randn(2, 3, 6, 8)
output = attend(query, key, value, padding([6, 2]))  # batch of 2, 3 heads, 4 queries, 6 keys
print("\nvisible keys in batch entry 0 and 1:", (output.weights[:, 0, 0] > 0).sum(-1).tolist())

# Law: a query without visible keys has context 0 and gradient 0, without NaN.
query.requires_grad_()
output = attend(query, key, value, padding([6, 0]))
output.context.sum().backward()
print(
    "context of an entry without keys:", output.context[1].abs().max().item(), "NaN:", query.grad.isnan().any().item()
)

# Integer and float masks are refused, because libraries disagree about their meaning.
try:
    attend(query, key, value, torch.ones(4, 6))
except TypeError as error:
    print(f"\n{error}")
