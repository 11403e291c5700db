"""Options of short trainings, and small parallel files."""

import gzip
import json

TINY = [
    "hidden_dim=16",
    "embed_dim=8",
    "steps=8",
    "warmup_steps=2",
    "batch_tokens=400",
    "validate_every=4",
    "save_every=2",
]
TINY += ["keep_checkpoints=9", "monitor=loss", "num_threads=1", "device=cpu"]
FILES = [*TINY, "vocab_size=60", "average_last=0", "beam_size=2"]
PAIRS = [(f"the {a} {b} is {c}", f"le {b} {a} est {c}") for a in ("red", "big", "old") for b in ("cat", "dog", "car")
         for c in ("here", "there", "gone", "new")]  # fmt: skip


def quiet(line):
    pass


def final_state(folder):
    """Every weight and every number of the optimizer, as bytes."""
    last = folder / "checkpoints" / "step-00000008"
    return {
        "best": (folder / "weights" / "best.safetensors").read_bytes(),
        **{name: (last / name).read_bytes() for name in ("model.safetensors", "training.safetensors")},
    }


def write_pairs(folder, form, name="a", pairs=PAIRS):
    """Write the pairs as files of this form and return their paths."""
    folder.mkdir(exist_ok=True)
    if form == "two":
        for side, end in enumerate(("en", "fr")):
            (folder / f"{name}.{end}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
        return f"{folder}/{name}.en,{folder}/{name}.fr"
    if form == "gz":
        for side, end in enumerate(("en", "fr")):
            (folder / f"{name}.{end}.gz").write_bytes(gzip.compress("".join(f"{p[side]}\n" for p in pairs).encode()))
        return f"{folder}/{name}.en.gz,{folder}/{name}.fr.gz"
    if form == "jsonl":
        lines = [json.dumps({"source": a, "target": b}) for a, b in pairs]
    elif form == "jsonl keys":
        lines = [json.dumps({"fr": b, "id": 3, "en": a}) for a, b in pairs]
    else:
        lines = [f"{a}\t{b}" if form == "tsv" else f"{b}\tx\t{a}" for a, b in pairs]
    end = "jsonl" if form.startswith("jsonl") else "tsv"
    (folder / f"{name}.{end}").write_text("".join(f"{line}\n" for line in lines))
    return f"{folder}/{name}.{end}"
