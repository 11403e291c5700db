"""The scores and normalizers of the catalogue.

In each entry `a` is the module `regard.attention`; it and torch are imported when the example is made. The costs are
for m queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from regard.catalogue.mechanism import POSITIONAL, RANDOM, Argument, Mechanism, half_circle

__all__ = ["NORMALIZERS", "SCORES"]

score = partial(Mechanism, kind="score", cost="m n d multiplications")
normalizer = partial(Mechanism, kind="normalizer", cost="one exponential a score", fast_path="None: the definition.")

FUSED = "one call of PyTorch's fused scaled_dot_product_attention"
WIDTH = Argument("width", 1.0, 0.05, 4.0)


SCORES = (
    score(
        "Constant",
        cost="n d additions for all queries together",
        fast_path="The mean of the visible values; no queries x keys matrix is made.",
        aliases=("average", "mean", "average pooling"),
    ),
    score("Dot", fast_path=f"It is {FUSED} with scale 1.", aliases=("luong dot", "dot product")),
    score("ScaledDot", fast_path=f"It is {FUSED}.", aliases=("scaled dot product", "transformer", "vaswani")),
    score(
        "Bilinear",
        cost="m d^2 + m n d multiplications",
        fast_path=f"Each query is projected once, then {FUSED}.",
        aliases=("general", "luong general", "multiplicative"),
    ),
    score(
        "Additive",
        cost="m n h tanh",
        fast_path="tanh(a + b) from exponentials computed once per query and once per key: one multiply-add and one "
        "division per pair.",
        aliases=("bahdanau", "mlp", "hierarchical", "han"),
    ),
    score(
        "Concat",
        arguments=(Argument("num_layers", 1, step=1),),
        cost="m n h tanh, and m n h^2 multiplications for each layer beyond the first",
        fast_path="With one layer that of Additive; more layers are computed pair by pair.",
        aliases=("luong concat",),
    ),
    score(
        "Cosine",
        arguments=(Argument("strength", 5.0, 0.0, 20.0, step=0.1),),
        fast_path=f"Queries and keys are normalized, then {FUSED}.",
        aliases=("cosine similarity",),
        example_factory=lambda a, torch: a.Cosine(strength=8.0),
    ),
    score(
        "Gaussian",
        arguments=(WIDTH,),
        fast_path="-|q - k|^2 / 2 as a dot product of centered vectors, in float64 for large norms, fused.",
        aliases=("nadaraya-watson", "kernel regression", "rbf"),
    ),
    score(
        "Boxcar",
        arguments=(WIDTH,),
        fast_path="None needed: distances, one comparison, one product with the values.",
        aliases=("uniform kernel",),
        law_exceptions="Returns kernel values, for kernel_sum only; its gradient is 0.",
        example_factory=lambda a, torch: a.Boxcar(width=2.0),
    ),
    score(
        "Epanechnikov",
        arguments=(replace(WIDTH, initial=1.5),),
        fast_path="None needed: distances, one product with the values.",
        aliases=("parabolic kernel",),
        law_exceptions="Returns kernel values, for kernel_sum only.",
        example_factory=lambda a, torch: a.Epanechnikov(width=3.0),
    ),
    score(
        "Location",
        arguments=(Argument("max_keys", 200, step=1),),
        fast_path="One linear layer.",
        aliases=("luong location",),
        law_exceptions=POSITIONAL + " Keys beyond max_keys are hidden.",
    ),
    score(
        "SoftCap",
        cost="that of the wrapped score, and one tanh a score",
        fast_path="Queries and keys are projected once; windows as with the wrapped score.",
        aliases=("soft capping", "logit soft cap"),
        example_factory=lambda a, torch: a.SoftCap(a.ScaledDot(), cap=2.0),
    ),
    score(
        "Energy",
        cost="m d^2 + m n d multiplications",
        fast_path=f"Each query is projected once, then {FUSED}.",
        aliases=("position attention",),
    ),
)


NORMALIZERS = (
    normalizer(
        "softmax", fast_path="Fused with dot-product scores; the matrix is never written.", aliases=("soft", "global")
    ),
    normalizer(
        "Temperature",
        arguments=(Argument("temperature", 1.0, 0.05, 5.0, initial=0.5),),
        fast_path="Folded into the scale of the fused kernel.",
    ),
    normalizer("sigmoid", aliases=("gates",)),
    normalizer("SigmoidSum", cost="two exponentials a score"),
    normalizer(
        "sparsemax",
        cost="about ten passes a row (Newton steps)",
        fast_path="Own backward pass over the support only.",
        aliases=("sparse",),
    ),
    normalizer(
        "entmax15",
        cost="about ten passes a row (Newton steps)",
        fast_path="Own backward pass over the support only.",
        aliases=("entmax 1.5",),
    ),
    normalizer(
        "Entmax",
        arguments=(Argument("alpha", 1.5, 1.0, 3.0, initial=1.3),),
        cost="some tens of passes a row (bisection)",
        fast_path="Newton steps at alpha 1.5 and 2 on a CPU, softmax at 1; own backward pass over the support.",
        aliases=("alpha entmax",),
    ),
    normalizer(
        "kernel_sum",
        cost="one division a score",
        fast_path="None needed.",
        law_exceptions="Expects kernel values, for Boxcar and Epanechnikov only.",
        picture_factory=lambda a, torch: (
            a.attend(half_circle(8), *[half_circle(16)] * 2, score=a.Epanechnikov(width=2.0)).weights
        ),
    ),
    normalizer(
        "hardmax",
        cost="one maximum a row",
        aliases=("argmax", "hard"),
        law_exceptions="Its gradient is 0; ties go to the first key.",
    ),
    normalizer(
        "Sample",
        cost="one exponential and one logarithm a score",
        fast_path="None: the choice must be the one used.",
        aliases=("hard attention", "reinforce", "xu"),
        law_exceptions=RANDOM + " Its gradient is 0; the log-probability carries it.",
    ),
    normalizer(
        "StraightThrough",
        cost="that of the wrapped normalizer, and one maximum a row",
        law_exceptions="Its gradient is that of the soft normalizer; ties go to the first key.",
    ),
    normalizer(
        "Gumbel",
        arguments=(Argument("temperature", 1.0),),
        cost="one exponential and two logarithms a score",
        fast_path="None: the noise must be the one used.",
        aliases=("gumbel softmax", "concrete"),
        law_exceptions=RANDOM,
        example_factory=lambda a, torch: a.Gumbel(0.5),
    ),
    normalizer(
        "TopK",
        arguments=(Argument("k", 4, 1, 8, initial=2, step=1),),
        cost="one partial sort a row",
        law_exceptions="Ties go to the first key.",
    ),
    normalizer(
        "Dropout",
        cost="one random number a weight, in training only",
        fast_path="Drawn by comparing uniform numbers, cheaper than PyTorch's own on a CPU; on a GPU fused.",
        law_exceptions=RANDOM + " `.weights` are those before dropping.",
    ),
    normalizer(
        "WithSink",
        cost="that of the wrapped normalizer with one key more",
        aliases=("attention sink", "sinks"),
        law_exceptions="The weights of a query sum to less than 1.",
        example_factory=lambda a, torch: a.WithSink(a.softmax, num_heads=1),
    ),
    normalizer(
        "GaussianWindow",
        cost="one exponential more a score",
        fast_path="Around a center only the nearby keys are gathered.",
        law_exceptions=POSITIONAL,
        example_factory=lambda a, torch: a.GaussianWindow(a.softmax, center=8.0, sigma=2.0),
    ),
)
