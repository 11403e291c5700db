"""Step-by-step pages: one layer of self-attention, and an external memory with its heads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import Attention, Dropout, Mask, MultiHead, ScaledDot, attend
from regard.attention.equation import default_normalizer
from regard.errors import ShapeError, UnsupportedError, UsageError
from regard.viewing import _arrays as arrays
from regard.viewing.pages.page import HtmlPage

__all__ = ["AttentionTrace", "MemoryPageData", "attention_walkthrough", "memory_page", "walkthrough_stages"]

Stage = dict[str, Any]
MAX_TOKENS = 64
MEMORY_AXES = {
    "inputs": "steps inputs",
    "outputs": "steps outputs",
    "read_weights": "steps read_heads rows",
    "write_weights": "steps write_heads rows",
    "memory": "steps rows columns",
    "add_vectors": "steps write_heads columns",
    "read_vectors": "steps read_heads columns",
    "targets": "steps outputs",
    "target_mask": "steps",
}


@dataclass(frozen=True)
class AttentionTrace:
    """All matrices of one layer of self-attention, in the order of their computation.

    Args:
        tokens: the tokens of the input
        matrices: by name, (rows, columns), or (heads, rows, columns) of matrices that differ between heads
        num_heads: the number of heads
        score: the name of the score function
        normalize: the name of the normalizer

    Example:
        >>> from regard.attention import MultiHead
        >>> trace = AttentionTrace.build(MultiHead(4, 2), torch.randn(3, 4), ["a", "b", "c"])
        >>> trace.num_heads, trace.matrices["weights"].shape
        (2, torch.Size([2, 3, 3]))
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
        """Run the attention once and keep its matrices.

        Args:
            attention: the layer
            x: its input
            tokens: one per row of x
            mask: the visible keys; None: all

        Shape:
            x (tokens, dim)
        """
        _validate_walkthrough(attention, x, tokens)
        matrices: dict[str, Tensor] = {"x": x}
        q = k = v = x[None]
        if isinstance(attention, MultiHead):
            matrices |= _projection_matrices(attention)
            q, k, v = (_split_heads(attention, name, _projection(attention, name)(x)) for name in "qkv")
        normalize = _eval_normalizer(attention)
        output = attend(q, k, v, mask, score=attention.score, normalize=normalize)
        matrices |= {"q": q, "k": k, "v": v}
        if isinstance(attention.score, ScaledDot):
            matrices["dots"] = q @ k.mT
            matrices["scaled"] = matrices["dots"] / q.shape[-1] ** 0.5
        matrices |= {"scores": output.scores, "weights": output.weights, "context": output.context}
        if isinstance(attention, MultiHead):
            matrices["joined"] = output.context.transpose(-3, -2).flatten(-2)
            matrices["output"] = attention.out_proj(matrices["joined"])
        return cls(tuple(tokens), matrices, len(q), _name_of(attention.score), _name_of(normalize))


def attention_walkthrough(
    attention: MultiHead | Attention,
    x: Float[Tensor, "tokens dim"],
    tokens: Sequence[str],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    *,
    language: str | None = None,
) -> HtmlPage:
    """Build a page that shows one layer of self-attention, operation by operation.

    The operations are q, k, v, scores, / sqrt(d), mask, softmax, weighted sum, output. Each cell shows how it is
    computed.

    Args:
        attention: the layer
        x: its input
        tokens: one per row of x, at most 64
        mask: the visible keys; None: all
        language: "en" or "zh"; None: that of the browser

    Shape:
        x (tokens, dim)

    Example:
        >>> attention = MultiHead(embed_dim=8, num_heads=2)
        >>> attention_walkthrough(attention, torch.randn(3, 8), ["a", "black", "cat"], causal())
        HtmlPage(... characters)
    """
    trace = AttentionTrace.build(attention, x, tokens, mask)
    data = {
        "tokens": list(trace.tokens),
        "numHeads": trace.num_heads,
        "headDim": trace.matrices["q"].shape[-1],
        "score": trace.score,
        "normalize": trace.normalize,
        "matrices": {name: _describe_matrix(name, matrix) for name, matrix in trace.matrices.items()},
        "stages": walkthrough_stages(set(trace.matrices), trace.normalize, has_mask=mask is not None),
    }
    blocks = {name: _to_bytes(matrix) for name, matrix in trace.matrices.items()}
    return HtmlPage.build("Self-attention, step by step", ["walkthrough.js"], data, blocks, language)


def walkthrough_stages(matrix_names: set[str], normalize: str, has_mask: bool) -> list[Stage]:
    """List the operations of a layer.

    Args:
        matrix_names: the names of the matrices
        normalize: the name of the normalizer
        has_mask: whether there is a mask

    Returns:
        For each operation its name, its parts (matrices and operators) and, for each computed matrix, its rule.
    """
    has_projections, is_scaled = "wq" in matrix_names, "dots" in matrix_names

    def projection_rule(left: str, name: str) -> Stage:
        return _product_rule(left, f"w{name}", bias=f"b{name}" if f"b{name}" in matrix_names else None)

    rules = {name: projection_rule("x", name) for name in "qkv"} if has_projections else {}
    stages = [_build_stage("input", "x")]
    stages.append(_build_stage("project" if has_projections else "plain", "x → q k v", **rules))
    if is_scaled:
        stages.append(_build_stage("dots", "q · k = dots", dots=_product_rule("q", "k", transposed=True)))
        stages.append(_build_stage("divide", "dots → scaled", scaled=_same_cell_rule("scale", "dots")))
    else:
        rule = {"operation": "given", "from": {"q": {"row": "row"}, "k": {"row": "column"}}}
        stages.append(_build_stage("scores", "q k → scores", scores=rule))
    if has_mask:
        parts = "scaled → scores" if is_scaled else "scores"
        stages.append(_build_stage("mask", parts, scores=_same_cell_rule("mask", "scaled")))
    operation = "softmax" if normalize == "softmax" else "given"
    rule = {"operation": operation, "from": {"scores": {"row": "row"}}}
    stages.append(_build_stage("weights", "scores → weights", weights=rule))
    stages.append(_build_stage("sum", "weights × v = context", context=_product_rule("weights", "v")))
    if has_projections:
        stages.append(_build_stage("output", "joined → output", output=projection_rule("joined", "o")))
    return stages


@dataclass(frozen=True)
class MemoryPageData:
    """The data of `memory_page`: a sequence processed with an external memory.

    Args:
        inputs: the input vectors
        outputs: the output vectors
        read_weights: the weights of the read heads over the rows
        write_weights: the weights of the write heads over the rows
        memory: the memory after the writing of each step
        add_vectors: the vectors added by the write heads
        read_vectors: the vectors returned by the read heads
        targets: the target outputs
        target_mask: the steps that have a target

    Shape:
        inputs (steps, inputs), outputs and targets (steps, outputs), weights (steps, heads, rows),
        memory (steps, rows, columns), vectors (steps, heads, columns), target_mask (steps,)

    Example:
        >>> weights = torch.eye(3)[:, None]  # one head, which moves on by one row in each step
        >>> data = MemoryPageData(torch.rand(3, 2), torch.rand(3, 2), weights, weights, torch.rand(3, 3, 4))
        >>> len(data.tensors())
        5
    """

    inputs: Float[Tensor, "steps inputs"]
    outputs: Float[Tensor, "steps outputs"]
    read_weights: Float[Tensor, "steps read_heads rows"]
    write_weights: Float[Tensor, "steps write_heads rows"]
    memory: Float[Tensor, "steps rows columns"]
    add_vectors: Float[Tensor, "steps write_heads columns"] | None = None
    read_vectors: Float[Tensor, "steps read_heads columns"] | None = None
    targets: Float[Tensor, "steps outputs"] | None = None
    target_mask: Bool[Tensor, " steps"] | None = None

    def __post_init__(self) -> None:
        sizes: dict[str, dict[str, int]] = defaultdict(dict)
        for name, tensor in self.tensors().items():
            arrays.check_axes(f"MemoryPageData ({name})", tensor, MEMORY_AXES[name])
            for axis, size in zip(MEMORY_AXES[name].split(), tensor.shape, strict=True):
                sizes[axis][f"{axis}_of_{name}"] = size
        for sizes_of_axis in sizes.values():
            arrays.validate_equal_sizes("MemoryPageData", **sizes_of_axis)

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are not None, by name."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}


def memory_page(
    page_data: MemoryPageData,
    *,
    title: str = "A memory and its heads",
    heads: tuple[int, int] = (0, 0),
    language: str | None = None,
) -> HtmlPage:
    """Build a page that shows an external memory step by step: inputs, write weights, content, read weights, outputs.

    Args:
        page_data: the sequence
        title: the title of the page
        heads: the initial read head and write head
        language: "en" or "zh"; None: that of the browser

    Example:
        >>> weights = torch.rand(5, 1, 8)
        >>> memory_page(MemoryPageData(torch.rand(5, 3), torch.rand(5, 3), weights, weights, torch.rand(5, 8, 4)))
        HtmlPage(... characters)
    """
    steps, rows, columns = page_data.memory.shape
    tensors = page_data.tensors()
    counts = {name: tensors[name].shape[1] for name in ("read_weights", "write_weights")}
    selected = dict(zip(counts, heads, strict=True))
    for name, head in selected.items():
        if not 0 <= head < counts[name]:
            raise UsageError(f"memory_page: no head {head} in {name}, which has {counts[name]}.")
    data = {
        "title": title,
        "numSteps": steps,
        "rows": rows,
        "columns": columns,
        "heads": counts,
        "selected": selected,
        "inputs": page_data.inputs.shape[1],
        "outputs": page_data.outputs.shape[1],
        "names": list(tensors),
    }
    blocks = {name: _to_bytes(tensor) for name, tensor in tensors.items()}
    return HtmlPage.build(title, ["memory.js"], data, blocks, language)


def _to_bytes(tensor: Tensor) -> bytes:
    """32-bit floats, little-endian."""
    return tensor.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes()


def _build_stage(name: str, parts: str, **rules: Stage) -> Stage:
    return {"name": name, "parts": parts.split(), "rules": rules}


def _product_rule(left: str, right: str, transposed: bool = False, bias: str | None = None) -> Stage:
    """A row of `left` times a column of `right` or, transposed, a row of it; `from`: what to highlight."""
    sources = {left: {"row": "row"}, right: {"row": "column"} if transposed else {"column": "column"}}
    operands = {"left": left, "right": right, "transposed": transposed, "bias": bias}
    return {"operation": "product", **operands, "from": sources}


def _same_cell_rule(operation: str, source: str) -> Stage:
    return {"operation": operation, "from": {source: {"row": "row", "column": "column"}}}


def _validate_walkthrough(attention: Any, x: Tensor, tokens: Sequence[str]) -> None:
    if not isinstance(attention, (MultiHead, Attention)):
        raise TypeError(f"attention_walkthrough expects a MultiHead or an Attention, got {type(attention).__name__}.")
    if isinstance(attention, MultiHead) and (attention.q_norm is not None or attention.num_extra_keys):
        raise UnsupportedError("attention_walkthrough shows no qk_norm and no extra keys, which this MultiHead has.")
    if x.dim() != 2 or len(x) != len(tokens):
        raise ShapeError(f"attention_walkthrough expects x ({len(tokens)} tokens, dim), got {tuple(x.shape)}.")
    if not 1 <= len(tokens) <= MAX_TOKENS:
        raise UsageError(f"attention_walkthrough supports 1 to {MAX_TOKENS} tokens, got {len(tokens)}.")


def _projection(attention: MultiHead, name: str) -> nn.Linear:
    return {"q": attention.q_proj, "k": attention.k_proj, "v": attention.v_proj}[name]


def _split_heads(attention: MultiHead, name: str, rows: Tensor) -> Tensor:
    """(rows, heads x dim) as (heads, rows, dim); keys and values that heads share are repeated."""
    num_heads = attention.num_heads if name == "q" else attention.num_kv_heads
    heads = rows.unflatten(-1, (num_heads, -1)).transpose(-3, -2)
    return heads.repeat_interleave(attention.num_heads // len(heads), 0)


def _projection_matrices(attention: MultiHead) -> dict[str, Tensor]:
    """The projections of each head as matrices that multiply rows, and their biases as rows."""
    matrices = {}
    for name in "qkv":
        layer = _projection(attention, name)
        matrices[f"w{name}"] = _split_heads(attention, name, layer.weight.mT)
        if layer.bias is not None:
            matrices[f"b{name}"] = _split_heads(attention, name, layer.bias[None])
    matrices["wo"] = attention.out_proj.weight.mT
    if attention.out_proj.bias is not None:
        matrices["bo"] = attention.out_proj.bias[None]
    return matrices


def _describe_matrix(name: str, matrix: Tensor) -> dict[str, Any]:
    rows = "numbers" if name.startswith(("w", "b")) and name != "weights" else "tokens"
    columns = "tokens" if name in ("dots", "scaled", "scores", "weights") else "numbers"
    return {
        "rows": matrix.shape[-2],
        "columns": matrix.shape[-1],
        "perHead": matrix.dim() == 3,
        "labels": {"rows": rows, "columns": columns},
    }


def _eval_normalizer(attention: MultiHead | Attention) -> Any:
    """The normalizer of the attention in evaluation mode, without dropout."""
    normalize = attention.normalize
    if isinstance(normalize, Dropout):
        normalize = normalize.normalize
    return default_normalizer(attention.score) if normalize is None else normalize


def _name_of(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))
