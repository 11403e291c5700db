"""The operations of a walk through one layer, in their order: which matrices are shown, and how each was made."""

from __future__ import annotations

from typing import Any

Stage = dict[str, Any]


def stages(has: set[str], normalize: str, masked: bool) -> list[Stage]:
    """What is shown at each step; `has` are the names of the matrices that there are."""
    projected, scaled = "wq" in has, "dots" in has
    found = [
        _stage("input", ["x"]),
        _projection(has) if projected else _stage("plain", ["x", "→", "q", "k", "v"]),
    ]
    if scaled:
        found.append(_stage("dots", ["q", "·", "k", "=", "dots"], dots=_product("q", "k", turned=True)))
        found.append(_stage("divide", ["dots", "→", "scaled"], scaled=_same_cell("divided", "dots")))
    else:
        rows = {"kind": "given", "from": {"q": {"row": "row"}, "k": {"row": "column"}}}
        found.append(_stage("scores", ["q", "k", "→", "scores"], scores=rows))
    if masked:
        shown = ["scaled", "→", "scores"] if scaled else ["scores"]
        found.append(_stage("mask", shown, scores=_same_cell("masked", "scaled")))
    shares = {"kind": "softmax" if normalize == "softmax" else "given", "from": {"scores": {"row": "row"}}}
    found.append(_stage("weights", ["scores", "→", "weights"], weights=shares))
    found.append(_stage("sum", ["weights", "×", "v", "=", "context"], context=_product("weights", "v")))
    if projected:
        out = _product("joined", "wo", bias="bo" if "bo" in has else None)
        found.append(_stage("output", ["joined", "→", "output"], output=out))
    return found


def _stage(name: str, shown: list[str], **made: Stage) -> Stage:
    return {"name": name, "shown": shown, "made": made}


def _projection(has: set[str]) -> Stage:
    made = {one: _product("x", f"w{one}", bias=f"b{one}" if f"b{one}" in has else None) for one in "qkv"}
    return _stage("project", ["x", "→", "q", "k", "v"], **made)


def _product(left: str, right: str, turned: bool = False, bias: str | None = None) -> Stage:
    """A row of `left` times a column of `right` or, turned, a row of it; `from` says what to mark."""
    marked = {left: {"row": "row"}, right: {"row": "column"} if turned else {"column": "column"}}
    return {"kind": "product", "left": left, "right": right, "turned": turned, "bias": bias, "from": marked}


def _same_cell(kind: str, before: str) -> Stage:
    return {"kind": kind, "from": {before: {"row": "row", "column": "column"}}}
