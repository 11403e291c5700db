"""What an objective gives the engine.

Cross entropy over a large vocabulary that never holds the scores of all words at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError


@dataclass(frozen=True)
class Loss:
    """A sum to make small, and what to divide it by: the loss of a step is sum(total) / sum(count).

    So a step weighs every token alike, however tokens are spread over batches and processes. `extra` are
    other sums over the same tokens, for the metrics only.

    >>> Loss(torch.tensor(6.0), count=3).count
    3
    """

    total: Tensor
    count: int
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)


SAFE_EXPONENT = 60.0  # e^60 times any vocabulary is still a number of float32, and e^-60 is not yet zero


MAX_LOGITS = 1 << 22  # scores: 16 MB in float32, which stay in the cache between the products


def linear_cross_entropy(
    hidden: Float[Tensor, "rows dim"],
    weight: Float[Tensor, "words dim"],
    bias: Float[Tensor, " words"] | None,
    target: Int[Tensor, " rows"],
    label_smoothing: float = 0.0,
    chunk_size: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " rows"]]:
    """Cross entropy of `hidden @ weight.T + bias`: smoothed and summed, to train on; plain, a row each, to report.

        loss = (1 - smoothing) * -log p(word) + smoothing * mean over all words of -log p

    It equals `F.cross_entropy(..., label_smoothing=smoothing, reduction="sum")`. But the words' scores, by
    far the largest matrix of a small model, exist for some rows at a time only: their gradient is computed
    along with them, while they are in the cache. Label smoothing: Szegedy et al. (2016), arXiv 1512.00567, 7.

    >>> hidden, weight = torch.randn(5, 8), torch.randn(100, 8)
    >>> smoothed, plain = linear_cross_entropy(hidden, weight, None, torch.arange(5), label_smoothing=0.1)
    >>> smoothed.shape
    torch.Size([])
    """
    if hidden.shape[0] != target.shape[0]:
        raise ShapeError(
            f"word_loss takes one word a row, got {hidden.shape[0]} rows and {target.shape[0]} words"
        )
    if chunk_size is None:
        chunk_size = min(max(MAX_LOGITS // weight.shape[0], 32), 512)
    needs = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias))
    if not needs:
        smoothed, plain, *_ = _with_autocast(hidden, weight, bias, target, label_smoothing, chunk_size, False)
        return smoothed, plain
    return _LinearCrossEntropy.apply(hidden, weight, bias, target, label_smoothing, chunk_size)


def _with_autocast(hidden: Tensor, *rest: Any) -> Any:
    """`_in_parts`; under autocast to bfloat16 the products are in it, the gradients that they add up to in float32."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return _chunked_forward(hidden.dtype, hidden, *rest)
    # float16 ends at 65,504, and the shares of words do not
    fewer = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return _chunked_forward(fewer if fewer == torch.bfloat16 else torch.float32, hidden.float(), *rest)


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss, with its gradient computed on the way; backward has only to scale it."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        label_smoothing: float,
        chunk_size: int,
    ) -> tuple[Tensor, Tensor]:
        made = _with_autocast(hidden, weight, bias, target, label_smoothing, chunk_size, True)
        smoothed, plain, d_hidden, d_weight, d_bias = made
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.hidden_type = hidden.dtype
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        if float(grad_loss) == 1:  # as it mostly is: the matrices are large
            return d_hidden.to(ctx.hidden_type), d_weight, d_bias, None, None, None
        d_bias = None if d_bias is None else d_bias * grad_loss
        return (d_hidden * grad_loss).to(ctx.hidden_type), d_weight * grad_loss, d_bias, None, None, None


def _chunked_forward(
    product_dtype: torch.dtype,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    label_smoothing: float,
    chunk_size: int,
    needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Both losses, and the gradients of the smoothed one if asked for; matrix products are of type `product`."""
    count, words = hidden.shape[0], weight.shape[0]
    d_hidden = torch.empty_like(hidden) if needs_grad else None
    d_weight = torch.zeros_like(weight) if needs_grad else None
    d_bias = torch.zeros_like(bias) if needs_grad and bias is not None else None
    room, wide = (
        hidden.new_empty(min(chunk_size, count), words, dtype=product_dtype),
        weight.to(product_dtype),
    )
    log_sums, chosen, missed = (hidden.new_empty(count) for _ in range(3))
    small = _logit_bound(hidden, weight, bias) < SAFE_EXPONENT

    for start in range(0, count, chunk_size):
        part = slice(start, start + chunk_size)
        some = hidden[part]
        scores = room[: some.shape[0]]
        torch.mm(some.to(product_dtype), wide.T, out=scores)
        if bias is not None:
            scores += bias
        top = scores.new_zeros(()) if small else scores.amax(-1, keepdim=True)
        own = scores.gather(1, target[part, None]).to(hidden.dtype)
        # The right word is kept apart from the others: what it lacks to 1 would be lost in the rounding of a whole.
        scores[torch.arange(len(some), device=target.device), target[part]] = -torch.inf
        shares = (scores if small else scores.sub_(top)).exp_()
        others = shares.sum(-1, keepdim=True).to(hidden.dtype)
        total = others + (own - top).exp()
        chosen[part] = own.squeeze(1)
        log_sums[part] = (total.log() + top).squeeze(1)
        missed[part] = (others / total).squeeze(1)
        if d_hidden is not None and d_weight is not None:
            # Dividing by the total is done on the small side of each product.
            torch.div(shares @ wide, total, out=d_hidden[part])
            _add_product(d_weight, shares.T, (some / total).to(product_dtype))
            if d_bias is not None:
                d_bias += (1 / total).to(product_dtype).T.mm(shares).squeeze(0)

    # The right word and the smoothing, which is the same for every word, are matters of single rows.
    average = weight.mean(0)
    offset = 0.0 if bias is None else bias.mean()
    if d_hidden is not None and d_weight is not None:
        wanting = label_smoothing - missed  # p(word) - (1 - smoothing)
        d_hidden.addcmul_(weight.index_select(0, target), wanting[:, None]).sub_(
            average, alpha=label_smoothing
        )
        d_weight.index_add_(0, target, hidden * wanting[:, None])
        d_weight.sub_(hidden.sum(0), alpha=label_smoothing / words)
        if d_bias is not None:
            d_bias.index_add_(0, target, wanting)
            d_bias -= label_smoothing * count / words
    plain = log_sums - chosen
    smoothed = (
        log_sums - (1 - label_smoothing) * chosen - label_smoothing * (hidden @ average + offset)
    ).sum()
    return smoothed, plain, d_hidden, d_weight, d_bias


def _add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """to += left @ right, whatever their types."""
    if out.dtype == left.dtype:
        out.addmm_(left, right)
    else:
        out += left @ right


def _logit_bound(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """No score is larger than this, nor more negative: |h . w + b| <= |h| |w| + |b|."""
    if not hidden.shape[0]:
        return 0.0
    most = hidden.norm(dim=-1).max() * weight.norm(dim=-1).max()
    return float(most if bias is None else most + bias.abs().max())
