"""8. Positions: attention does not see order, so somebody has to tell it.

Either the vectors are told where they stand (Sinusoidal, Learned), or the score is told how far apart query
and key are (Rotary, Alibi, RelativeBias).
"""

import torch

from regard.attention import Alibi, RelativeBias, Rotary, ScaledDot, Sinusoidal
from regard.attention.equation import attend
from regard.attention.positions import binary_code
from regard.viewing import heatmap

torch.manual_seed(0)

# Without positions, shuffled keys give the same answer.
query, key, value = torch.randn(1, 8), torch.randn(6, 8), torch.randn(6, 3)
order = torch.randperm(6)
same = attend(query, key, value).context - attend(query, key[order], value[order]).context
print("difference after shuffling, without positions:", round(same.abs().max().item(), 6))
position = Sinusoidal(embed_dim=8)
other = attend(query, position(key), value).context - attend(query, position(key[order]), value[order]).context
print("difference after shuffling, with positions:   ", round(other.abs().max().item(), 6))

# Sines from fast to slow are a smooth way of counting. The binary code does it in steps.
print("\nthe binary code of 0 .. 31 (rows are bits)")
print(heatmap(binary_code(32)[:, 1:].T.float()))
print("\nthe sines of the encoding of 0 .. 31, each half as fast as the one above")
print(heatmap((Sinusoidal(embed_dim=8, base=16).encoding(32)[:, ::2].T + 1) / 2))

# A step of 5 is the same linear map everywhere, so a network can learn distances.
code, step = Sinusoidal(embed_dim=16).encoding(100), Sinusoidal(embed_dim=16).shift_matrix(5)
print("\nerror of 'turn by 5' at all positions:", round((code[:-5] @ step.T - code[5:]).abs().max().item(), 6))

# Relative: the same vector everywhere, and yet the score knows the distance.
ones = torch.ones(12, 16)
print("\nRotary(ScaledDot()): near is more alike")
print(heatmap(attend(ones, ones, ones, score=4 * Rotary(ScaledDot())).weights))
zeros = torch.zeros(8, 12, 16)  # eight heads
print("\nScaledDot() + Alibi(8), the first of eight heads; the others see further")
print(heatmap(attend(zeros, zeros, zeros, score=ScaledDot() + Alibi(num_heads=8)).weights[0]))

# A learned bias trains on the fast path too.
bias = RelativeBias(num_heads=8)
attend(zeros, zeros, torch.randn(8, 12, 3), score=ScaledDot() + bias).context.sum().backward()
print(
    "\nlearned distances that got a gradient:", int((bias.table.grad.abs().sum(-1) > 0).sum()), "of", bias.num_buckets
)
