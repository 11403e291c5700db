"""Record, measure and draw the attention weights of a model."""

from regard.viewing import measures, terminal
from regard.viewing._memory_panels import MemoryData
from regard.viewing.huggingface import register_huggingface
from regard.viewing.interventions import PermutedWeights, UniformWeights, replace_normalizers
from regard.viewing.records import AttentionRecord, AttentionRecords
from regard.viewing.terminal.matrices import heatmap
from regard.viewing.watching import watch

__all__ = [
    "AttentionRecord", "AttentionRecords", "MemoryData", "PermutedWeights", "UniformWeights", "heatmap", "measures",
    "register_huggingface", "replace_normalizers", "terminal", "watch",
]  # fmt: skip
