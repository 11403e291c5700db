"""Llama, Mistral, Qwen2 and Qwen3: RMSNorm before each sublayer, rotary positions, gated feed-forward networks.

Llama      a bias in all projections of attention or in none
Mistral    no bias; attention to a window of tokens
Qwen2      a bias for queries, keys and values
Qwen3      normalized queries and keys
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from torch import nn

from regard.attention import MultiHead, Rotary, ScaledDot, softmax
from regard.errors import ExportError, UnsupportedError, UsageError
from regard.models.language_models import CausalLM
from regard.models.layers import FeedForward
from regard.models.pretrained.family import Copies, Description, Family, only_value
from regard.models.pretrained.fields import HF_ACTIVATIONS, ConfigFields
from regard.models.pretrained.rules import Rule

__all__ = ["LLAMA"]

DEFAULTS = {
    "llama": (32000, 11008, 2048),
    "mistral": (32000, 14336, 131072),
    "qwen2": (151936, 22016, 32768),
    "qwen3": (151936, 22016, 32768),
}
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def _build(fields: ConfigFields, names: Collection[str]) -> CausalLM:
    kind = fields.get("model_type", "llama")
    vocab_size, ffn_dim, max_positions = DEFAULTS[kind]
    embed_dim, num_heads = fields.integer("hidden_size", 4096), fields.integer("num_attention_heads", 32)
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    head_dim = fields.integer("head_dim", 128 if kind == "qwen3" else embed_dim // num_heads)
    ffn_dim, eps = fields.integer("intermediate_size", ffn_dim), fields.number("rms_norm_eps", 1e-6)
    out_bias = bool(fields.get("attention_bias", False)) if kind in ("llama", "qwen3") else False
    ffn_bias = bool(fields.get("mlp_bias", False)) if kind == "llama" else False
    num_layers, activation = fields.integer("num_hidden_layers", 32), fields.activation("hidden_act", "silu")
    rotary = _read_rotary(fields, fields.integer("max_position_embeddings", max_positions))
    return CausalLM(
        fields.integer("vocab_size", vocab_size),
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_layers=num_layers,
        dropout=0.0,
        tie_embeddings=bool(fields.get("tie_word_embeddings", False)),
        make_self_attn=lambda: MultiHead(
            embed_dim,
            num_heads,
            num_kv_heads,
            head_dim=head_dim,
            bias=out_bias or kind == "qwen2",
            out_bias=out_bias,
            qk_norm=(lambda dim: nn.RMSNorm(dim, eps)) if kind == "qwen3" else None,
            score=Rotary(interleaved=False, scaling=rotary),
        ),
        make_feed_forward=lambda: FeedForward(embed_dim, ffn_dim, activation=activation, gated=True, bias=ffn_bias),
        make_norm=lambda: nn.RMSNorm(embed_dim, eps),
        make_positions=lambda: None,
        embed_scale=1.0,
        window_size=_read_window(fields, kind, num_layers),
    )


def _read_rotary(fields: ConfigFields, max_positions: int) -> dict[str, Any]:
    """The parameters of `Rotary`; files before transformers 5 have them in rope_theta and rope_scaling."""
    parameters = {"rope_theta": fields.get("rope_theta", 10000.0)}
    for name in ("rope_scaling", "rope_parameters"):
        if not isinstance(settings := fields.get(name, {}), dict):
            raise UnsupportedError(f"{fields.path}: {name} must be an object, got {settings!r}")
        parameters |= settings
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if not isinstance(kind, str):
        raise UnsupportedError(f"{fields.path}: rope_type must be a text, got {kind!r}")
    if kind == "dynamic":
        parameters["original_max_position_embeddings"] = max_positions
    elif kind in ("yarn", "llama3"):
        parameters.setdefault("original_max_position_embeddings", max_positions)
    fields.require("partial_rotary_factor", (1.0,))
    try:
        Rotary(interleaved=False, scaling=parameters)
        if parameters.get("partial_rotary_factor", 1.0) != 1.0:
            raise UsageError("these families rotate all features, and partial_rotary_factor is not 1")
    except UsageError as error:
        raise UnsupportedError(f"{fields.path}: rotary positions: {error}") from None
    return parameters


def _read_window(fields: ConfigFields, kind: str, num_layers: int) -> int | None:
    """The number of tokens that each token attends to; None for all."""
    if kind == "llama":
        return None
    fields.used.add("sliding_window")
    window = fields.values.get("sliding_window", 4096)  # null means none
    if kind == "mistral":
        return None if window is None else fields.integer("sliding_window", window)
    first = fields.integer("max_window_layers", 28, minimum=0)
    if not fields.get("use_sliding_window", False) or window is None:
        window, first = None, num_layers
    default = ["sliding_attention" if layer >= first else "full_attention" for layer in range(num_layers)]
    layer_types = fields.get("layer_types", default)
    if not isinstance(layer_types, list) or not all(isinstance(one, str) for one in layer_types):
        raise UnsupportedError(f"{fields.path}: layer_types must be a list of texts, got {layer_types!r}")
    kinds = set(layer_types)
    if kinds == {"full_attention"}:
        return None
    if kinds != {"sliding_attention"} or window is None:
        raise UnsupportedError(
            f"{fields.path} has a sliding window of {window} in some layers (layer_types {sorted(kinds)}), which regard"
            " does not compute; it takes a window in all layers or in none"
        )
    return fields.integer("sliding_window", window)


def _rules(model: nn.Module) -> list[Rule]:
    layer, theirs = r"decoder\.layers\.(\d+)", r"model.layers.\1"
    parts = {
        r"self_attn\.out_proj": "self_attn.o_proj",
        "self_attn": "self_attn",
        r"feed_forward\.linear1": "mlp.gate_proj",
        r"feed_forward\.linear2": "mlp.down_proj",
        r"feed_forward\.linear3": "mlp.up_proj",
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
    }
    output = "model.embed_tokens.weight" if cast(CausalLM, model).tie_embeddings else "lm_head.weight"
    return [
        Rule(r"embed\.weight", "model.embed_tokens.weight"),
        Rule(r"lm_head\.weight", output),
        Rule(r"decoder\.norm", "model.norm"),
        *(Rule(rf"{layer}\.{ours}", f"{theirs}.{name}") for ours, name in parts.items()),
    ]


def _copies(model: nn.Module) -> Copies:
    output = [(r"lm_head\.weight", "model.embed_tokens.weight")] if cast(CausalLM, model).tie_embeddings else []
    return [*output, (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", "")]


def _is_rotary(model: CausalLM) -> bool:
    return any(isinstance(part, Rotary) for part in model.modules())


def _is_standard(attention: Any) -> bool:
    """Whether the attention is softmax of scaled dot products of rotated halves, of equal sizes."""
    score, sizes = attention.score, {attention.embed_dim, attention.q_proj.in_features}
    return (
        isinstance(score, Rotary)
        and type(score.score) is ScaledDot
        and attention.normalize in (None, softmax)
        and not (score.interleaved or attention.num_extra_keys)
        and (score.offset, score.rotary_dim, score.positions, score._rotary_share) == (None, None, None, 1.0)
        and attention.value_head_dim == attention.head_dim
        and len(sizes) == 1
    )


def _is_rms_norm(norm: Any) -> bool:
    return isinstance(norm, nn.RMSNorm) and norm.elementwise_affine and norm.eps is not None


def _describe(model: CausalLM) -> Description:
    layers: list[Any] = list(model.decoder.layers)
    attentions, networks = [layer.self_attn for layer in layers], [layer.feed_forward for layer in layers]
    has_qk_norm = only_value("the norm of queries and keys", [one.q_norm is not None for one in attentions])
    norms: list[Any] = [model.decoder.norm, *(norm for layer in layers for norm in (layer.norm1, layer.norm2))]
    norms += [norm for one in attentions for norm in (one.q_norm, one.k_norm) if norm is not None]
    biases = [(one.q_proj.bias is not None, one.out_proj.bias is not None) for one in attentions]
    bias, out_bias = only_value("the bias of attention", biases)
    ffn_bias = only_value("the bias of feed-forward networks", [one.linear1.bias is not None for one in networks])
    embed_dim, num_heads = model.embed.embedding_dim, only_value("heads", [one.num_heads for one in attentions])
    if has_qk_norm:
        kind = "qwen3"
    elif bias and not out_bias:
        kind = "qwen2"
    else:
        kind = "llama" if model.window_size is None and embed_dim % num_heads == 0 else "mistral"
    is_bias_known = bias == (out_bias or kind == "qwen2") and not (bias and kind == "mistral")
    if (
        not (layers[0].norm_first and all(map(_is_rms_norm, norms)) and all(map(_is_standard, attentions)))
        or not (is_bias_known and (kind == "llama" or not ffn_bias))
        or any(network.linear3 is None for network in networks)
        or (model.embed.positions, model.embed.norm, model.embed.scale) != (None, None, 1.0)
    ):
        raise ExportError(
            "transformers' llama, mistral, qwen2 and qwen3 have rotary positions (interleaved=False), RMSNorm before"
            " each sublayer and gated feed-forward networks, and this model differs; export it to safetensors, which"
            " regard loads"
        )
    activation = only_value("the activation", [network.activation for network in networks])
    config = {
        "model_type": kind,
        "architectures": [f"{CLASSES[kind]}ForCausalLM"],
        "vocab_size": model.embed.num_embeddings,
        "hidden_size": embed_dim,
        "intermediate_size": only_value("ffn_dim", [network.linear1.out_features for network in networks]),
        "num_hidden_layers": len(layers),
        "num_attention_heads": num_heads,
        "num_key_value_heads": only_value("heads of keys", [one.num_kv_heads for one in attentions]),
        "head_dim": only_value("head_dim", [one.head_dim for one in attentions]),
        "hidden_act": next(theirs for theirs, ours in HF_ACTIVATIONS.items() if ours == activation),
        "rms_norm_eps": only_value("eps of norms", [norm.eps for norm in norms]),
        "attention_dropout": 0.0,
        "tie_word_embeddings": model.tie_embeddings,
    }
    config |= _describe_rotary([one.score for one in attentions])
    if kind in ("llama", "qwen3"):
        config["attention_bias"] = out_bias
    if kind == "llama":
        config["mlp_bias"] = ffn_bias
    else:
        config["sliding_window"] = model.window_size
    if kind in ("qwen2", "qwen3"):
        config |= {"use_sliding_window": model.window_size is not None, "max_window_layers": 0}
    return config


def _describe_rotary(scores: list[Rotary]) -> Description:
    settings = [tuple(sorted({"rope_theta": score.base, **score.scaling}.items())) for score in scores]
    parameters = {"rope_type": "default", **dict(only_value("rotary positions", settings))}
    trained = parameters.get("original_max_position_embeddings")
    if trained is None:
        return {"rope_parameters": parameters}
    if parameters["rope_type"] == "dynamic":
        del parameters["original_max_position_embeddings"]
        return {"rope_parameters": parameters, "max_position_embeddings": trained}
    return {"rope_parameters": parameters, "max_position_embeddings": int(trained * parameters["factor"])}


LLAMA = Family(
    tuple(DEFAULTS),
    _build,
    _rules,
    _copies,
    prefix="model",
    heads=("lm_head.",),
    harmless=("pretraining_tp",),  # an order of the same operations
    model_class=(CausalLM,),
    takes=_is_rotary,
    describe=_describe,
)
