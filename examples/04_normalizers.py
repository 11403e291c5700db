"""4. Normalizers: soft, sparse, hard. How regard is shared out, once the scores are known."""

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
    "soft: everybody gets something": {
        "softmax": softmax,
        "Temperature(4)": Temperature(4.0),  # hot: even
        "Temperature(0.25)": Temperature(0.25),  # cold: jealous
        "SigmoidSum": SigmoidSum(),
        "sigmoid": sigmoid,  # gates on their own, need not sum to 1
    },
    "sparse: most get exactly nothing": {
        "Entmax(1.25)": Entmax(1.25),
        "entmax15": entmax15,
        "sparsemax": sparsemax,
        "TopK(2)": TopK(2),
    },
    "hard: one gets everything": {
        "hardmax": hardmax,  # the best key; no gradient
        "Sample()": Sample(),  # drawn as softmax would share; trained by REINFORCE (see 09)
        "Gumbel(0.2)": Gumbel(0.2),  # a draw made soft, so that a gradient passes
        "StraightThrough(softmax)": StraightThrough(softmax),  # hard forwards, soft backwards
    },
}
print(f"{'scores':26}" + "".join(f"{s:7.2f}" for s in scores[0].tolist()) + "      sum")
for kind, group in normalizers.items():
    print(f"\n{kind}")
    for name, normalize in group.items():
        weights = normalize(scores)
        numbers = "".join("      -" if w == 0 else f"{w:7.2f}" for w in weights[0].tolist())
        print(f"  {name:24}{numbers}  {weights.sum():7.2f}")
        assert weights[0, -1] == 0  # the law of all normalizers: hidden means exactly 0

nothing = torch.full((1, 6), -torch.inf, requires_grad=True)
softmax(nothing).sum().backward()
print("\nA row without any visible key: weights", softmax(nothing).tolist()[0], "gradient", nothing.grad.tolist()[0])
