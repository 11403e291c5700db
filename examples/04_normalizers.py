"""4. Normalizers: soft, sparse and hard. They map the scores of a query to attention weights."""

import torch

from regard.attention import (
    Entmax,
    Gumbel,
    Sample,
    SigmoidSum,
    StraightThrough,
    Temperature,
    TopK,
    entmax15,
    hardmax,
    sigmoid,
    softmax,
    sparsemax,
)

torch.manual_seed(0)
scores = torch.tensor([[2.0, 1.5, 1.0, 0.0, -2.0, -torch.inf]])  # the last key is hidden

normalizers = {
    "soft: every weight is positive": {
        "softmax": softmax,
        "Temperature(4)": Temperature(4.0),  # high temperature: nearly uniform
        "Temperature(0.25)": Temperature(0.25),  # low temperature: nearly one-hot
        "SigmoidSum": SigmoidSum(),
        "sigmoid": sigmoid,  # independent gates; need not sum to 1
    },
    "sparse: most weights are exactly 0": {
        "Entmax(1.25)": Entmax(1.25),
        "entmax15": entmax15,
        "sparsemax": sparsemax,
        "TopK(2)": TopK(2),
    },
    "hard: one key has all the weight": {
        "hardmax": hardmax,  # the best key; no gradient
        "Sample()": Sample(),  # sampled from softmax; trained by REINFORCE (see 09)
        "Gumbel(0.2)": Gumbel(0.2),  # a differentiable sample
        "StraightThrough(softmax)": StraightThrough(softmax),  # one-hot in the forward pass, soft gradient
    },
}
print(f"{'scores':26}" + "".join(f"{s:7.2f}" for s in scores[0].tolist()) + "      sum")
for kind, group in normalizers.items():
    print(f"\n{kind}")
    for name, normalize in group.items():
        weights = normalize(scores)
        numbers = "".join("      -" if w == 0 else f"{w:7.2f}" for w in weights[0].tolist())
        print(f"  {name:24}{numbers}  {weights.sum():7.2f}")
        assert weights[0, -1] == 0  # law: the weight of a hidden key is exactly 0

no_keys = torch.full((1, 6), -torch.inf, requires_grad=True)
softmax(no_keys).sum().backward()
print("\nA row without visible keys: weights", softmax(no_keys).tolist()[0], "gradient", no_keys.grad.tolist()[0])
