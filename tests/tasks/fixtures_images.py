"""Small images with captions: squares of one color, and grids of features."""

import json
import lzma
from pathlib import Path

import numpy as np

NET = ["conv_channels=4", "feature_dim=24", "embed_dim=16", "hidden_dim=24", "num_threads=1", "warmup_steps=5"]
TINY = [*NET, "image_size=32", "batch_size=8", "steps=4", "validate_every=2", "save_every=2"]
COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230)}


def write_squares(folder: Path, name: str, count: int, seed: int) -> str:
    """Images with one colored half, left or right, and a list of them: "red left" and "the left is red"."""
    from PIL import Image

    random, lines = np.random.default_rng(seed), []
    (folder / name).mkdir()
    for number in range(count):
        color, side = list(COLORS)[random.integers(3)], ("left", "right")[random.integers(2)]
        pixels = random.integers(0, 60, (20, 24, 3), dtype=np.uint8)
        pixels[:, slice(0, 12) if side == "left" else slice(12, 24)] = COLORS[color]
        Image.fromarray(pixels).save(folder / name / f"{number}.png")
        captions = [f"{color} {side} ."]
        lines.append(json.dumps({"image": f"{name}/{number}.png", "captions": captions}))
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def write_features(folder: Path, count: int = 24) -> str:
    """A folder as that of Flickr8k: one cell of each image says which of four captions it has."""
    folder.mkdir(exist_ok=True)
    texts = ("a dog runs .", "two cats sleep .", "the boat is red .", "people walk in snow .")
    random = np.random.default_rng(0)
    q, lines = np.zeros((8, count, 9), dtype=np.int8), []
    for number in range(count):
        which = number % 4
        q[which, number, random.integers(9)] = 100
        split = ("train", "train", "dev", "test")[number // 4 % 4]
        others = [texts[which], texts[which].upper(), f"{texts[which]} once"]
        lines.append("\t".join([f"{number}.jpg", split, *others]))
    np.savez_compressed(folder / "features.npz", q=q, image=[f"{number}.jpg" for number in range(count)])
    with lzma.open(folder / "captions.tsv.xz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return str(folder)
