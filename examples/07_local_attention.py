"""7. Local attention (Luong, Pham and Manning 2015): attend to keys around one position.

local-m uses the position of the query; local-p predicts a position from the query.
"""

import time

import torch

from regard.attention import LocalM, LocalP, ScaledDot, attend, window
from regard.viewing import heatmap

torch.manual_seed(0)
source = torch.randn(1, 16, 8)
query = torch.randn(1, 6, 8)

local_m = LocalM(ScaledDot(), radius=2)
print("local-m, radius 2: query t attends to keys around t")
print(heatmap(local_m(query, source, source).weights[0]))

# A decoder passes its position.
print("\nthe same at positions 9 .. 14")
print(heatmap(local_m(query, source, source, query_positions=9).weights[0]))

local_p = LocalP(ScaledDot(), query_dim=8, hidden_dim=16, radius=3)
output = local_p(query, source, source)
print("\nlocal-p, radius 3: each query predicts a position (untrained: near the middle)")
print(heatmap(output.weights[0].detach()))
print(
    "sums of the weights:",
    [round(s, 2) for s in output.weights[0].sum(-1).tolist()],
    "(softmax times a Gaussian, not normalized again)",
)

# The position is trained by the gradient through the Gaussian. The gradient depends on keys within the radius only,
# so the values here increase gradually toward key 12.
optimizer = torch.optim.Adam(local_p.parameters(), lr=0.1)
value = torch.exp(-((torch.arange(16.0) - 12) ** 2) / 20)[None, :, None]  # largest at key 12
for _ in range(100):
    optimizer.zero_grad()
    (-local_p(query, source, value).context.sum()).backward()
    optimizer.step()
print("\nafter training to maximize the context, whose values are largest at key 12")
print(heatmap(local_p(query, source, value).weights[0].detach()))

# Only keys within the radius are gathered, so the cost of a query does not grow with the number of keys.
for keys in (1_000, 10_000, 100_000):
    long = torch.randn(1, keys, 8)
    start = time.perf_counter()
    with torch.no_grad():
        for _ in range(20):
            local_p(query, long, long)
    print(f"{keys:7} keys: {(time.perf_counter() - start) / 20 * 1000:6.2f} ms per call")

# For self-attention, a window mask is local attention; it is computed as a band.
print("\nwindow(2, 2):", tuple(attend(source, source, source, window(2, 2)).context.shape))
