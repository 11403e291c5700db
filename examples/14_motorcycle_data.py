"""14. Kernel regression on measurements of a motorcycle crash.

The measured times are keys, the accelerations values, the time to predict at is the query. The width of the kernel is
learned by gradient descent on the leave-one-out error: a mask hides each point from itself.
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


def leave_one_out_error(score: nn.Module) -> Tensor:
    """The root mean square error of predicting each point from all others, in g."""
    return (attend(times, times, accel, others, score=score).context - accel).square().mean().sqrt()


print(f"{len(times)} measurements of the acceleration of a head; leave-one-out error in g:\n")
print(f"average of all (Constant)         {leave_one_out_error(Constant()).item():6.2f}")
for width in (8.0, 4.0, 2.0, 1.0, 0.5, 0.25):
    print(f"Gaussian, width {width:<5g}             {leave_one_out_error(Gaussian(width)).item():6.2f}")

score = Gaussian(width=8.0, learned=True)
optimizer = torch.optim.Adam(score.parameters(), lr=0.1)
for _ in range(80):
    optimizer.zero_grad()
    leave_one_out_error(score).backward()
    optimizer.step()
error = leave_one_out_error(score).item()
print(f"Gaussian, width learned: {score.width.item():.2f} ms  {error:6.2f}   (initially 8)")
assert abs(error - 24.41) < 0.01  # the minimum over all widths
