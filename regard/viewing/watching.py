"""Watch a model: the weights of every attention in it, while it runs and as it is."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.attention._watching import Heads, telling
from regard.errors import UnsupportedError
from regard.viewing import hugging
from regard.viewing._choice import Choice, Layers, Sites, heads_of
from regard.viewing.records import Record, Seen, Words
from regard.viewing.torch_modules import hearing


@contextmanager
def watch(
    model: nn.Module,
    layers: Layers = None,
    heads: int | Iterable[int] | None = None,
    tokens: Words | None = None,
    to: str | Path | None = None,
) -> Iterator[Seen]:
    """Collect the weights of every attention that runs inside a model, and change nothing about it.

    Attentions are ours (also plain `attend` in a module's forward), `nn.MultiheadAttention` alone or in PyTorch's
    Transformers, and those of Hugging Face models with `attn_implementation="regard"`. Weights are computed beside
    the model, without gradients, and are those before dropout. `layers` are numbers, names or patterns of names,
    `heads` numbers. `tokens` are the words of the text, or one list a row of the batch, and label what has as many
    positions. `to` is a new folder, to which records go instead of into memory.

    >>> model = torch.nn.TransformerEncoderLayer(16, 4, batch_first=True).eval()
    >>> with watch(model, heads=[0, 3], tokens=["the", "black", "cat"]) as seen:
    ...     _ = model(torch.randn(1, 3, 16))
    >>> seen["self_attn"]
    Record('self_attn', layer 0, heads 0 3, call 0, 1 x 2 x 3 x 3)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"watch takes a torch.nn.Module, got {type(model).__name__}; of a translator, watch its .model"
        )
    if hugging.imported():
        hugging.register()
    _refuse_compiled(model)
    sites = Sites(model)
    if not any(not _of_theirs(module) for module in sites.modules):
        hugging.refuse_others(model)
    choice = Choice(sites, layers, heads)
    seen = Seen(to=to, tokens=tokens)
    with hearing(sites.names), telling(_Watcher(sites, choice, seen)):
        yield seen
    if not seen and choice.layers != []:  # who asks for no layer knows that nothing is seen
        if sites.layers:  # by now also those that were not known before
            choice.check_layers(sites.layers)
        warnings.warn(f"watch: {seen.what_there_is()}", stacklevel=3)
    elif seen and tokens is not None and not any(record.queries or record.keys for record in seen):
        warnings.warn("watch: no axis of any record has as many positions as there are tokens", stacklevel=3)


class _Watcher:
    """Told of every look in this thread; keeps what was asked for."""

    def __init__(self, sites: Sites, choice: Choice, seen: Seen):
        self.sites, self.choice, self.seen = sites, choice, seen
        self.calls: Counter[str] = Counter()

    def __call__(self, who: nn.Module | None, weights: Callable[[Heads], Tensor]) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # a backward pass looks again at what a checkpoint did not keep: no new look
        name = self.sites.name(who)
        if name is None:
            return
        layer = self.sites.layer(name)
        if not self.choice.layer(name):
            return
        found, heads = self._some(who, name, weights)
        self.seen.add(Record(name, layer, heads, _own(found), call=self.calls[name]))
        self.calls[name] += 1

    def _some(
        self, who: nn.Module | None, name: str, weights: Callable[[Heads], Tensor]
    ) -> tuple[Tensor, tuple[int, ...]]:
        """The heads that were asked for; where nobody says how many there are, all are computed first."""
        heads, count = self.choice.heads, heads_of(who)
        if heads is not None and count is not None:
            self.choice.check_heads(name, count)
            return _four_axes(weights(heads), count), tuple(heads)
        found = _four_axes(weights(None), count)
        if heads is None:
            return found, tuple(range(found.shape[1]))
        self.choice.check_heads(name, found.shape[1])
        return found[:, heads], tuple(heads)


def _four_axes(weights: Tensor, heads: int | None) -> Tensor:
    """(batch, heads, queries, keys): three axes are those of a batch, unless the module has heads."""
    if weights.dim() == 2:
        return weights[None, None]
    if weights.dim() == 3:
        return weights[:, None] if heads is None else weights[None]
    return weights.flatten(0, -4)


def _own(weights: Tensor) -> Tensor:
    """The weights by themselves: in memory of their own, of which nobody else has a part."""
    own = weights.detach().to("cpu", torch.float32)
    if torch._C._functorch.is_functorch_wrapped_tensor(own):
        return _unwrapped(own.clone(memory_format=torch.contiguous_format))
    return own.clone(memory_format=torch.contiguous_format) if own.data_ptr() == weights.data_ptr() else own


def _unwrapped(weights: Tensor) -> Tensor:
    """The numbers themselves, where torch.func has wrapped them; what it maps over become rows of the batch."""
    within = torch._C._functorch
    while within.is_functorch_wrapped_tensor(weights):
        axis, weights = within.maybe_get_bdim(weights), within.get_unwrapped(weights)
        weights = weights if axis < 0 else weights.movedim(axis, 0).flatten(0, 1)
    return weights


def _refuse_compiled(model: nn.Module) -> None:
    for name, module in model.named_modules():
        compiled = isinstance(module, torch._dynamo.OptimizedModule) if _dynamo_is_there() else False
        if compiled or module._compiled_call_impl is not None:
            what = f"{name} in this model" if name else "this model"
            raise UnsupportedError(
                f"{what} is compiled, and a compiled graph runs past whoever watches; watch the model that it was "
                "compiled from, and call that one"
            )


def _dynamo_is_there() -> bool:
    """Whether anything can be compiled yet: torch._dynamo is slow to import."""
    return "torch._dynamo.eval_frame" in sys.modules


def _of_theirs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.")
