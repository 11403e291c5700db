"""Models of Hugging Face transformers, observed through their attention interface: `attn_implementation="regard"`."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from regard._imports import require_extra
from regard.attention import Dot, Dropout, Mask, Score, SoftCap, WithSink, causal, dense, softmax
from regard.attention.equation import attend_unwatched
from regard.attention.observers import notify_watchers
from regard.errors import UnsupportedError

__all__ = ["ATTN_IMPLEMENTATION", "huggingface_attention", "register_huggingface"]

ATTN_IMPLEMENTATION = "regard"
UNSUPPORTED_ARGUMENTS = ("cache", "block_indices", "head_mask", "layer_head_mask", "sinks")
_CAUSAL = "_regard_causal"  # attribute of a causal mask without padding: its version
_INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # the name under which models of transformers look up an attention function


def register_huggingface() -> None:
    """Register `attn_implementation="regard"` with transformers, so that its models can be watched.

    `watch` calls it if transformers is imported. Call it before loading a model with
    `from_pretrained(..., attn_implementation="regard")`.

    Example:
        model = AutoModel.from_pretrained(name, attn_implementation="regard")  # after register_huggingface()
        with regard.watch(model) as records:
            model(**inputs)
    """
    models = require_extra("transformers.modeling_utils", extra="transformers")
    masking = require_extra("transformers.masking_utils", extra="transformers")
    models.AttentionInterface.register(ATTN_IMPLEMENTATION, huggingface_attention)
    masking.AttentionMaskInterface.register(ATTN_IMPLEMENTATION, create_mask)
    check = models.PreTrainedModel.get_correct_attn_implementation  # called when a model is built or changed
    if check.__module__ != __name__:
        models.PreTrainedModel.get_correct_attn_implementation = _refuse_attention_classes(check)


def _refuse_attention_classes(check: Any) -> Any:
    """Extend the check of transformers: a model with a table of attention classes raises a bare KeyError otherwise."""

    @wraps(check, assigned=("__doc__", "__name__"))
    def check_attention_classes(model: nn.Module, requested_attention: str | None, *args: Any, **options: Any) -> str:
        modules = [sys.modules[part.__module__] for part in type(model).__mro__ if part.__module__ in sys.modules]
        if requested_attention == ATTN_IMPLEMENTATION and any(
            name.endswith("_ATTENTION_CLASSES") for module in modules for name in vars(module)
        ):
            raise UnsupportedError(
                f"{type(model).__name__} chooses among attention classes of its own, which "
                'attn_implementation="regard" cannot replace; use "eager" for this model'
            )
        return check(model, requested_attention, *args, **options)

    return check_attention_classes


def create_mask(*args: Any, **options: Any) -> Tensor | None:
    """The mask function of regard with the signature of transformers' mask interface.

    PyTorch's kernels need no mask for causal attention; here a missing mask always means that all keys are visible,
    as in eager attention, and a causal mask without padding is marked, so that it opens fast paths.

    Returns:
        A boolean mask for models that can use PyTorch's kernels; for others, which may add it to scores in code of
        their own, the additive one of eager attention
    """
    masking = sys.modules["transformers.masking_utils"]
    modeling = type(options.get("config")).__module__.replace(".configuration_", ".modeling_")
    visible: Tensor | None = masking.sdpa_mask(*args, **options)
    if visible is not None and _can_use_sdpa(modeling):
        return visible
    create = masking.sdpa_mask if _can_use_sdpa(modeling) else masking.eager_mask
    mask: Tensor | None = create(*args, **{**options, "allow_is_causal_skip": False})
    if visible is None and mask is not None and not torch.compiler.is_compiling():
        setattr(mask, _CAUSAL, _get_version(mask))
    return mask


@cache
def _can_use_sdpa(modeling: str) -> bool:
    """Whether all models of a module of transformers can use PyTorch's kernels, through the attention interface."""
    names = vars(sys.modules[modeling]) if modeling in sys.modules else {}
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == modeling]
    return _INTERFACE in names and all(getattr(value, "_supports_sdpa", True) for value in classes)


def huggingface_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function of regard with the signature of transformers' attention interface.

    Args:
        module: the attention module of the model
        query, key, value: projected inputs
        attention_mask: boolean (True = visible) or additive; None: no mask, or a causal one with `is_causal`
        dropout: probability, in training
        scaling: factor of the dot products; None: 1 / sqrt(dim)
        is_causal: whether no mask means a causal one
        position_bias: added to the scores
        softcap: c of c tanh(s / c)
        s_aux: scores of the sinks, one per head: each takes weight that goes to no key
        indices: (batch, queries, n), the keys that a sparse model selects; the others are hidden
        others: arguments of the model that are not supported if they are not None

    Shape:
        (batch, heads, queries, dim) -> (batch, queries, heads, dim)

    Returns:
        The context, and the weights if the model is asked for its attentions. Watchers get them in any case.
    """
    for name in UNSUPPORTED_ARGUMENTS:
        if others.get(name) is not None:
            raise UnsupportedError(
                f'{type(module).__name__} needs {name}, which attn_implementation="regard" does not support; '
                'use "eager" for this model'
            )
    mask, bias = _convert_mask(query, key, attention_mask, is_causal)
    if indices is not None:
        selected = indices.new_zeros((*indices.shape[:-1], key.shape[-2]), dtype=torch.bool)
        chosen = dense(selected.scatter(-1, indices.long(), True).unsqueeze(1))
        mask = chosen if mask is None else mask & chosen
    score: Score = Dot() * (query.shape[-1] ** -0.5 if scaling is None else float(scaling))
    score = score if softcap is None else SoftCap(score, softcap)
    biases = [term for term in (bias, position_bias) if term is not None]
    score = score + sum(biases[1:], biases[0]) if biases else score
    normalize: Any = softmax if s_aux is None else WithSink(softmax, len(s_aux), sinks=s_aux)
    if dropout and module.training:
        normalize = Dropout(normalize, dropout).train()
    num_groups = query.shape[1] // key.shape[1]  # heads of queries that share one head of keys
    output = attend_unwatched(query, key, value, mask, score, normalize, num_groups, has_heads=True)
    notify_watchers(module, output)
    weights = output.weights if _is_asked_for_weights(others) else None
    return output.context.transpose(1, 2).contiguous(), weights


def _is_asked_for_weights(others: dict[str, Any]) -> bool:
    """Whether the model was called with `output_attentions=True`."""
    capturing = sys.modules.get("transformers.utils.output_capturing")
    collector = getattr(capturing, "_active_collector", None)
    collected = collector.get() if collector is not None else None
    return bool(others.get("output_attentions")) or any(key.endswith("attentions") for key in collected or ())


def _convert_mask(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> tuple[Mask | None, Tensor | None]:
    """Split the mask of a model into a mask and a bias of the scores."""
    if mask is not None and getattr(mask, _CAUSAL, -1) == _get_version(mask):
        mask, is_causal = None, True
    if mask is not None:
        mask = mask[..., : key.shape[-2]]
        if mask.dtype == torch.bool:
            return dense(mask), None
        visible = mask > torch.finfo(mask.dtype).min  # an additive mask: its least number hides a key
        return dense(visible), torch.where(visible, mask, 0.0)
    queries, keys = query.shape[-2], key.shape[-2]
    if not is_causal or queries == 1:
        return None, None
    if keys == queries:
        return causal(), None
    return dense(torch.ones(queries, keys, dtype=torch.bool, device=key.device).tril()), None


def _get_version(mask: Tensor) -> int:
    """How often a tensor was changed; tensors of inference mode do not count it."""
    return 0 if mask.is_inference() else mask._version


def check_attn_implementation(model: nn.Module) -> None:
    """Raise UnsupportedError if a model of transformers uses an attention function that cannot be watched.

    Args:
        model: any model

    Raises:
        UnsupportedError: its message says how to change the attention function
    """
    models = sys.modules.get("transformers.modeling_utils")
    if models is None:
        return
    for part in model.modules():
        if not isinstance(part, models.PreTrainedModel) or not any(map(uses_attention_interface, part.modules())):
            continue
        implementation = part.config._attn_implementation
        if implementation != ATTN_IMPLEMENTATION:
            raise UnsupportedError(
                f"{type(part).__name__} uses attn_implementation={implementation!r}, which cannot be watched; "
                'call model.set_attn_implementation("regard") first, or load it with attn_implementation="regard"'
            )


def check_unwatchable(model: nn.Module, selected: Iterable[nn.Module]) -> None:
    """Raise UnsupportedError if the selected modules of transformers have attention code of their own; warn if some do.

    Args:
        model: the watched model
        selected: its selected attention modules
    """
    modules = list(selected)
    own = [module for module in modules if is_huggingface_module(module) and not uses_attention_interface(module)]
    if not own:
        return
    names = ", ".join(sorted({type(module).__name__ for module in own}))
    if len(own) == len(modules):
        raise UnsupportedError(
            f"{type(model).__name__} computes its attention in code of its own ({names}), which cannot be watched; "
            'load it with attn_implementation="eager", and output_attentions=True returns its weights if it has any'
        )
    warnings.warn(f"watch: {names} cannot be watched: attention code of its own", stacklevel=4)


def uses_attention_interface(module: nn.Module) -> bool:
    """Whether a module of transformers looks up its attention function by name, so that it can be watched."""
    module_class: Any = type(module)
    return _class_uses_attention_interface(module_class)


@cache
def _class_uses_attention_interface(module_class: Any) -> bool:
    parts = [part for part in module_class.__mro__ if part.__module__ != "transformers.modeling_utils"]
    functions = [value for part in parts for value in vars(part).values() if inspect.isfunction(value)]
    return any(_INTERFACE in inspect.unwrap(function).__code__.co_names for function in functions)


def is_huggingface_module(module: nn.Module) -> bool:
    """Whether transformers defines the class of a module."""
    return type(module).__module__.startswith("transformers.")


def huggingface_attention_modules(model: nn.Module) -> set[nn.Module]:
    """Find the innermost modules of transformers with "Attention" in their class names.

    Args:
        model: any model
    """

    def is_attention(part: nn.Module) -> bool:
        return type(part).__module__.startswith("transformers.models.") and "Attention" in type(part).__name__

    candidates = {part for part in model.modules() if is_attention(part)}
    return {part for part in candidates if not any(inner in candidates for inner in list(part.modules())[1:])}


def is_huggingface_imported() -> bool:
    """Whether transformers is imported, so that a model may be one of its models."""
    return "transformers.modeling_utils" in sys.modules
