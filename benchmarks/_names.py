"""State-dict keys of our models as other programs have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Names = Iterator[tuple[str, str]]  # ours, theirs
PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}


def marian(layers: int) -> Names:
    """Hugging Face's Marian, with layer norm after each sublayer."""
    yield "src_embed.weight", "model.shared.weight"
    for stack in ("encoder", "decoder"):
        attentions, norms = {"self_attn": "self_attn"}, ["self_attn_layer_norm"]
        if stack == "decoder":
            attentions["cross_attn"] = "encoder_attn"
            norms.append("encoder_attn_layer_norm")
        norms.append("final_layer_norm")
        for number in range(layers):
            ours, theirs = f"{stack}.layers.{number}", f"model.{stack}.layers.{number}"
            for attention, place in attentions.items():
                for projection, letter in PROJECTIONS.items():
                    yield from _both(f"{ours}.{attention}.{projection}", f"{theirs}.{place}.{letter}_proj")
            yield from _both(f"{ours}.feed_forward.linear1", f"{theirs}.fc1")
            yield from _both(f"{ours}.feed_forward.linear2", f"{theirs}.fc2")
            for index, norm in enumerate(norms, 1):
                yield from _both(f"{ours}.norm{index}", f"{theirs}.{norm}")


def joey(layers: int) -> Names:
    """JoeyNMT's Transformer, with layer norm after each sublayer and one embedding for all."""
    yield "src_embed.weight", "src_embed.lut.weight"
    attentions = {
        "encoder": {"self_attn": "src_src_att"},
        "decoder": {"self_attn": "trg_trg_att", "cross_attn": "src_trg_att"},
    }
    norms = {
        "encoder": ("layer_norm", "feed_forward.layer_norm"),
        "decoder": ("x_layer_norm", "dec_layer_norm", "feed_forward.layer_norm"),
    }
    for stack, names in attentions.items():
        for number in range(layers):
            layer = f"{stack}.layers.{number}"
            for ours, theirs in names.items():
                for projection, letter in PROJECTIONS.items():
                    name = "output" if letter == "out" else letter
                    yield from _both(f"{layer}.{ours}.{projection}", f"{layer}.{theirs}.{name}_layer")
            yield from _both(f"{layer}.feed_forward.linear1", f"{layer}.feed_forward.pwff_layer.0")
            yield from _both(f"{layer}.feed_forward.linear2", f"{layer}.feed_forward.pwff_layer.3")
            for index, norm in enumerate(norms[stack], 1):
                yield from _both(f"{layer}.norm{index}", f"{layer}.{norm}")


def joey_recurrent(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of our recurrent model with Luong's decoder and input feeding, with JoeyNMT's keys."""
    import torch

    inputs = [weights["cells.0.input_proj.weight"], weights["cells.0.context_proj.weight"]]
    cell = {"weight_ih": torch.cat(inputs, 1), "bias_ih": weights["cells.0.input_proj.bias"]}
    cell |= {f"{part}_hh": weights[f"cells.0.hidden_proj.{part}"] for part in ("weight", "bias")}
    encoder = {name.split(".")[-1]: value for name, value in weights.items() if name.startswith("encoder.")}
    parts = ("weight", "bias")
    return {
        "src_embed.lut.weight": weights["src_embed.weight"],
        "trg_embed.lut.weight": weights["tgt_embed.weight"],
        "decoder.output_layer.weight": weights["lm_head.weight"],
        **{f"encoder.rnn.{name}": value for name, value in encoder.items()},
        **{f"decoder.rnn.{name}_l0": value for name, value in cell.items()},
        **{f"decoder.bridge_layer.{part}": weights[f"bridge.{part}"] for part in parts},
        **{f"decoder.att_vector_layer.{part}": weights[f"readout_proj.{part}"] for part in parts},
        "decoder.attention.query_layer.weight": weights["attention.score.query_proj.weight"],
        "decoder.attention.key_layer.weight": weights["attention.score.key_proj.weight"],
        "decoder.attention.energy_layer.weight": weights["attention.score.energy"][None],
    }


def _both(ours: str, theirs: str) -> Names:
    for end in ("weight", "bias"):
        yield f"{ours}.{end}", f"{theirs}.{end}"


def fill(network: Any, weights: Mapping[str, Any], names: Names) -> None:
    """Copy our weights into another program's model; parameters without a key of ours are unchanged."""
    import torch

    theirs = network.state_dict()
    with torch.no_grad():
        for ours, name in names:
            theirs[name].copy_(weights[ours])
