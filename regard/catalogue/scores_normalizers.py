"""The scores in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.

The normalizers in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from regard.catalogue.mechanism import POSITIONAL, RANDOM, Mechanism, half_circle

FUSED = "one call of PyTorch's fused scaled_dot_product_attention"


SCORES = (
    Mechanism(
        "Constant",
        "score",
        summary_zh="每个键一样好：注意力就是普通的平均。",
        cost="n d additions for all queries together",
        fast_path="The mean of the visible values; no queries x keys matrix is made.",
        aliases=("average", "mean", "average pooling"),
        example_factory=lambda a: a.Constant(),
    ),
    Mechanism(
        "Dot",
        "score",
        summary_zh="键在查询的方向上走了多远。",
        cost="m n d multiplications",
        fast_path=f"It is {FUSED} with scale 1.",
        aliases=("luong dot", "dot product"),
        example_factory=lambda a: a.Dot(),
    ),
    Mechanism(
        "ScaledDot",
        "score",
        summary_zh="点积除以维度的平方根，使其离散程度不随向量变长而增大。",
        cost="m n d multiplications",
        fast_path=f"It is {FUSED}.",
        aliases=("scaled dot product", "transformer", "vaswani"),
        example_factory=lambda a: a.ScaledDot(),
    ),
    Mechanism(
        "Bilinear",
        "score",
        summary_zh="先把其中一方旋转、拉伸，再作点积。",
        cost="m d^2 + m n d multiplications",
        fast_path=f"Each query is projected once, then {FUSED}.",
        aliases=("general", "luong general", "multiplicative"),
        example_factory=lambda a: a.Bilinear(query_dim=4, key_dim=4),
    ),
    Mechanism(
        "Additive",
        "score",
        summary_zh="由一个小网络判断键与查询有多相配。",
        cost="m n h tanh",
        fast_path="tanh(a + b) from exponentials computed once a query and once a key: one multiply-add and one division "
        "a pair.",
        aliases=("bahdanau", "mlp", "hierarchical", "han"),
        example_factory=lambda a: a.Additive(query_dim=4, key_dim=4, hidden_dim=8),
    ),
    Mechanism(
        "Concat",
        "score",
        summary_zh="把键与查询拼在一起，由一个网络来判断。",
        cost="m n h tanh, and m n h^2 multiplications for each layer beyond the first",
        fast_path="At depth 1 that of Additive; deeper ones go pair by pair.",
        aliases=("luong concat",),
        example_factory=lambda a: a.Concat(query_dim=4, key_dim=4, hidden_dim=8),
    ),
    Mechanism(
        "Cosine",
        "score",
        summary_zh="查询与键夹角的余弦，乘以强度。",
        cost="m n d multiplications",
        fast_path=f"Queries and keys are brought to length one, then {FUSED}.",
        aliases=("cosine similarity",),
        example_factory=lambda a: a.Cosine(strength=8.0),
    ),
    Mechanism(
        "Gaussian",
        "score",
        summary_zh="键越近越好；与 softmax 合用就是 Nadaraya-Watson 核回归。",
        cost="m n d multiplications",
        fast_path="-|q - k|^2 / 2 as a dot product of centred vectors, in float64 where they spread far, fused.",
        aliases=("nadaraya-watson", "kernel regression", "rbf"),
        example_factory=lambda a: a.Gaussian(width=1.0),
    ),
    Mechanism(
        "Boxcar",
        "score",
        summary_zh="够得着的键一视同仁，其余的完全不算。",
        cost="m n d multiplications",
        fast_path="None needed: distances, one comparison, one product with the values.",
        aliases=("uniform kernel",),
        law_exceptions="Gives kernel values, so it goes with kernel_sum only; its gradient is 0.",
        example_factory=lambda a: a.Boxcar(width=2.0),
    ),
    Mechanism(
        "Epanechnikov",
        "score",
        summary_zh="键越远分量越轻，超出宽度就完全不算。",
        cost="m n d multiplications",
        fast_path="None needed: distances, one product with the values.",
        aliases=("parabolic kernel",),
        law_exceptions="Gives kernel values, so it goes with kernel_sum only.",
        example_factory=lambda a: a.Epanechnikov(width=3.0),
    ),
    Mechanism(
        "Location",
        "score",
        summary_zh="只由查询说出想看哪些位置，不看键。",
        cost="m n d multiplications",
        fast_path="One linear layer.",
        aliases=("luong location",),
        law_exceptions=POSITIONAL + " Keys beyond max_keys are hidden.",
        example_factory=lambda a: a.Location(query_dim=4, max_keys=64),
    ),
    Mechanism(
        "Energy",
        "score",
        summary_zh="双线性能量，查询与键（各与其上下文相连）越相配越低。",
        cost="m d^2 + m n d multiplications",
        fast_path=f"Each query is projected once, then {FUSED}.",
        aliases=("position attention",),
        example_factory=lambda a: a.Energy(query_dim=4, key_dim=4),
    ),
)


NORMALIZERS = (
    Mechanism(
        "softmax",
        "normalizer",
        summary_zh="把得分变成和为一的正权重。",
        cost="one exponential a score",
        fast_path="Fused with dot-product scores; the matrix is never written.",
        aliases=("soft", "global"),
    ),
    Mechanism(
        "Temperature",
        "normalizer",
        summary_zh="带温度的 softmax：越冷越尖锐，越热越平均。",
        cost="one exponential a score",
        fast_path="Folded into the scale of the fused kernel.",
        example_factory=lambda a: a.Temperature(0.25),
    ),
    Mechanism(
        "sigmoid",
        "normalizer",
        summary_zh="每个键各自的门，互不争夺。",
        cost="one exponential a score",
        fast_path="None: the definition.",
        aliases=("gates",),
    ),
    Mechanism(
        "SigmoidSum",
        "normalizer",
        summary_zh="先过 sigmoid 再归一，使权重之和为一。",
        cost="two exponentials a score",
        fast_path="None: the definition.",
        example_factory=lambda a: a.SigmoidSum(),
    ),
    Mechanism(
        "sparsemax",
        "normalizer",
        summary_zh="到单纯形的投影：得分低的键权重恰好为零。",
        cost="about ten passes a row (Newton steps)",
        fast_path="Own backward pass over the support only.",
        aliases=("sparse",),
    ),
    Mechanism(
        "entmax15",
        "normalizer",
        summary_zh="介于 softmax 与 sparsemax 之间，alpha = 1.5。",
        cost="about ten passes a row (Newton steps)",
        fast_path="Own backward pass over the support only.",
        aliases=("entmax 1.5",),
    ),
    Mechanism(
        "Entmax",
        "normalizer",
        summary_zh="softmax 与 sparsemax 所在的一族，alpha 定稀疏程度。",
        cost="some tens of passes a row (bisection)",
        fast_path="Newton steps at alpha 1.5 and 2 on a CPU, softmax at 1; own backward pass over the support.",
        aliases=("alpha entmax",),
        example_factory=lambda a: a.Entmax(1.3),
    ),
    Mechanism(
        "kernel_sum",
        "normalizer",
        summary_zh="核函数值除以它们的和；和为零的行得到零。",
        cost="one division a score",
        fast_path="None needed.",
        law_exceptions="Takes kernel values, so it goes with Boxcar and Epanechnikov only.",
        picture_factory=lambda a: (
            a.attend(
                half_circle(8),
                half_circle(16),
                half_circle(16),
                score=a.Epanechnikov(width=2.0),
                normalize=a.kernel_sum,
            ).weights
        ),
    ),
    Mechanism(
        "hardmax",
        "normalizer",
        summary_zh="只看得分最高的一个键。",
        cost="one maximum a row",
        fast_path="None: the definition.",
        aliases=("argmax", "hard"),
        law_exceptions="Its gradient is 0; ties go to the first key.",
    ),
    Mechanism(
        "Sample",
        "normalizer",
        summary_zh="按 softmax 的概率抽一个键来看（硬注意力，用 REINFORCE 训练）。",
        cost="one exponential and one logarithm a score",
        fast_path="None: the choice must be the one used.",
        aliases=("hard attention", "reinforce", "xu"),
        law_exceptions=RANDOM + " Its gradient is 0; the log-probability carries it.",
        example_factory=lambda a: a.Sample(),
    ),
    Mechanism(
        "StraightThrough",
        "normalizer",
        summary_zh="向前只看一个键，向后用软权重的梯度。",
        cost="that of the normalizer inside, and one maximum a row",
        fast_path="None: the definition.",
        law_exceptions="Its gradient is that of the soft normalizer on purpose; ties go to the first key.",
        example_factory=lambda a: a.StraightThrough(a.softmax),
    ),
    Mechanism(
        "Gumbel",
        "normalizer",
        summary_zh="在得分上加 Gumbel 噪声再作 softmax：可微的抽样。",
        cost="one exponential and two logarithms a score",
        fast_path="None: the noise must be the one used.",
        aliases=("gumbel softmax", "concrete"),
        law_exceptions=RANDOM,
        example_factory=lambda a: a.Gumbel(0.5),
    ),
    Mechanism(
        "TopK",
        "normalizer",
        summary_zh="只在得分最高的 k 个键之间作 softmax。",
        cost="one partial sort a row",
        fast_path="None: the definition.",
        law_exceptions="Ties go to the first key.",
        example_factory=lambda a: a.TopK(3),
    ),
    Mechanism(
        "Dropout",
        "normalizer",
        summary_zh="训练时随机丢掉一部分权重；看到的权重是丢弃之前的。",
        cost="one random number a weight, in training only",
        fast_path="Drawn by comparing uniform numbers, cheaper than PyTorch's own on a CPU; on a GPU fused.",
        law_exceptions=RANDOM + " The weights shown are those before dropping.",
        example_factory=lambda a: a.Dropout(a.softmax, 0.1),
    ),
    Mechanism(
        "Bell",
        "normalizer",
        summary_zh="权重再乘以以某处为中心的钟形曲线，不再归一。",
        cost="one exponential more a score",
        fast_path="Around a centre only the near keys are gathered.",
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.GaussianWindow(a.softmax, center=8.0, sigma=2.0),
    ),
)
