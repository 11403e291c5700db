"""The losses that go with sparsemax and entmax, as cross-entropy goes with softmax: Fenchel-Young losses.

    loss(s, y) = omega(p) + p . s - s_y          p = entmax(s), omega(p) = (1 - sum_j p_j^alpha) / (alpha (alpha - 1))

The gradient is p - one_hot(y). The loss is 0 once the score of y is above all others by 1 / (alpha - 1).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention._common import upcast_half
from regard.attention.normalizers.base import Number
from regard.attention.normalizers.entmax import as_double
from regard.attention.normalizers.sparse import Entmax
from regard.errors import DtypeError, ShapeError, UsageError

__all__ = ["entmax15_loss", "entmax_loss", "sparsemax_loss"]

REDUCTIONS = ("mean", "sum", "none")
Logits = Float[Tensor, "*batch classes"]
Targets = Int[Tensor, "*batch"]


def entmax_loss(
    logits: Logits, target: Targets, alpha: Number | Tensor = 1.5, *, ignore_index: int = -100, reduction: str = "mean"
) -> Float[Tensor, "*reduced"]:
    """The Fenchel-Young loss of `Entmax(alpha)`; cross-entropy for alpha = 1.

        loss = (1 - sum_j p_j^alpha) / (alpha (alpha - 1)) + p . s - s_y

    Args:
        logits: the scores s; -inf for classes that are not allowed
        target: the right class y of each row
        alpha: as in `Entmax`; a tensor (*batch, 1) may require a gradient
        ignore_index: rows with this target have loss 0 and are not counted
        reduction: "mean", "sum" or "none", as in PyTorch's cross_entropy

    Shape: logits (*batch, classes), target (*batch) -> () or with "none" (*batch)

    Returns: the loss

    Reference: Blondel, Martins and Niculae (2020), arXiv 1901.02324; Peters, Niculae and Martins (2019), arXiv
        1905.05702.

    Example:
        >>> entmax_loss(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0]), alpha=2, reduction="none")
        tensor([0.0000, 0.2500])
    """
    if reduction not in REDUCTIONS:
        raise UsageError(f"entmax_loss: reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise DtypeError(f"entmax_loss: target must be class indices (integers), got {target.dtype}")
    if logits.dim() == 0 or target.shape != logits.shape[:-1]:
        raise ShapeError(
            f"entmax_loss expects logits (*batch, classes) and target (*batch), got {tuple(logits.shape)} and "
            f"{tuple(target.shape)}"
        )
    counted = target != ignore_index
    if target.is_cpu and not ((target >= 0) & (target < logits.shape[-1]) | ~counted).all():
        raise UsageError(
            f"entmax_loss: a target is outside of 0..{logits.shape[-1] - 1}, the classes, and is not ignore_index="
            f"{ignore_index}"
        )
    wide = upcast_half(logits)
    of_target = wide.gather(-1, torch.where(counted, target, 0).long().unsqueeze(-1)).squeeze(-1)
    if not isinstance(alpha, Tensor) and alpha == 1:
        losses = wide.logsumexp(-1) - of_target
    else:
        p = Entmax(alpha)(wide)
        power: Number | Tensor = alpha
        if isinstance(alpha, Tensor):  # the terms of the derivative with respect to alpha cancel near alpha = 1
            p, wide, power = as_double(p), as_double(wide), as_double(alpha.to(wide))
        support = p > 0
        logs = torch.where(support, p, 1.0).log()  # the power of 0 has no second derivative
        # (p - p^alpha) / (alpha (alpha - 1)), without the cancellation near alpha = 1
        omega = (p * -torch.expm1((power - 1) * logs) / (power * (power - 1))).sum(-1)
        losses = omega + (p * torch.where(support, wide, 0.0)).sum(-1) - of_target
    losses = torch.where(counted, losses, 0.0).to(logits.dtype)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / counted.sum()


def sparsemax_loss(
    logits: Logits, target: Targets, *, ignore_index: int = -100, reduction: str = "mean"
) -> Float[Tensor, "*reduced"]:
    """The Fenchel-Young loss of `sparsemax`.

        loss = (1 - sum_j p_j^2) / 2 + p . s - s_y

    Args:
        logits: the scores s
        target: the right class y of each row
        ignore_index: rows with this target are not counted
        reduction: "mean", "sum" or "none"

    Shape: logits (*batch, classes), target (*batch) -> () or with "none" (*batch)

    Returns: the loss

    Reference: Martins and Astudillo (2016), arXiv 1602.02068, section 3.

    Example:
        >>> sparsemax_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.2500)
    """
    return entmax_loss(logits, target, 2.0, ignore_index=ignore_index, reduction=reduction)


def entmax15_loss(
    logits: Logits, target: Targets, *, ignore_index: int = -100, reduction: str = "mean"
) -> Float[Tensor, "*reduced"]:
    """The Fenchel-Young loss of `entmax15`.

        loss = (1 - sum_j p_j^1.5) / 0.75 + p . s - s_y

    Args:
        logits: the scores s
        target: the right class y of each row
        ignore_index: rows with this target are not counted
        reduction: "mean", "sum" or "none"

    Shape: logits (*batch, classes), target (*batch) -> () or with "none" (*batch)

    Returns: the loss

    Reference: Peters, Niculae and Martins (2019), arXiv 1905.05702, section 3.

    Example:
        >>> entmax15_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.3905)
    """
    return entmax_loss(logits, target, 1.5, ignore_index=ignore_index, reduction=reduction)
