"""Which Transformers engines other than PyTorch can compute: the published one."""

from __future__ import annotations

from regard.attention import MultiHead, ScaledDot, Sinusoidal, softmax
from regard.errors import ExportError, UsageError
from regard.models import Transformer


def positions_for(max_length: int) -> int:
    """How many positions an exported model has: a translation may be twice as long as the run's longest text."""
    return 2 * max_length + 2


def check_limit(length: int, positions: int) -> None:
    """Refuse to write beyond them."""
    if length > positions:
        raise UsageError(
            f"this exported model has {positions:,} positions, too few for a translation of {length:,} tokens; take a"
            " smaller max_length"
        )


def check(model: Transformer, engine: str) -> None:
    """Refuse a Transformer with other parts than the paper's."""
    for heads in (part for part in model.modules() if isinstance(part, MultiHead)):
        usual = type(heads.score) is ScaledDot and heads.normalize in (None, softmax)
        if not usual or heads.kv_heads != heads.heads:
            raise ExportError(
                f"{engine} gets Transformers whose heads share scaled dot products by softmax, each with keys of its"
                " own; this one has another attention: use it with PyTorch, or export it to safetensors"
            )
    if not all(type(part.positions) is Sinusoidal for part in (model.read, model.write)):
        raise ExportError(
            f"{engine} gets Transformers with sinusoidal positions, and this one has others: use it with PyTorch,"
            " or export it to safetensors"
        )
