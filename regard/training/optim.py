"""Optimizers, gradient clipping, and the optimizer state by parameter name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer, RMSprop

from regard.errors import UsageError, WeightsMismatchError
from regard.training.config import TrainingConfig

__all__ = ["make_optimizer", "optimizer_tensors", "restore_optimizer", "scale_and_clip_gradients", "set_learning_rate"]


def make_optimizer(module: nn.Module, config: TrainingConfig) -> Optimizer:
    """Adam, AdamW or RMSprop over the trainable parameters; weight decay applies to matrices only.

    Args:
        module: its parameters that require a gradient are optimized
        config: `optimizer`, `lr` and the options of the optimizer

    Reference: Adam: Kingma and Ba (2015), arXiv 1412.6980; AdamW: Loshchilov and Hutter (2019), arXiv 1711.05101;
    RMSprop: Tieleman and Hinton (2012), with momentum.
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not trainable:
        raise UsageError("there is nothing to train: no parameter requires a gradient")
    matrices, others = [p for p in trainable if p.dim() > 1], [p for p in trainable if p.dim() <= 1]
    decays = ((matrices, config.weight_decay), (others, 0.0))
    groups = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
    if config.optimizer == "rmsprop":
        return RMSprop(groups, lr=config.lr, alpha=config.beta2, eps=config.eps, momentum=config.momentum)
    optimizer_class = AdamW if config.optimizer == "adamw" else Adam
    # fused is three times as fast as the loop over parameters, also on a CPU
    return optimizer_class(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate of all parameters.

    Args:
        optimizer: the optimizer
        lr: the learning rate
    """
    for group in optimizer.param_groups:
        group["lr"] = lr


def scale_and_clip_gradients(optimizer: Optimizer, factor: float, max_norm: float | None) -> float:
    """Multiply all gradients by a factor, then scale them down if their norm exceeds `max_norm`.

    Args:
        optimizer: its parameters' gradients are changed in place
        factor: applied before clipping
        max_norm: None disables clipping

    Returns:
        The norm before clipping; if it is not finite, the gradients are unchanged.

    Reference: Pascanu, Mikolov and Bengio (2013), arXiv 1211.5063.
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


def optimizer_tensors(optimizer: Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """Collect the state of the optimizer by parameter name, such as `exp_avg/encoder.weight`.

    Args:
        optimizer: its state
        names: the name of each parameter

    Returns:
        The tensors of the state by name.
    """
    return {f"{key}/{names[p]}": value for p, state in optimizer.state.items() for key, value in state.items()}


def restore_optimizer(optimizer: Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned; the state of parameters that are frozen now is dropped.

    Args:
        optimizer: its state is replaced
        names: the name of each parameter
        tensors: state by parameter name
    """
    order = [names[p] for group in optimizer.param_groups for p in group["params"]]
    frozen = {name for parameter, name in names.items() if not parameter.requires_grad}
    state: dict[int, dict[str, Tensor]] = {}
    for entry, value in tensors.items():
        key, _, name = entry.partition("/")
        if name in frozen:
            continue
        if name not in order:
            raise WeightsMismatchError(f"the optimizer state does not fit: {name} is not among the trained parameters")
        state.setdefault(order.index(name), {})[key] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
