"""The scores and normalizers of the catalogue.

In each entry `a` is the module `regard.attention`, imported when the example is made; the costs are for m queries, n
keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from functools import partial

from regard.catalogue.mechanism import POSITIONAL, RANDOM, Mechanism, half_circle

__all__ = ["NORMALIZERS", "SCORES"]

score = partial(Mechanism, kind="score", cost="m n d multiplications")
normalizer = partial(Mechanism, kind="normalizer", cost="one exponential a score", fast_path="None: the definition.")

FUSED = "one call of PyTorch's fused scaled_dot_product_attention"


SCORES = (
    score(
        "Constant",
        summary_zh="所有键得分相同：注意力就是可见值的平均（平均汇聚）。",
        cost="n d additions for all queries together",
        fast_path="The mean of the visible values; no queries x keys matrix is made.",
        aliases=("average", "mean", "average pooling"),
    ),
    score(
        "Dot",
        summary_zh="查询与键的点积。",
        fast_path=f"It is {FUSED} with scale 1.",
        aliases=("luong dot", "dot product"),
    ),
    score(
        "ScaledDot",
        summary_zh="点积除以维度的平方根，使其方差不随维度增大。",
        fast_path=f"It is {FUSED}.",
        aliases=("scaled dot product", "transformer", "vaswani"),
    ),
    score(
        "Bilinear",
        summary_zh="经可学习的线性映射之后的点积。",
        cost="m d^2 + m n d multiplications",
        fast_path=f"Each query is projected once, then {FUSED}.",
        aliases=("general", "luong general", "multiplicative"),
    ),
    score(
        "Additive",
        summary_zh="加性（Bahdanau）打分函数：由单隐藏层的小网络打分。",
        cost="m n h tanh",
        fast_path="tanh(a + b) from exponentials computed once per query and once per key: one multiply-add and one "
        "division per pair.",
        aliases=("bahdanau", "mlp", "hierarchical", "han"),
    ),
    score(
        "Concat",
        summary_zh="将查询与键拼接后由多层感知机打分。",
        cost="m n h tanh, and m n h^2 multiplications for each layer beyond the first",
        fast_path="With one layer that of Additive; more layers are computed pair by pair.",
        aliases=("luong concat",),
    ),
    score(
        "Cosine",
        summary_zh="查询与键夹角的余弦，再乘以强度。",
        fast_path=f"Queries and keys are normalized, then {FUSED}.",
        aliases=("cosine similarity",),
        example_factory=lambda a: a.Cosine(strength=8.0),
    ),
    score(
        "Gaussian",
        summary_zh="高斯核的对数；与 softmax 合用即 Nadaraya-Watson 核回归。",
        fast_path="-|q - k|^2 / 2 as a dot product of centered vectors, in float64 for large norms, fused.",
        aliases=("nadaraya-watson", "kernel regression", "rbf"),
    ),
    score(
        "Boxcar",
        summary_zh="均匀核：宽度以内的键得分为 1，其余为 0。",
        fast_path="None needed: distances, one comparison, one product with the values.",
        aliases=("uniform kernel",),
        law_exceptions="Returns kernel values, for kernel_sum only; its gradient is 0.",
        example_factory=lambda a: a.Boxcar(width=2.0),
    ),
    score(
        "Epanechnikov",
        summary_zh="抛物线核：随距离减小，超出宽度为 0。",
        fast_path="None needed: distances, one product with the values.",
        aliases=("parabolic kernel",),
        law_exceptions="Returns kernel values, for kernel_sum only.",
        example_factory=lambda a: a.Epanechnikov(width=3.0),
    ),
    score(
        "Location",
        summary_zh="只由查询决定各个键位置的得分，与键的内容无关。",
        fast_path="One linear layer.",
        aliases=("luong location",),
        law_exceptions=POSITIONAL + " Keys beyond max_keys are hidden.",
    ),
    score(
        "Energy",
        summary_zh="双线性能量：查询与键（各自与上下文向量拼接）越匹配，能量越低。",
        cost="m d^2 + m n d multiplications",
        fast_path=f"Each query is projected once, then {FUSED}.",
        aliases=("position attention",),
    ),
)


NORMALIZERS = (
    normalizer(
        "softmax",
        summary_zh="与得分的指数成正比、和为 1 的正权重。",
        fast_path="Fused with dot-product scores; the matrix is never written.",
        aliases=("soft", "global"),
    ),
    normalizer(
        "Temperature",
        summary_zh="带温度的 softmax：越冷越尖锐，越热越平均。",
        fast_path="Folded into the scale of the fused kernel.",
    ),
    normalizer("sigmoid", summary_zh="每个键有独立的门，权重之和不必为 1。", aliases=("gates",)),
    normalizer("SigmoidSum", summary_zh="先取 sigmoid，再除以其和，使权重之和为 1。", cost="two exponentials a score"),
    normalizer(
        "sparsemax",
        summary_zh="到单纯形的投影：得分低的键权重恰好为零。",
        cost="about ten passes a row (Newton steps)",
        fast_path="Own backward pass over the support only.",
        aliases=("sparse",),
    ),
    normalizer(
        "entmax15",
        summary_zh="介于 softmax 与 sparsemax 之间，alpha = 1.5。",
        cost="about ten passes a row (Newton steps)",
        fast_path="Own backward pass over the support only.",
        aliases=("entmax 1.5",),
    ),
    normalizer(
        "Entmax",
        summary_zh="softmax 与 sparsemax 所在的一族，alpha 定稀疏程度。",
        cost="some tens of passes a row (bisection)",
        fast_path="Newton steps at alpha 1.5 and 2 on a CPU, softmax at 1; own backward pass over the support.",
        aliases=("alpha entmax",),
    ),
    normalizer(
        "kernel_sum",
        summary_zh="核函数值除以它们的和；和为零的行得到零。",
        cost="one division a score",
        fast_path="None needed.",
        law_exceptions="Expects kernel values, for Boxcar and Epanechnikov only.",
        picture_factory=lambda a, torch: (
            a.attend(half_circle(8), *[half_circle(16)] * 2, score=a.Epanechnikov(width=2.0)).weights
        ),
    ),
    normalizer(
        "hardmax",
        summary_zh="得分最高的键权重为 1，其余为 0。",
        cost="one maximum a row",
        aliases=("argmax", "hard"),
        law_exceptions="Its gradient is 0; ties go to the first key.",
    ),
    normalizer(
        "Sample",
        summary_zh="按 softmax 的概率采样一个键（硬注意力，用 REINFORCE 训练）。",
        cost="one exponential and one logarithm a score",
        fast_path="None: the choice must be the one used.",
        aliases=("hard attention", "reinforce", "xu"),
        law_exceptions=RANDOM + " Its gradient is 0; the log-probability carries it.",
    ),
    normalizer(
        "StraightThrough",
        summary_zh="直通估计：前向只选一个键，反向用软权重的梯度。",
        cost="that of the wrapped normalizer, and one maximum a row",
        law_exceptions="Its gradient is that of the soft normalizer; ties go to the first key.",
    ),
    normalizer(
        "Gumbel",
        summary_zh="在得分上加 Gumbel 噪声再作 softmax：可微的抽样。",
        cost="one exponential and two logarithms a score",
        fast_path="None: the noise must be the one used.",
        aliases=("gumbel softmax", "concrete"),
        law_exceptions=RANDOM,
        example_factory=lambda a: a.Gumbel(0.5),
    ),
    normalizer(
        "TopK",
        summary_zh="只在得分最高的 k 个键之间作 softmax。",
        cost="one partial sort a row",
        law_exceptions="Ties go to the first key.",
    ),
    normalizer(
        "Dropout",
        summary_zh="训练时随机丢弃一部分权重；读出的权重是丢弃之前的。",
        cost="one random number a weight, in training only",
        fast_path="Drawn by comparing uniform numbers, cheaper than PyTorch's own on a CPU; on a GPU fused.",
        law_exceptions=RANDOM + " `.weights` are those before dropping.",
    ),
    normalizer(
        "GaussianWindow",
        summary_zh="权重乘以以某一位置为中心的高斯函数，不再归一化。",
        cost="one exponential more a score",
        fast_path="Around a center only the nearby keys are gathered.",
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.GaussianWindow(a.softmax, center=8.0, sigma=2.0),
    ),
)
