"""BERT and RoBERTa, with and without the head for masked tokens."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from torch import nn

from regard.errors import ExportError, UnsupportedError
from regard.models.bert import Bert, BertForMaskedLM
from regard.models.pretrained.family import Copies, Description, Family, check_standard_attention
from regard.models.pretrained.fields import HF_ACTIVATIONS, ConfigFields
from regard.models.pretrained.rules import Rule

__all__ = ["BERT", "ROBERTA"]

HEADS = ("cls.", "lm_head.")


def _build(fields: ConfigFields, names: Collection[str]) -> Bert | BertForMaskedLM:
    fields.require("position_embedding_type", ("absolute",))
    fields.require("is_decoder", (False,))
    fields.require("add_cross_attention", (False,))
    fields.require("tie_word_embeddings", (True,))
    is_roberta = fields.get("model_type", "bert") == "roberta"
    offset = _read_offset(fields) if is_roberta else 0
    if (num_rows := fields.integer("max_position_embeddings", 512)) <= offset:
        raise UnsupportedError(
            f"{fields.path}: max_position_embeddings must be above pad_token_id + 1 = {offset}, got {num_rows}"
        )
    activation, norm_eps = fields.activation("hidden_act", "gelu"), fields.number("layer_norm_eps", 1e-12)
    encoder = Bert(
        fields.integer("vocab_size", 50265 if is_roberta else 30522),
        embed_dim=fields.integer("hidden_size", 768),
        num_heads=fields.integer("num_attention_heads", 12),
        num_layers=fields.integer("num_hidden_layers", 12),
        ffn_dim=fields.integer("intermediate_size", 3072),
        max_positions=num_rows - offset,
        num_segments=fields.integer("type_vocab_size", 2),
        activation=activation,
        norm_eps=norm_eps,
        dropout=fields.number("hidden_dropout_prob", 0.1, below=1),
        has_pooler=any(".pooler." in name for name in names),
    )
    if not any(name.startswith(("cls.predictions.", "lm_head.")) for name in names):
        return encoder
    return BertForMaskedLM(encoder, activation="gelu" if is_roberta else activation, norm_eps=norm_eps)


def _read_offset(fields: ConfigFields) -> int:
    """The number of rows of RoBERTa's table of positions before the first position."""
    return fields.integer("pad_token_id", 1, minimum=0) + 1


def _encoder_rules(ours: str, theirs: str, offset: int) -> list[Rule]:
    layer, their_layer = rf"{ours}encoder\.layers\.(\d+)", rf"{theirs}.encoder.layer.\1"
    parts = {
        r"self_attn\.q_proj": "attention.self.query",
        r"self_attn\.k_proj": "attention.self.key",
        r"self_attn\.v_proj": "attention.self.value",
        r"self_attn\.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        r"feed_forward\.linear1": "intermediate.dense",
        r"feed_forward\.linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    return [
        *(Rule(rf"{layer}\.{part}", f"{their_layer}.{name}") for part, name in parts.items()),
        Rule(rf"{ours}embed\.weight", f"{theirs}.embeddings.word_embeddings.weight"),
        Rule(rf"{ours}embed\.positions\.table", f"{theirs}.embeddings.position_embeddings.weight", skip_rows=offset),
        Rule(rf"{ours}segment_embed", f"{theirs}.embeddings.token_type_embeddings"),
        Rule(rf"{ours}norm", f"{theirs}.embeddings.LayerNorm"),
        Rule(rf"{ours}pooler", f"{theirs}.pooler.dense"),
    ]


def _rules(model: nn.Module) -> list[Rule]:
    if isinstance(model, Bert):
        return _encoder_rules("", "bert", 0)
    head = "cls.predictions"
    return [
        *_encoder_rules(r"encoder\.", "bert", 0),
        Rule("transform", f"{head}.transform.dense"),
        Rule("norm", f"{head}.transform.LayerNorm"),
        Rule(r"lm_head\.weight", "bert.embeddings.word_embeddings.weight"),
        Rule(r"lm_head\.bias", f"{head}.bias"),
    ]


def _copies(model: nn.Module) -> Copies:
    return [
        (r"cls\.predictions\.decoder\.weight", "bert.embeddings.word_embeddings.weight"),
        (r"cls\.predictions\.decoder\.bias", "cls.predictions.bias"),
        (r"cls\.seq_relationship\..*", ""),  # the head for the next sentence
        (r"bert\.embeddings\.(?:position_ids|token_type_ids)", ""),
    ]


def _roberta_rules(model: nn.Module) -> list[Rule]:
    # The row of the padding token and those before it are no positions.
    offset = cast(Any, model).position_offset
    if isinstance(model, Bert):
        return _encoder_rules("", "roberta", offset)
    return [
        *_encoder_rules(r"encoder\.", "roberta", offset),
        Rule("transform", "lm_head.dense"),
        Rule("norm", "lm_head.layer_norm"),
        Rule(r"lm_head\.weight", "roberta.embeddings.word_embeddings.weight"),
        Rule(r"lm_head\.bias", "lm_head.bias"),
    ]


def _roberta_copies(model: nn.Module) -> Copies:
    return [
        (r"lm_head\.decoder\.weight", "roberta.embeddings.word_embeddings.weight"),
        (r"lm_head\.decoder\.bias", "lm_head.bias"),
        (r"roberta\.embeddings\.(?:position_ids|token_type_ids)", ""),
    ]


def _build_roberta(fields: ConfigFields, names: Collection[str]) -> Bert | BertForMaskedLM:
    model = _build(fields, names)
    cast(Any, model).position_offset = _read_offset(fields)
    return model


def _describe(model: Bert | BertForMaskedLM) -> Description:
    encoder = model if isinstance(model, Bert) else model.encoder
    check_standard_attention(model, "bert")
    layers: list[Any] = list(encoder.encoder.layers)
    if isinstance(model, BertForMaskedLM) and (model.activation, model.norm.eps) != (
        encoder.activation,
        encoder.norm.eps,
    ):
        raise ExportError("transformers' bert has one activation and one eps of layer norms; this model has two")
    return {
        "model_type": "bert",
        "architectures": ["BertModel" if isinstance(model, Bert) else "BertForMaskedLM"],
        "vocab_size": encoder.embed.num_embeddings,
        "hidden_size": encoder.embed.embedding_dim,
        "num_hidden_layers": len(layers),
        "num_attention_heads": layers[0].self_attn.num_heads,
        "intermediate_size": layers[0].feed_forward.linear1.out_features,
        "hidden_act": next(theirs for theirs, ours in HF_ACTIVATIONS.items() if ours == encoder.activation),
        "max_position_embeddings": encoder.max_positions,
        "type_vocab_size": encoder.segment_embed.num_embeddings,
        "layer_norm_eps": encoder.norm.eps,
        "hidden_dropout_prob": encoder.dropout.p,
        "attention_probs_dropout_prob": 0.0,
    }


BERT = Family(
    ("bert",),
    _build,
    _rules,
    _copies,
    prefix="bert",
    heads=HEADS,
    harmless=("directionality", "pooler_*"),
    model_class=(Bert, BertForMaskedLM),
    describe=_describe,
)
ROBERTA = Family(("roberta",), _build_roberta, _roberta_rules, _roberta_copies, prefix="roberta", heads=HEADS)
