"""8. Positions: attention ignores the order of keys, so positions are added to the vectors or to the scores.

Sinusoidal and Learned add a vector for the position. Rotary, Alibi and RelativeBias make the score depend on the
distance of query and key.
"""

import torch

from regard.attention import Alibi, RelativeBias, Rotary, ScaledDot, Sinusoidal
from regard.attention.equation import attend
from regard.attention.positions import binary_code
from regard.viewing import heatmap

torch.manual_seed(0)

# Without positions, permuted keys give the same context.
query, key, value = torch.randn(1, 8), torch.randn(6, 8), torch.randn(6, 3)
order = torch.randperm(6)
same = attend(query, key, value).context - attend(query, key[order], value[order]).context
print("difference after permuting, without positions:", round(same.abs().max().item(), 6))
position = Sinusoidal(embed_dim=8)
other = attend(query, position(key), value).context - attend(query, position(key[order]), value[order]).context
print("difference after permuting, with positions:   ", round(other.abs().max().item(), 6))

# The sines of an encoding have decreasing frequencies, like the bits of a binary number.
print("\nthe binary code of 0 .. 31 (one row per bit)")
print(heatmap(binary_code(32)[:, 1:].T.float()))
print("\nthe sines of the encoding of 0 .. 31, each with half the frequency of the one above")
print(heatmap((Sinusoidal(embed_dim=8, base=16).encoding(32)[:, ::2].T + 1) / 2))

# A shift by 5 is the same linear map at every position, so a network can learn distances.
code, step = Sinusoidal(embed_dim=16).encoding(100), Sinusoidal(embed_dim=16).shift_matrix(5)
print("\nerror of the shift by 5 at all positions:", round((code[:-5] @ step.T - code[5:]).abs().max().item(), 6))

# Relative positions: the same vector everywhere, and the score depends on the distance.
ones = torch.ones(12, 16)
print("\nRotary(ScaledDot()): near keys have larger weights")
print(heatmap(attend(ones, ones, ones, score=4 * Rotary(ScaledDot())).weights))
zeros = torch.zeros(8, 12, 16)  # eight heads
print("\nScaledDot() + Alibi(8), the first of eight heads; the others reach further")
print(heatmap(attend(zeros, zeros, zeros, score=ScaledDot() + Alibi(num_heads=8)).weights[0]))

# A learned bias is trained on the fast path, too.
bias = RelativeBias(num_heads=8)
attend(zeros, zeros, torch.randn(8, 12, 3), score=ScaledDot() + bias).context.sum().backward()
print("\ndistance buckets with a gradient:", int((bias.table.grad.abs().sum(-1) > 0).sum()), "of", bias.num_buckets)
