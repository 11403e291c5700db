"""Record the attention weights of a model while it runs: `watch`."""

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
from regard.viewing import huggingface
from regard.viewing.records import AttentionRecord, AttentionRecords, Tokens
from regard.viewing.torch_modules import hook_torch_attention, is_torch_attention

__all__ = ["ATTENTION_TYPES", "AttentionModules", "LayerHeadFilter", "LayerSelection", "num_heads_of", "watch"]

ATTENTION_TYPES = (Attention, MultiHead, LocalM, LocalP)
LayerSelection = int | str | Iterable[int | str] | None


class AttentionModules:
    """The attention modules of a model by name, numbered in the order of `named_modules`.

    A module whose forward calls `attend` is found when it does, and gets the next number.

    Args:
        model: the model
    """

    def __init__(self, model: nn.Module):
        self.names = {module: name or type(model).__name__ for name, module in model.named_modules()}
        self.aliases: dict[str, list[str]] = {}  # other names of modules that are registered twice
        for name, module in model.named_modules(remove_duplicate=False):
            self.aliases.setdefault(self.names[module], []).append(name)
        supported = huggingface.huggingface_attention_modules(model)
        supported |= {m for m in self.names if isinstance(m, nn.MultiheadAttention) and is_torch_attention(m)}
        self.modules = [m for m in self.names if isinstance(m, ATTENTION_TYPES) or m in supported]
        self.layer_numbers = {self.names[module]: layer for layer, module in enumerate(self.modules)}

    def find_name(self, module: nn.Module | None) -> str | None:
        """The name of a module, or of the innermost module of the model on the call stack; None if there is none."""
        if module is not None and module in self.names:
            return self.names[module]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            first = frame.f_code.co_varnames[:1]
            caller = frame.f_locals.get(first[0]) if frame.f_code.co_argcount and first else None
            if isinstance(caller, nn.Module) and caller in self.names:
                return self.names[caller]
            frame = frame.f_back
        return None

    def get_layer_number(self, name: str) -> int:
        """The number of a module; a new name gets the next number."""
        return self.layer_numbers.setdefault(name, len(self.layer_numbers))


def num_heads_of(module: nn.Module | None) -> int | None:
    """Return the number of heads of a module, or None if it is unknown.

    Args:
        module: the module; None: unknown
    """
    return module.num_heads if isinstance(module, (nn.MultiheadAttention, MultiHead)) else None


class LayerHeadFilter:
    """Selected layers and heads.

    Args:
        attention_modules: the modules of the model
        layers: numbers, names, prefixes or patterns of names; None: all
        heads: numbers; None: all
    """

    def __init__(self, attention_modules: AttentionModules, layers: LayerSelection, heads: int | Iterable[int] | None):
        self.attention_modules = attention_modules
        self.layers: list[int | str] | None = _as_list(layers)
        self.heads: list[int] | None = _as_list(heads)
        if any(isinstance(head, bool) or not isinstance(head, int) for head in self.heads or ()):
            raise TypeError(f"heads must be numbers, got {heads!r}")
        if self.heads == []:
            raise UsageError("heads=[] selects no head; omit it to select all heads")
        if attention_modules.layer_numbers:
            # A name may belong to a module that calls `attend` later.
            self.check_layers([*attention_modules.layer_numbers, *attention_modules.names.values()])
        for module in attention_modules.modules:
            count = num_heads_of(module)
            if count is not None and self.includes_layer(attention_modules.names[module]):
                self.check_heads(attention_modules.names[module], count)

    def includes_layer(self, name: str) -> bool:
        """Whether a module is selected."""
        return self.layers is None or any(self._matches(layer, name) for layer in self.layers)

    def _matches(self, layer: int | str, name: str) -> bool:
        if isinstance(layer, str):
            names = [name, *self.attention_modules.aliases.get(name, ())]
            return any(fnmatchcase(other, layer) or other.startswith(layer + ".") for other in names)
        return self.attention_modules.get_layer_number(name) == layer

    def check_layers(self, names: Iterable[str]) -> None:
        """Raise UsageError if a selected layer is not among the names or numbers."""
        known, names = self.attention_modules.layer_numbers, list(names)
        for layer in self.layers or ():
            if isinstance(layer, bool) or not isinstance(layer, (int, str)):
                raise TypeError(f"layers must be numbers or names of modules, got {layer!r}")
            is_name = isinstance(layer, str)
            exists = any(self._matches(layer, name) for name in names) if is_name else layer in known.values()
            if not exists:
                raise UsageError(f"no layer {layer!r}; the layers are {_describe_layers(known)}")

    def check_heads(self, name: str, num_heads: int) -> None:
        """Raise UsageError if a selected head does not exist."""
        for head in self.heads or ():
            if not 0 <= head < num_heads:
                heads = "one head, 0" if num_heads == 1 else f"heads 0 to {num_heads - 1}"
                raise UsageError(f"no head {head!r} in {name}, which has {heads}")


def _as_list(value: Any) -> Any:
    """A single value or an iterable as a list; None stays None."""
    is_single = isinstance(value, str) or not isinstance(value, Iterable)
    return None if value is None else [value] if is_single else list(value)


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
    """Record the weights of all attention calls inside a model, without changing the model or its outputs.

    Supported are the modules of regard, `attend` in the forward of any module, `nn.MultiheadAttention` (alone or in
    PyTorch's Transformers), and models of transformers with `attn_implementation="regard"`. Weights are computed
    separately, without gradients; they are those before dropout. Calls of other threads are not recorded.

    Args:
        model: the model
        layers: numbers, names, prefixes or patterns of names, such as "decoder.*.cross_attn"; None: all
        heads: numbers; None: all
        tokens: the tokens of one text, or one list per example; they label every axis with as many positions
        save_to: a new folder, to which records are written instead of keeping them in memory

    Returns:
        A context manager that gives the `AttentionRecords`.

    Example:
        >>> model = torch.nn.TransformerEncoderLayer(16, 4, batch_first=True).eval()
        >>> with watch(model, heads=[0, 3], tokens=["the", "black", "cat"]) as records:
        ...     _ = model(torch.randn(1, 3, 16))
        >>> records["self_attn"]
        AttentionRecord('self_attn', layer 0, heads 0 3, call 0, 1 x 2 x 3 x 3)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"watch expects a torch.nn.Module, got {type(model).__name__}; of a predictor, watch its .model"
        )
    if huggingface.is_huggingface_imported():
        huggingface.register_huggingface()
    _check_not_compiled(model)
    modules = AttentionModules(model)
    if all(huggingface.is_huggingface_module(module) for module in modules.modules):
        huggingface.check_attn_implementation(model)
    layer_filter = LayerHeadFilter(modules, layers, heads)
    selected = [module for module in modules.modules if layer_filter.includes_layer(modules.names[module])]
    huggingface.check_unwatchable(model, selected)
    records = AttentionRecords(save_to=save_to, tokens=tokens)
    with hook_torch_attention(modules.names), register_watcher(_RecordingWatcher(modules, layer_filter, records)):
        yield records
    if not records and layer_filter.layers != []:
        if modules.layer_numbers:  # includes modules that were found meanwhile
            layer_filter.check_layers(modules.layer_numbers)
        warnings.warn(f"watch: {records.describe()}", stacklevel=3)
    elif records and tokens is not None and not any(record.query_tokens or record.key_tokens for record in records):
        warnings.warn("watch: no axis of any record has as many positions as there are tokens", stacklevel=3)


class _RecordingWatcher:
    """Called for every attention call of this thread; records the selected ones."""

    def __init__(self, attention_modules: AttentionModules, layer_filter: LayerHeadFilter, records: AttentionRecords):
        self.attention_modules, self.layer_filter, self.records = attention_modules, layer_filter, records
        self.num_calls: Counter[str] = Counter()

    def __call__(self, module: nn.Module | None, weights: Callable[[HeadSelection], Tensor]) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # a backward pass recomputes a checkpointed call: not a new one
        name = self.attention_modules.find_name(module)
        if name is None:
            return
        layer = self.attention_modules.get_layer_number(name)
        if not self.layer_filter.includes_layer(name):
            return
        selected, heads = self._select_heads(module, name, weights)
        record = AttentionRecord(name, layer, heads, _copy_detached(selected), call=self.num_calls[name])
        self.records.add(record)
        self.num_calls[name] += 1

    def _select_heads(
        self, module: nn.Module | None, name: str, weights: Callable[[HeadSelection], Tensor]
    ) -> tuple[Tensor, tuple[int, ...]]:
        """Compute the selected heads; all of them if their number is unknown."""
        heads, count = self.layer_filter.heads, num_heads_of(module)
        if heads is not None and count is not None:
            self.layer_filter.check_heads(name, count)
            return _to_four_axes(weights(heads), count), tuple(heads)
        all_heads = _to_four_axes(weights(None), count)
        if heads is None:
            return all_heads, tuple(range(all_heads.shape[1]))
        self.layer_filter.check_heads(name, all_heads.shape[1])
        return all_heads[:, heads], tuple(heads)


def _to_four_axes(weights: Tensor, num_heads: int | None) -> Tensor:
    """(batch, heads, queries, keys); of three axes the first is the batch, unless the module has heads."""
    if weights.dim() == 2:
        return weights[None, None]
    if weights.dim() == 3:
        return weights[:, None] if num_heads is None else weights[None]
    return weights.flatten(0, -4)


def _copy_detached(weights: Tensor) -> Tensor:
    """Weights as float32 on the CPU that share no memory with the originals."""
    copy = weights.detach().to("cpu", torch.float32)
    if torch._C._functorch.is_functorch_wrapped_tensor(copy) or copy.data_ptr() == weights.data_ptr():
        copy = copy.clone(memory_format=torch.contiguous_format)
    return _unwrap_functorch(copy)


def _unwrap_functorch(weights: Tensor) -> Tensor:
    """The plain tensor inside of torch.func's wrappers; axes mapped by vmap become part of the batch."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(weights):
        axis, weights = functorch.maybe_get_bdim(weights), functorch.get_unwrapped(weights)
        weights = weights if axis < 0 else weights.movedim(axis, 0).flatten(0, 1)
    return weights


def _check_not_compiled(model: nn.Module) -> None:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # slow to import
    for name, module in model.named_modules():
        is_compiled = dynamo is not None and isinstance(module, dynamo.OptimizedModule)
        if is_compiled or module._compiled_call_impl is not None:
            subject = f"{name} in this model" if name else "this model"
            raise UnsupportedError(
                f"{subject} is compiled, and compiled graphs cannot be watched; watch and call the original model"
            )
