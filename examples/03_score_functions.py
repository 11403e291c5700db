"""3. Score functions side by side: the score is all that differs between these attention mechanisms.

The equation is the same; another `score` makes it the attention of another paper.
"""

import torch

from regard.attention import Additive, Bilinear, Concat, Cosine, Dot, Gaussian, Location, ScaledDot
from regard.attention.equation import attend
from regard.viewing import heatmap

torch.manual_seed(0)
angle = torch.linspace(0, torch.pi, 8)[:, None]
key = (
    torch.cat([angle.cos(), angle.sin()], -1) * torch.linspace(1, 4, 8)[:, None]
)  # key i: angle and length grow with i
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
    num_parameters = sum(p.numel() for p in score.parameters())
    print(f"\n{name}" + (f"          {num_parameters} parameters, untrained" if num_parameters else ""))
    print(heatmap(attend(query, key, key, score=score).weights.detach(), row_labels=["q = k1", "q = k6"]))

print("\nDot products prefer long keys. Cosine depends on the direction only, Gaussian on the distance only.")
print("The scores with parameters learn what is similar.")

# Scores can be added and scaled.
both = 0.5 * Cosine(strength=8.0) + 0.5 * Gaussian()
print("\n0.5 * Cosine(8) + 0.5 * Gaussian()")
print(heatmap(attend(query, key, key, score=both).weights, row_labels=["q = k1", "q = k6"]))

# Queries and keys may differ in size if the score has a matrix for each; otherwise there is an error.
attend(torch.randn(1, 3), torch.randn(4, 5), torch.randn(4, 2), score=Additive(3, 5, 16))
try:
    attend(torch.randn(1, 3), torch.randn(4, 5), torch.randn(4, 2), score=Dot())
except ValueError as error:
    print(f"\n{error}")
