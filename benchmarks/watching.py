"""What it costs to watch: one layer of a Transformer of 6 layers, 512 wide, 8 heads, batch 16, 64 tokens.

    python -m benchmarks.watching            two quiet cores, by the clock
    python -m benchmarks.watching --busy     one thread, processor time

Forward passes without gradients take turns in one process: plain, watched, and with a `told` that never asks for
watchers, which shows what it costs that one could watch. A watched pass includes beginning and ending the watch.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.report import machine
from benchmarks.timing import Effort, interleaved, spread
from regard.attention import equation as _equation
from regard.attention import multi_head as heads
from regard.models import Transformer
from regard.viewing import watch

LAYERS, DIM, HEADS, BATCH, TOKENS, WORDS = 6, 512, 8, 16, 64, 1000
MOST = {"one layer": 1.10, "able to be watched": 1.01}  # times a plain pass
HEAD = ("model", "what", "times a plain pass", "quartiles", "plain, ms", "target", "")


def ours() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = Transformer(WORDS, WORDS, embed_dim=DIM, num_heads=HEADS, num_encoder_layers=LAYERS).eval()
    source, target = (torch.randint(4, WORDS, (BATCH, TOKENS)) for _ in range(2))
    lengths = torch.full((BATCH,), TOKENS)
    return model, lambda: model(source, lengths, target)


def theirs() -> tuple[nn.Module, Callable[[], Tensor]]:
    layer = nn.TransformerEncoderLayer(DIM, HEADS, batch_first=True)
    model, x = nn.TransformerEncoder(layer, LAYERS).eval(), torch.randn(BATCH, TOKENS, DIM)
    return model, lambda: model(x)


MODELS = {"regard Transformer, encoder and decoder": ours, "nn.TransformerEncoder, fast path": theirs}


@contextmanager
def deaf() -> Iterator[None]:
    """A library in which nobody can be told of a look."""
    places = [(module, module.told) for module in (_equation, heads)]
    for module, _ in places:
        module.told = lambda who, seen: seen  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, told in places:
            module.told = told  # type: ignore[attr-defined]


def ways(model: nn.Module, call: Callable[[], Tensor]) -> dict[str, Callable[[], object]]:
    def watched() -> None:
        with watch(model, layers=LAYERS - 1):
            call()

    def unheard() -> None:
        with deaf():
            call()

    return {"plain": call, "one layer": watched, "deaf": unheard}


def lines(effort: Effort) -> Iterator[list[str]]:
    for name, make in MODELS.items():
        model, call = make()
        found = ways(model, call)
        with torch.no_grad():
            took = dict(zip(found, interleaved(list(found.values()), effort), strict=True))
        for what, most in MOST.items():
            above, below = ("plain", "deaf") if what == "able to be watched" else (what, "plain")
            ratio = spread([a / b for a, b in zip(took[above], took[below], strict=True)])
            yield [
                name,
                what,
                f"{ratio.median:.3f}",
                f"{ratio.low:.3f} to {ratio.high:.3f}",
                f"{1000 * spread(took['plain']).median:.1f}",
                f"at most {most:g}",
                "met" if ratio.median <= most else "MISSED",
            ]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.watching", description="What it costs to watch.")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of the clock")
    parser.add_argument("--seconds", type=float, default=15, help="for each model")
    parser.add_argument("--out", type=Path, help="a Markdown file, say benchmarks/results/watching.md")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    if options.busy:
        torch.set_num_threads(1)
    effort = Effort(rounds=3, least=0.0, budget=options.seconds, clock="processor" if options.busy else "wall")
    torch.manual_seed(0)
    facts = machine()
    facts["measured"] = "1 thread, processor time" if options.busy else "all threads, by the clock"
    table = [HEAD, ["---"] * len(HEAD), *lines(effort)]
    text = ["# Watching", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    text += [f"| {' | '.join(row)} |" for row in table]
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
