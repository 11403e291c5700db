"""Export of trained models: a folder for PyTorch or another inference engine, and its predictor.

    export       a run -> a folder for CTranslate2, for ONNX Runtime, or with safetensors
    open_export  such a folder -> its predictor, as `regard.load` returns it
    to_engine    a translator -> the same translator with another engine

Opening a folder runs no code from it: tokenizers and settings are JSON, weights are safetensors or the engine's own
format, and every file is compared with its checksum first.
"""

from regard.export.exporter import ENGINES, TARGETS, export, open_export, to_engine
from regard.export.folder import read_record
from regard.tasks.registry import is_export

__all__ = ["ENGINES", "TARGETS", "export", "is_export", "open_export", "read_record", "to_engine"]
