"""Xu et al. (2015), found again on scenes of digits or on Flickr8k: soft, hard and no attention, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.recipes._runs import load
from regard.recipes._task import Say
from regard.recipes.trials import Row, markdown, trial

SCOPES = ("soft", "hard", "none")
SCENES = {"captions": ".2f", "digits": ".2f", "inside": ".2f"}
BLEUS = {f"bleu{order}{ending}": ".2f" for ending in ("", "_bare") for order in (1, 2, 3, 4)}
PAPER: list[Row] = [  # table 1, Flickr8k; without brevity penalty, with VGG's 14 by 14 grid of 512 numbers
    {"scope": "paper, soft", "bleu1_bare": 67.0, "bleu2_bare": 44.8, "bleu3_bare": 29.9, "bleu4_bare": 19.5},
    {"scope": "paper, hard", "bleu1_bare": 67.0, "bleu2_bare": 45.7, "bleu3_bare": 31.4, "bleu4_bare": 21.3},
]


def xu2015(out: Path, name: str, given: dict[str, Any], say: Say) -> dict[str, Any]:
    """Train soft, hard and no attention on the same pictures, equally large and equally long; draw one caption.

    Without a folder of data, pictures are scenes of scikit-learn's digits; a folder is that of Flickr8k or MNIST.
    """
    recipe, rows = _recipe(given), []
    for scope in SCOPES:
        say(f"{recipe}, {scope}:")
        row = trial(recipe, out / f"{recipe}-{scope}", say=say, **given, scope=scope)
        rows.append({"scope": scope, **row})
    if recipe == "flickr8k":
        rows += [{"scope": "caption of the nearest picture", **rows[0]["nearest"]}, *PAPER]
    else:
        _draw(out, recipe)
    columns = {"scope": "", **(BLEUS if recipe == "flickr8k" else SCENES)}
    table = markdown(rows, {**columns, "parameters": ",", "steps": ",", "minutes": ".1f"})
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"recipe": recipe, "rows": rows, "table": table}


def _recipe(given: dict[str, Any]) -> str:
    """Which pictures: what is in the folder tells."""
    if "data" not in given:
        return "digit-scenes"
    folder = Path(given["data"])
    if (folder / "features.npz").is_file():
        return "flickr8k"
    if any(folder.glob("train-images-idx3-ubyte*")):
        return "mnist-scenes"
    raise UsageError(f"xu2015: {folder} holds neither Flickr8k (features.npz) nor the files of MNIST")


def _draw(out: Path, recipe: str) -> None:
    """Figure 2 of the paper: the first scene of the test, word by word, with soft and with hard attention."""
    from regard.recipes._recipes import recipe as found

    for scope in SCOPES[:2]:
        captioner = load(out / f"{recipe}-{scope}")
        image = found(recipe).material(captioner.settings).tests["test"]().pictures.some(slice(1))[0, 0]
        looked = captioner.look(image)
        if looked.words:
            looked.picture(f"{scope}: {looked.caption}", smooth=scope == "soft").save(out / f"{scope}.png")
