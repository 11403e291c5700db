"""Exporting: a trained model in a folder of its own, for PyTorch or for another engine, and back.

    export      a run -> a folder for CTranslate2, for ONNX Runtime, or with plain safetensors
    opened      such a folder -> what it does, as `regard.load` gives it
    in_engine   a translator -> the same one, computed by another engine

Nothing that is read back runs code: tokenizers and settings are JSON, weights are safetensors or the engine's own
format, and every file is compared with its checksum first.
"""

from regard.export.exporter import ENGINES, TARGETS, export, open_export, to_engine
from regard.export.folder import is_export, read_record

__all__ = ["ENGINES", "TARGETS", "export", "is_export", "open_export", "read_record", "to_engine"]
