"""Encoder-decoders with the layers of the Transformer: Marian, BART and Pegasus.

Marian     norm after each sublayer, sinusoidal positions
BART       norm after each sublayer, learned positions, norm of the embeddings
Pegasus    norm before each sublayer, sinusoidal positions
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import Learned, Sinusoidal
from regard.errors import ExportError
from regard.models.layers import FeedForward
from regard.models.pretrained.family import Copies, Description, Family, check_standard_attention, only_value
from regard.models.pretrained.fields import HF_ACTIVATIONS, ConfigFields
from regard.models.pretrained.rules import Rule
from regard.models.transformer import Transformer

__all__ = ["SEQ2SEQ"]

POSITION_OFFSET = 2  # BART's table of positions has two rows that are never read
POSITION_BASE = 10000.0  # of sinusoidal positions
DEFAULTS = {
    "marian": (1024, 12, 16, 4096, 58101),
    "bart": (1024, 12, 16, 4096, 50265),
    "pegasus": (1024, 12, 16, 4096, 50265),
}


def _build(fields: ConfigFields, names: Collection[str]) -> Transformer:
    kind = fields.get("model_type", "marian")
    dim, layers, heads, ffn, vocab = DEFAULTS[kind]
    embed_dim, vocab_size = fields.integer("d_model", dim), fields.integer("vocab_size", vocab)
    num_heads, ffn_dim = fields.integer("encoder_attention_heads", heads), fields.integer("encoder_ffn_dim", ffn)
    fields.require("decoder_attention_heads", (num_heads,), heads)
    fields.require("decoder_ffn_dim", (ffn_dim,), ffn)
    fields.require("normalize_embedding", (kind == "bart",))
    fields.require("normalize_before", (kind == "pegasus",))
    fields.require("add_final_layer_norm", (kind == "pegasus",))
    fields.require("static_position_embeddings", (kind != "bart",))
    max_positions = fields.integer("max_position_embeddings", 1024)
    is_shared = fields.get("share_encoder_decoder_embeddings", True) if kind == "marian" else True
    is_tied = fields.get("tie_word_embeddings", True)
    if is_shared and not is_tied:
        fields.require("tie_word_embeddings", (True,))
    tgt_vocab_size = vocab_size if is_shared else fields.integer("decoder_vocab_size", vocab_size)
    fields.used.update(("decoder_vocab_size", "num_hidden_layers", "encoder_layers", "decoder_layers"))
    activation = fields.activation("activation_function", "gelu")
    return Transformer(
        vocab_size,
        tgt_vocab_size,
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_encoder_layers=fields.integer("encoder_layers", layers),
        num_decoder_layers=fields.integer("decoder_layers", layers),
        dropout=fields.number("dropout", 0.1, below=1),
        norm_first=kind == "pegasus",
        tie_embeddings="all" if is_shared else "output" if is_tied else "none",
        make_positions=lambda: (
            Learned(max_positions, embed_dim) if kind == "bart" else Sinusoidal(embed_dim, interleaved=False)
        ),
        make_feed_forward=lambda: FeedForward(embed_dim, ffn_dim, activation=activation),
        make_embed_norm=(lambda: nn.LayerNorm(embed_dim)) if kind == "bart" else None,
        embed_scale=None if fields.get("scale_embedding", False) else 1.0,
        output_bias=True,
    )


def _rules(model: nn.Module) -> list[Rule]:
    tie = cast(Transformer, model).tie_embeddings
    source, target = {"all": ("model.shared", "model.shared")}.get(
        tie, ("model.encoder.embed_tokens", "model.decoder.embed_tokens")
    )
    rules = [
        Rule(r"src_embed\.weight", f"{source}.weight"),
        Rule(r"tgt_embed\.weight", f"{target}.weight"),
        Rule(r"lm_head\.weight", "lm_head.weight" if tie == "none" else f"{target}.weight"),
        Rule(r"lm_head\.bias", "final_logits_bias", is_row=True, is_optional=True),
    ]
    for side, stack in (("src", "encoder"), ("tgt", "decoder")):
        layer, theirs = rf"{stack}\.layers\.(\d+)", rf"model.{stack}.layers.\1"
        norms = {"norm1": "self_attn_layer_norm", "norm2": "final_layer_norm"}
        if stack == "decoder":
            norms |= {"norm2": "encoder_attn_layer_norm", "norm3": "final_layer_norm"}
        parts = norms | {"self_attn": "self_attn", "cross_attn": "encoder_attn"}
        parts |= {r"feed_forward\.linear1": "fc1", r"feed_forward\.linear2": "fc2"}
        rules += [Rule(rf"{layer}\.{ours}", f"{theirs}.{name}") for ours, name in parts.items()]
        rules += [
            Rule(
                rf"{side}_embed\.positions\.table", f"model.{stack}.embed_positions.weight", skip_rows=POSITION_OFFSET
            ),
            Rule(rf"{side}_embed\.norm", f"model.{stack}.layernorm_embedding"),
            Rule(rf"{stack}\.norm", f"model.{stack}.layer_norm"),
        ]
    return rules


def _copies(model: nn.Module) -> Copies:
    target = "model.shared.weight" if (tie := cast(Transformer, model).tie_embeddings) == "all" else ""
    embeddings = [(r"model\.(?:encoder|decoder)\.embed_tokens\.weight", target)] if tie == "all" else []
    shared = [] if tie == "all" else [(r"model\.shared\.weight", "model.encoder.embed_tokens.weight")]
    output = [] if tie == "none" else [(r"lm_head\.weight", target or "model.decoder.embed_tokens.weight")]
    return [*embeddings, *shared, *output, (r"model\.(?:encoder|decoder)\.embed_positions\.weight", "")]


def _verify(model: Transformer, weights: Mapping[str, Tensor]) -> str:
    """Stored tables of sinusoidal positions must be those that regard computes."""
    if isinstance(positions := model.src_embed.positions, Sinusoidal):
        for stack in ("encoder", "decoder"):
            name = f"model.{stack}.embed_positions.weight"
            table = weights.get(name, positions.encoding(1))
            is_wide = table.shape[1] == positions.embed_dim
            if not (is_wide and torch.allclose(table, positions.encoding(len(table)), atol=1e-3)):
                return f"{name} is not the table of sines and cosines that this model type has"
    return ""


def _describe(model: Transformer) -> Description:
    layers: list[Any] = [*model.encoder.layers, *model.decoder.layers]
    embeddings = (model.src_embed, model.tgt_embed)
    norm_first = only_value("the place of norms", [layer.norm_first for layer in layers])
    positions = only_value("positions", [type(one.positions) for one in embeddings])
    has_norm = only_value("the norm of embeddings", [one.norm is not None for one in embeddings])
    kinds = {(False, Sinusoidal, False): "marian", (False, Learned, True): "bart", (True, Sinusoidal, False): "pegasus"}
    if (kind := kinds.get((norm_first, positions, has_norm))) is None:
        raise ExportError(
            "transformers has Marian (norm_first=off, positions=sinusoidal), Pegasus (norm_first=on,"
            " positions=sinusoidal) and BART (norm_first=off, learned positions, norm of embeddings), and this model is"
            " neither; export it to safetensors, which regard loads"
        )
    check_standard_attention(model, kind)
    if any(getattr(one.positions, "base", POSITION_BASE) != POSITION_BASE for one in embeddings):
        raise ExportError(
            f"transformers' {kind} has sinusoidal positions with base {POSITION_BASE:g}, and this model has another"
            " base; export it to safetensors, which regard loads"
        )
    networks = [layer.feed_forward for layer in layers]
    norms = [part for part in model.modules() if isinstance(part, nn.LayerNorm)]
    if any(network.linear3 is not None for network in networks) or {norm.eps for norm in norms} != {1e-5}:
        raise ExportError(f"transformers' {kind} has no gated feed-forward networks and layer norms with eps 1e-5 only")
    ties = ("none", "output", "all") if kind == "marian" else ("all",)
    if model.tie_embeddings not in ties:
        raise ExportError(
            f"transformers' {kind} has tie_embeddings={' or '.join(ties)}; this model has {model.tie_embeddings}"
        )
    embed_dim = model.lm_head.in_features
    scale = only_value("the scale of embeddings", [one.scale for one in embeddings])
    if scale not in (1.0, math.sqrt(embed_dim)):
        raise ExportError(f"transformers' {kind} scales embeddings by 1 or sqrt(embed_dim), and this model by {scale}")
    activation = only_value("the activation", [network.activation for network in networks])
    sizes = {"attention_heads": [layer.self_attn.num_heads for layer in layers]}
    sizes |= {"ffn_dim": [network.linear1.out_features for network in networks]}
    config = {
        f"{stack}_{name}": only_value(name, values)
        for stack in ("encoder", "decoder")
        for name, values in sizes.items()
    }
    names = {
        "marian": "MarianMTModel",
        "bart": "BartForConditionalGeneration",
        "pegasus": "PegasusForConditionalGeneration",
    }
    is_shared = model.tie_embeddings == "all"
    config |= {
        "model_type": kind,
        "architectures": [names[kind]],
        "is_encoder_decoder": True,
        "d_model": embed_dim,
        "vocab_size": model.src_embed.num_embeddings,
        "encoder_layers": len(model.encoder.layers),
        "decoder_layers": len(model.decoder.layers),
        "activation_function": next(theirs for theirs, ours in HF_ACTIVATIONS.items() if ours == activation),
        "scale_embedding": scale != 1.0,
        "dropout": layers[0].dropout.p,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "tie_word_embeddings": model.tie_embeddings != "none",
    }
    if kind == "marian":
        config |= {"share_encoder_decoder_embeddings": is_shared, "decoder_vocab_size": model.tgt_embed.num_embeddings}
    if kind == "bart":
        config["max_position_embeddings"] = cast(Learned, model.src_embed.positions).max_positions
    return config


def _prepare(model: Transformer, max_positions: int) -> Transformer:
    """The model with an output bias, and with all sines before all cosines: positions come first as in Marian.

    A permutation of the features of the residual stream changes no logit.
    """
    if model.lm_head._parameters["bias"] is None:
        model = deepcopy(model)
        model.lm_head.bias = nn.Parameter(torch.zeros(model.lm_head.out_features))
    positions = model.src_embed.positions
    only_value(
        "the order of sines and cosines",
        [getattr(one.positions, "interleaved", None) for one in (model.src_embed, model.tgt_embed)],
    )
    if not isinstance(positions, Sinusoidal) or not positions.interleaved:
        return model
    model = deepcopy(model)
    dim = positions.embed_dim
    order = torch.arange(dim).view(-1, 2).t().flatten()  # 0, 2, 4, ..., 1, 3, 5, ...
    reads = ("q_proj", "k_proj", "v_proj", "linear1", "lm_head", "src_embed", "tgt_embed")
    writes = ("out_proj", "linear2", "norm", "norm1", "norm2", "norm3")
    done: set[int] = set()
    for name, parameter in model.named_parameters():
        module, _, kind = name.rpartition(".")
        last = module.rpartition(".")[2]
        if id(parameter) in done:
            continue
        done.add(id(parameter))
        if last in reads and kind == "weight":
            parameter.data = parameter.data[:, order]
        elif last in writes:
            parameter.data = parameter.data[order]
    for embedding in {model.src_embed, model.tgt_embed}:
        cast(Sinusoidal, embedding.positions).interleaved = False
    return model


SEQ2SEQ = Family(
    ("marian", "bart", "pegasus"),
    _build,
    _rules,
    _copies,
    prefix="model",
    heads=("lm_head", "final_logits_bias"),
    harmless=("add_bias_logits", "gradient_checkpointing", "encoder_layerdrop", "decoder_layerdrop"),
    model_class=(Transformer,),
    describe=_describe,
    prepare=_prepare,
    verify=_verify,
)
