"""What the studies of translation have in common."""

from __future__ import annotations

from typing import Any

# What the models of a study have in common: small enough for an afternoon on two cores.
SHARED: dict[str, dict[str, Any]] = {
    "reverse": {"max_length": 40, "dim": 128, "embed_dim": 64, "dropout": 0.0, "steps": 3000, "lr": 3e-3},
    "multi30k": {
        "model": "recurrent",
        "dim": 256,
        "layers": 1,
        "tied": "none",
        "dropout": 0.3,
        "vocab": 8000,
        "batch_tokens": 1024,  # many small steps: with 2,000 large ones they were still far from their end
        "steps": 4000,
        "lr": 1e-3,
        "warmup": 400,
        "schedule": "cosine",
        "average": 0,
        "beam": 1,
    },
}
QUALITY = {"reverse": "exact", "multi30k": "bleu"}
