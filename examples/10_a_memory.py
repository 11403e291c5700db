"""10. A memory: where to read and write, as a Neural Turing Machine does it (Graves et al. 2014).

Finding a row by what stands in it is attention with a cosine score. From there one can stay, step aside and
sharpen. Writing takes the same weights. Here no network is trained: we say ourselves what a controller would
say.
"""

import torch

from regard.attention.addressing import address, content, interpolate, read, sharpen, shift, write
from regard.viewing import heatmap

torch.manual_seed(0)
rows, width = 8, 6
memory = torch.full((rows, width), 1e-3)
start = torch.eye(rows)[:1]  # one head, which looks at row 0: (heads, rows)
one, wipe = torch.ones(1), torch.ones(1, width)
forward = torch.tensor([[0.0, 0.0, 1.0]])  # shares of the offsets -1, 0, +1

# Write five items, each one row further: stay where you were (gate 0), step forward, add.
items = torch.randn(5, width)
weights = start
for item in items:
    memory = write(memory, weights, erase=wipe, add=item[None])
    weights = shift(weights, forward)
print("rows that hold something:", (memory.abs().amax(-1) > 0.01).int().tolist())

# Find the third item again by a noisy copy of it. The strength says how much only the likest counts.
key = items[2:3] + 0.3 * torch.randn(1, width)
for strength in (1.0, 5.0, 50.0):
    found = content(key, memory, torch.tensor([strength]))
    print(f"\ncontent, strength {strength:g}\n" + heatmap(found))

# And read the item after it: find, step forward, read. That is associative recall.
after = shift(found, forward)
print("\nafter the third comes the fourth, off by", round((read(after, memory) - items[3]).abs().max().item(), 4))

# A shift that is not sure of itself blurs the focus; sharpening draws it together again.
unsure = shift(start, torch.tensor([[0.1, 0.8, 0.1]]))
print("\na blurred focus, and sharpened\n" + heatmap(torch.cat([unsure, sharpen(unsure, torch.tensor([4.0]))])))

# The four steps in one call; gate 1 takes what was found, gate 0 the place before.
half = torch.tensor([0.5])
print("\nhalf found, half stayed\n" + heatmap(interpolate(found, start, half)))
whole = address(key, torch.tensor([50.0]), one, forward, one, memory, start)
print("\naddress() is all four: found, moved, sharpened\n" + heatmap(whole))
