"""Cross entropy over a large vocabulary that never holds the scores of all words at once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError

SAFE = 60.0  # e^60 times any vocabulary is still a number of float32, and e^-60 is not yet zero
AT_ONCE = 1 << 22  # scores: 16 MB in float32, which stay in the cache between the products


def word_loss(
    hidden: Float[Tensor, "rows dim"],
    weight: Float[Tensor, "words dim"],
    bias: Float[Tensor, " words"] | None,
    word: Int[Tensor, " rows"],
    smoothing: float = 0.0,
    rows_at_once: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " rows"]]:
    """Cross entropy of `hidden @ weight.T + bias`: smoothed and summed, to train on; plain, a row each, to report.

        loss = (1 - smoothing) * -log p(word) + smoothing * mean over all words of -log p

    It equals `F.cross_entropy(..., label_smoothing=smoothing, reduction="sum")`. But the words' scores, by
    far the largest matrix of a small model, exist for some rows at a time only: their gradient is computed
    along with them, while they are in the cache. Label smoothing: Szegedy et al. (2016), arXiv 1512.00567, 7.

    >>> hidden, weight = torch.randn(5, 8), torch.randn(100, 8)
    >>> smoothed, plain = word_loss(hidden, weight, None, torch.arange(5), smoothing=0.1)
    >>> smoothed.shape
    torch.Size([])
    """
    if hidden.shape[0] != word.shape[0]:
        raise ShapeError(
            f"word_loss takes one word a row, got {hidden.shape[0]} rows and {word.shape[0]} words"
        )
    if rows_at_once is None:
        rows_at_once = min(max(AT_ONCE // weight.shape[0], 32), 512)
    needs = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias))
    if not needs:
        smoothed, plain, *_ = _as_cast(hidden, weight, bias, word, smoothing, rows_at_once, False)
        return smoothed, plain
    return _WordLoss.apply(hidden, weight, bias, word, smoothing, rows_at_once)


def _as_cast(hidden: Tensor, *rest: Any) -> Any:
    """`_in_parts`; under autocast to bfloat16 the products are in it, the gradients that they add up to in float32."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return _in_parts(hidden.dtype, hidden, *rest)
    # float16 ends at 65,504, and the shares of words do not
    fewer = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return _in_parts(fewer if fewer == torch.bfloat16 else torch.float32, hidden.float(), *rest)


class _WordLoss(torch.autograd.Function):
    """The loss, with its gradient computed on the way; backward has only to scale it."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        word: Tensor,
        smoothing: float,
        rows_at_once: int,
    ) -> tuple[Tensor, Tensor]:
        made = _as_cast(hidden, weight, bias, word, smoothing, rows_at_once, True)
        smoothed, plain, d_hidden, d_weight, d_bias = made
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.hidden_type = hidden.dtype
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        if float(by) == 1:  # as it mostly is: the matrices are large
            return d_hidden.to(ctx.hidden_type), d_weight, d_bias, None, None, None
        d_bias = None if d_bias is None else d_bias * by
        return (d_hidden * by).to(ctx.hidden_type), d_weight * by, d_bias, None, None, None


def _in_parts(
    product: torch.dtype,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    word: Tensor,
    smoothing: float,
    rows_at_once: int,
    gradient: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Both losses, and the gradients of the smoothed one if asked for; matrix products are of type `product`."""
    count, words = hidden.shape[0], weight.shape[0]
    d_hidden = torch.empty_like(hidden) if gradient else None
    d_weight = torch.zeros_like(weight) if gradient else None
    d_bias = torch.zeros_like(bias) if gradient and bias is not None else None
    room, wide = hidden.new_empty(min(rows_at_once, count), words, dtype=product), weight.to(product)
    log_sums, chosen, missed = (hidden.new_empty(count) for _ in range(3))
    small = _largest(hidden, weight, bias) < SAFE

    for start in range(0, count, rows_at_once):
        part = slice(start, start + rows_at_once)
        some = hidden[part]
        scores = room[: some.shape[0]]
        torch.mm(some.to(product), wide.T, out=scores)
        if bias is not None:
            scores += bias
        top = scores.new_zeros(()) if small else scores.amax(-1, keepdim=True)
        own = scores.gather(1, word[part, None]).to(hidden.dtype)
        # The right word is kept apart from the others: what it lacks to 1 would be lost in the rounding of a whole.
        scores[torch.arange(len(some), device=word.device), word[part]] = -torch.inf
        shares = (scores if small else scores.sub_(top)).exp_()
        others = shares.sum(-1, keepdim=True).to(hidden.dtype)
        total = others + (own - top).exp()
        chosen[part] = own.squeeze(1)
        log_sums[part] = (total.log() + top).squeeze(1)
        missed[part] = (others / total).squeeze(1)
        if d_hidden is not None and d_weight is not None:
            # Dividing by the total is done on the small side of each product.
            torch.div(shares @ wide, total, out=d_hidden[part])
            _add_product(d_weight, shares.T, (some / total).to(product))
            if d_bias is not None:
                d_bias += (1 / total).to(product).T.mm(shares).squeeze(0)

    # The right word and the smoothing, which is the same for every word, are matters of single rows.
    average = weight.mean(0)
    offset = 0.0 if bias is None else bias.mean()
    if d_hidden is not None and d_weight is not None:
        wanting = smoothing - missed  # p(word) - (1 - smoothing)
        d_hidden.addcmul_(weight.index_select(0, word), wanting[:, None]).sub_(average, alpha=smoothing)
        d_weight.index_add_(0, word, hidden * wanting[:, None])
        d_weight.sub_(hidden.sum(0), alpha=smoothing / words)
        if d_bias is not None:
            d_bias.index_add_(0, word, wanting)
            d_bias -= smoothing * count / words
    plain = log_sums - chosen
    smoothed = (log_sums - (1 - smoothing) * chosen - smoothing * (hidden @ average + offset)).sum()
    return smoothed, plain, d_hidden, d_weight, d_bias


def _add_product(to: Tensor, left: Tensor, right: Tensor) -> None:
    """to += left @ right, whatever their types."""
    if to.dtype == left.dtype:
        to.addmm_(left, right)
    else:
        to += left @ right


def _largest(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """No score is larger than this, nor more negative: |h . w + b| <= |h| |w| + |b|."""
    if not hidden.shape[0]:
        return 0.0
    most = hidden.norm(dim=-1).max() * weight.norm(dim=-1).max()
    return float(most if bias is None else most + bias.abs().max())
