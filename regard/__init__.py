"""A PyTorch library for attention: every mechanism is a value in one equation.

    scores  = score(query, key)          # *batch queries keys
    scores  = mask(scores)               # -inf where the key is not visible
    weights = normalize(scores)          # *batch queries keys
    context = weights @ value            # *batch queries value_dim

`attend` is the equation, `Attention` its module form; scores, masks and normalizers are in `regard.attention`. `load`
opens the model of a training run, and `watch` collects the weights of every attention inside a model. Importing regard
does not import torch: names are loaded when they are first used.

>>> import torch, regard
>>> output = regard.attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
>>> output.context.shape, output.weights.shape
(torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from regard._version import __version__

if TYPE_CHECKING:
    import regard.attention as attention
    import regard.catalogue as catalogue
    import regard.data as data
    import regard.decoding as decoding
    import regard.export as export
    import regard.models as models
    import regard.serving as serving
    import regard.studies as studies
    import regard.tasks as tasks
    import regard.testing as testing
    import regard.training as training
    import regard.viewing as viewing
    from regard.attention import Attention, attend
    from regard.errors import RegardError
    from regard.tasks import load
    from regard.viewing import watch

_LAZY_NAMES = {
    "attend": "regard.attention",
    "Attention": "regard.attention",
    "RegardError": "regard.errors",
    "load": "regard.tasks",
    "watch": "regard.viewing",
}
_PACKAGES = (
    "attention",
    "catalogue",
    "data",
    "decoding",
    "export",
    "models",
    "serving",
    "studies",
    "tasks",
    "testing",
    "training",
    "viewing",
)

__all__ = [
    "Attention",
    "RegardError",
    "__version__",
    "attend",
    "attention",
    "catalogue",
    "data",
    "decoding",
    "export",
    "load",
    "models",
    "serving",
    "studies",
    "tasks",
    "testing",
    "training",
    "viewing",
    "watch",
]


def __getattr__(name: str) -> object:
    if name in _LAZY_NAMES:
        value = getattr(import_module(_LAZY_NAMES[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"regard.{name}")
    else:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    globals()[name] = value  # so that the next access does not call this function
    return value


def __dir__() -> list[str]:
    return list(__all__)
