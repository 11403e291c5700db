"""Exporting: a trained model in a folder of its own, for PyTorch or for another engine, and back.

    export      a run -> a folder for CTranslate2, for ONNX Runtime, or with plain safetensors
    opened      such a folder -> what it does, as `regard.load` gives it
    in_engine   a translator -> the same one, computed by another engine

Nothing that is read back runs code: tokenizers and settings are JSON, weights are safetensors or the engine's own
format, and every file is compared with its checksum first.
"""

from regard.recipes.exporting._export import ENGINES as ENGINES
from regard.recipes.exporting._export import TARGETS as TARGETS
from regard.recipes.exporting._export import export as export
from regard.recipes.exporting._export import in_engine as in_engine
from regard.recipes.exporting._export import opened as opened
from regard.recipes.exporting._folder import is_exported as is_exported
from regard.recipes.exporting._folder import record_of as record_of
