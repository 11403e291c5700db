"""The loss of a batch, and cross entropy over a large vocabulary in little memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError

__all__ = ["Loss", "linear_cross_entropy"]

SAFE_EXPONENT = 60.0  # e^60 times any vocabulary size fits in float32, and e^-60 is not 0
MAX_LOGITS = 1 << 22  # of one chunk: 16 MB in float32, which stay in the cache between the products


@dataclass(frozen=True)
class Loss:
    """The loss of a batch as a sum and its divisor: the loss of a step is sum(total) / sum(count).

    So every token has the same weight, however tokens are spread over batches and processes.

    Args:
        total: sum over the tokens (or examples) of the batch, to be minimized
        count: number of tokens
        metrics: other sums over the same tokens, for the metrics file only

    >>> Loss(torch.tensor(6.0), count=3).count
    3
    """

    total: Tensor
    count: int
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)


def linear_cross_entropy(
    hidden: Float[Tensor, "rows hidden_dim"],
    weight: Float[Tensor, "vocab hidden_dim"],
    bias: Float[Tensor, " vocab"] | None,
    target: Int[Tensor, " rows"],
    label_smoothing: float = 0.0,
    chunk_size: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " rows"]]:
    """Cross entropy of the logits `hidden @ weight.T + bias`, computed in chunks of rows.

        loss = (1 - label_smoothing) * -log p(target) + label_smoothing * mean over the vocabulary of -log p

    Equal to `F.cross_entropy(..., label_smoothing=label_smoothing, reduction="sum")`, but the logits, by far the
    largest matrix of a small model, exist for one chunk at a time: their gradient is computed in the same pass, while
    they are in the cache.

    Args:
        hidden: hidden states
        weight, bias: of the output layer
        target: ids of the correct tokens
        label_smoothing: probability mass spread evenly over the vocabulary
        chunk_size: rows of a chunk; None: as many as fit in the cache

    Shape:
        - hidden: (rows, hidden_dim), weight: (vocab, hidden_dim), bias: (vocab,), target: (rows,)
        - returns: (), (rows,)

    Returns:
        The smoothed loss, summed, to train on; the plain loss of each row, without gradient, to report.

    Reference: label smoothing: Szegedy et al. (2016), arXiv 1512.00567, section 7.

    >>> hidden, weight = torch.randn(5, 8), torch.randn(100, 8)
    >>> loss, plain = linear_cross_entropy(hidden, weight, None, torch.arange(5), label_smoothing=0.1)
    >>> loss.shape, plain.shape
    (torch.Size([]), torch.Size([5]))
    """
    if hidden.shape[0] != target.shape[0]:
        sizes = f"{target.shape[0]} targets for {hidden.shape[0]} rows"
        raise ShapeError(f"linear_cross_entropy: expected one target for each row, not {sizes}")
    if chunk_size is None:
        chunk_size = min(max(MAX_LOGITS // weight.shape[0], 32), 512)
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias))
    arguments = (hidden, weight, bias, target, label_smoothing, chunk_size)
    return _LinearCrossEntropy.apply(*arguments) if needs_grad else _with_autocast(*arguments, False)[:2]


def _with_autocast(hidden: Tensor, *args: Any) -> Any:
    """`_chunked_forward`; under autocast to bfloat16 its products are in bfloat16, sums of gradients in float32."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return _chunked_forward(hidden.dtype, hidden, *args)
    # float16 ends at 65,504, which the unnormalized probabilities exceed
    dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return _chunked_forward(dtype if dtype == torch.bfloat16 else torch.float32, hidden.float(), *args)


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss, with its gradient computed in the forward pass; backward only scales it."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        smoothed, plain, d_hidden, d_weight, d_bias = _with_autocast(hidden, *args, True)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.hidden_dtype = hidden.dtype
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        if float(grad_loss) != 1:  # the usual 1 saves a pass over large matrices
            d_hidden, d_weight = d_hidden * grad_loss, d_weight * grad_loss
            d_bias = None if d_bias is None else d_bias * grad_loss
        return d_hidden.to(ctx.hidden_dtype), d_weight, d_bias, None, None, None


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
    """Both losses, and the gradients of the smoothed one if needed; matrix products are in `product_dtype`."""
    rows, vocab = hidden.shape[0], weight.shape[0]
    d_hidden = torch.empty_like(hidden) if needs_grad else None
    d_weight = torch.zeros_like(weight) if needs_grad else None
    d_bias = torch.zeros_like(bias) if needs_grad and bias is not None else None
    buffer = hidden.new_empty(min(chunk_size, rows), vocab, dtype=product_dtype)
    product_weight = weight.to(product_dtype)
    log_sums, target_logits, missing = (hidden.new_empty(rows) for _ in range(3))
    is_small = _logit_bound(hidden, weight, bias) < SAFE_EXPONENT

    for start in range(0, rows, chunk_size):
        chunk = slice(start, start + chunk_size)
        inputs = hidden[chunk]
        logits = buffer[: inputs.shape[0]]
        torch.mm(inputs.to(product_dtype), product_weight.T, out=logits)
        if bias is not None:
            logits += bias
        maximum = logits.new_zeros(()) if is_small else logits.amax(-1, keepdim=True)
        target_logit = logits.gather(1, target[chunk, None]).to(hidden.dtype)
        # The target is kept apart: the difference of its probability to 1 would be lost to rounding in the full sum.
        logits[torch.arange(len(inputs), device=target.device), target[chunk]] = -torch.inf
        powers = (logits if is_small else logits.sub_(maximum)).exp_()
        others = powers.sum(-1, keepdim=True).to(hidden.dtype)
        total = others + (target_logit - maximum).exp()
        target_logits[chunk] = target_logit.squeeze(1)
        log_sums[chunk] = (total.log() + maximum).squeeze(1)
        missing[chunk] = (others / total).squeeze(1)
        if d_hidden is not None and d_weight is not None:
            # The division by the total is done on the small side of each product.
            torch.div(powers @ product_weight, total, out=d_hidden[chunk])
            _add_product(d_weight, powers.T, (inputs / total).to(product_dtype))
            if d_bias is not None:
                d_bias += (1 / total).to(product_dtype).T.mm(powers).squeeze(0)

    # The target and the smoothing, which is the same for every token, only need single rows.
    average = weight.mean(0)
    offset = 0.0 if bias is None else bias.mean()
    if d_hidden is not None and d_weight is not None:
        d_target = label_smoothing - missing  # p(target) - (1 - label_smoothing)
        d_hidden.addcmul_(weight.index_select(0, target), d_target[:, None]).sub_(average, alpha=label_smoothing)
        d_weight.index_add_(0, target, hidden * d_target[:, None])
        d_weight.sub_(hidden.sum(0), alpha=label_smoothing / vocab)
        if d_bias is not None:
            d_bias.index_add_(0, target, d_target)
            d_bias -= label_smoothing * rows / vocab
    plain = log_sums - target_logits
    smoothed = (log_sums - (1 - label_smoothing) * target_logits - label_smoothing * (hidden @ average + offset)).sum()
    return smoothed, plain, d_hidden, d_weight, d_bias


def _add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out += left @ right for any dtypes."""
    if out.dtype == left.dtype:
        out.addmm_(left, right)
    else:
        out += left @ right


def _logit_bound(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """An upper bound of the absolute logits: |h . w + b| <= |h| |w| + |b|."""
    if not hidden.shape[0]:
        return 0.0
    bound = hidden.norm(dim=-1).max() * weight.norm(dim=-1).max()
    return float(bound if bias is None else bound + bias.abs().max())
