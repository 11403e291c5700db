"""10. Memory addressing: how a Neural Turing Machine (Graves et al. 2014) reads and writes the rows of a memory.

Content addressing is attention with a cosine score. Its weights are interpolated with the previous ones, shifted and
sharpened, and then used to read or write. Nothing is trained here: the arguments are set by hand in place of a
controller.
"""

import torch

from regard.attention.addressing import address, content, interpolate, read, sharpen, shift, write
from regard.viewing import heatmap

torch.manual_seed(0)
rows, width = 8, 6
memory = torch.full((rows, width), 1e-3)
start = torch.eye(rows)[:1]  # (heads, rows): one head, at row 0
one, erase_all = torch.ones(1), torch.ones(1, width)
forward = torch.tensor([[0.0, 0.0, 1.0]])  # distribution over the offsets -1, 0, +1

# Write five items into consecutive rows: erase, add, and shift the weights one row forward.
items = torch.randn(5, width)
weights = start
for item in items:
    memory = write(memory, weights, erase=erase_all, add=item[None])
    weights = shift(weights, forward)
print("rows that were written:", (memory.abs().amax(-1) > 0.01).int().tolist())

# Address the third item by a noisy copy. A larger strength concentrates the weights on the most similar row.
key = items[2:3] + 0.3 * torch.randn(1, width)
for strength in (1.0, 5.0, 50.0):
    weights = content(key, memory, torch.tensor([strength]))
    print(f"\ncontent, strength {strength:g}\n" + heatmap(weights))

# Read the item after it: address by content, shift, read. This is associative recall.
after = shift(weights, forward)
print(
    "\nerror of reading the fourth item after the third:", round((read(after, memory) - items[3]).abs().max().item(), 4)
)

# An uncertain shift blurs the weights; sharpening concentrates them again.
blurred = shift(start, torch.tensor([[0.1, 0.8, 0.1]]))
print("\nblurred weights, and sharpened\n" + heatmap(torch.cat([blurred, sharpen(blurred, torch.tensor([4.0]))])))

# Interpolation: gate 1 uses the content weights, gate 0 the previous weights.
half = torch.tensor([0.5])
print("\ngate 0.5: half content, half previous\n" + heatmap(interpolate(weights, start, half)))
weights = address(key, torch.tensor([50.0]), one, forward, one, memory, start)
print("\naddress() does all four steps\n" + heatmap(weights))
