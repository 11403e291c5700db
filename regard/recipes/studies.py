"""What papers found, found again at the scale of a laptop: `regard reproduce NAME`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard._extras import need
from regard.data import Pair, in_order
from regard.recipes._costs import costs
from regard.recipes._han2016 import han2016
from regard.recipes._looking import looking
from regard.recipes._material import pairs
from regard.recipes._ntm2014 import ntm2014
from regard.recipes._recipes import recipe
from regard.recipes._runs import load_translator
from regard.recipes._xu2015 import xu2015
from regard.recipes.objective import NextWord
from regard.recipes.translator import Translator
from regard.recipes.trials import Row, Say, markdown, trial


@dataclass(frozen=True)
class Study:
    """A named series of trainings that ends in a table, numbers and perhaps a picture."""

    sentence: str
    zh: str
    study: Callable[[Path, str, dict[str, Any], Say], dict[str, Any]]

    def run(
        self, out: str | Path, quick: bool = False, data: str | None = None, say: Say | None = None
    ) -> dict[str, Any]:
        """Train, measure and write table.md, numbers.json and pictures into `out`; go on where it was stopped.

        Without `data` the text is made on the fly: strings to be written backwards. With the folder of Multi30k
        it is captions, English to French for Bahdanau's claims, to German for Luong's. `quick` trains for
        some steps only, to see that everything works.
        """
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        given: dict[str, Any] = {"steps": 30, "validate_every": 30, "save_every": 30} if quick else {}
        name = "reverse" if data is None else "multi30k"
        if data is not None:
            given["data"] = data
        found = self.study(out, name, given, say or _quiet)
        (out / "numbers.json").write_text(
            json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return found


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
        "steps": 4000,
        "lr": 1e-3,
        "warmup": 400,
        "average": 0,
        "beam": 1,
    },
}
QUALITY = {"reverse": "exact", "multi30k": "bleu"}


def bahdanau(out: Path, name: str, given: dict[str, Any], say: Say) -> dict[str, Any]:
    """With and without attention: quality by source length, and the gradient that arrives at each source word.

    Both read in one direction, so that the first words are the farthest from the last state.
    """
    shared = {
        **SHARED[name],
        "bidirectional": False,
        **({"pair": "en-fr"} if name == "multi30k" else {}),
        **given,
    }
    rows, arrived = [], {}
    for label, scope in (("without attention", "none"), ("with attention", "global")):
        say(f"{label}:")
        row = trial(name, out / scope, say=say, **{**shared, "scope": scope})
        rows.append({"model": label, **row})
        translator = load_translator(out / scope)
        tests = next(iter(recipe(name).material(translator.settings).tests.values()))
        arrived[label] = arriving(translator, list(pairs(tests)))
    quality = QUALITY[name]
    columns = {"model": "", quality: ".1f", "parameters": ",", "minutes": ".1f"}
    by_length = [
        {"words": _range(a), "without attention": a[quality], "with attention": b[quality]}
        for a, b in zip(rows[0]["by_length"], rows[1]["by_length"], strict=True)
    ]
    gradients = [
        {"place": place, **{label: values[i] for label, values in arrived.items()}}
        for i, place in enumerate(PLACES)
    ]
    table = "\n\n".join(
        (
            markdown(rows, columns),
            f"{quality} by source length:\n\n"
            + markdown(by_length, {"words": "", "without attention": ".1f", "with attention": ".1f"}),
            "Gradient of the loss that arrives at a source word, as a share of its sentence's:\n\n"
            + markdown(gradients, {"place": "", "without attention": ".3f", "with attention": ".3f"}),
        )
    )
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    _draw_bahdanau(out / "bahdanau2015.png", quality, by_length, arrived)
    return {"recipe": name, "rows": rows, "by_length": by_length, "gradients": gradients, "table": table}


PLACES = ("first word", "first quarter", "second quarter", "third quarter", "fourth quarter", "last word")


def arriving(translator: Translator, part: Sequence[Pair], fewest: int = 8) -> list[float]:
    """How much of the gradient arrives at the first word, at each quarter of a sentence, and at the last.

    Shares of a sentence's gradient norms, times its length: 1 is an even share. Sentences of at least `fewest`
    words count.
    """
    objective = NextWord(translator.network, smoothing=0.0).eval()
    sums, count = torch.zeros(len(PLACES), dtype=torch.float64), 0
    for batch, _ in in_order(part, translator.source, translator.target):
        kept: list[Tensor] = []

        def keep(module: Any, given: Any, words: Tensor, kept: list[Tensor] = kept) -> None:
            words.retain_grad()
            kept.append(words)

        handle = translator.network.read.register_forward_hook(keep)
        with torch.enable_grad():
            objective(batch).total.backward()
        handle.remove()
        objective.zero_grad()
        norms = kept[0].grad.norm(dim=-1).double()  # type: ignore[union-attr]
        for row, length in zip(norms, (batch.source_lengths - 1).tolist(), strict=True):
            if length >= fewest:
                sums += _places(row[:length])
                count += 1
    return (sums / max(count, 1)).tolist()


def _places(norms: Tensor) -> Tensor:
    share = norms / norms.sum().clamp(min=1e-30) * len(norms)
    quarters = [part.mean() for part in share.tensor_split(4)]
    return torch.stack([share[0], *quarters, share[-1]])


def luong(out: Path, name: str, given: dict[str, Any], say: Say) -> dict[str, Any]:
    """The order of the gains: nothing, global attention, input feeding, local-p; and four scores."""
    shared = {**SHARED[name], "order": "luong", **({"pair": "en-de"} if name == "multi30k" else {}), **given}
    trials: dict[str, dict[str, Any]] = {
        "none": {"scope": "none"},
        "global (location)": {"score": "location"},
        "global (dot)": {"score": "dot"},
        "global (location) + feeding": {"score": "location", "input_feeding": True},
        "global (dot) + feeding": {"score": "dot", "input_feeding": True},
        "global (general) + feeding": {"score": "general", "input_feeding": True},
        "global (concat) + feeding": {"score": "concat", "input_feeding": True},
        "local-m (general) + feeding": {"score": "general", "input_feeding": True, "scope": "local-m"},
        "local-p (general) + feeding": {"score": "general", "input_feeding": True, "scope": "local-p"},
    }
    rows: list[Row] = []
    for number, (label, choice) in enumerate(trials.items()):
        say(f"{label}:")
        row = trial(name, out / f"{number}", say=say, **{**shared, **choice})
        rows.append({"model": label, **row})
    columns = {
        "model": "",
        QUALITY[name]: ".1f",
        "aer": ".3f",
        "parameters": ",",
        "tokens_per_second": ",.0f",
        "minutes": ".1f",
    }
    if not any("aer" in row for row in rows):
        del columns["aer"]
    table = markdown(rows, columns)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"recipe": name, "rows": rows, "table": table}


def _draw_bahdanau(
    path: Path, quality: str, by_length: Sequence[Row], arrived: dict[str, list[float]]
) -> None:
    plt = need("matplotlib.pyplot", extra="draw")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    colors = {"without attention": "#D55E00", "with attention": "#0072B2"}
    for label, color in colors.items():
        left.plot(
            [row["words"] for row in by_length],
            [row[label] for row in by_length],
            "o-",
            color=color,
            label=label,
        )
        right.plot(PLACES, arrived[label], "o-", color=color, label=label)
    left.set(xlabel="length of the source", ylabel=quality, title="Quality by source length")
    right.set(ylabel="share of the gradient (1: even)", title="Gradient that arrives at a source word")
    right.tick_params(axis="x", rotation=20)
    left.legend()
    left.set_ylim(bottom=0)
    right.set_ylim(bottom=0)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _range(group: Row) -> str:
    return f"{group['from']}-{group['to']}" if group["to"] is not None else f"{group['from']}+"


def _quiet(line: str) -> None:
    """Say nothing."""


STUDIES = {
    "bahdanau2015": Study(
        "With and without attention: quality by source length, and the gradient at the first source words.",
        "有无注意力的对比：译文质量随源句长度的变化，以及传到源句开头各词的梯度。",
        bahdanau,
    ),
    "luong2015": Study(
        "The order of the gains: none, global, input feeding, local-p; scores dot, general, concat, location.",
        "各项改进的先后：无注意力、全局、输入馈送、local-p；打分函数 dot、general、concat、location。",
        luong,
    ),
    "ntm2014": Study(
        "Five tasks for a Neural Turing Machine and for LSTM, beyond the sizes of training.",
        "神经图灵机与 LSTM 的五个任务，测试超出训练时的长度。",
        ntm2014,
    ),
    "han2016": Study(
        "Hierarchical attention on IMDB beside average, maximum and a linear model of counted words (--data FOLDER).",
        "IMDB 上的层次注意力，与平均、最大值以及词频线性模型对比（--data 文件夹）。",
        han2016,
    ),
    "costs": Study(
        "What self-attention, local attention, recurrence and convolution cost over the length, counted and measured.",
        "自注意力、局部注意力、循环与卷积的代价随长度的变化：既计数又实测。",
        costs,
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
