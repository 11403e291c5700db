"""Attention at work, twice: on a motorcycle crash, and on dates.

    make demo

First, kernel regression is attention: the measurements are keys and values, the time to predict at is the
query. Second, a small network learns to write "17 october 2031" as "2031-10-17". All it knows of the input
comes through attention, so the weights show where it looks. Takes well under a minute, and leaves a picture
in out/demo.png.
"""

import calendar
import csv
import datetime
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard._extras import need
from regard.attention import Additive, Attended, Attention, Constant, Gaussian, attend, entmax15, padding
from regard.viewing import heat

HERE = Path(__file__).parent
PICTURE = HERE.parent / "out" / "demo.png"


# ---- 1. A curve through noisy points


def crash() -> tuple[Tensor, Tensor]:
    """Time (ms) and acceleration (g), each (133, 1)."""
    with open(HERE / "mcycle.csv", encoding="utf-8") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    times, accel = ([float(row[name]) for row in rows] for name in ("times", "accel"))
    return torch.tensor(times)[:, None], torch.tensor(accel)[:, None]


def left_out(score: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """How far off each point is predicted from all others: a mask hides every point from itself."""
    others = ~torch.eye(len(x), dtype=torch.bool)
    return (attend(x, x, y, others, score=score).context - y).square().mean().sqrt()


def learned_width(x: Tensor, y: Tensor, start: float) -> Gaussian:
    """The width that predicts left-out points best, found by gradient descent."""
    score = Gaussian(width=start, learned=True)
    steps = torch.optim.Adam(score.parameters(), lr=0.1)
    for _ in range(80):
        steps.zero_grad()
        left_out(score, x, y).backward()
        steps.step()
    return score


def regression() -> dict[str, object]:
    print("1. Kernel regression is attention with a Gaussian score\n")
    x, y = crash()
    print("   Each of 133 measurements predicted from the other 132, root mean squared error in g:\n")
    print(f"   average of all (Constant)         {left_out(Constant(), x, y).item():6.2f}")
    fixed = {width: left_out(Gaussian(width), x, y).item() for width in (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)}
    for width, error in fixed.items():
        print(f"   Gaussian, width {width:<5g}             {error:6.2f}")
    score = learned_width(x, y, start=8.0)
    error = left_out(score, x, y).item()
    print(f"   Gaussian, width learned: {score.width.item():.2f} ms  {error:6.2f}   (training began at 8)\n")
    return {"x": x, "y": y, "score": score.requires_grad_(False), "error": error}


# ---- 2. Dates

LETTERS = "_>" + "0123456789-, " + "abcdefghijklmnopqrstuvwxyz"  # _ fills up, > begins
NUMBER = {letter: i for i, letter in enumerate(LETTERS)}
FIRST, LAST = datetime.date(1950, 1, 1).toordinal(), datetime.date(2049, 12, 31).toordinal()


def spoken(day: datetime.date, chance: random.Random) -> str:
    name = calendar.month_name[day.month].lower()
    forms = ("{d} {name} {y}", "{name} {d}, {y}", "{d} {name:.3} {y}", "{name:.3} {d} {y}")
    return chance.choice(forms).format(d=day.day, name=name, y=day.year)


def dates(count: int, chance: random.Random, held_out: bool) -> list[tuple[str, str]]:
    """Pairs such as ("17 october 2031", "2031-10-17"). Every fifth day is never trained on."""
    pairs = []
    while len(pairs) < count:
        number = chance.randint(FIRST, LAST)
        if (number % 5 == 0) == held_out:
            day = datetime.date.fromordinal(number)
            pairs.append((spoken(day, chance), day.isoformat()))
    return pairs


def numbers(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Texts as (batch, length), and their lengths."""
    longest = max(map(len, texts))
    rows = [[NUMBER[letter] for letter in text.ljust(longest, "_")] for text in texts]
    return torch.tensor(rows), torch.tensor([len(text) for text in texts])


class Writer(nn.Module):
    """Reads with one recurrent network, writes with another; attention is the only way between them."""

    def __init__(self, attention: Attention, dim: int = 64):
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), dim // 2)
        self.read = nn.GRU(dim // 2, dim // 2, batch_first=True, bidirectional=True)
        self.write = nn.GRU(dim // 2, dim, batch_first=True)
        self.attention = attention
        self.join = nn.Linear(2 * dim, dim)
        self.letter = nn.Linear(dim, len(LETTERS))

    def forward(self, source: Tensor, lengths: Tensor, written: Tensor) -> tuple[Tensor, Attended]:
        states, _ = self.read(self.embed(source))
        queries, _ = self.write(self.embed(written))
        seen = self.attention(queries, states, states, padding(lengths))
        return self.letter(torch.tanh(self.join(torch.cat([queries, seen.context], -1)))), seen

    @torch.no_grad()
    def answer(self, texts: list[str]) -> tuple[list[str], Tensor]:
        """What it writes letter by letter, and the weights (texts, letters written, letters read)."""
        source, lengths = numbers(texts)
        written = torch.full((len(texts), 1), NUMBER[">"])
        for _ in range(10):
            logits, seen = self(source, lengths, written)
            written = torch.cat([written, logits[:, -1:].argmax(-1)], 1)
        return ["".join(LETTERS[i] for i in row) for row in written[:, 1:].tolist()], seen.weights


def train(model: Writer, steps: int = 250, rate: float = 8e-3) -> None:
    chance = random.Random(0)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        texts, targets = zip(*dates(48, chance, held_out=False), strict=True)
        target, _ = numbers(list(targets))
        written = F.pad(target[:, :-1], (1, 0), value=NUMBER[">"])
        logits, _ = model(*numbers(list(texts)), written)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def writing() -> dict[str, object]:
    print("2. A network that writes dates, with three kinds of attention\n")
    attentions = {
        "Constant, softmax": lambda: Attention(Constant()),
        "Additive, softmax": lambda: Attention(Additive(query_dim=64, key_dim=64, hidden_dim=64)),
        "Additive, entmax15": lambda: Attention(Additive(query_dim=64, key_dim=64, hidden_dim=64), entmax15),
    }
    unseen = dates(500, random.Random(1), held_out=True)
    texts, wanted = (list(part) for part in zip(*unseen, strict=True))
    example, weights = "17 october 2031", {}
    print("   Trained on 12,000 dates, then tried on 500 that are not among them:\n")
    for name, attention in attentions.items():
        torch.manual_seed(0)
        start, model = time.perf_counter(), Writer(attention())
        train(model)
        right = sum(got == want for got, want in zip(model.answer(texts)[0], wanted, strict=True))
        print(f"   {name:18}  {right / 5:5.1f} % written right   ({time.perf_counter() - start:.0f} s)")
        (answer,), seen = model.answer([example])
        weights[name] = (answer, seen[0])
    for name in ("Additive, softmax", "Additive, entmax15"):
        answer, seen = weights[name]
        print(f"\n   {name}: {example} -> {answer}; each row is a letter written, and looks at:\n")
        print("   " + heat(seen, rows=list(answer), columns=list(example)).replace("\n", "\n   "))
    return {"example": example, "weights": weights}


# ---- The picture

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"  # told apart by colorblind eyes too


def draw(curve: dict, alignment: dict) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained", width_ratios=(1.15, 1))
    _draw_curves(axes[0, 0], **curve)
    _draw_errors(axes[1, 0], **curve)
    names = ("Additive, softmax", "Additive, entmax15")
    for ax, name in zip(axes[:, 1], names, strict=True):
        image = _draw_weights(ax, name, alignment["example"], *alignment["weights"][name])
        figure.colorbar(image, ax=ax, label="weight", shrink=0.9)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120)


def _draw_curves(ax, x: Tensor, y: Tensor, score: Gaussian, error: float) -> None:
    at = torch.linspace(0, 60, 400)[:, None]
    ax.scatter(x, y, s=14, color=GREY, alpha=0.7, linewidths=0, label="measured")
    lines = (
        ("average of all", Constant(), ORANGE, ":"),
        ("width 8", Gaussian(8.0), GREEN, "--"),
        (f"width learned: {score.width.item():.2f}", score, BLUE, "-"),
    )
    for label, part, color, style in lines:
        ax.plot(at, attend(at, x, y, score=part).context, style, color=color, lw=2, label=label)
    ax.set(title="Kernel regression is attention", xlabel="time after impact (ms)", ylabel="acceleration (g)")
    ax.legend(frameon=False, loc="lower right")


def _draw_errors(ax, x: Tensor, y: Tensor, score: Gaussian, error: float) -> None:
    widths = torch.logspace(-1, 1, 60).tolist()
    ax.plot(widths, [left_out(Gaussian(width), x, y).item() for width in widths], color=GREEN, lw=2)
    ax.plot(score.width.item(), error, "o", color=BLUE, ms=9)
    note = f"learned: {score.width.item():.2f} ms, error {error:.2f} g"
    ax.annotate(
        note, (score.width.item(), error), (0, 70), textcoords="offset points", ha="center", color=BLUE
    )
    ax.axhline(left_out(Constant(), x, y).item(), color=ORANGE, ls=":", lw=2)
    ax.text(0.1, left_out(Constant(), x, y).item() - 1.4, "average of all", color=ORANGE, va="top")
    ax.set(title="Error on points left out", xlabel="width of the Gaussian (ms)", ylabel="RMS error (g)")
    ax.set_xscale("log")
    ax.set_xticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])


def _draw_weights(ax, name: str, example: str, answer: str, weights: Tensor):
    shown = weights.masked_fill(weights == 0, float("nan"))  # left white
    image = ax.imshow(shown, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
    ax.set_xticks(range(len(example)), ["␣" if letter == " " else letter for letter in example])
    ax.set_yticks(range(len(answer)), list(answer))
    ax.set(
        title=f"Where it looks while writing: {name}",
        xlabel="read (white: weight exactly 0)",
        ylabel="written",
    )
    ax.tick_params(length=0)
    return image


def main() -> None:
    need("matplotlib", extra="draw").use("Agg")  # now, and not after half a minute of work
    torch.set_num_threads(1)  # so little work is done faster by one thread
    curve = regression()
    alignment = writing()
    draw(curve, alignment)
    print(f"\nThe picture is in {PICTURE.relative_to(HERE.parent)}.")


if __name__ == "__main__":
    main()
