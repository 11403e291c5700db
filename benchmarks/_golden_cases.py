"""The cases of `benchmarks.golden`: small trainings and the commands that use their runs, with names of version 0.1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from string import ascii_lowercase

NUM_PREDICTIONS = 20
ENGLISH_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
GERMAN_NUMBERS = ("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun")
FILLERS = ("the", "plot", "a", "scene", "of", "actor", "music", "light", "we", "saw", "it", "then", "city", "road")
COLORS = (("red", (220, 30, 30)), ("green", (30, 200, 40)), ("blue", (40, 60, 230)))


@dataclass(frozen=True)
class Case:
    """A training and the commands that use its run, with the names of version 0.1.

    Args:
        recipe, options, files: the arguments of `regard train`; `{data}` stands for the folder of small files
        commands: RUN stands for the run, a plus sign for a space, GAP for a gap to fill, IMAGES and DOCUMENT for
            inputs; after "||" follow forms that a later version may expect instead
    """

    recipe: str
    options: str
    commands: tuple[str, ...]
    files: str = ""
    steps: int = 20

    def overrides(self) -> dict[str, str]:
        half = self.steps // 2
        text = f"steps={self.steps} validate_every={half} save_every={half} seed=1 device=cpu threads=1 warmup=5"
        return dict(word.split("=", 1) for word in f"{text} {self.options}".split())

    def arguments(self, command: str, run: Path, data: Path) -> list[str]:
        """The arguments of one form of a command."""
        arguments: list[str] = []
        for word in command.split():
            if word == "IMAGES":
                arguments += [str(data / "test" / f"{number}.png") for number in range(NUM_PREDICTIONS)]
            elif word == "DOCUMENT":
                arguments += (data / "documents.txt").read_text(encoding="utf-8").splitlines()[:1]
            elif "{" in word or word.startswith("-"):
                arguments.append(word.format(data=data))
            else:
                arguments.append(str(run) if word == "RUN" else word.replace("GAP", "___").replace("+", " "))
        return arguments


LETTERS, DATES, CHINESE, ENGLISH = (
    f"translate RUN --file {{data}}/{name}.txt --align --json" for name in ("letters", "dates", "chinese", "source")
)
HUNDRED, FORTY = (f"evaluate RUN --limit {limit} --json" for limit in (100, 40))
REVERSE = (LETTERS, HUNDRED)
PARALLEL = (ENGLISH, "evaluate RUN {data}/valid.en {data}/valid.de --json")
MACHINE = ("show RUN --json", "evaluate RUN --json")
CLASSIFY = "classify RUN --file {data}/documents.txt --json"
DOCUMENTS = (CLASSIFY, "show RUN DOCUMENT --json", "evaluate RUN {data}/valid.tsv --json")
SHOW = "show RUN {data}/test/0.png --json"
DIGITS = ("classify RUN IMAGES --json", SHOW, FORTY)
QUESTIONS = (
    "answer RUN {data}/test/0.png where+is+the+7 --json",
    "answer RUN {data}/test/1.png how+many+3s --json",
    "answer RUN {data}/test/2.png is+there+a+5 --json",
    "show RUN where+is+the+7 --image {data}/test/3.png --json || show RUN {data}/test/3.png where+is+the+7 --json",
    FORTY,
)
CAPTION = "caption RUN IMAGES --json"
WRITE = "write RUN one+two -n 20 --seed 1 --json || write RUN one+two --num-samples 20 --seed 1 --json"
FILL = "write RUN one+two+GAP+four+GAP+six. -n 20 --json || write RUN one+two+GAP+four+GAP+six. --num-best 20 --json"
PLAIN_REPORT = "evaluate RUN {data}/valid.txt --json"
CAPTIONS = (CAPTION, SHOW, "evaluate RUN {data}/valid.jsonl --json")

RNN, TAPE = "dim=16 embed_dim=12", "hidden_dim=16 rows=12 width=6 batch=4"
IMAGE = "width=4 grid_dim=24 dim=24 size=32 batch=8"
DESCRIBE = f"{IMAGE} embed_dim=12 lr=0.02 dropout=0"  # 60 steps: the captions are not empty then
WORDS = "dim=16 vocab=80 batch_tokens=400 heads=2 lr=0.01"
PAIRS = "--train {data}/train.en {data}/train.de --valid {data}/valid.en {data}/valid.de"
LABELS = "--train {data}/train.tsv --valid {data}/valid.tsv"
PLAIN = "--train {data}/train.txt --valid {data}/valid.txt"
ALBUM = "--train {data}/train.jsonl --valid {data}/valid.jsonl"

CASES: dict[str, Case] = {
    "dates": Case("dates", f"{RNN} batch_tokens=512", (DATES, FORTY)),
    "reverse": Case("reverse", f"{RNN} average=2", REVERSE),
    "pinyin": Case("pinyin", f"{RNN} batch_tokens=512", (CHINESE, FORTY)),
    "copy": Case("copy", f"{TAPE} longest=6", MACHINE),
    "repeat-copy": Case("repeat-copy", f"{TAPE} longest=4 repeats=3", MACHINE),
    "recall": Case("recall", f"{TAPE} longest=3 read_heads=2 write_heads=2", MACHINE),
    "ngrams": Case("ngrams", f"{TAPE} shortest=20 longest=20", MACHINE),
    "sort": Case("sort", f"{TAPE} shortest=5 longest=5 read_heads=2 write_heads=2", MACHINE),
    "digit-scenes": Case("digit-scenes", f"{IMAGE} embed_dim=12", (CAPTION, SHOW, FORTY)),
    "digits": Case("digits", f"{IMAGE} clutter=2", DIGITS),
    "digit-questions": Case("digit-questions", f"{IMAGE} embed_dim=12 clutter=2", QUESTIONS),
    "translation": Case("translation", f"{RNN} vocab=120 batch_tokens=300", PARALLEL, PAIRS),
    "documents": Case("documents", f"{WORDS} embed_dim=12", DOCUMENTS, LABELS),
    "mixed": Case("mixed", f"{WORDS} layers=attention,cnn,gru,lstm", DOCUMENTS, LABELS),
    "language": Case("language", f"{WORDS} length=24 layers=2", (WRITE, PLAIN_REPORT), PLAIN),
    "masked-language": Case("masked-language", f"{WORDS} length=24 layers=attention,cnn", (FILL, PLAIN_REPORT), PLAIN),
    "captions": Case("captions", DESCRIBE, CAPTIONS, ALBUM, steps=60),
    "transformer": Case("reverse", "model=transformer dim=16 layers=2 heads=2 hidden_dim=24", REVERSE),
    "luong": Case("reverse", f"{RNN} order=luong cell=lstm layers=2 input_feeding=on score=bilinear", REVERSE),
    "local-p": Case("reverse", f"{RNN} scope=local-p score=concat", REVERSE),
    "sample": Case("reverse", f"{RNN} normalize=sample", REVERSE),
    "captions-hard": Case("captions", f"{DESCRIBE} scope=hard", CAPTIONS, ALBUM, steps=60),
    "copy-lstm": Case("copy", "model=lstm hidden_dim=16 layers=2 batch=4 longest=6", MACHINE[1:]),
}
LONG: dict[str, Case] = {
    "reverse-200": Case("reverse", RNN, REVERSE, steps=200),
    "copy-200": Case("copy", f"{TAPE} longest=6", MACHINE, steps=200),
    "digits-200": Case("digits", f"{IMAGE} clutter=2", DIGITS, steps=200),
}


def write_data(folder: Path) -> None:
    """Write the small files that the cases read: the same bytes at every call."""
    random, files = Random(0), {}
    dates = [(random.randint(1, 28), random.choice(("Mai", "Juni")), random.randint(1950, 2030)) for _ in range(20)]
    files["dates"] = [f"{day}. {month} {year}" for day, month, year in dates]
    files["letters"] = ["".join(random.choices(ascii_lowercase, k=random.randint(1, 8))) for _ in range(20)]
    files["chinese"] = [
        "".join(random.choices("我们学习中文天气很好你是谁", k=random.randint(2, 8))) for _ in range(20)
    ]
    files["source"] = [" ".join(random.choices(ENGLISH_NUMBERS, k=random.randint(2, 6))) + " ." for _ in range(20)]
    files["documents"] = [_write_review(random, "pos") for _ in range(20)]
    for split, count in {"train": 120, "valid": 30}.items():
        _write_texts(folder, split, count, random)
    for name, lines in files.items():
        _write_lines(folder / f"{name}.txt", lines)
    for split, count in {"train": 32, "valid": 12, "test": 20}.items():
        _write_images(folder, split, count, random)


def _write_texts(folder: Path, split: str, count: int, random: Random) -> None:
    """Parallel sentences (the target reads backwards), sentences that count up, and reviews with a label."""
    rows = [random.choices(range(10), k=random.randint(2, 6)) for _ in range(count)]
    _write_lines(folder / f"{split}.en", [" ".join(ENGLISH_NUMBERS[n] for n in row) + " ." for row in rows])
    _write_lines(folder / f"{split}.de", [" ".join(GERMAN_NUMBERS[n] for n in reversed(row)) + " ." for row in rows])
    counted = []
    for number in range(count):
        first, length = random.randrange(10), random.randint(3, 7)
        sentence = " ".join(ENGLISH_NUMBERS[(first + n) % 10] for n in range(length)) + "."
        counted.append(sentence + "\n" * (number % 3 == 2))  # an empty line ends a document
    _write_lines(folder / f"{split}.txt", counted)
    labels = random.choices(("pos", "neg"), k=count)
    _write_lines(folder / f"{split}.tsv", [f"{label}\t{_write_review(random, label)}" for label in labels])


def _write_review(random: Random, label: str) -> str:
    sentences = [random.choices(FILLERS, k=random.randint(2, 6)) for _ in range(random.randint(1, 4))]
    random.choice(sentences).append({"pos": "superb", "neg": "awful"}[label])
    return " ".join(" ".join(sentence).capitalize() + "." for sentence in sentences)


def _write_images(folder: Path, split: str, count: int, random: Random) -> None:
    """Images with one colored half and noise in the other, and a list of them with captions."""
    from PIL import Image

    lines = []
    (folder / split).mkdir()
    for number in range(count):
        image, (name, color) = Image.new("RGB", (24, 20)), random.choice(COLORS)
        side = random.randrange(2)
        for x, y in product(range(24), range(20)):
            noise = (random.randrange(60), random.randrange(60), random.randrange(60))
            image.putpixel((x, y), color if x // 12 == side else noise)
        image.save(folder / split / f"{number}.png")
        caption = f"{name} {('left', 'right')[side]} ."
        lines.append(json.dumps({"image": f"{split}/{number}.png", "captions": [caption]}))
    _write_lines(folder / f"{split}.jsonl", lines)


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
