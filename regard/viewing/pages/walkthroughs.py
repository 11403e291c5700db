"""The operations of a walk through one layer, in their order: which matrices are shown, and how each was made.

One layer of self-attention, operation by operation: the matrices of a real attention and a real input.

A memory and its heads over time, as in a Neural Turing Machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import Attention, Dropout, Mask, MultiHead, ScaledDot, attend, kernel_sum, softmax
from regard.errors import ShapeError, UsageError
from regard.viewing.pages.page import HtmlPage

Stage = dict[str, Any]


def walkthrough_stages(matrix_names: set[str], normalize: str, has_mask: bool) -> list[Stage]:
    """What is shown at each step; `has` are the names of the matrices that there are."""
    projected, scaled = "wq" in matrix_names, "dots" in matrix_names
    found = [
        _build_stage("input", ["x"]),
        _projection_stage(matrix_names) if projected else _build_stage("plain", ["x", "→", "q", "k", "v"]),
    ]
    if scaled:
        found.append(
            _build_stage("dots", ["q", "·", "k", "=", "dots"], dots=_product_rule("q", "k", transposed=True))
        )
        found.append(
            _build_stage("divide", ["dots", "→", "scaled"], scaled=_same_cell_rule("divided", "dots"))
        )
    else:
        rows = {"kind": "given", "from": {"q": {"row": "row"}, "k": {"row": "column"}}}
        found.append(_build_stage("scores", ["q", "k", "→", "scores"], scores=rows))
    if has_mask:
        shown = ["scaled", "→", "scores"] if scaled else ["scores"]
        found.append(_build_stage("mask", shown, scores=_same_cell_rule("masked", "scaled")))
    shares = {"kind": "softmax" if normalize == "softmax" else "given", "from": {"scores": {"row": "row"}}}
    found.append(_build_stage("weights", ["scores", "→", "weights"], weights=shares))
    found.append(
        _build_stage("sum", ["weights", "×", "v", "=", "context"], context=_product_rule("weights", "v"))
    )
    if projected:
        out = _product_rule("joined", "wo", bias="bo" if "bo" in matrix_names else None)
        found.append(_build_stage("output", ["joined", "→", "output"], output=out))
    return found


def _build_stage(name: str, shown: list[str], **made: Stage) -> Stage:
    return {"name": name, "shown": shown, "made": made}


def _projection_stage(matrix_names: set[str]) -> Stage:
    made = {
        one: _product_rule("x", f"w{one}", bias=f"b{one}" if f"b{one}" in matrix_names else None)
        for one in "qkv"
    }
    return _build_stage("project", ["x", "→", "q", "k", "v"], **made)


def _product_rule(left: str, right: str, transposed: bool = False, bias: str | None = None) -> Stage:
    """A row of `left` times a column of `right` or, turned, a row of it; `from` says what to mark."""
    marked = {left: {"row": "row"}, right: {"row": "column"} if transposed else {"column": "column"}}
    return {
        "kind": "product",
        "left": left,
        "right": right,
        "turned": transposed,
        "bias": bias,
        "from": marked,
    }


def _same_cell_rule(operation: str, source: str) -> Stage:
    return {"kind": operation, "from": {source: {"row": "row", "column": "column"}}}


MAX_TOKENS = 64  # tokens; a matrix of more cannot be read


@dataclass(frozen=True)
class AttentionTrace:
    """Every matrix on the way from x to the output, in the order in which they are made.

    `matrices` are (rows, columns), or (heads, rows, columns) where each head has its own; `score` and
    `normalize` are the names of what is used.
    """

    tokens: Sequence[str]
    matrices: dict[str, Tensor]
    num_heads: int
    score: str
    normalize: str

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        attention: MultiHead | Attention,
        x: Float[Tensor, "tokens dim"],
        tokens: Sequence[str],
        mask: Mask | Bool[Tensor, "..."] | None = None,
    ) -> AttentionTrace:
        """Run the attention once, and keep what it computes."""
        _validate_walkthrough(attention, x, tokens)
        q, k, v = _project_heads(attention, x) if isinstance(attention, MultiHead) else (x[None],) * 3
        normalize = _eval_normalizer(attention)
        seen = attend(q, k, v, mask, score=attention.score, normalize=normalize)
        made: dict[str, Tensor] = {"x": x}
        if isinstance(attention, MultiHead):
            made |= _projection_matrices(attention)
        made |= {"q": q, "k": k, "v": v}
        if isinstance(attention.score, ScaledDot):
            made["dots"] = q @ k.mT
            made["scaled"] = made["dots"] / q.shape[-1] ** 0.5
        made |= {"scores": seen.scores, "weights": seen.weights, "context": seen.context}
        if isinstance(attention, MultiHead):
            made["joined"] = seen.context.transpose(-3, -2).flatten(-2)
            made["output"] = attention.out_proj(made["joined"])
        return cls(tuple(tokens), made, len(q), _name_of(attention.score), _name_of(normalize))


def attention_walkthrough(
    attention: MultiHead | Attention,
    x: Float[Tensor, "tokens dim"],
    tokens: Sequence[str],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    *,
    language: str | None = None,
) -> HtmlPage:
    """A page that walks through one layer of self-attention: q, k, v, scores, / sqrt(d), mask, softmax, sum.

    Every cell tells from which row and which column it came. `x` is what the layer reads, one row a token.

    >>> attention_walkthrough(MultiHead(embed_dim=8, num_heads=2), torch.randn(3, 8), ["a", "black", "cat"], causal())
    Player(... characters of HTML)
    """
    walked = AttentionTrace.build(attention, x, tokens, mask)
    data = {
        "tokens": list(walked.tokens),
        "heads": walked.num_heads,
        "width": walked.matrices["q"].shape[-1],
        "score": walked.score,
        "normalize": walked.normalize,
        "matrices": {name: _describe_matrix(name, one) for name, one in walked.matrices.items()},
        "stages": walkthrough_stages(set(walked.matrices), walked.normalize, has_mask=mask is not None),
    }
    blocks = {
        name: one.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes()
        for name, one in walked.matrices.items()
    }
    return HtmlPage.build("Self-attention, step by step", ["walk.js"], data, blocks, language)


def _validate_walkthrough(attention: Any, x: Tensor, tokens: Sequence[str]) -> None:
    if not isinstance(attention, (MultiHead, Attention)):
        raise TypeError(f"walk goes through a MultiHead or an Attention, not {type(attention).__name__}.")
    if x.dim() != 2 or len(x) != len(tokens):
        raise ShapeError(f"walk takes x as (tokens, dim) with {len(tokens)} tokens, not {tuple(x.shape)}.")
    if not 1 <= len(tokens) <= MAX_TOKENS:
        raise UsageError(f"walk shows 1 to {MAX_TOKENS} tokens, not {len(tokens)}; take a part of the text.")


def _project_heads(attention: MultiHead, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of every head; heads that share a key each get it."""

    def split(joined: Tensor) -> Tensor:
        own = joined.unflatten(-1, (-1, attention.head_dim)).transpose(-3, -2)
        return own.repeat_interleave(attention.num_heads // len(own), 0)

    return split(attention.q_proj(x)), split(attention.k_proj(x)), split(attention.v_proj(x))


def _projection_matrices(attention: MultiHead) -> dict[str, Tensor]:
    """The projections as matrices to multiply a row with, and their biases as rows, by head."""
    made = {}
    for name, layer in (("q", attention.q_proj), ("k", attention.k_proj), ("v", attention.v_proj)):
        own = layer.weight.unflatten(0, (-1, attention.head_dim)).mT
        repeat = attention.num_heads // len(own)
        made[f"w{name}"] = own.repeat_interleave(repeat, 0)
        if layer.bias is not None:
            made[f"b{name}"] = layer.bias.view(-1, 1, attention.head_dim).repeat_interleave(repeat, 0)
    made["wo"] = attention.out_proj.weight.mT
    if attention.out_proj.bias is not None:
        made["bo"] = attention.out_proj.bias[None]
    return made


def _describe_matrix(name: str, matrix: Tensor) -> dict[str, Any]:
    rows = "numbers" if name.startswith(("w", "b")) and name != "weights" else "tokens"
    columns = "tokens" if name in ("dots", "scaled", "scores", "weights") else "numbers"
    return {
        "rows": matrix.shape[-2],
        "columns": matrix.shape[-1],
        "heads": matrix.dim() == 3,
        "labels": {"rows": rows, "columns": columns},
    }


def _eval_normalizer(attention: MultiHead | Attention) -> Any:
    """The normalizer that the attention uses when it is not in training."""
    normalize = attention.normalize
    if isinstance(normalize, Dropout):
        normalize = normalize.normalize
    if normalize is None:
        return kernel_sum if getattr(attention.score, "output_kind", "logits") == "kernel" else softmax
    return normalize


def _name_of(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))


NUM_AXES = {"inputs": 2, "outputs": 2, "reads": 3, "writes": 3, "memory": 3, "adds": 3}


NUM_AXES |= {"returned": 3, "wanted": 2, "asked": 1}


@dataclass(frozen=True)
class MemoryPageData:
    """What a machine with a memory did at every moment.

    `memory` is what stood there after the moment's writing; `adds` is what each head added, `returned` what each head
    read. `wanted` is what should have gone out, and `asked` the moments at which something should.
    """

    inputs: Float[Tensor, "moments inputs"]
    outputs: Float[Tensor, "moments outputs"]
    reads: Float[Tensor, "moments read_heads rows"]
    writes: Float[Tensor, "moments write_heads rows"]
    memory: Float[Tensor, "moments rows columns"]
    adds: Float[Tensor, "moments write_heads columns"] | None = None
    returned: Float[Tensor, "moments read_heads columns"] | None = None
    wanted: Float[Tensor, "moments outputs"] | None = None
    asked: Bool[Tensor, " moments"] | None = None

    def __post_init__(self) -> None:
        if not len(self.inputs):
            raise UsageError("Tape: there is nothing to play, no moment in the inputs.")
        for name, tensor in self.tensors().items():
            if tensor.dim() != NUM_AXES[name] or len(tensor) != len(self.inputs) or not tensor.numel():
                axes = f"{NUM_AXES[name]} axes" if NUM_AXES[name] > 1 else "1 axis"
                raise ShapeError(
                    f"Tape: {name} must have {axes}, the first of {len(self.inputs)} moments,"
                    f" but its shape is {tuple(tensor.shape)}."
                )
        moments, rows, columns = self.memory.shape
        for name, of, size in (
            ("reads", "reads", rows),
            ("writes", "writes", rows),
            ("adds", "writes", columns),
            ("returned", "reads", columns),
        ):
            heads = self.tensors()[of].shape[1]
            own = self.tensors().get(name)
            if own is not None and own.shape[1:] != (heads, size):
                raise ShapeError(
                    f"Tape: {name} must be {(moments, heads, size)} to go with a memory of {(rows, columns)},"
                    f" but its shape is {tuple(own.shape)}."
                )
        if self.wanted is not None and self.wanted.shape != self.outputs.shape:
            raise ShapeError(
                f"Tape: wanted must be {tuple(self.outputs.shape)} as the outputs are, not {tuple(self.wanted.shape)}."
            )

    def tensors(self) -> dict[str, Tensor]:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def memory_page(
    page_data: MemoryPageData,
    *,
    title: str = "A memory and its heads",
    heads: tuple[int, int] = (0, 0),
    language: str | None = None,
) -> HtmlPage:
    """A page that goes through the moments of a memory: inputs, where they are written, what stands there, reads.

    `heads` are the read head and the write head that it opens on.

    >>> told = MemoryPageData(torch.rand(5, 3), torch.rand(5, 3), torch.rand(5, 1, 8), torch.rand(5, 1, 8), torch.rand(5, 8, 4))
    >>> memory_page(told)
    Player(... characters of HTML)
    """
    moments, rows, columns = page_data.memory.shape
    tensors = page_data.tensors()
    counts = {"reads": page_data.reads.shape[1], "writes": page_data.writes.shape[1]}
    first = dict(zip(counts, heads, strict=True))
    for name, head in first.items():
        if not 0 <= head < counts[name]:
            raise UsageError(f"tape: there is no head {head} among the {counts[name]} of {name}.")
    data = {
        "title": title,
        "moments": moments,
        "rows": rows,
        "columns": columns,
        "heads": counts,
        "open": first,
        "inputs": page_data.inputs.shape[1],
        "outputs": page_data.outputs.shape[1],
        "named": list(tensors),
    }
    blocks = {
        name: one.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes()
        for name, one in tensors.items()
    }
    return HtmlPage.build(title, ["tape.js"], data, blocks, language)
