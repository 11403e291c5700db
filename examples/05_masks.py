"""5. Masks: who may be looked at. Rules with names, joined with & | ~; True means: may be looked at."""

import torch

from regard.attention import around, causal, documents, padding, window
from regard.attention.equation import attend


def show(name: str, visible: torch.Tensor) -> None:
    print(f"\n{name}")
    for row in visible:
        print("  " + " ".join("#" if cell else "." for cell in row))


show("causal(): nobody sees what comes later", causal().materialize(6, 6))
show("window(1, 2): one before, two after", window(1, 2).materialize(6, 6))
show("padding(4): the last two keys are filling", padding(4).materialize(6, 6))
show("documents([0, 0, 0, 1, 1, 1]): two texts in one row", documents(torch.arange(6) // 3).materialize(6, 6))
show("around([0, 1.5, 3, ...], 1): a center for each query", around(torch.arange(6) * 1.5, 1).materialize(6, 6))
show("causal() & ~window(1, 0): the past, but not the nearest", (causal() & ~window(1, 0)).materialize(6, 6))

# A decoder asks one question at a time over all keys so far. The last query stands at the last key, so it
# sees the whole past; say offset=0 for masks that count from the top left corner.
show("causal() for 2 queries and 6 keys", causal().materialize(2, 6))
show("causal(offset=0) for 2 queries and 6 keys", causal(offset=0).materialize(2, 6))

# Lengths go by the leading batch axes; heads and queries are put in after them.
query, key, value = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8), torch.randn(2, 3, 6, 8)
seen = attend(query, key, value, padding([6, 2]))  # batch of 2, 3 heads, 4 queries, 6 keys
print("\nkeys seen in batch entry 0 and 1:", (seen.weights[:, 0, 0] > 0).sum(-1).tolist())

# The law: who may look at nothing sees 0, with gradient 0, and spoils nothing for the others.
query.requires_grad_()
seen = attend(query, key, value, padding([6, 0]))
seen.context.sum().backward()
print("context of an entry without keys:", seen.context[1].abs().max().item(), "NaN:", query.grad.isnan().any().item())

# Ones and zeros, or numbers to be added, are not a mask here: which way round they are meant nobody can tell.
try:
    attend(query, key, value, torch.ones(4, 6))
except TypeError as error:
    print(f"\n{error}")
