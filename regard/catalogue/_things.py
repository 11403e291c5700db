"""Small things to paint pictures of; torch is imported when one is made, so that the list itself is quick."""

from __future__ import annotations

from typing import Any


def torch() -> Any:
    import torch as module

    return module


def walk(steps: int) -> Any:
    """Points on half a circle: (steps, 4)."""
    t = torch()
    angle = t.linspace(0, t.pi, steps)
    return 2 * t.stack([angle.cos(), angle.sin(), (2 * angle).cos(), (2 * angle).sin()], dim=-1)


def alike(vectors: Any) -> Any:
    """How alike each two rows are, shared out by softmax."""
    return (vectors @ vectors.mT).softmax(-1)


def eye(rows: int, columns: int) -> Any:
    return torch().eye(rows, columns)


def spots(steps: int, place: int) -> Any:
    """The same one-hot weights at every step."""
    return torch().eye(steps)[place].expand(steps, steps)
