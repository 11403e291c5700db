"""The encoder and a decoder step of the translation models as modules that torch.onnx.export(dynamo=True) takes."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from regard.attention import (
    Additive,
    Bilinear,
    Concat,
    Constant,
    Energy,
    LocalM,
    LocalP,
    ScaledDot,
    Temperature,
    sigmoid,
)
from regard.export import onnx as hand_built
from regard.export.folder import num_export_positions, position_table
from regard.export.onnx_graph import MASKED_SCORE
from regard.export.onnx_models import GATE_ORDER
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks import Translator

Tensors = dict[str, Tensor]


def padding_bias(mask: Tensor) -> Tensor:
    return torch.where(mask.bool(), 0.0, MASKED_SCORE)


class RNNEncoderGraph(nn.Module):
    """The encoder of an RNNSeq2Seq; its recurrent layers are nodes of ONNX."""

    def __init__(self, model: RNNSeq2Seq):
        super().__init__()
        self.model, layers = model, model.encoder.layers
        order = GATE_ORDER[type(layers).__name__]
        suffixes = ("", "_reverse")[: model.encoder.num_directions]
        for layer in range(layers.num_layers):
            stacked = []
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                chunks = [getattr(layers, f"{name}_l{layer}{suffix}").detach().chunk(len(order)) for suffix in suffixes]
                stacked.append(torch.stack([torch.cat([direction[gate] for gate in order]) for direction in chunks]))
            weights = (*stacked[:2], torch.cat(stacked[2:], 1))
            for name, weight in zip("WRB", weights, strict=True):
                self.register_buffer(f"{name}{layer}", weight)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensors:
        lengths = attention_mask.sum(1)
        model, layers, num_directions = self.model, self.model.encoder.layers, self.model.encoder.num_directions
        op, dim = type(layers).__name__, layers.hidden_size
        attributes = {"hidden_size": dim, "direction": "bidirectional" if num_directions == 2 else "forward"}
        attributes |= {"linear_before_reset": 1} if op == "GRU" else {}
        x = model.src_embed(input_ids).transpose(0, 1)
        src_len, batch = x.shape[:2]
        for layer in range(layers.num_layers):
            weights = [getattr(self, f"{name}{layer}") for name in "WRB"]
            states, final = torch.onnx.ops.symbolic_multi_out(
                op,
                (x, *weights, lengths.to(torch.int32)),
                attributes,
                dtypes=(torch.float32, torch.float32),
                shapes=((src_len, num_directions, batch, dim), (num_directions, batch, dim)),
                version=17,
            )
            x = states.permute(0, 2, 1, 3).reshape(src_len, batch, num_directions * dim)
        states, final = x.transpose(0, 1), final.transpose(0, 1).reshape(batch, -1)
        outputs = self.memory(states, final)
        start = torch.tanh(model.bridge(final))
        outputs["present_states"] = start.view(-1, model.first_cell.num_states * len(model.cells), model.hidden_dim)
        if model.input_feeding:
            outputs["present_input_feed"] = final.new_zeros(batch, model.readout_proj.out_features)
        return outputs

    def memory(self, states: Tensor, final: Tensor) -> Tensors:
        attention: Any = self.model.attention
        if attention is None:
            return {"encoder_final_state": final}
        outputs = {"last_hidden_state": states}
        if isinstance(attention.score, Additive):
            outputs["encoder_keys"] = attention.score.key_proj(states)
        elif isinstance(attention.score, Concat):
            outputs["encoder_keys"] = states @ attention.score.in_proj.weight[:, attention.score.query_dim :].T
        if isinstance(attention, LocalM):
            outputs["present_length"] = states.new_zeros(len(states), 1)
        return outputs


class RNNStepGraph(nn.Module):
    def __init__(self, model: RNNSeq2Seq):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, memory: Tensors, state: Tensors) -> Tensors:
        model, per_cell = self.model, self.model.first_cell.num_states
        parts, position = state["past_states"].unbind(1), state.get("past_length")
        states = [tuple(parts[i * per_cell : (i + 1) * per_cell]) for i in range(len(model.cells))]
        embedded = model.tgt_embed(input_ids[:, 0])
        projected, outputs = model.first_cell.project_input(embedded), {}
        if model.decoder_type == "bahdanau":
            context, weights = self.attend(states[-1][0], memory, position)
            states = model._step_cells(projected, context, states)
            hidden = model.readout(states[-1][0], context, embedded)
        else:
            states = model._step_cells(projected, state.get("past_input_feed"), states)
            context, weights = self.attend(states[-1][0], memory, position)
            hidden = model._attentional_state(states[-1][0], context)
            if model.input_feeding:
                outputs["present_input_feed"] = hidden
        outputs["logits"] = model.lm_head(hidden)[:, None]
        if position is not None:
            outputs["present_length"] = position + 1
        outputs["present_states"] = torch.stack([part for layer in states for part in layer], 1)
        if weights is not None:
            outputs["cross_attentions"] = weights[:, None, None]
        return outputs

    def attend(self, query: Tensor, memory: Tensors, position: Tensor | None) -> tuple[Tensor, Tensor | None]:
        attention: Any = self.model.attention
        if attention is None:
            return memory["encoder_final_state"], None
        states, mask = memory["encoder_hidden_states"], memory["encoder_attention_mask"]
        scores = self.scores(attention.score, query, memory.get("encoder_keys", states)) + padding_bias(mask)
        if isinstance(attention, LocalM | LocalP):
            length = mask.sum(1, keepdim=True).float()
            if isinstance(attention, LocalM):
                center = torch.minimum(position, length - 1)  # type: ignore[union-attr]
            else:
                center = length * torch.sigmoid(torch.tanh(attention.query_proj(query)) @ attention.energy[:, None])
            distance = torch.arange(states.shape[1]).float() - center
            scores = torch.where(distance.abs() <= attention.radius, scores, MASKED_SCORE)
        if attention.normalize is sigmoid:
            weights = torch.sigmoid(scores)
        else:
            is_temperature = isinstance(attention.normalize, Temperature)
            weights = torch.softmax(scores / attention.normalize.temperature if is_temperature else scores, -1)
        if isinstance(attention, LocalP):
            weights = weights * torch.exp(distance * distance * (-0.5 / (attention.radius / 2) ** 2))
        return (weights[:, None] @ states).squeeze(1), weights

    def scores(self, score: Any, query: Tensor, keys: Tensor) -> Tensor:
        if isinstance(score, Constant):
            return torch.zeros(())
        # `@ energy[:, None]`, not `@ energy`: ONNX Runtime is 1.3 times slower with a vector, and int8 fails with it
        if isinstance(score, Additive):
            activation = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[score.activation]
            hidden = activation(score.query_proj(query)[:, None] + keys)  # type: ignore[misc]
            return (hidden @ score.energy[:, None]).squeeze(2)
        if isinstance(score, Concat):
            hidden = torch.tanh((query @ score.in_proj.weight[:, : score.query_dim].T)[:, None] + keys)
            for layer in score.layers:
                hidden = torch.tanh(layer(hidden))
            return (hidden @ score.energy[:, None]).squeeze(2)
        if isinstance(score, Bilinear):
            query = query @ (-score.weight if isinstance(score, Energy) else score.weight)
        if isinstance(score, ScaledDot):
            query = query * query.shape[1] ** -0.5
        return (keys @ query[..., None]).squeeze(2)


class TransformerEncoderGraph(nn.Module):
    """The encoder of a Transformer, with the keys and values of the decoder's cross-attention."""

    def __init__(self, model: Transformer, num_positions: int):
        super().__init__()
        self.model: Any = model
        self.register_buffer("positions", position_table(model.src_embed, num_positions))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensors:
        model, (batch, src_len) = self.model, input_ids.shape
        bias = padding_bias(attention_mask)[:, None, None]
        x = (
            nn.functional.embedding(input_ids, model.src_embed.weight) * model.src_embed.scale
            + self.positions[:src_len]
        )
        for layer in model.encoder.layers:
            x = layer._residual(x, layer.norm1, lambda x, mha=layer.self_attn: self.self_attn(mha, x, bias))
            x = layer._residual(x, layer.norm2, layer.feed_forward)
        x = model.encoder.norm(x)
        outputs = {"last_hidden_state": x}
        for i, mha in enumerate(layer.cross_attn for layer in model.decoder.layers):
            shape = (batch, src_len, mha.num_heads, mha.head_dim)
            outputs[f"present.{i}.encoder.key"] = mha.k_proj(x).view(shape).transpose(1, 2)
            outputs[f"present.{i}.encoder.value"] = mha.v_proj(x).view(shape).transpose(1, 2)
            for name in ("key", "value"):
                outputs[f"present.{i}.decoder.{name}"] = x.new_zeros(batch, mha.num_heads, 0, mha.head_dim)
        return outputs

    def self_attn(self, mha: Any, x: Tensor, bias: Tensor) -> Tensor:
        shape = (*x.shape[:2], mha.num_heads, mha.head_dim)
        q, k, v = (proj(x).view(shape).transpose(1, 2) for proj in (mha.q_proj, mha.k_proj, mha.v_proj))
        weights = torch.softmax((q * mha.head_dim**-0.5) @ k.transpose(2, 3) + bias, -1)
        return mha.out_proj((weights @ v).transpose(1, 2).reshape(*x.shape[:2], mha.embed_dim))


class TransformerStepGraph(nn.Module):
    """One step of the decoder of a Transformer."""

    def __init__(self, model: Transformer, num_positions: int):
        super().__init__()
        self.model: Any = model
        self.register_buffer("positions", position_table(model.tgt_embed, num_positions))

    def forward(self, input_ids: Tensor, memory: Tensors, state: Tensors) -> Tensors:
        model, batch, bias = self.model, input_ids.shape[0], padding_bias(memory["encoder_attention_mask"])
        past, position = "past_key_values", state["past_key_values.0.decoder.key"].shape[2]
        embedding, outputs, all_weights = model.tgt_embed, {}, []
        x = nn.functional.embedding(input_ids[:, 0], embedding.weight) * embedding.scale + self.positions[position]
        for i, layer in enumerate(model.decoder.layers):

            def self_attn(x: Tensor, i: int = i, mha: Any = layer.self_attn) -> Tensor:
                shape = (batch, mha.num_heads, 1, mha.head_dim)
                q, k, v = (proj(x).view(shape) for proj in (mha.q_proj, mha.k_proj, mha.v_proj))
                k = torch.cat([state[f"{past}.{i}.decoder.key"], k], 2)
                v = torch.cat([state[f"{past}.{i}.decoder.value"], v], 2)
                outputs[f"present.{i}.decoder.key"], outputs[f"present.{i}.decoder.value"] = k, v
                weights = torch.softmax((q * mha.head_dim**-0.5) @ k.transpose(2, 3), -1)
                return mha.out_proj((weights @ v).view(batch, mha.embed_dim))

            def cross_attn(x: Tensor, i: int = i, mha: Any = layer.cross_attn) -> Tensor:
                q = mha.q_proj(x).view(batch, mha.num_heads, 1, mha.head_dim) * mha.head_dim**-0.5
                weights = torch.softmax(q @ memory[f"{past}.{i}.encoder.key"].transpose(2, 3) + bias[:, None, None], -1)
                all_weights.append(weights)
                return mha.out_proj((weights @ memory[f"{past}.{i}.encoder.value"]).view(batch, mha.embed_dim))

            x = layer._residual(x, layer.norm1, self_attn)
            x = layer._residual(x, layer.norm2, cross_attn)
            x = layer._residual(x, layer.norm3, layer.feed_forward)
        outputs["logits"] = model.lm_head(model.decoder.norm(x))[:, None]
        outputs["cross_attentions"] = torch.cat(all_weights, 2).transpose(1, 2)
        return outputs


def write_model(translator: Translator, folder: Path, quantize: str | None) -> None:
    """What `regard.export.onnx.write_model` does, by torch.onnx.export."""
    model, num_positions = translator.torch_model, num_export_positions(translator.max_length)
    is_transformer = isinstance(model, Transformer)
    encoder = TransformerEncoderGraph(model, num_positions) if is_transformer else RNNEncoderGraph(model)
    decoder = TransformerStepGraph(model, num_positions) if is_transformer else RNNStepGraph(model)
    mask = (torch.arange(5) < torch.tensor([5, 2, 3])[:, None]).long()
    inputs: dict[str, Any] = {"input_ids": torch.randint(4, 8, (3, 5)), "attention_mask": mask}
    with torch.no_grad():
        outputs = {name: tensor.clone() for name, tensor in encoder(**inputs).items()}
    after = {hand_built.next_input(name): tensor for name, tensor in outputs.items()}
    is_state = {name: name.startswith("past") and ".encoder." not in name for name in after}
    memory = {name: tensor for name, tensor in after.items() if not is_state[name]}
    state = {name: tensor for name, tensor in after.items() if is_state[name]}
    if is_transformer:
        del memory["encoder_hidden_states"]  # only its projections are used
    if is_transformer or model.attention is not None:
        memory["encoder_attention_mask"] = mask
    if is_transformer:  # with a past, whose length is dynamic
        state = {name: torch.randn(3, cache.shape[1], 2, cache.shape[3]) for name, cache in state.items()}
    _export(encoder, inputs, folder / hand_built.ENCODER_FILE, list(outputs))
    inputs = {"input_ids": torch.tensor([[4], [5], [6]]), "memory": memory, "state": state}
    with torch.no_grad():
        names = list(decoder(**inputs))
    _export(decoder, inputs, folder / hand_built.DECODER_FILE, names)
    if quantize is not None:
        for name in (hand_built.ENCODER_FILE, hand_built.DECODER_FILE):
            _quantize(folder / name)


def _export(module: nn.Module, inputs: dict[str, Any], path: Path, output_names: list[str]) -> None:
    def dynamic_axes(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: dynamic_axes(key, item) for key, item in value.items()}
        is_fixed = name in ("past_states", "past_input_feed", "past_length", "encoder_final_state")
        axis = 2 if name.startswith("past_key_values") else 1
        return dict.fromkeys([0] if is_fixed or value.shape[axis] == 1 else [0, axis], Dim.DYNAMIC)

    flat = [key for name, value in inputs.items() for key in (value if isinstance(value, dict) else [name])]
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            (),
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes={name: dynamic_axes(name, value) for name, value in inputs.items()},
            input_names=flat,
            output_names=output_names,
            opset_version=18,  # the oldest of this exporter
        )
    assert program is not None
    program.save(str(path), external_data=False)


def _quantize(path: Path) -> None:
    """As `regard.export.onnx`, but most products are Gemm here, and shapes of the file would contradict the result."""
    import onnx
    from onnxruntime import quantization

    model = onnx.load_model(str(path))
    constants = {constant.name: constant for constant in model.graph.initializer}
    embeddings = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    for node in model.graph.node:
        if node.op_type == "Gemm" and node.input[1] in embeddings:
            weight = model.graph.initializer.add()
            weight.CopyFrom(constants[node.input[1]])
            weight.name = node.input[1] = f"{weight.name}_output"
    del model.graph.value_info[:]
    options = {"per_channel": True, "reduce_range": True, "weight_type": quantization.QuantType.QInt8}
    quantization.quantize_dynamic(model, path, op_types_to_quantize=["MatMul", "Gemm"], **options)
