"""14. A motorcycle crash: kernel regression on real measurements.

The measurements are keys and values, the time to predict at is the query. How wide the kernel should be is
learned by gradient descent: each point is predicted from all others, as a mask hides every point from itself.
"""

import csv
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attention import Constant, Gaussian
from regard.attention.equation import attend

with open(Path(__file__).parent / "mcycle.csv", encoding="utf-8") as lines:
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
times, accel = (torch.tensor([[float(row[name])] for row in rows]) for name in ("times", "accel"))
others = ~torch.eye(len(times), dtype=torch.bool)


def left_out(score: nn.Module) -> Tensor:
    """How far off each point is predicted from the others, on average, in g."""
    return (attend(times, times, accel, others, score=score).context - accel).square().mean().sqrt()


print(f"{len(times)} measurements of the acceleration of a head, each predicted from the others; error in g:\n")
print(f"average of all (Constant)         {left_out(Constant()).item():6.2f}")
for width in (8.0, 4.0, 2.0, 1.0, 0.5, 0.25):
    print(f"Gaussian, width {width:<5g}             {left_out(Gaussian(width)).item():6.2f}")

score = Gaussian(width=8.0, learned=True)
steps = torch.optim.Adam(score.parameters(), lr=0.1)
for _ in range(80):
    steps.zero_grad()
    left_out(score).backward()
    steps.step()
error = left_out(score).item()
print(f"Gaussian, width learned: {score.width.item():.2f} ms  {error:6.2f}   (training began at 8)")
assert abs(error - 24.41) < 0.01  # the best there is
