"""One call of the equation: its letters, checked, and the state of the world it was made in.

The whole library in four lines.

    scores  = score(query, key)          how alike?                *batch queries keys
    scores  = hide(scores, mask)         who may be looked at?
    weights = normalize(scores)          how is regard shared out?
    context = weights @ value            what is seen?             *batch queries value_dim

Every mechanism is a value for one of their letters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention._common import broadcast_batch_shape, is_autocast_enabled, upcast_half
from regard.attention.fast.fused import select_fast_path
from regard.attention.masks import Mask, as_mask
from regard.attention.normalizers import Dropout, kernel_sum, softmax
from regard.attention.normalizers.base import as_masked_normalizer, input_kind
from regard.attention.observers import notify_watchers
from regard.attention.output import AttentionInputs, AttentionOutput
from regard.attention.projected import ProjectedKV
from regard.attention.scores import ScaledDot
from regard.attention.scores.base import FunctionScore, Score, part_name
from regard.errors import DtypeError, ShapeError, UsageError

Component = TypeVar("Component")


EXAMPLES = {"score": "Additive(...)", "normalize": "sparsemax"}


def validate(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    score: Callable[[Tensor, Tensor], Tensor],
    normalize: Callable[[Tensor], Tensor] | None,
) -> AttentionInputs:
    """The call, or one sentence that says what does not fit."""
    score = instantiate(score, "score")
    normalize = None if normalize is None else instantiate(normalize, "normalize")
    wanted = score if isinstance(score, Score) else FunctionScore(score)
    if query is None:  # a score that asks nothing of the query: pooling
        query = key.new_zeros(1, 0) if isinstance(key, Tensor) else torch.zeros(1, 0)
    check_shapes(query, key, value)
    _check_dtypes(query, key, value)
    batch = _broadcast_batch(query, key, value)
    wanted.check_dims(query, key)
    seen = None if mask is None else as_mask(mask)
    if seen is not None:
        batch = (1,) * (seen.num_batch_axes() - len(batch)) + batch
        seen.check_shape(batch, query.shape[-2], key.shape[-2])
    gives = wanted.output_kind
    if normalize is None:
        normalize = default_normalizer(wanted)
    elif input_kind(normalize) != gives:
        raise UsageError(
            f"{part_name(score)} gives {_describe_kind(gives)}, but {part_name(normalize)} shares out {_describe_kind(input_kind(normalize))}; "
            f"leave normalize out to take {part_name(default_normalizer(wanted))}"
        )
    drop = normalize if isinstance(normalize, Dropout) else None
    share = as_masked_normalizer(normalize if drop is None else drop.normalize)
    return AttentionInputs(query, key, value, seen, wanted, share, drop)


def default_normalizer(score: object) -> Callable[[Tensor], Tensor]:
    """The normalizer that a score takes by itself."""
    return kernel_sum if getattr(score, "output_kind", "logits") == "kernel" else softmax


def _describe_kind(output_kind: str) -> str:
    return "kernel values" if output_kind == "kernel" else output_kind


def instantiate(component: Component, argument: str) -> Component:
    """``SigmoidSum`` may be given for ``SigmoidSum()``; what is no function at all is refused."""
    if isinstance(component, type):
        try:
            return component()
        except TypeError:
            raise TypeError(
                f"{argument} must be made first: write {component.__name__}(...) with its arguments"
            ) from None
    if not callable(component):
        raise TypeError(
            f"{argument} must be a function or module, as in {argument}={EXAMPLES[argument]}, got {component!r}"
        )
    return component


def check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    for what, tensor, axis in (("query", query, "queries"), ("key", key, "keys"), ("value", value, "keys")):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{what} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() < 2:
            raise ShapeError(f"{what} must be (*batch, {axis}, dim), got {tuple(tensor.shape)}")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"every key has one value, got {key.shape[-2]} keys and {value.shape[-2]} values: key "
            f"{tuple(key.shape)}, value {tuple(value.shape)}"
        )


def _check_dtypes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.dtype == key.dtype == value.dtype and query.is_floating_point():
        return
    kinds = f"query {query.dtype}, key {key.dtype}, value {value.dtype}"
    if not (query.is_floating_point() and key.is_floating_point() and value.is_floating_point()):
        raise DtypeError(f"query, key and value must be floating point, got {kinds}")
    if not is_autocast_enabled(query.device.type):
        raise DtypeError(f"query, key and value must have one dtype outside of autocast, got {kinds}")


def _broadcast_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    try:
        return broadcast_batch_shape(query, key, value)
    except RuntimeError:
        raise ShapeError(
            f"the leading axes do not broadcast: query {tuple(query.shape)}, key {tuple(key.shape)}, value "
            f"{tuple(value.shape)}"
        ) from None


ScoreLike = Callable[[Tensor, Tensor], Tensor]


NormalizerLike = Callable[[Tensor], Tensor]


def attend(
    query: Float[Tensor, "*q queries query_dim"] | None,
    key: Float[Tensor, "*k keys key_dim"],
    value: Float[Tensor, "*v keys value_dim"],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    *,
    score: ScoreLike = ScaledDot(),
    normalize: NormalizerLike | None = None,
) -> AttentionOutput:
    """Look at the values, each as much as its key answers the query.

        context = normalize(hide(score(query, key), mask)) @ value

    ``normalize`` is softmax unless the score gives kernel values, which take kernel_sum. ``mask`` is a
    named mask or a bool tensor, True where a query may look. The context comes by the fastest exact path;
    weights and scores are computed when they are read, and reading them never changes the context.

    >>> seen = attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
    >>> seen.context.shape, seen.weights.shape
    (torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
    """
    return notify_watchers(None, attend_unwatched(query, key, value, mask, score, normalize))


def attend_unwatched(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    score: ScoreLike,
    normalize: NormalizerLike | None,
) -> AttentionOutput:
    """`attend`, of which nobody is told: who calls this tells it with its own name."""
    call = validate(query, key, value, mask, score, normalize)
    context = None if call.is_random else select_fast_path(call, compute_context)
    if context is not None:
        return AttentionOutput(context, call, scores_and_weights)
    scores, weights, context = reference_attention(call)
    return AttentionOutput(context, call, scores_and_weights, (scores, weights))


def reference_attention(inputs: AttentionInputs) -> tuple[Tensor, Tensor, Tensor]:
    """The equation as it reads: scores, weights, context."""
    scores, weights = scores_and_weights(inputs)
    used = weights if inputs.dropout is None else inputs.dropout.drop_weights(weights)
    return scores, weights, aggregate(used, inputs.value)


def scores_and_weights(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """The first three lines of the equation: scores as the normalizer sees them, and weights."""
    scores = apply_mask(inputs.score(inputs.query, inputs.key), inputs)
    return scores, inputs.normalize(scores)


def apply_mask(scores: Float[Tensor, "..."], inputs: AttentionInputs) -> Float[Tensor, "..."]:
    """-inf where a query may not look."""
    if inputs.mask is None:
        return scores
    return torch.where(inputs.mask.rule(inputs.positions()), scores, -math.inf)


def aggregate(weights: Tensor, value: Tensor) -> Tensor:
    """The last line, summed in float32 at least."""
    return (weights.to(upcast_half(value).dtype) @ upcast_half(value)).to(value.dtype)


def compute_context(inputs: AttentionInputs) -> Tensor:
    """The context alone, by the fastest exact path: what fast paths ask for parts of their work."""
    context = select_fast_path(inputs, compute_context)
    return reference_attention(inputs)[2] if context is None else context


class Attention(nn.Module):
    """The equation as a module: a score and a normalizer, to be trained and kept inside a model.

        attention(query, key, value, mask) = attend(query, key, value, mask, score=score, normalize=normalize)

    >>> attention = Attention(ScaledDot())
    >>> attention(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)).context.shape
    torch.Size([2, 3, 6])
    """

    def __init__(self, score: ScoreLike | None = None, normalize: NormalizerLike | None = None):
        super().__init__()
        self.score = ScaledDot() if score is None else instantiate(score, "score")
        self.normalize = None if normalize is None else instantiate(normalize, "normalize")

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"] | None,
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        return self.attend_with(self.score, query, key, value, mask)

    def attend_with(
        self, score: ScoreLike, query: Tensor | None, key: Tensor, value: Tensor, mask: Mask | Tensor | None
    ) -> AttentionOutput:
        return notify_watchers(self, attend_unwatched(query, key, value, mask, score, self.normalize))

    def precompute(self, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same attention with keys and values given once, to be asked again and again."""
        return ProjectedKV(self, key, value, mask)

    def extra_repr(self) -> str:
        plain = self.normalize is not None and not isinstance(self.normalize, nn.Module)
        return f"normalize={part_name(self.normalize)}" if plain else ""
