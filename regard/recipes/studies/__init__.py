"""What papers found, found again at the scale of a laptop: `regard reproduce NAME`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import split_override, suggest
from regard.errors import ConfigError, UnknownNameError, UsageError
from regard.recipes.studies._bahdanau2015 import bahdanau2015
from regard.recipes.studies._costs import costs
from regard.recipes.studies._han2016 import han2016
from regard.recipes.studies._looking import looking
from regard.recipes.studies._luong2015 import luong2015
from regard.recipes.studies._ntm2014 import PARTS, ntm2014
from regard.recipes.studies._xu2015 import xu2015
from regard.recipes.trials import Say
from regard.training import Settings


@dataclass(frozen=True)
class Study:
    """A named series of trainings that ends in a table, numbers and perhaps a picture."""

    sentence: str
    zh: str
    study: Callable[..., dict[str, Any]]  # of (out, name, given, say), and of the parts where it has some
    parts: tuple[str, ...] = ()
    takes_data: bool = True
    trains: bool = True
    shortens: bool = False  # it has a short form of its own, quick=True

    def run(
        self,
        out: str | Path,
        quick: bool = False,
        data: str | None = None,
        say: Say | None = None,
        only: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Train, measure and write table.md, numbers.json and pictures into `out`; go on where it was stopped.

        Without `data` the text is made on the fly: strings to be written backwards. With the folder of Multi30k
        it is captions, English to French for Bahdanau's claims, to German for Luong's. `quick` trains for
        some steps only, to see that everything works. A study with parts can be done part by part, `only` some at
        a time; what numbers.json holds of the others stays in the table. `words` are settings of the engine for all
        trainings, such as "precision=bfloat16" and "steps=1000".
        """
        if unknown := [part for part in only if part not in self.parts]:
            known = f"its parts are {', '.join(self.parts)}" if self.parts else "it has none"
            raise UnknownNameError(f"this study has no part {unknown[0]!r}; {known}")
        if data is not None and not self.takes_data:
            raise UsageError("this study makes all its data on the fly; leave --data out")
        if words and not self.trains:
            raise UsageError(f"this study trains nothing; leave {words[0]} out")
        given: dict[str, Any] = {"steps": 30, "validate_every": 30, "save_every": 30} if quick else {}
        given |= _chosen(words)
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        name = "reverse" if data is None else "multi30k"
        if data is not None:
            given["data"] = data
        parts = (only or self.parts,) if self.parts else ()
        form = {"quick": quick} if self.shortens else {}
        found = self.study(out, name, given, say or _quiet, *parts, **form)
        if words:
            found["settings"] = list(words)
            found["table"] += f"\n\nSettings given, the last time: {' '.join(words)}."
            (out / "table.md").write_text(found["table"] + "\n", encoding="utf-8")
        (out / "numbers.json").write_text(
            json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return found


def _chosen(words: Sequence[str]) -> dict[str, Any]:
    """What the words say, of those settings that every training has."""
    names, shared = (
        [name for name, _ in map(split_override, words)],
        [item.name for item in Settings.options()],
    )
    if "data" in names:
        raise ConfigError("a study is given its data by --data FOLDER, not by data=")
    if others := [name for name in names if name not in shared]:
        raise ConfigError(f"{others[0]} is no option of every training{suggest(others[0], shared)}")
    settled = Settings.from_overrides(words)
    return {name: getattr(settled, name) for name in names}


def _quiet(line: str) -> None:
    """Say nothing."""


STUDIES = {
    "bahdanau2015": Study(
        "With and without attention: quality by source length, and the gradient at the first source words.",
        "有无注意力的对比：译文质量随源句长度的变化，以及传到源句开头各词的梯度。",
        bahdanau2015,
    ),
    "luong2015": Study(
        "The order of the gains: none, global, input feeding, local-p; scores dot, general, concat, location.",
        "各项改进的先后：无注意力、全局、输入馈送、local-p；打分函数 dot、general、concat、location。",
        luong2015,
    ),
    "ntm2014": Study(
        "Five tasks for a Neural Turing Machine and for LSTM, beyond the sizes of training.",
        "神经图灵机与 LSTM 的五个任务，测试超出训练时的长度。",
        ntm2014,
        tuple(PARTS),
        takes_data=False,
    ),
    "han2016": Study(
        "Hierarchical attention on IMDB beside average, maximum and a linear model of counted words (--data FOLDER).",
        "IMDB 上的层次注意力，与平均、最大值以及词频线性模型对比（--data 文件夹）。",
        han2016,
        shortens=True,
    ),
    "costs": Study(
        "What self-attention, local attention, recurrence and convolution cost over the length, counted and measured.",
        "自注意力、局部注意力、循环与卷积的代价随长度的变化：既计数又实测。",
        costs,
        takes_data=False,
        trains=False,
        shortens=True,
    ),
    "xu2015": Study(
        "Soft, hard and no attention over pictures: scenes of digits, MNIST's or Flickr8k (--data FOLDER).",
        "图像上的软注意力、硬注意力与无注意力：数字画面、MNIST 画面或 Flickr8k（--data 文件夹）。",
        xu2015,
    ),
    "looking": Study(
        "Images with and without attention: one digit among clutter, and questions about scenes (--data: MNIST).",
        "有无注意力的看图：杂乱碎片中的一个数字，以及关于画面的提问（--data：MNIST）。",
        looking,
    ),
}
