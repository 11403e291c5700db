"""The optimizer: how a step is made from gradients, and how its memory is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer, RMSprop

from regard.errors import UsageError, WeightsMismatchError
from regard.training.config import TrainingConfig


def make_optimizer(objective: nn.Module, config: TrainingConfig) -> Optimizer:
    """Adam or RMSProp over the parameters that learn; only matrices are pulled towards zero.

    Kingma and Ba (2015), arXiv 1412.6980; AdamW: Loshchilov and Hutter (2019), arXiv 1711.05101; RMSProp:
    Tieleman and Hinton (2012), with momentum.
    """
    learning = [p for p in objective.parameters() if p.requires_grad]
    if not learning:
        raise UsageError("there is nothing to train: no parameter of the objective requires a gradient")
    decayed = [p for p in learning if p.dim() > 1]
    others = [p for p in learning if p.dim() <= 1]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.optimizer == "rmsprop":
        return RMSprop(
            groups,
            lr=config.lr,
            alpha=config.beta2,
            eps=config.eps,
            momentum=config.momentum,
        )
    kind = AdamW if config.optimizer == "adamw" else Adam
    # fused is three times as fast as the loop over parameters, on CPU too
    made = kind(
        groups,
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    made.register_step_post_hook(_bump_versions)
    return made


def _bump_versions(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Count a version of each parameter, as every other change in place does; a fused step does not."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Take the steps to come with this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def scale_and_clip_gradients(optimizer: Optimizer, factor: float, max_norm: float | None) -> float:
    """Multiply all gradients by a factor, then shorten them together if they are longer than `clip`.

    Pascanu, Mikolov and Bengio (2013), arXiv 1211.5063. Returns the length before shortening; if that is not
    finite, the gradients are left alone.
    """
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(grads)) * factor
    if norm != norm or norm == float("inf"):
        return norm
    if max_norm is not None and norm > max_norm:
        factor = factor * max_norm / norm
    for grad in grads:
        grad.mul_(factor)
    return norm


def optimizer_tensors(optimizer: Optimizer, objective: nn.Module) -> dict[str, Tensor]:
    """What the optimizer remembers of each parameter, by the parameter's name: `exp_avg/encoder.weight`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in objective.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value
        for parameter, kept in optimizer.state.items()
        for key, value in kept.items()
    }


def restore_optimizer(optimizer: Optimizer, objective: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimizer its memory back; what it remembers of parameters that do not learn any more is left out."""
    names = {parameter: name for name, parameter in objective.named_parameters()}
    order = [names[p] for group in optimizer.param_groups for p in group["params"]]
    resting = {name for parameter, name in names.items() if not parameter.requires_grad}
    state: dict[int, dict[str, Tensor]] = {}
    for entry, value in tensors.items():
        key, _, name = entry.partition("/")
        if name in resting:
            continue
        if name not in order:
            raise WeightsMismatchError(
                f"the optimizer's memory does not fit: {name} is not among the parameters trained now"
            )
        state.setdefault(order.index(name), {})[key] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
