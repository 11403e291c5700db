"""GPT-2."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from typing import Any, cast

from torch import nn

from regard.attention import Learned, Sinusoidal
from regard.errors import ExportError
from regard.models.language_models import CausalLM
from regard.models.layers import FeedForward
from regard.models.pretrained.family import Copies, Description, Family, check_standard_attention, only_value
from regard.models.pretrained.fields import HF_ACTIVATIONS, ConfigFields
from regard.models.pretrained.rules import Rule

__all__ = ["GPT2"]


def _build(fields: ConfigFields, names: Collection[str]) -> CausalLM:
    fields.require("scale_attn_weights", (True,))
    fields.require("scale_attn_by_inverse_layer_idx", (False,))
    fields.require("add_cross_attention", (False,))
    fields.used.add("reorder_and_upcast_attn")  # another order of the same operations
    embed_dim, max_positions = fields.integer("n_embd", 768), fields.integer("n_positions", 1024)
    ffn_dim, eps = fields.integer("n_inner", 4 * embed_dim), fields.number("layer_norm_epsilon", 1e-5)
    activation = fields.activation("activation_function", "gelu_new")
    return CausalLM(
        fields.integer("vocab_size", 50257),
        embed_dim=embed_dim,
        num_heads=fields.integer("n_head", 12),
        num_layers=fields.integer("n_layer", 12),
        dropout=fields.number("resid_pdrop", 0.1, below=1),
        make_feed_forward=lambda: FeedForward(embed_dim, ffn_dim, activation=activation),
        make_norm=lambda: nn.LayerNorm(embed_dim, eps),
        make_positions=lambda: Learned(max_positions, embed_dim),
        embed_scale=1.0,
        tie_embeddings=bool(fields.get("tie_word_embeddings", True)),
    )


def _rules(model: nn.Module) -> list[Rule]:
    layer, theirs = r"decoder\.layers\.(\d+)", r"transformer.h.\1"
    projections, is_tied = ("q_proj", "k_proj", "v_proj"), cast(CausalLM, model).tie_embeddings
    return [
        Rule(r"embed\.weight", "transformer.wte.weight"),
        Rule(r"lm_head\.weight", "transformer.wte.weight" if is_tied else "lm_head.weight"),
        Rule(r"embed\.positions\.table", "transformer.wpe.weight"),
        Rule(r"decoder\.norm", "transformer.ln_f"),
        *(
            Rule(rf"{layer}\.self_attn\.{name}", f"{theirs}.attn.c_attn", transpose=True, part=part)
            for part, name in enumerate(projections)
        ),
        Rule(rf"{layer}\.self_attn\.out_proj", f"{theirs}.attn.c_proj", transpose=True),
        Rule(rf"{layer}\.feed_forward\.linear1", f"{theirs}.mlp.c_fc", transpose=True),
        Rule(rf"{layer}\.feed_forward\.linear2", f"{theirs}.mlp.c_proj", transpose=True),
        Rule(rf"{layer}\.norm(\d)", rf"{theirs}.ln_\2"),
    ]


def _copies(model: nn.Module) -> Copies:
    output = [(r"lm_head\.weight", "transformer.wte.weight")] if cast(CausalLM, model).tie_embeddings else []
    return [
        *output,
        (r"transformer\.h\.\d+\.attn\.(?:masked_)?bias", ""),  # the causal mask
    ]


def _describe(model: CausalLM) -> Description:
    layers: list[Any] = list(model.decoder.layers)
    is_gpt2 = isinstance(model.embed.positions, Learned) and model.embed.scale == 1.0
    norms = [model.decoder.norm, *(norm for layer in layers for norm in (layer.norm1, layer.norm2))]
    networks = [layer.feed_forward for layer in layers]
    if (
        not (is_gpt2 and layers[0].norm_first and all(isinstance(norm, nn.LayerNorm) for norm in norms))
        or not (model.embed.norm is None and model.window_size is None)
        or any(network.linear3 is not None for network in networks)
    ):
        raise ExportError(
            "transformers' gpt2 has a table of positions, layer norm before each sublayer and no gates, and this model"
            " has not; export it to safetensors, which regard loads"
        )
    check_standard_attention(model, "gpt2")
    activation = only_value("the activation", [network.activation for network in networks])
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": model.embed.num_embeddings,
        "n_embd": model.embed.embedding_dim,
        "n_positions": cast(Learned, model.embed.positions).max_positions,
        "n_layer": len(layers),
        "n_head": only_value("heads", [layer.self_attn.num_heads for layer in layers]),
        "n_inner": only_value("ffn_dim", [network.linear1.out_features for network in networks]),
        "activation_function": next(theirs for theirs, ours in HF_ACTIVATIONS.items() if ours == activation),
        "layer_norm_epsilon": only_value("eps of layer norms", [cast(nn.LayerNorm, norm).eps for norm in norms]),
        "resid_pdrop": layers[0].dropout.p,
        "embd_pdrop": model.embed.dropout.p,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": model.tie_embeddings,
    }


def _prepare(model: CausalLM, max_positions: int) -> CausalLM:
    """The model with its positions as a table, and with the scale of the embeddings in their weights."""
    embed = model.embed
    if not isinstance(embed.positions, Sinusoidal) and embed.scale == 1.0:
        return model
    model = deepcopy(model)
    embed, scale = model.embed, model.embed.scale
    if isinstance(embed.positions, Sinusoidal):
        table = Learned(max_positions, embed.embedding_dim, device=embed.weight.device, dtype=embed.weight.dtype)
        table.table.data = embed.positions.encoding(max_positions, dtype=embed.weight.dtype, device=embed.weight.device)
        embed.positions = table
    if scale != 1.0:
        embed.weight, embed.scale, model.tie_embeddings = nn.Parameter(embed.weight.detach() * scale), 1.0, False
    return model


GPT2 = Family(
    ("gpt2",),
    _build,
    _rules,
    _copies,
    prefix="transformer",
    heads=("lm_head.",),
    model_class=(CausalLM,),
    describe=_describe,
    prepare=_prepare,
)
