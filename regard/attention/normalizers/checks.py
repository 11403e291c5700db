"""Words for wrong arguments, and a place for the right ones."""

from torch import Tensor, nn

from regard.errors import UsageError

Number = int | float


def check_positive(owner: str, name: str, value: object) -> None:
    """Refuse numbers that are not positive. Tensors pass: reading them would stop a GPU and a compiler."""
    if isinstance(value, Tensor):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{owner}: {name} must be a positive number or a tensor, not {value!r}")
    if not 0 < value < float("inf"):
        raise UsageError(f"{owner}: {name} must be a positive number, not {value!r}")


def check_normalizer(owner: str, normalize: object) -> None:
    """Refuse what cannot be called on scores."""
    if not callable(normalize) or isinstance(normalize, type):
        raise TypeError(f"{owner}: normalize must be a callable from scores to weights, not {normalize!r}")


def keep(module: nn.Module, name: str, value: object) -> None:
    """Make a number, tensor or parameter an attribute; a tensor moves with the module, but is not saved."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        module.register_buffer(name, value, persistent=False)
    else:
        setattr(module, name, value)
