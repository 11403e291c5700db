"""3. Scores side by side: what counts as alike is the only thing that changes.

The equation stays; another value for the letter `score` makes it the attention of another paper.
"""

import torch

from regard.attention import Additive, Bilinear, Concat, Cosine, Dot, Gaussian, Location, ScaledDot
from regard.attention.equation import attend
from regard.viewing import heatmap

torch.manual_seed(0)
angle = torch.linspace(0, torch.pi, 8)[:, None]
key = torch.cat([angle.cos(), angle.sin()], -1) * torch.linspace(1, 4, 8)[:, None]  # turning, and growing longer
query = key[[1, 6]]

scores = {
    "Dot             q . k": Dot(),
    "ScaledDot       q . k / sqrt(d)": ScaledDot(),
    "Cosine          strength * cos(q, k)": Cosine(strength=8.0),
    "Gaussian        -|q - k|^2 / 2": Gaussian(),
    "Bilinear        q . W k": Bilinear(query_dim=2, key_dim=2),
    "Additive        v . tanh(W q + U k)": Additive(query_dim=2, key_dim=2, hidden_dim=16),
    "Concat          v . tanh(W [q; k])": Concat(query_dim=2, key_dim=2, hidden_dim=16),
    "Location        (W q)_i": Location(query_dim=2, max_keys=8),
}
for name, score in scores.items():
    learned = sum(p.numel() for p in score.parameters())
    print(f"\n{name}" + (f"          {learned} numbers to learn, here untrained" if learned else ""))
    print(heatmap(attend(query, key, key, score=score).weights.detach(), row_labels=["q = k1", "q = k6"]))

print("\nDot products prefer long keys, whatever their direction. Cosine sees the direction only,")
print("and Gaussian the distance. The others learn what alike shall mean.")

# Similarities can be combined: half by angle, half by distance.
both = 0.5 * Cosine(strength=8.0) + 0.5 * Gaussian()
print("\n0.5 * Cosine(8) + 0.5 * Gaussian()")
print(heatmap(attend(query, key, key, score=both).weights, row_labels=["q = k1", "q = k6"]))

# Sizes may differ where the score has a matrix between them; elsewhere it says so in a sentence.
attend(torch.randn(1, 3), torch.randn(4, 5), torch.randn(4, 2), score=Additive(3, 5, 16))
try:
    attend(torch.randn(1, 3), torch.randn(4, 5), torch.randn(4, 2), score=Dot())
except ValueError as error:
    print(f"\n{error}")
