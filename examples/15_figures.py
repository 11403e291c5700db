"""15. Figures of attention weights: as text in the terminal, and as PNG and SVG files for a paper.

With a folder as its argument, it also writes the files, which needs regard[draw].
"""

import sys
from pathlib import Path

import torch

from regard.attention import Alibi, Constant, MultiHead, ScaledDot, Sinusoidal, causal, window
from regard.attention.equation import attend
from regard.attention.positions import binary_code
from regard.viewing import figures, terminal

torch.manual_seed(0)
source = ["Das", "kleine", "Haus", "steht", "am", "See"]
target = ["the", "little", "house", "stands", "by", "the", "lake"]
links = {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (4, 5), (5, 6)}  # (source word, target word)
gold = torch.tensor([[float((j, i) in links) for j in range(len(source))] for i in range(len(target))])
weights = (3.5 * gold + torch.randn(gold.shape)).softmax(-1)  # as of a trained model
print("attention weights of the words of a translation")
print(terminal.heatmap(weights, target, source))

x = torch.randn(1, len(target), 64)
layer = MultiHead(64, num_heads=8, score=ScaledDot() + Alibi(num_heads=8))
with torch.no_grad():
    heads = layer(x, x, x, causal()).weights
print("\neight heads with Alibi, from the shortest to the longest range")
print(terminal.head_grid(heads))

code = Sinusoidal(embed_dim=24, base=1000).encoding(48)
print("\nthe sines of 48 positions")
print(terminal.position_encoding(code))

mask = causal() & window(3, 0)
print()
print(terminal.mask_matrix(mask, num_queries=10))

t = torch.linspace(0, 6, 60)[:, None]
y = t.sin() + 0.3 * torch.randn_like(t)
output = attend(t, t, y, window(4, 4), score=Constant())  # a moving average is attention
print("\na moving average as attention")
print(terminal.regression_curve(t, y, t, output.context))

if sys.argv[1:]:
    folder = Path(sys.argv[1])
    files = {
        "heat": figures.heatmap(weights, target, source, sure_links=links - {(4, 5)}, possible_links=links),
        "heads": figures.head_grid(heads, target, target),
        "positions": figures.position_encoding(code, compare_with=binary_code(48)),
        "mask": figures.mask_matrix(mask, num_queries=10),
        "regression": figures.regression_curve(t, y, t, output.context, output.weights, truth=t.sin()),
    }
    for name, figure in files.items():
        print("wrote", figure.save(folder / f"{name}.png"), "and", figure.save(folder / f"{name}.svg"))
