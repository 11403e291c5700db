"""Figures as text for the terminal: the functions of `regard.viewing.figures`, as wide as the terminal."""

from regard.viewing.terminal._screen import COLORS
from regard.viewing.terminal.content import document, image_overlay, regression_curve
from regard.viewing.terminal.matrices import head_grid, heatmap, mask_matrix, position_encoding
from regard.viewing.terminal.memory import memory_timeline

__all__ = [
    "COLORS", "document", "head_grid", "heatmap", "image_overlay", "mask_matrix", "memory_timeline",
    "position_encoding", "regression_curve",
]  # fmt: skip
