"""A PyTorch library for attention: every mechanism is a value in one equation.

    scores  = score(query, key)          # *batch queries keys
    scores  = mask(scores)               # -inf where the key is not visible
    weights = normalize(scores)          # *batch queries keys
    context = weights @ value            # *batch queries value_dim

`attend` is the equation, `Attention` its module form; scores, masks and normalizers are in `regard.attention`. `train`
trains a recipe, `load` opens the model of a run, `from_pretrained` a checkpoint of Hugging Face, and `watch` collects
the weights of every attention inside a model. Importing regard does not import torch: names are loaded when they are
first used.

>>> import torch, regard
>>> output = regard.attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
>>> output.context.shape, output.weights.shape
(torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
"""

from typing import TYPE_CHECKING

from regard._imports import lazy_names
from regard._version import __version__

if TYPE_CHECKING:
    from regard import (
        attention,
        catalogue,
        data,
        decoding,
        export,
        models,
        nn,
        serving,
        studies,
        tasks,
        testing,
        training,
        viewing,
    )
    from regard.attention import Attention, attend
    from regard.errors import RegardError
    from regard.models.pretrained import from_pretrained
    from regard.tasks import load, train
    from regard.viewing import watch

__all__ = [
    "Attention", "RegardError", "__version__", "attend", "attention", "catalogue", "data", "decoding", "export",
    "from_pretrained", "load", "models", "nn", "serving", "studies", "tasks", "testing", "train", "training", "viewing",
    "watch",
]  # fmt: skip

_NAMES = {
    "attention": ("Attention", "attend"),
    "errors": ("RegardError",),
    "models.pretrained": ("from_pretrained",),
    "tasks": ("load", "train"),
    "viewing": ("watch",),
}
_PACKAGES = "attention catalogue data decoding export models nn serving studies tasks testing training viewing"
__getattr__ = lazy_names(__name__, _NAMES, _PACKAGES.split())


def __dir__() -> list[str]:
    return list(__all__)
