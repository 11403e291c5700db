"""Weights of our translators under the names that other programs have for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Names = Iterator[tuple[str, str]]  # ours, theirs
HEADS = {"query": "q", "key": "k", "value": "v", "output": "out"}


def marian(layers: int) -> Names:
    """Hugging Face's Marian, where norms come last."""
    yield "read.words.weight", "model.shared.weight"
    for stack in ("encoder", "decoder"):
        back = {"look_back": "encoder_attn"} if stack == "decoder" else {}
        norms = {"add_look": "self_attn_layer_norm", "add_think": "final_layer_norm"}
        norms |= {"add_back": "encoder_attn_layer_norm"} if back else {}
        for number in range(layers):
            ours, theirs = f"{stack}.layers.{number}", f"model.{stack}.layers.{number}"
            for heads, place in {"look": "self_attn", **back}.items():
                for part, letter in HEADS.items():
                    yield from _both(f"{ours}.{heads}.{part}", f"{theirs}.{place}.{letter}_proj")
            yield from _both(f"{ours}.think.0", f"{theirs}.fc1")
            yield from _both(f"{ours}.think.2", f"{theirs}.fc2")
            for add, norm in norms.items():
                yield from _both(f"{ours}.{add}.norm", f"{theirs}.{norm}")


def joey(layers: int) -> Names:
    """JoeyNMT, where norms come last and all embeddings are one."""
    yield "read.words.weight", "src_embed.lut.weight"
    looks = {
        "encoder": {"look": "src_src_att"},
        "decoder": {"look": "trg_trg_att", "look_back": "src_trg_att"},
    }
    norms = {
        "encoder": {"add_look": "layer_norm"},
        "decoder": {"add_look": "x_layer_norm", "add_back": "dec_layer_norm"},
    }
    for stack, heads in looks.items():
        for number in range(layers):
            place = f"{stack}.layers.{number}"
            for ours, theirs in heads.items():
                for part, letter in HEADS.items():
                    name = "output" if part == "output" else letter
                    yield from _both(f"{place}.{ours}.{part}", f"{place}.{theirs}.{name}_layer")
            yield from _both(f"{place}.think.0", f"{place}.feed_forward.pwff_layer.0")
            yield from _both(f"{place}.think.2", f"{place}.feed_forward.pwff_layer.3")
            for add, norm in {**norms[stack], "add_think": "feed_forward.layer_norm"}.items():
                yield from _both(f"{place}.{add}.norm", f"{place}.{norm}")


def joey_recurrent(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of our network in Luong's order with input feeding, as JoeyNMT has them."""
    import torch

    cell = {"weight_ih": torch.cat([weights["first.early.weight"], weights["first.late.weight"]], 1)}
    cell |= {"bias_ih": weights["first.early.bias"]}
    cell |= {f"{part}_hh": weights[f"first.past.{part}"] for part in ("weight", "bias")}
    encoder = {name.split(".")[-1]: value for name, value in weights.items() if name.startswith("encoder.")}
    return {
        "src_embed.lut.weight": weights["read.weight"],
        "trg_embed.lut.weight": weights["write.weight"],
        "decoder.output_layer.weight": weights["output.weight"],
        **{f"encoder.rnn.{name}": value for name, value in encoder.items()},
        **{f"decoder.rnn.{name}_l0": value for name, value in cell.items()},
        **{f"decoder.bridge_layer.{part}": weights[f"start.{part}"] for part in ("weight", "bias")},
        **{f"decoder.att_vector_layer.{part}": weights[f"join.{part}"] for part in ("weight", "bias")},
        "decoder.attention.query_layer.weight": weights["attention.score.W.weight"],
        "decoder.attention.key_layer.weight": weights["attention.score.U.weight"],
        "decoder.attention.energy_layer.weight": weights["attention.score.v"][None],
    }


def _both(ours: str, theirs: str) -> Names:
    for end in ("weight", "bias"):
        yield f"{ours}.{end}", f"{theirs}.{end}"


def fill(network: Any, weights: Mapping[str, Any], names: Names) -> None:
    """Give a network of theirs our weights; what it has no name of ours for stays as it is."""
    import torch

    theirs = network.state_dict()
    with torch.no_grad():
        for ours, name in names:
            theirs[name].copy_(weights[ours])
