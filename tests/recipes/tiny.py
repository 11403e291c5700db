"""Trainings of some steps, for tests of runs."""

TINY = [
    "dim=16",
    "embed_dim=8",
    "steps=8",
    "warmup=2",
    "batch_tokens=400",
    "validate_every=4",
    "save_every=2",
]
TINY += ["keep=9", "watch=loss", "threads=1", "device=cpu"]


def quiet(line):
    pass


def final(folder):
    """Every weight and every number of the optimizer, as bytes."""
    last = folder / "checkpoints" / "step-00000008"
    return {
        "best": (folder / "weights" / "best.safetensors").read_bytes(),
        **{name: (last / name).read_bytes() for name in ("model.safetensors", "training.safetensors")},
    }
