"""2. Kernel regression: attention fifty years before it had that name.

Nadaraya and Watson (1964) predicted y at x as the average of all known y, each weighted by how near its x
is. The x to predict at is the query, the known x are the keys, the known y the values, and nearness is the
score.
"""

import torch

from regard.attention import Boxcar, Constant, Epanechnikov, Gaussian
from regard.attention.equation import attend
from regard.viewing import heatmap

torch.manual_seed(0)
x = torch.linspace(0, 5, 50)[:, None]  # keys
truth = 2 * x.sin() + x**0.8
y = truth + 0.5 * torch.randn_like(x)  # values: the truth, and noise

scores = {
    "Constant (plain average)": Constant(),
    "Gaussian, width 1": Gaussian(width=1.0),
    "Gaussian, width 0.3": Gaussian(width=0.3),
    "Boxcar, width 0.5": Boxcar(width=0.5),  # gives kernel values, which are shared out
    "Epanechnikov, width 0.7": Epanechnikov(width=0.7),  # in proportion; no softmax needed
}
for name, score in scores.items():
    error = (attend(x, x, y, score=score).context - truth).square().mean().sqrt()
    print(f"{name:26} distance from the truth {error:.3f}")

# Which width is best, if the truth is not known? The one that predicts each point best from the others.
others = ~torch.eye(50, dtype=torch.bool)  # hides every point from itself
score = Gaussian(width=1.0, learned=True)
steps = torch.optim.Adam(score.parameters(), lr=0.05)
for _ in range(60):
    loss = (attend(x, x, y, others, score=score).context - y).square().mean()
    steps.zero_grad()
    loss.backward()
    steps.step()
error = (attend(x, x, y, score=score).context - truth).square().mean().sqrt()
print(f"{f'Gaussian, learned: {score.width.item():.2f}':26} distance from the truth {error:.3f}")

print("\nThe weights of every fifth x: near is much, far is little.")
print(heatmap(attend(x[::5], x[::5], y[::5], score=score).weights))
