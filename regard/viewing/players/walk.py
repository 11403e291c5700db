"""One layer of self-attention, operation by operation: the matrices of a real attention and a real input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import Attention, Dropout, Mask, MultiHead, ScaledDot, attend, kernel_sum, softmax
from regard.errors import ShapeError, UsageError
from regard.viewing.players._player import Player
from regard.viewing.players._stages import stages

MOST = 64  # tokens; a matrix of more cannot be read


@dataclass(frozen=True)
class Walk:
    """Every matrix on the way from x to the output, in the order in which they are made.

    `matrices` are (rows, columns), or (heads, rows, columns) where each head has its own; `score` and
    `normalize` are the names of what is used.
    """

    tokens: Sequence[str]
    matrices: dict[str, Tensor]
    heads: int
    score: str
    normalize: str

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        attention: MultiHead | Attention,
        x: Float[Tensor, "tokens dim"],
        tokens: Sequence[str],
        mask: Mask | Bool[Tensor, "..."] | None = None,
    ) -> Walk:
        """Run the attention once, and keep what it computes."""
        _check(attention, x, tokens)
        q, k, v = _projected(attention, x) if isinstance(attention, MultiHead) else (x[None],) * 3
        normalize = _at_rest(attention)
        seen = attend(q, k, v, mask, score=attention.score, normalize=normalize)
        made: dict[str, Tensor] = {"x": x}
        if isinstance(attention, MultiHead):
            made |= _weights_of(attention)
        made |= {"q": q, "k": k, "v": v}
        if isinstance(attention.score, ScaledDot):
            made["dots"] = q @ k.mT
            made["scaled"] = made["dots"] / q.shape[-1] ** 0.5
        made |= {"scores": seen.scores, "weights": seen.weights, "context": seen.context}
        if isinstance(attention, MultiHead):
            made["joined"] = seen.context.transpose(-3, -2).flatten(-2)
            made["output"] = attention.output(made["joined"])
        return cls(tuple(tokens), made, len(q), _name(attention.score), _name(normalize))


def walk(
    attention: MultiHead | Attention,
    x: Float[Tensor, "tokens dim"],
    tokens: Sequence[str],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    *,
    language: str | None = None,
) -> Player:
    """A page that walks through one layer of self-attention: q, k, v, scores, / sqrt(d), mask, softmax, sum.

    Every cell tells from which row and which column it came. `x` is what the layer reads, one row a token.

    >>> walk(MultiHead(dim=8, heads=2), torch.randn(3, 8), ["a", "black", "cat"], causal())
    Player(... characters of HTML)
    """
    walked = Walk.of(attention, x, tokens, mask)
    data = {
        "tokens": list(walked.tokens),
        "heads": walked.heads,
        "width": walked.matrices["q"].shape[-1],
        "score": walked.score,
        "normalize": walked.normalize,
        "matrices": {name: _described(name, one) for name, one in walked.matrices.items()},
        "stages": stages(set(walked.matrices), walked.normalize, masked=mask is not None),
    }
    blocks = {
        name: one.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes()
        for name, one in walked.matrices.items()
    }
    return Player.of("Self-attention, step by step", ["walk.js"], data, blocks, language)


def _check(attention: Any, x: Tensor, tokens: Sequence[str]) -> None:
    if not isinstance(attention, (MultiHead, Attention)):
        raise TypeError(f"walk goes through a MultiHead or an Attention, not {type(attention).__name__}.")
    if x.dim() != 2 or len(x) != len(tokens):
        raise ShapeError(f"walk takes x as (tokens, dim) with {len(tokens)} tokens, not {tuple(x.shape)}.")
    if not 1 <= len(tokens) <= MOST:
        raise UsageError(f"walk shows 1 to {MOST} tokens, not {len(tokens)}; take a part of the text.")


def _projected(heads: MultiHead, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of every head; heads that share a key each get it."""

    def split(joined: Tensor) -> Tensor:
        own = joined.unflatten(-1, (-1, heads.head_dim)).transpose(-3, -2)
        return own.repeat_interleave(heads.heads // len(own), 0)

    return split(heads.query(x)), split(heads.key(x)), split(heads.value(x))


def _weights_of(heads: MultiHead) -> dict[str, Tensor]:
    """The projections as matrices to multiply a row with, and their biases as rows, by head."""
    made = {}
    for name, layer in (("q", heads.query), ("k", heads.key), ("v", heads.value)):
        own = layer.weight.unflatten(0, (-1, heads.head_dim)).mT
        repeat = heads.heads // len(own)
        made[f"w{name}"] = own.repeat_interleave(repeat, 0)
        if layer.bias is not None:
            made[f"b{name}"] = layer.bias.view(-1, 1, heads.head_dim).repeat_interleave(repeat, 0)
    made["wo"] = heads.output.weight.mT
    if heads.output.bias is not None:
        made["bo"] = heads.output.bias[None]
    return made


def _described(name: str, matrix: Tensor) -> dict[str, Any]:
    rows = "numbers" if name.startswith(("w", "b")) and name != "weights" else "tokens"
    columns = "tokens" if name in ("dots", "scaled", "scores", "weights") else "numbers"
    return {
        "rows": matrix.shape[-2],
        "columns": matrix.shape[-1],
        "heads": matrix.dim() == 3,
        "labels": {"rows": rows, "columns": columns},
    }


def _at_rest(attention: MultiHead | Attention) -> Any:
    """The normalizer that the attention uses when it is not in training."""
    normalize = attention.normalize
    if isinstance(normalize, Dropout):
        normalize = normalize.normalize
    if normalize is None:
        return kernel_sum if getattr(attention.score, "gives", "logits") == "kernel" else softmax
    return normalize


def _name(part: Any) -> str:
    return str(getattr(part, "__name__", type(part).__name__))
