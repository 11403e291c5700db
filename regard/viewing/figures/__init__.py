"""Figures of attention weights for papers and notebooks: every function returns a `Figure` (requires matplotlib)."""

from regard.viewing.figures._labeling import MissingGlyphsWarning
from regard.viewing.figures.figure import Figure
from regard.viewing.figures.heatmaps import head_grid, heatmap
from regard.viewing.figures.matrices import mask_matrix, position_encoding, position_shift
from regard.viewing.figures.panels import image_overlay, memory_timeline, regression_curve

__all__ = [
    "Figure", "MissingGlyphsWarning", "head_grid", "heatmap", "image_overlay", "mask_matrix", "memory_timeline",
    "position_encoding", "position_shift", "regression_curve",
]  # fmt: skip
