"""Attention: every mechanism as a value in one equation, fast, exact and easy to look at.

    scores  = score(query, key)          how alike?
    scores  = hide(scores, mask)         who may be looked at?
    weights = normalize(scores)          how is regard shared out?
    context = weights @ value            what is seen?

`attend` is that equation, `Attention` its module form; the parts to fill in live in `regard.attention`.
`load` gives what a run of `regard train` made, such as a translator; `watch` collects the weights of every attention
inside a model.
Importing regard does not import torch: what is named here is fetched when it is first used.

>>> import torch, regard
>>> seen = regard.attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
>>> seen.context.shape, seen.weights.shape
(torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from regard._version import __version__

if TYPE_CHECKING:
    import regard.attention as attention
    import regard.data as data
    import regard.decoding as decoding
    import regard.models as models
    import regard.tasks as tasks
    import regard.testing as testing
    import regard.training as training
    from regard.attention import Attention, attend
    from regard.errors import RegardError
    from regard.tasks import load
    from regard.viewing import watch

__all__ = [
    "Attention",
    "RegardError",
    "__version__",
    "attend",
    "attention",
    "data",
    "decoding",
    "load",
    "models",
    "tasks",
    "testing",
    "training",
    "watch",
]

_HOMES = {
    "attend": "regard.attention",
    "Attention": "regard.attention",
    "RegardError": "regard.errors",
    "load": "regard.tasks",
    "watch": "regard.viewing",
}
_ROOMS = (
    "attention",
    "catalogue",
    "data",
    "decoding",
    "models",
    "tasks",
    "serving",
    "testing",
    "training",
    "viewing",
)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _ROOMS:
        value = import_module(f"regard.{name}")
    else:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    globals()[name] = value  # the next look finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
