"""7. Local attention: look near a place, and pay only for what is near.

Luong, Pham and Manning (2015). local-m takes the query's own position as the place; local-p predicts one.
"""

import time

import torch

from regard.attention import LocalM, LocalP, ScaledDot, attend, window
from regard.viewing import heatmap

torch.manual_seed(0)
source = torch.randn(1, 16, 8)
query = torch.randn(1, 6, 8)

local_m = LocalM(ScaledDot(), radius=2)
print("local-m, radius 2: query t looks around key t")
print(heatmap(local_m(query, source, source).weights[0]))

# A decoder that is at step 9 says so.
print("\nthe same at positions 9 .. 14")
print(heatmap(local_m(query, source, source, query_positions=9).weights[0]))

local_p = LocalP(ScaledDot(), query_dim=8, hidden_dim=16, radius=3)
seen = local_p(query, source, source)
print("\nlocal-p, radius 3: every query predicts its place (here untrained, so near the middle)")
print(heatmap(seen.weights[0].detach()))
print("sums of the weights:", [round(s, 2) for s in seen.weights[0].sum(-1).tolist()], "(a bell, not renormalized)")

# The place is learned by gradient: through the bell, to the network that predicts it. It learns from what it
# sees, so a light beyond the radius would stay unnoticed; a hill of light leads it to the top.
steps = torch.optim.Adam(local_p.parameters(), lr=0.1)
value = torch.exp(-((torch.arange(16.0) - 12) ** 2) / 20)[None, :, None]  # brightest at key 12
for _ in range(100):
    steps.zero_grad()
    (-local_p(query, source, value).context.sum()).backward()
    steps.step()
print("\nafter training to see much light, which is at key 12")
print(heatmap(local_p(query, source, value).weights[0].detach()))

# Only near keys are ever touched, so the cost of a query does not grow with the number of keys.
for keys in (1_000, 10_000, 100_000):
    long = torch.randn(1, keys, 8)
    start = time.perf_counter()
    with torch.no_grad():
        for _ in range(20):
            local_p(query, long, long)
    print(f"{keys:7} keys: {(time.perf_counter() - start) / 20 * 1000:6.2f} ms a call")

# A window is local attention for self-attention: a band, computed as a band.
print("\nwindow(2, 2):", tuple(attend(source, source, source, window(2, 2)).context.shape))
