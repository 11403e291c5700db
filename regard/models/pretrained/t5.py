"""T5: relative positions that all layers of a stack share, RMSNorm before each sublayer, scores that are not scaled.

1.0    feed-forward networks with relu, one weight for the embeddings and the output, whose input is scaled
1.1    gated feed-forward networks with gelu, an output of its own
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from torch import nn

from regard.attention import Dot, MultiHead, RelativeBias, softmax
from regard.attention.scores.base import Score, SumScore
from regard.errors import ExportError
from regard.models.layers import FeedForward, ScaledRMSNorm
from regard.models.pretrained.family import Copies, Description, Family, only_value
from regard.models.pretrained.fields import HF_ACTIVATIONS, ConfigFields
from regard.models.pretrained.rules import Rule
from regard.models.transformer import Transformer

__all__ = ["T5"]

GATED_NAMES = {"gelu_tanh": "gelu", "gelu": "gelu_python"}  # "gated-gelu" is the approximation by tanh


def _build(fields: ConfigFields, names: Collection[str]) -> Transformer:
    vocab_size, embed_dim = fields.integer("vocab_size", 32128), fields.integer("d_model", 512)
    num_heads, head_dim = fields.integer("num_heads", 8), fields.integer("d_kv", 64)
    num_layers, ffn_dim = fields.integer("num_layers", 6), fields.integer("d_ff", 2048)
    num_buckets = fields.integer("relative_attention_num_buckets", 32)
    max_distance = fields.integer("relative_attention_max_distance", 128)
    eps = fields.number("layer_norm_epsilon", 1e-6)
    is_gated, activation = _read_feed_forward(fields)
    is_scaled = bool(fields.get("scale_decoder_outputs", fields.get("tie_word_embeddings", True)))

    def make_self_attn(bidirectional: bool) -> Any:
        bias = RelativeBias(num_heads, num_buckets, max_distance, bidirectional)  # one for all layers
        return lambda: MultiHead(embed_dim, num_heads, head_dim=head_dim, bias=False, score=Dot() + bias)

    model = Transformer(
        vocab_size,
        vocab_size,
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_encoder_layers=num_layers,
        num_decoder_layers=fields.integer("num_decoder_layers", num_layers),
        dropout=fields.number("dropout_rate", 0.1, below=1),
        norm_first=True,
        tie_embeddings="all" if is_scaled or "lm_head.weight" not in names else "inputs",
        make_self_attn=make_self_attn(True),
        make_decoder_self_attn=make_self_attn(False),
        make_cross_attn=lambda: MultiHead(embed_dim, num_heads, head_dim=head_dim, bias=False, score=Dot()),
        make_positions=lambda: None,
        make_feed_forward=lambda: FeedForward(embed_dim, ffn_dim, activation=activation, gated=is_gated, bias=False),
        make_norm=lambda: nn.RMSNorm(embed_dim, eps),
        embed_scale=1.0,
    )
    if is_scaled:
        model.decoder.norm = ScaledRMSNorm(embed_dim, eps, scale=embed_dim**-0.5)
    return model


def _read_feed_forward(fields: ConfigFields) -> tuple[bool, str]:
    """Whether the feed-forward networks have gates, and their activation."""
    known = {theirs: (False, theirs) for theirs in HF_ACTIVATIONS}
    known |= {f"gated-{theirs}": (True, theirs) for theirs in HF_ACTIVATIONS} | {"gated-gelu": (True, "gelu_new")}
    fields.require("feed_forward_proj", tuple(known))
    is_gated, activation = known[fields.get("feed_forward_proj", "relu")]
    fields.require("is_gated_act", (is_gated,))
    fields.require("dense_act_fn", (activation,))
    return is_gated, HF_ACTIVATIONS[activation]


def _rules(model: nn.Module) -> list[Rule]:
    transformer = cast(Transformer, model)
    networks = {"linear1": "wi" if _networks(transformer)[0].linear3 is None else "wi_0", "linear2": "wo"}
    networks |= {"linear3": "wi_1"}
    rules = [
        Rule(r"(?:src|tgt)_embed\.weight", "shared.weight"),
        Rule(r"lm_head\.weight", "shared.weight" if transformer.tie_embeddings == "all" else "lm_head.weight"),
    ]
    for stack, sublayers in (
        ("encoder", {"self_attn": "SelfAttention"}),
        ("decoder", {"self_attn": "SelfAttention", "cross_attn": "EncDecAttention"}),
    ):
        layer, theirs, last = rf"{stack}\.layers\.(\d+)", rf"{stack}.block.\1.layer", len(sublayers)
        for index, (ours, name) in enumerate(sublayers.items()):
            rules += [
                Rule(rf"{layer}\.{ours}\.{proj}", f"{theirs}.{index}.{name}.{their_proj}")
                for proj, their_proj in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o"))
            ]
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rules += [
            Rule(rf"{layer}\.self_attn\.score\.right\.table", bias),
            *(Rule(rf"{layer}\.norm{index + 1}", f"{theirs}.{index}.layer_norm") for index in range(last + 1)),
            *(
                Rule(rf"{layer}\.feed_forward\.{ours}", f"{theirs}.{last}.DenseReluDense.{name}")
                for ours, name in networks.items()
            ),
            Rule(rf"{stack}\.norm", f"{stack}.final_layer_norm"),
        ]
    return rules


def _copies(model: nn.Module) -> Copies:
    output = [(r"lm_head\.weight", "shared.weight")] if cast(Transformer, model).tie_embeddings == "all" else []
    return [
        *output,
        (r"(?:encoder|decoder)\.embed_tokens\.weight", "shared.weight"),
        (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight", ""),  # never read
    ]


def _networks(model: Transformer) -> list[Any]:
    return [layer.feed_forward for layer in (*model.encoder.layers, *model.decoder.layers)]


def _has_relative_bias(model: Transformer) -> bool:
    return any(isinstance(part, RelativeBias) for part in model.modules())


def _is_standard(attention: Any, score: type[Score]) -> bool:
    """Whether the attention is softmax of this score, with equal sizes and without biases."""
    inputs = {attention.embed_dim, *(proj.in_features for proj in (attention.q_proj, attention.k_proj))}
    return (
        type(attention.score) is score
        and attention.normalize in (None, softmax)
        and attention.num_kv_heads == attention.num_heads
        and attention.value_head_dim == attention.head_dim
        and inputs == {attention.embed_dim, attention.v_proj.in_features}
        and (attention.q_proj.bias, attention.out_proj.bias, attention.q_norm) == (None, None, None)
        and not attention.num_extra_keys
    )


def _find_bias(attentions: list[Any], *, bidirectional: bool) -> RelativeBias | None:
    """The relative bias that the layers of a stack share; None if they do not."""
    if not all(_is_standard(one, SumScore) and type(one.score.left) is Dot for one in attentions):
        return None
    (bias, *others) = {one.score.right for one in attentions}
    if others or type(bias) is not RelativeBias or bias.offset is not None or bias.bidirectional != bidirectional:
        return None
    return bias


def _describe(model: Transformer) -> Description:
    encoder: list[Any] = list(model.encoder.layers)
    decoder: list[Any] = list(model.decoder.layers)
    layers, networks, embed_dim = [*encoder, *decoder], _networks(model), model.lm_head.in_features
    biases = [
        _find_bias([layer.self_attn for layer in stack], bidirectional=stack is encoder) for stack in (encoder, decoder)
    ]
    norms: list[Any] = [model.encoder.norm, model.decoder.norm]
    norms += [norm for layer in layers for name, norm in layer.named_children() if name.startswith("norm")]
    scales = {getattr(norm, "scale", 1.0) for norm in norms if norm is not model.decoder.norm}
    scale = getattr(model.decoder.norm, "scale", 1.0)
    embeddings = (model.src_embed, model.tgt_embed)
    if (
        not all(biases)
        or not all(_is_standard(layer.cross_attn, Dot) for layer in decoder)
        or not all(layer.norm_first for layer in layers)
        or not all(isinstance(norm, nn.RMSNorm) and norm.elementwise_affine and norm.eps for norm in norms)
        or any(network.linear1.bias is not None for network in networks)
        or any((one.positions, one.norm, one.scale) != (None, None, 1.0) for one in embeddings)
        or (model.tie_embeddings, scale) not in (("all", embed_dim**-0.5), ("all", 1.0), ("inputs", 1.0))
        or scales != {1.0}
        or model.lm_head._parameters["bias"] is not None
    ):
        raise ExportError(
            "transformers' t5 has a RelativeBias that all layers of a stack share, scores Dot(), RMSNorm before each"
            " sublayer, no biases and shared embeddings, and this model differs; export it to safetensors, which regard"
            " loads"
        )
    attentions = [attention for layer in layers for attention in layer.children() if isinstance(attention, MultiHead)]
    buckets = [(bias.num_buckets, bias.max_distance) for bias in biases if bias is not None]
    num_buckets, max_distance = only_value("buckets of distances", buckets)
    activation = only_value("the activation", [network.activation for network in networks])
    is_gated = only_value("gates", [network.linear3 is not None for network in networks])
    name = next(theirs for theirs, ours in HF_ACTIVATIONS.items() if ours == activation)
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": model.src_embed.num_embeddings,
        "d_model": embed_dim,
        "d_kv": only_value("head_dim", [attention.head_dim for attention in attentions]),
        "d_ff": only_value("ffn_dim", [network.linear1.out_features for network in networks]),
        "num_layers": len(encoder),
        "num_decoder_layers": len(decoder),
        "num_heads": only_value("heads", [attention.num_heads for attention in attentions]),
        "relative_attention_num_buckets": num_buckets,
        "relative_attention_max_distance": max_distance,
        "layer_norm_epsilon": only_value("eps of norms", [norm.eps for norm in norms]),
        "feed_forward_proj": f"gated-{GATED_NAMES.get(activation, name)}" if is_gated else name,
        "dropout_rate": layers[0].dropout.p,
        "scale_decoder_outputs": scale != 1.0,
        "tie_word_embeddings": model.tie_embeddings == "all",
    }


T5 = Family(
    ("t5",),
    _build,
    _rules,
    _copies,
    prefix="",
    heads=("",),  # no name has a prefix
    model_class=(Transformer,),
    takes=_has_relative_bias,
    describe=_describe,
)
