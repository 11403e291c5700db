"""Encoder-decoder models as two ONNX graphs: the encoder, and one step of the decoder.

Names are those of optimum's exports of encoder-decoders. An output `present.*` (keys and values) or `present_*`
(recurrent states) of either graph is the input `past_key_values.*` or `past_*` of the next decoder step; the encoder's
`last_hidden_state` is the decoder's `encoder_hidden_states`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import LocalM
from regard.errors import ExportError
from regard.export import onnx_graph
from regard.export.folder import check_exportable, position_table
from regard.export.onnx_graph import INT32, SOURCE_AXIS, OnnxGraph
from regard.models import RNNSeq2Seq, Transformer

__all__ = ["build_graphs"]

# Gates of ONNX's cells by their index in PyTorch's.
GATE_ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def build_graphs(model: RNNSeq2Seq | Transformer, num_positions: int) -> tuple[OnnxGraph, OnnxGraph]:
    """The graphs of the encoder and of a decoder step.

    Args:
        model: the model; ExportError if it has parts that the graphs do not support
        num_positions: size of a Transformer's position table

    Returns:
        the encoder, from `input_ids` and `attention_mask` to the memory and the initial state, and the decoder step,
        from `input_ids`, `encoder_attention_mask`, the memory and the state to `logits`, `cross_attentions` and the
        new state
    """
    encoder, decoder = OnnxGraph("encoder"), OnnxGraph("decoder_step")
    source, mask = (encoder.input(name, ("batch", SOURCE_AXIS), np.int64) for name in ("input_ids", "attention_mask"))
    mask = onnx_graph.check_mask(encoder, mask)
    tokens = decoder("Squeeze", decoder.input("input_ids", ("batch", 1), np.int64), [1])
    if isinstance(model, Transformer):
        check_exportable(model, "ONNX")
        _add_transformer_encoder(encoder, model, source, mask, num_positions)
        _add_transformer_step(decoder, model, tokens, num_positions)
    else:
        if model.attention is not None:
            onnx_graph.check_attention(model.attention)
        _add_rnn_encoder(encoder, model, source, mask)
        _add_rnn_step(decoder, model, tokens)
    return encoder, decoder


# ---- RNNSeq2Seq


def _add_rnn_encoder(graph: OnnxGraph, model: RNNSeq2Seq, source: str, mask: str) -> None:
    states, final, layer_states = _encode_rnn(graph, model, source, graph("ReduceSum", mask, [1], keepdims=0))
    states_dim, num_states = model.memory_dim, model.first_cell.num_states * len(model.cells)
    if model.attention is None:
        graph.output("encoder_final_state", final, ("batch", states_dim))
    else:
        graph.output("last_hidden_state", states, ("batch", SOURCE_AXIS, states_dim))
        score: Any = model.attention.score
        if (keys := onnx_graph.project_keys(graph, score, states)) is not None:
            graph.output("encoder_keys", keys, ("batch", SOURCE_AXIS, score.hidden_dim))
        if isinstance(model.attention, LocalM):
            zeros = graph("ConstantOfShape", graph.shape(graph.size(source, 0), 1))
            graph.output("present_length", zeros, ("batch", 1))
    if model.bridge is not None:
        cells = graph("Reshape", graph("Tanh", graph.linear(final, model.bridge)), [0, num_states, model.hidden_dim])
    elif model.init_hidden == "zero":
        cells = graph("ConstantOfShape", graph.shape(graph.size(source, 0), num_states, model.hidden_dim))
    else:
        starts = layer_states if model.init_hidden == "per-layer" else [final] * num_states
        cells = graph("Concat", *(graph("Unsqueeze", start, [1]) for start in starts), axis=1)
    graph.output("present_states", cells, ("batch", num_states, model.hidden_dim))
    if model.input_feeding:
        dim = model.lm_head.in_features
        zeros = graph("ConstantOfShape", graph.shape(graph.size(source, 0), dim))
        graph.output("present_input_feed", zeros, ("batch", dim))


def _encode_rnn(graph: OnnxGraph, model: RNNSeq2Seq, source: str, lengths: str) -> tuple[str, str, list[str]]:
    """All states (batch, src_len, dim), the final ones (batch, dim), and those of all layers with an LSTM's cells.

    They are computed by ONNX's own recurrent layers.
    """
    layers, num_directions = model.encoder.layers, model.encoder.num_directions
    op = type(layers).__name__
    attributes: dict[str, Any] = {"direction": "bidirectional" if num_directions == 2 else "forward"}
    if op == "GRU":
        attributes["linear_before_reset"] = 1
    lengths = graph("Cast", lengths, to=INT32)
    x = graph("Transpose", graph("Gather", model.src_embed.weight, source), perm=(1, 0, 2))
    layer_states: list[str] = []
    num_states = model.first_cell.num_states
    for layer in range(layers.num_layers):
        weights = _rnn_weights(layers, layer, GATE_ORDER[op], num_directions)
        attributes["hidden_size"] = layers.hidden_size
        states, *finals = graph.multi_output(op, 1 + num_states, x, *weights, lengths, **attributes)
        x = graph("Reshape", graph("Transpose", states, perm=(0, 2, 1, 3)), [0, 0, -1])
        layer_states += [graph("Reshape", graph("Transpose", one, perm=(1, 0, 2)), [0, -1]) for one in finals]
    return graph("Transpose", x, perm=(1, 0, 2)), layer_states[-num_states], layer_states


def _rnn_weights(layers: nn.RNNBase, layer: int, gates: tuple[int, ...], num_directions: int) -> list[Tensor]:
    """Weights of the input, weights of the state, and both biases in one row, stacked over directions."""

    def stack(name: str) -> Tensor:
        suffixes = ("", "_reverse")[:num_directions]
        chunks = [getattr(layers, f"{name}_l{layer}{suffix}").chunk(len(gates)) for suffix in suffixes]
        return torch.stack([torch.cat([direction[gate] for gate in gates]) for direction in chunks])

    return [stack("weight_ih"), stack("weight_hh"), torch.cat([stack("bias_ih"), stack("bias_hh")], 1)]


def _add_rnn_step(graph: OnnxGraph, model: RNNSeq2Seq, tokens: str) -> None:
    per_cell = model.first_cell.num_states
    num_states, feed_dim = per_cell * len(model.cells), model.lm_head.in_features
    cells = graph.input("past_states", ("batch", num_states, model.hidden_dim))
    states = [graph("Squeeze", part, [1]) for part in graph.multi_output("Split", num_states, cells, axis=1)]
    attend = _make_attention(graph, model)
    embedded = graph("Gather", model.tgt_embed.weight, tokens)
    if model.decoder_type == "bahdanau":
        context, weights = attend(states[-per_cell])
        states = _step_cells(graph, model, embedded, context, states)
        hidden = _read_out(graph, model, states[-per_cell], context, embedded)
    else:
        input_feed = graph.input("past_input_feed", ("batch", feed_dim)) if model.input_feeding else None
        states = _step_cells(graph, model, embedded, input_feed, states)
        context, weights = attend(states[-per_cell])
        hidden = _read_out(graph, model, states[-per_cell], context, embedded)
        if model.input_feeding:
            graph.output("present_input_feed", hidden, ("batch", feed_dim))
    _add_logits(graph, graph("Gemm", hidden, model.lm_head.weight, transB=1))
    new_cells = graph("Concat", *(graph("Unsqueeze", state, [1]) for state in states), axis=1)
    graph.output("present_states", new_cells, ("batch", num_states, model.hidden_dim))
    if weights:
        graph.output("cross_attentions", graph("Unsqueeze", weights, [1, 2]), ("batch", 1, 1, SOURCE_AXIS))


def _read_out(graph: OnnxGraph, model: RNNSeq2Seq, top_hidden: str, context: str, embedded: str) -> str:
    """The input of `lm_head`."""
    is_maxout = model.readout_type == "maxout"
    features = graph("Concat", top_hidden, context, *([embedded] if is_maxout else []), axis=1)
    if model.readout_proj is None:
        return features
    hidden = graph.linear(features, model.readout_proj)
    if not is_maxout:
        return graph("Tanh", hidden)
    return graph("ReduceMax", graph("Reshape", hidden, [0, -1, 2]), axes=[-1], keepdims=0)


def _add_logits(graph: OnnxGraph, logits: str) -> None:
    graph.output("logits", graph("Unsqueeze", logits, [1]), ("batch", 1, "vocab_size"))


def _make_attention(graph: OnnxGraph, model: RNNSeq2Seq) -> Callable[[str], tuple[str, str]]:
    """From the name of a query to those of its context and its weights; without attention, "" for the weights."""
    states_dim = model.memory_dim
    if model.attention is not None:
        return onnx_graph.OnnxAttention(graph, model.attention, states_dim)
    final = graph.input("encoder_final_state", ("batch", states_dim))
    return lambda query: (final, "")


def _step_cells(graph: OnnxGraph, model: RNNSeq2Seq, x: str, context: str | None, states: list[str]) -> list[str]:
    """The states of all layers after one more step."""
    per_cell = model.first_cell.num_states
    update = _update_gru if per_cell == 1 else _update_lstm
    new_states: list[str] = []
    for layer, cell in enumerate(model.get_cells()):
        state = states[layer * per_cell : (layer + 1) * per_cell]
        gates = graph.linear(x, cell.input_proj)
        if cell.context_proj is not None and context is not None:
            gates = graph("Add", gates, graph.linear(context, cell.context_proj))
        new_states += update(graph, gates, graph.linear(state[0], cell.hidden_proj), state)
        x, context = new_states[-per_cell], None
    return new_states


def _update_gru(graph: OnnxGraph, projected_input: str, projected_hidden: str, state: list[str]) -> list[str]:
    r_x, z_x, n_x = graph.multi_output("Split", 3, projected_input, axis=-1)
    r_h, z_h, n_h = graph.multi_output("Split", 3, projected_hidden, axis=-1)
    reset, keep = (graph("Sigmoid", graph("Add", x, h)) for x, h in ((r_x, r_h), (z_x, z_h)))
    new = graph("Tanh", graph("Add", n_x, graph("Mul", reset, n_h)))
    return [graph("Add", new, graph("Mul", keep, graph("Sub", state[0], new)))]


def _update_lstm(graph: OnnxGraph, projected_input: str, projected_hidden: str, state: list[str]) -> list[str]:
    i, f, g, o = graph.multi_output("Split", 4, graph("Add", projected_input, projected_hidden), axis=-1)
    i, f, o = (graph("Sigmoid", gate) for gate in (i, f, o))
    c = graph("Add", graph("Mul", f, state[1]), graph("Mul", i, graph("Tanh", g)))
    return [graph("Mul", o, graph("Tanh", c)), c]


# ---- Transformer


def _add_transformer_encoder(graph: OnnxGraph, model: Transformer, source: str, mask: str, num_positions: int) -> None:
    """The keys and values of each decoder layer's cross-attention, and empty caches of its self-attention."""
    bias = graph("Unsqueeze", onnx_graph.padding_bias(graph, mask), [1, 2])
    positions = graph("Slice", position_table(model.src_embed, num_positions), [0], graph.size(source, 1), [0])
    x = graph("Add", _embed(graph, model.src_embed, source), positions)
    for layer in model.encoder.layers:
        x = _residual(graph, x, layer, layer.norm1, lambda x, mha=layer.self_attn: _self_attn(graph, mha, x, bias))
        x = _residual(graph, x, layer, layer.norm2, lambda x, net=layer.feed_forward: _feed_forward(graph, net, x))
    x = _layer_norm(graph, x, model.encoder.norm)
    graph.output("last_hidden_state", x, ("batch", SOURCE_AXIS, model.src_embed.embedding_dim))
    for index, layer in enumerate(model.decoder.layers):
        mha: Any = layer.cross_attn
        empty = graph("ConstantOfShape", graph.shape(graph.size(source, 0), mha.num_heads, 0, mha.head_dim))
        for name, projection in (("key", mha.k_proj), ("value", mha.v_proj)):
            heads = _split_heads(graph, mha, graph.linear(x, projection), (0, 2, 1, 3))
            shape = ("batch", mha.num_heads, SOURCE_AXIS, mha.head_dim)
            graph.output(f"present.{index}.encoder.{name}", heads, shape)
            graph.output(f"present.{index}.decoder.{name}", empty, ("batch", mha.num_heads, 0, mha.head_dim))


def _add_transformer_step(graph: OnnxGraph, model: Transformer, tokens: str, num_positions: int) -> None:
    mask = graph.input("encoder_attention_mask", ("batch", SOURCE_AXIS), np.int64)
    bias = graph("Unsqueeze", onnx_graph.padding_bias(graph, mask), [1, 2])
    position = graph.size("past_key_values.0.decoder.key", 2)
    embedded = _embed(graph, model.tgt_embed, tokens)
    x = graph("Add", embedded, graph("Gather", position_table(model.tgt_embed, num_positions), position))
    weights: list[str] = []

    def attend_to_memory(x: str, mha: Any) -> str:
        index = len(weights)
        shape = ("batch", mha.num_heads, SOURCE_AXIS, mha.head_dim)
        key, value = (graph.input(f"past_key_values.{index}.encoder.{name}", shape) for name in ("key", "value"))
        query = _split_position(graph, mha, graph.linear(x, mha.q_proj))
        context, layer_weights = _attend(graph, mha, query, key, value, bias)
        weights.append(layer_weights)
        return context

    for index, layer in enumerate(model.decoder.layers):
        x = _residual(
            graph, x, layer, layer.norm1, lambda x, i=index, mha=layer.self_attn: _cached_self_attn(graph, mha, x, i)
        )
        x = _residual(graph, x, layer, layer.norm2, lambda x, mha=layer.cross_attn: attend_to_memory(x, mha))
        x = _residual(graph, x, layer, layer.norm3, lambda x, net=layer.feed_forward: _feed_forward(graph, net, x))
    x = _layer_norm(graph, x, model.decoder.norm)
    bias_terms = [] if model.lm_head.bias is None else [model.lm_head.bias]
    _add_logits(graph, graph("Gemm", x, model.lm_head.weight, *bias_terms, transB=1))
    all_weights = graph("Transpose", graph("Concat", *weights, axis=2), perm=(0, 2, 1, 3))
    first: Any = model.decoder.layers[0]
    shape = ("batch", len(weights), first.cross_attn.num_heads, SOURCE_AXIS)
    graph.output("cross_attentions", all_weights, shape)


def _embed(graph: OnnxGraph, embedding: Any, token_ids: str) -> str:
    return graph("Mul", graph("Gather", embedding.weight, token_ids), embedding.scale)


def _residual(graph: OnnxGraph, x: str, layer: Any, norm: Any, sublayer: Any) -> str:
    """norm(x + sublayer(x)), or x + sublayer(norm(x)) with `norm_first`."""
    if layer.norm_first:
        return graph("Add", x, sublayer(_layer_norm(graph, x, norm)))
    return _layer_norm(graph, graph("Add", x, sublayer(x)), norm)


def _layer_norm(graph: OnnxGraph, x: str, norm: Any) -> str:
    if isinstance(norm, nn.Identity):
        return x
    return graph("LayerNormalization", x, norm.weight, norm.bias, axis=-1, epsilon=norm.eps)


def _feed_forward(graph: OnnxGraph, network: Any, x: str) -> str:
    return graph.linear(_activate(graph, network.activation, graph.linear(x, network.linear1)), network.linear2)


def _activate(graph: OnnxGraph, name: str, x: str) -> str:
    """An activation of `FeedForward`; GELU is no operator of this version of ONNX."""
    match name:
        case "relu":
            return graph("Relu", x)
        case "silu":
            return graph("Mul", x, graph("Sigmoid", x))
        case "gelu":
            inner = graph("Erf", graph("Mul", x, 0.5**0.5))
        case "gelu_tanh":
            cube = graph("Mul", graph("Mul", x, graph("Mul", x, x)), 0.044715)
            inner = graph("Tanh", graph("Mul", graph("Add", x, cube), (2 / math.pi) ** 0.5))
        case _:
            raise ExportError(f"ONNX graphs of regard have no activation {name!r}; export the model to safetensors")
    return graph("Mul", graph("Mul", x, 0.5), graph("Add", inner, 1.0))


def _project_qkv(graph: OnnxGraph, mha: Any, x: str) -> list[str]:
    return graph.multi_output("Split", 3, graph.linear(x, mha.q_proj, mha.k_proj, mha.v_proj), axis=-1)


def _self_attn(graph: OnnxGraph, mha: Any, x: str, bias: str) -> str:
    """Self-attention over the source (batch, src_len, dim)."""
    query, key, value = (
        _split_heads(graph, mha, part, order)
        for part, order in zip(_project_qkv(graph, mha, x), ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    scores = graph("MatMul", graph("Mul", query, mha.head_dim**-0.5), key)
    context = graph("MatMul", graph("Softmax", graph("Add", scores, bias), axis=-1), value)
    merged = graph("Reshape", graph("Transpose", context, perm=(0, 2, 1, 3)), [0, 0, mha.embed_dim])
    return graph.linear(merged, mha.out_proj)


def _cached_self_attn(graph: OnnxGraph, mha: Any, x: str, layer: int) -> str:
    """Self-attention of one position (batch, dim), whose key and value are appended to the cache."""
    past, present = (("batch", mha.num_heads, f"{name}_sequence_length", mha.head_dim) for name in ("past", "present"))
    query, *new = (_split_position(graph, mha, part) for part in _project_qkv(graph, mha, x))
    cache = []
    for name, part in zip(("key", "value"), new, strict=True):
        before = graph.input(f"past_key_values.{layer}.decoder.{name}", past)
        cache.append(graph("Concat", before, part, axis=2))
        graph.output(f"present.{layer}.decoder.{name}", cache[-1], present)
    return _attend(graph, mha, query, *cache)[0]


def _attend(graph: OnnxGraph, mha: Any, query: str, key: str, value: str, bias: str | None = None) -> tuple[str, str]:
    """Output and weights of one query (batch, heads, 1, head_dim)."""
    column = graph("Reshape", graph("Mul", query, mha.head_dim**-0.5), [0, 0, mha.head_dim, 1])
    scores = graph("Reshape", graph("MatMul", key, column), [0, 0, 1, -1])  # without transposing all keys
    weights = graph("Softmax", scores if bias is None else graph("Add", scores, bias), axis=-1)
    context = graph("Reshape", graph("MatMul", weights, value), [0, mha.embed_dim])
    return graph.linear(context, mha.out_proj), weights


def _split_heads(graph: OnnxGraph, mha: Any, x: str, order: tuple[int, ...]) -> str:
    """From (batch, src_len, dim) to heads, with the axes in this order."""
    return graph("Transpose", graph("Reshape", x, [0, 0, mha.num_heads, mha.head_dim]), perm=order)


def _split_position(graph: OnnxGraph, mha: Any, x: str) -> str:
    """From (batch, dim) to (batch, heads, 1, head_dim)."""
    return graph("Reshape", x, [0, mha.num_heads, 1, mha.head_dim])
