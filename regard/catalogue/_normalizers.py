"""The normalizers in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from regard.catalogue._entry import BY_POSITION, CHANCE, Entry
from regard.catalogue._things import walk

NORMALIZERS = (
    Entry(
        "softmax",
        "normalizer",
        zh="把得分变成和为一的正权重。",
        cost="one exponential a score",
        fast="Fused with dot-product scores; the matrix is never written.",
        aliases=("soft", "global"),
    ),
    Entry(
        "Temperature",
        "normalizer",
        zh="带温度的 softmax：越冷越尖锐，越热越平均。",
        cost="one exponential a score",
        fast="Folded into the scale of the fused kernel.",
        build=lambda a: a.Temperature(0.25),
    ),
    Entry(
        "sigmoid",
        "normalizer",
        zh="每个键各自的门，互不争夺。",
        cost="one exponential a score",
        fast="None: the definition.",
        aliases=("gates",),
    ),
    Entry(
        "SigmoidSum",
        "normalizer",
        zh="先过 sigmoid 再归一，使权重之和为一。",
        cost="two exponentials a score",
        fast="None: the definition.",
        build=lambda a: a.SigmoidSum(),
    ),
    Entry(
        "sparsemax",
        "normalizer",
        zh="到单纯形的投影：得分低的键权重恰好为零。",
        cost="about ten passes a row (Newton steps)",
        fast="Own backward pass over the support only.",
        aliases=("sparse",),
    ),
    Entry(
        "entmax15",
        "normalizer",
        zh="介于 softmax 与 sparsemax 之间，alpha = 1.5。",
        cost="about ten passes a row (Newton steps)",
        fast="Own backward pass over the support only.",
        aliases=("entmax 1.5",),
    ),
    Entry(
        "Entmax",
        "normalizer",
        zh="softmax 与 sparsemax 所在的一族，alpha 定稀疏程度。",
        cost="some tens of passes a row (bisection)",
        fast="Newton steps at alpha 1.5 and 2 on a CPU, softmax at 1; own backward pass over the support.",
        aliases=("alpha entmax",),
        build=lambda a: a.Entmax(1.3),
    ),
    Entry(
        "kernel_sum",
        "normalizer",
        zh="核函数值除以它们的和；和为零的行得到零。",
        cost="one division a score",
        fast="None needed.",
        exceptions="Takes kernel values, so it goes with Boxcar and Epanechnikov only.",
        paint=lambda a: (
            a.attend(
                walk(8), walk(16), walk(16), score=a.Epanechnikov(width=2.0), normalize=a.kernel_sum
            ).weights
        ),
    ),
    Entry(
        "hardmax",
        "normalizer",
        zh="只看得分最高的一个键。",
        cost="one maximum a row",
        fast="None: the definition.",
        aliases=("argmax", "hard"),
        exceptions="Its gradient is 0; ties go to the first key.",
    ),
    Entry(
        "Sample",
        "normalizer",
        zh="按 softmax 的概率抽一个键来看（硬注意力，用 REINFORCE 训练）。",
        cost="one exponential and one logarithm a score",
        fast="None: the choice must be the one used.",
        aliases=("hard attention", "reinforce", "xu"),
        exceptions=CHANCE + " Its gradient is 0; the log-probability carries it.",
        build=lambda a: a.Sample(),
    ),
    Entry(
        "StraightThrough",
        "normalizer",
        zh="向前只看一个键，向后用软权重的梯度。",
        cost="that of the normalizer inside, and one maximum a row",
        fast="None: the definition.",
        exceptions="Its gradient is that of the soft normalizer on purpose; ties go to the first key.",
        build=lambda a: a.StraightThrough(a.softmax),
    ),
    Entry(
        "Gumbel",
        "normalizer",
        zh="在得分上加 Gumbel 噪声再作 softmax：可微的抽样。",
        cost="one exponential and two logarithms a score",
        fast="None: the noise must be the one used.",
        aliases=("gumbel softmax", "concrete"),
        exceptions=CHANCE,
        build=lambda a: a.Gumbel(0.5),
    ),
    Entry(
        "TopK",
        "normalizer",
        zh="只在得分最高的 k 个键之间作 softmax。",
        cost="one partial sort a row",
        fast="None: the definition.",
        exceptions="Ties go to the first key.",
        build=lambda a: a.TopK(3),
    ),
    Entry(
        "Dropout",
        "normalizer",
        zh="训练时随机丢掉一部分权重；看到的权重是丢弃之前的。",
        cost="one random number a weight, in training only",
        fast="Drawn by comparing uniform numbers, cheaper than PyTorch's own on a CPU; on a GPU fused.",
        exceptions=CHANCE + " The weights shown are those before dropping.",
        build=lambda a: a.Dropout(a.softmax, 0.1),
    ),
    Entry(
        "Bell",
        "normalizer",
        zh="权重再乘以以某处为中心的钟形曲线，不再归一。",
        cost="one exponential more a score",
        fast="Around a centre only the near keys are gathered.",
        exceptions=BY_POSITION,
        build=lambda a: a.Bell(a.softmax, centre=8.0, sigma=2.0),
    ),
)
