"""9. Hard attention: look at one key only, and learn where by trial and error (REINFORCE).

The task: eight boxes, each with a tag and a digit. Told a tag, name its digit. Looking into one box is all
that is allowed, so no gradient says which box would have been better. What can be known is the reward after
the choice: make choices more likely that were better than usual (Xu et al. 2015, arXiv 1502.03044).
"""

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import Attention, Bilinear, Sample
from regard.viewing import heatmap

torch.manual_seed(0)
BOXES, BATCH = 8, 256

attention = Attention(Bilinear(query_dim=BOXES, key_dim=BOXES), Sample())
reader = nn.Linear(10, 10)
optimizer = torch.optim.Adam([*attention.parameters(), *reader.parameters()], lr=0.03)
baseline = -2.3  # what reward is usual; at first that of guessing one of ten digits


def boxes(count: int):
    """Tags in random order, a digit in each box, and which tag is asked for."""
    order = torch.rand(count, BOXES).argsort(-1)
    digits = torch.randint(10, (count, BOXES))
    asked = torch.randint(BOXES, (count,))
    wanted = digits.gather(1, (order == asked[:, None]).long().argmax(-1, keepdim=True)).squeeze(1)
    return (
        F.one_hot(asked, BOXES).float()[:, None],
        F.one_hot(order, BOXES).float(),
        F.one_hot(digits, 10).float(),
        wanted,
    )


for step in range(301):
    query, key, value, wanted = boxes(BATCH)
    seen = attention(query, key, value)  # weights are one-hot: one box was opened
    loss = F.cross_entropy(reader(seen.context.squeeze(1)), wanted, reduction="none")
    reward = -loss.detach()
    better = reward - baseline  # than usual; without it every choice would seem bad
    surprise = -(better * seen.log_prob.squeeze(1)).mean()
    openness = seen.entropy.mean()  # a bonus for not deciding too early
    optimizer.zero_grad()
    (loss.mean() + surprise - 0.02 * openness).backward()
    optimizer.step()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    if step % 100 == 0:
        print(f"step {step:3}: usual reward {baseline:6.2f}, entropy of the choice {openness.item():.2f}")

attention.eval()  # now it takes the most likely box instead of drawing one
query, key, value, wanted = boxes(2000)
right = (reader(attention(query, key, value).context.squeeze(1)).argmax(-1) == wanted).float().mean()
print(f"\ndigits named right: {100 * right.item():.1f} %")
print("for each tag asked (rows), the box looked into, boxes in order of their tags:")
print(heatmap(attention(torch.eye(BOXES), torch.eye(BOXES), torch.eye(BOXES)).weights))
