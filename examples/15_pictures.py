"""15. Pictures: the same attention in the terminal, and as PNG and SVG for a paper.

Given the name of a folder, it also writes pictures there, which needs regard[draw].
"""

import sys
from pathlib import Path

import torch

from regard.attention import Alibi, Constant, MultiHead, ScaledDot, Sinusoidal, causal, window
from regard.attention.equation import attend
from regard.attention.positions import binary_code
from regard.viewing import figures as pictures
from regard.viewing import terminal

torch.manual_seed(0)
source = ["Das", "kleine", "Haus", "steht", "am", "See"]
target = ["the", "little", "house", "stands", "by", "the", "lake"]
links = {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (4, 5), (5, 6)}  # (place in the source, place in the target)
gold = torch.tensor([[float((j, i) in links) for j in range(len(source))] for i in range(len(target))])
weights = (3.5 * gold + torch.randn(gold.shape)).softmax(-1)  # what a good model might find
print("where each word of a translation looks")
print(terminal.heatmap(weights, target, source))

x = torch.randn(1, len(target), 64)
layer = MultiHead(64, num_heads=8, score=ScaledDot() + Alibi(num_heads=8))
with torch.no_grad():
    heads = layer(x, x, x, causal()).weights
print("\neight heads with Alibi, from near-sighted to far-sighted")
print(terminal.head_grid(heads))

code = Sinusoidal(embed_dim=24, base=1000).encoding(48)
print("\nthe sines of 48 positions")
print(terminal.position_encoding(code))

rule = causal() & window(3, 0)
print()
print(terminal.mask_matrix(rule, num_queries=10))

t = torch.linspace(0, 6, 60)[:, None]
y = t.sin() + 0.3 * torch.randn_like(t)
seen = attend(t, t, y, window(4, 4), score=Constant())  # a moving average is attention, too
print("\na moving average as attention")
print(terminal.regression_curve(t, y, t, seen.context))

if sys.argv[1:]:
    folder = Path(sys.argv[1])
    drawn = {
        "heat": pictures.heatmap(weights, target, source, sure_links=links - {(4, 5)}, possible_links=links),
        "heads": pictures.head_grid(heads, target, target),
        "positions": pictures.position_encoding(code, compare_with=binary_code(48)),
        "mask": pictures.mask_matrix(rule, num_queries=10),
        "regression": pictures.regression_curve(t, y, t, seen.context, seen.weights, truth=t.sin()),
    }
    for name, picture in drawn.items():
        print("wrote", picture.save(folder / f"{name}.png"), "and", picture.save(folder / f"{name}.svg"))
