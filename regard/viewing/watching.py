"""Which attentions a model has, and which of them are asked for.

Watch a model: the weights of every attention in it, while it runs and as it is.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attention, LocalM, LocalP, MultiHead
from regard.attention.observers import HeadSelection, register_watcher
from regard.errors import UnsupportedError, UsageError
from regard.viewing import adapters as hugging
from regard.viewing.adapters import hook_torch_attention, is_torch_attention
from regard.viewing.records import AttentionRecord, AttentionRecords, Tokens

ATTENTION_TYPES = (Attention, MultiHead, LocalM, LocalP)


LayerSelection = int | str | Iterable[int | str] | None


class AttentionModules:
    """The attentions of a model by name, numbered in the order of its modules.

    A module of the user's own that calls `attend` is not known before it does; it gets the next number then.
    """

    def __init__(self, model: nn.Module):
        self.names = {module: name or type(model).__name__ for name, module in model.named_modules()}
        self.aliases: dict[str, list[str]] = {}  # a module that is there twice goes by the first of its names
        for name, module in model.named_modules(remove_duplicate=False):
            self.aliases.setdefault(self.names[module], []).append(name)
        theirs = hugging.huggingface_attention_modules(model) if hugging.is_huggingface_imported() else set()
        self.modules = [
            m for m in self.names if isinstance(m, ATTENTION_TYPES) or _is_torch_multihead(m) or m in theirs
        ]
        self.layer_numbers = {self.names[module]: layer for layer, module in enumerate(self.modules)}

    def find_name(self, module: nn.Module | None) -> str | None:
        """The name of who looks: itself, or the innermost module of the model that is at work; None for a stranger."""
        if module is not None and module in self.names:
            return self.names[module]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            first = frame.f_code.co_varnames[:1]
            at_work = frame.f_locals.get(first[0]) if frame.f_code.co_argcount and first else None
            if isinstance(at_work, nn.Module) and at_work in self.names:
                return self.names[at_work]
            frame = frame.f_back
        return None

    def get_layer_number(self, name: str) -> int:
        return self.layer_numbers.setdefault(name, len(self.layer_numbers))


def _is_torch_multihead(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) and is_torch_attention(module)


def num_heads_of(module: nn.Module | None) -> int | None:
    """How many heads a module has, if it says so."""
    if isinstance(module, nn.MultiheadAttention):
        return int(module.num_heads)
    return module.num_heads if isinstance(module, MultiHead) else None


class LayerHeadFilter:
    """The layers and heads that were asked for: numbers, names, patterns of names; all of them if none was named."""

    def __init__(
        self, attention_modules: AttentionModules, layers: LayerSelection, heads: int | Iterable[int] | None
    ):
        self.attention_modules = attention_modules
        self.layers: list[int | str] | None = _as_list(layers)
        self.heads: list[int] | None = _as_list(heads)
        if any(isinstance(head, bool) or not isinstance(head, int) for head in self.heads or ()):
            raise TypeError(f"heads are numbers, got {heads!r}")
        if self.heads == []:
            raise UsageError("there is no head in heads=[]; leave it out to watch all of them")
        if attention_modules.layer_numbers:
            # A name may be that of a module which turns out to attend.
            self.check_layers([*attention_modules.layer_numbers, *attention_modules.names.values()])
        for module in attention_modules.modules:
            count = num_heads_of(module)
            if count is not None and self.includes_layer(attention_modules.names[module]):
                self.check_heads(attention_modules.names[module], count)

    def includes_layer(self, name: str) -> bool:
        """Whether an attention is asked for."""
        return self.layers is None or any(self._matches(layer, name) for layer in self.layers)

    def _matches(self, layer: int | str, name: str) -> bool:
        if isinstance(layer, str):
            names = [name, *self.attention_modules.aliases.get(name, ())]
            return any(fnmatchcase(one, layer) or one.startswith(layer + ".") for one in names)
        return self.attention_modules.get_layer_number(name) == layer

    def check_layers(self, names: Iterable[str]) -> None:
        """Raise if a layer that was asked for is none of these, or has a number that none has."""
        known, names = self.attention_modules.layer_numbers, list(names)
        for layer in self.layers or ():
            if isinstance(layer, bool) or not isinstance(layer, (int, str)):
                raise TypeError(f"layers are numbers or names of modules, got {layer!r}")
            there = (
                layer in known.values()
                if isinstance(layer, int)
                else any(self._matches(layer, n) for n in names)
            )
            if not there:
                raise UsageError(f"there is no layer {layer!r} to watch; there are {_describe_layers(known)}")

    def check_heads(self, name: str, num_heads: int) -> None:
        for head in self.heads or ():
            if not 0 <= head < num_heads:
                there = "one head, 0" if num_heads == 1 else f"heads 0 to {num_heads - 1}"
                raise UsageError(f"there is no head {head!r} in {name}, which has {there}")


def _as_list(value: Any) -> Any:
    """One or some, as a list; None stays None."""
    one = isinstance(value, str) or not isinstance(value, Iterable)
    return None if value is None else [value] if one else list(value)


def _describe_layers(layer_numbers: dict[str, int]) -> str:
    lines = [f"{layer} ({name})" for name, layer in layer_numbers.items()]
    return ", ".join(lines[:12]) + (f" and {len(lines) - 12} more" if len(lines) > 12 else "")


@contextmanager
def watch(
    model: nn.Module,
    layers: LayerSelection = None,
    heads: int | Iterable[int] | None = None,
    tokens: Tokens | None = None,
    save_to: str | Path | None = None,
) -> Iterator[AttentionRecords]:
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
    if hugging.is_huggingface_imported():
        hugging.register_huggingface()
    _check_not_compiled(model)
    sites = AttentionModules(model)
    if not any(not _is_huggingface_module(module) for module in sites.modules):
        hugging.check_attn_implementation(model)
    choice = LayerHeadFilter(sites, layers, heads)
    seen = AttentionRecords(save_to=save_to, tokens=tokens)
    with hook_torch_attention(sites.names), register_watcher(_RecordingWatcher(sites, choice, seen)):
        yield seen
    if not seen and choice.layers != []:  # who asks for no layer knows that nothing is seen
        if sites.layer_numbers:  # by now also those that were not known before
            choice.check_layers(sites.layer_numbers)
        warnings.warn(f"watch: {seen.describe()}", stacklevel=3)
    elif seen and tokens is not None and not any(record.query_tokens or record.key_tokens for record in seen):
        warnings.warn("watch: no axis of any record has as many positions as there are tokens", stacklevel=3)


class _RecordingWatcher:
    """Told of every look in this thread; keeps what was asked for."""

    def __init__(
        self, attention_modules: AttentionModules, layer_filter: LayerHeadFilter, records: AttentionRecords
    ):
        self.attention_modules, self.layer_filter, self.records = attention_modules, layer_filter, records
        self.num_calls: Counter[str] = Counter()

    def __call__(self, module: nn.Module | None, weights: Callable[[HeadSelection], Tensor]) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # a backward pass looks again at what a checkpoint did not keep: no new look
        name = self.attention_modules.find_name(module)
        if name is None:
            return
        layer = self.attention_modules.get_layer_number(name)
        if not self.layer_filter.includes_layer(name):
            return
        found, heads = self._select_heads(module, name, weights)
        self.records.add(
            AttentionRecord(name, layer, heads, _copy_detached(found), call=self.num_calls[name])
        )
        self.num_calls[name] += 1

    def _select_heads(
        self, module: nn.Module | None, name: str, weights: Callable[[HeadSelection], Tensor]
    ) -> tuple[Tensor, tuple[int, ...]]:
        """The heads that were asked for; where nobody says how many there are, all are computed first."""
        heads, count = self.layer_filter.heads, num_heads_of(module)
        if heads is not None and count is not None:
            self.layer_filter.check_heads(name, count)
            return _to_four_axes(weights(heads), count), tuple(heads)
        found = _to_four_axes(weights(None), count)
        if heads is None:
            return found, tuple(range(found.shape[1]))
        self.layer_filter.check_heads(name, found.shape[1])
        return found[:, heads], tuple(heads)


def _to_four_axes(weights: Tensor, num_heads: int | None) -> Tensor:
    """(batch, heads, queries, keys): three axes are those of a batch, unless the module has heads."""
    if weights.dim() == 2:
        return weights[None, None]
    if weights.dim() == 3:
        return weights[:, None] if num_heads is None else weights[None]
    return weights.flatten(0, -4)


def _copy_detached(weights: Tensor) -> Tensor:
    """The weights by themselves: in memory of their own, of which nobody else has a part."""
    own = weights.detach().to("cpu", torch.float32)
    if torch._C._functorch.is_functorch_wrapped_tensor(own):
        return _unwrap_functorch(own.clone(memory_format=torch.contiguous_format))
    return own.clone(memory_format=torch.contiguous_format) if own.data_ptr() == weights.data_ptr() else own


def _unwrap_functorch(weights: Tensor) -> Tensor:
    """The numbers themselves, where torch.func has wrapped them; what it maps over become rows of the batch."""
    within = torch._C._functorch
    while within.is_functorch_wrapped_tensor(weights):
        axis, weights = within.maybe_get_bdim(weights), within.get_unwrapped(weights)
        weights = weights if axis < 0 else weights.movedim(axis, 0).flatten(0, 1)
    return weights


def _check_not_compiled(model: nn.Module) -> None:
    for name, module in model.named_modules():
        compiled = isinstance(module, torch._dynamo.OptimizedModule) if _is_dynamo_imported() else False
        if compiled or module._compiled_call_impl is not None:
            what = f"{name} in this model" if name else "this model"
            raise UnsupportedError(
                f"{what} is compiled, and a compiled graph runs past whoever watches; watch the model that it was "
                "compiled from, and call that one"
            )


def _is_dynamo_imported() -> bool:
    """Whether anything can be compiled yet: torch._dynamo is slow to import."""
    return "torch._dynamo.eval_frame" in sys.modules


def _is_huggingface_module(module: nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.")
