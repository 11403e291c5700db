"""9. Hard attention: attend to a single sampled key, trained by REINFORCE (Xu et al. 2015, arXiv 1502.03044).

The task: eight boxes, each with a tag and a digit; given a tag, predict its digit. Only one box may be opened, so no
gradient tells which box would have been better. REINFORCE makes choices more probable whose reward is above a
baseline.
"""

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import Attention, Bilinear, Sample
from regard.viewing import heatmap

torch.manual_seed(0)
NUM_BOXES, BATCH_SIZE = 8, 256

attention = Attention(Bilinear(query_dim=NUM_BOXES, key_dim=NUM_BOXES), Sample())
classifier = nn.Linear(10, 10)
optimizer = torch.optim.Adam([*attention.parameters(), *classifier.parameters()], lr=0.03)
baseline = -2.3  # moving average of the reward; it begins at that of a uniform guess of ten digits


def sample_boxes(count: int):
    """Queries (a tag), keys (the tags of the boxes in random order), values (their digits), and the correct digits."""
    order = torch.rand(count, NUM_BOXES).argsort(-1)
    digits = torch.randint(10, (count, NUM_BOXES))
    tags = torch.randint(NUM_BOXES, (count,))
    target = digits.gather(1, (order == tags[:, None]).long().argmax(-1, keepdim=True)).squeeze(1)
    return (
        F.one_hot(tags, NUM_BOXES).float()[:, None],
        F.one_hot(order, NUM_BOXES).float(),
        F.one_hot(digits, 10).float(),
        target,
    )


for step in range(301):
    query, key, value, target = sample_boxes(BATCH_SIZE)
    output = attention(query, key, value)  # the weights are one-hot
    loss = F.cross_entropy(classifier(output.context.squeeze(1)), target, reduction="none")
    reward = -loss.detach()
    advantage = reward - baseline
    policy_loss = -(advantage * output.log_prob.squeeze(1)).mean()
    entropy = output.entropy.mean()  # its bonus keeps the model exploring
    optimizer.zero_grad()
    (loss.mean() + policy_loss - 0.02 * entropy).backward()
    optimizer.step()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    if step % 100 == 0:
        print(f"step {step:3}: mean reward {baseline:6.2f}, entropy of the choice {entropy.item():.2f}")

attention.eval()  # takes the most probable box instead of sampling
query, key, value, target = sample_boxes(2000)
accuracy = (classifier(attention(query, key, value).context.squeeze(1)).argmax(-1) == target).float().mean()
print(f"\naccuracy: {100 * accuracy.item():.1f} %")
print("the box that is opened for each tag (rows: tags, columns: boxes in the order of their tags):")
print(heatmap(attention(torch.eye(NUM_BOXES), torch.eye(NUM_BOXES), torch.eye(NUM_BOXES)).weights))
