"""2. Kernel regression: attention fifty years before it had that name.

Nadaraya and Watson (1964) predict y at x as an average of the known y, weighted by the distance of their x. The x to
predict at is the query, the known x are the keys, the known y the values, and a kernel is the score.
"""

import torch

from regard.attention import Boxcar, Constant, Epanechnikov, Gaussian
from regard.attention.equation import attend
from regard.viewing import heatmap

torch.manual_seed(0)
x = torch.linspace(0, 5, 50)[:, None]  # keys
truth = 2 * x.sin() + x**0.8
y = truth + 0.5 * torch.randn_like(x)  # values: the true function with noise

scores = {
    "Constant (plain average)": Constant(),
    "Gaussian, width 1": Gaussian(width=1.0),
    "Gaussian, width 0.3": Gaussian(width=0.3),
    "Boxcar, width 0.5": Boxcar(width=0.5),  # returns kernel values; the weights are these values,
    "Epanechnikov, width 0.7": Epanechnikov(width=0.7),  # divided by their sum, without softmax
}
for name, score in scores.items():
    error = (attend(x, x, y, score=score).context - truth).square().mean().sqrt()
    print(f"{name:26} root mean square error {error:.3f}")

# The true function is usually unknown. Learn the width that predicts each point best from all others.
others = ~torch.eye(50, dtype=torch.bool)  # hides each point from itself
score = Gaussian(width=1.0, learned=True)
optimizer = torch.optim.Adam(score.parameters(), lr=0.05)
for _ in range(60):
    loss = (attend(x, x, y, others, score=score).context - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
error = (attend(x, x, y, score=score).context - truth).square().mean().sqrt()
print(f"{f'Gaussian, learned: {score.width.item():.2f}':26} root mean square error {error:.3f}")

print("\nThe weights of every fifth x: large for near points, small for far ones.")
print(heatmap(attend(x[::5], x[::5], y[::5], score=score).weights))
