"""Figures in the terminal: width, pooling, colors and wide characters."""

import re

import pytest
import torch

from regard.attention import Sinusoidal, causal, padding, window
from regard.viewing import MemoryData, terminal
from regard.viewing._text import grapheme_clusters, text_width, truncate
from regard.viewing.terminal._screen import clean_label, display_width

WEIGHTS = torch.rand(2, 8, 40, 50)
LINES = torch.linspace(0, 6, 50)
DRAW = {
    "heatmap": lambda **options: terminal.heatmap(WEIGHTS[0, 0], ["注意力" * 9] * 40, ["👩‍💻"] * 50, **options),
    "head grid": lambda **options: terminal.head_grid(WEIGHTS, **options),
    "mask": lambda **options: terminal.mask_matrix(causal() & window(9, 0), 50, **options),
    "positions": lambda **options: terminal.position_encoding(Sinusoidal(16).encoding(300), **options),
    "memory": lambda **options: terminal.memory_timeline(
        MemoryData(write_weights=torch.rand(200, 30), read_weights=torch.rand(200, 30)), **options
    ),
    "memory with vectors": lambda **options: terminal.memory_timeline(MemoryData(**memory_data(200)), **options),
    "regression": lambda **options: terminal.regression_curve(
        LINES, LINES.cos(), LINES, LINES.sin(), torch.rand(50, 50), **options
    ),
    "overlay": lambda **options: terminal.image_overlay(
        torch.rand(60, 90, 3), torch.rand(5, 4, 4), list("abcde"), **options
    ),
}


def memory_data(steps, outputs=8):
    """Weights and vectors of a memory."""
    weights = {name: torch.eye(12)[torch.arange(steps) % 12] for name in ("write_weights", "read_weights")}
    vectors = {
        "inputs": torch.rand(steps, 9),
        "add_vectors": torch.randn(steps, 5),
        "read_vectors": torch.randn(steps, 5),
    }
    results = {name: torch.rand(steps, outputs) for name in ("outputs", "targets")}
    return weights | vectors | results


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("columns", [24, 40, 80, 200])
@pytest.mark.parametrize("name", DRAW)
def test_no_line_is_wider_than_the_terminal(name, columns, color):
    lines = DRAW[name](width=columns, color=color).splitlines()
    assert max(map(display_width, lines)) <= columns
    assert ("\x1b" in "".join(lines)) == color or name == "mask"


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")
    assert max(map(display_width, terminal.head_grid(WEIGHTS).splitlines())) <= 33
    assert max(map(display_width, terminal.position_encoding(Sinusoidal(4).encoding(300)).splitlines())) == 33


def test_a_peak_in_a_large_head_is_visible():
    weights = torch.full((1, 1, 512, 512), 1e-4)
    weights[0, 0, 300, 200] = 1.0
    text = terminal.head_grid(weights, color=False, width=60).splitlines()
    rows = [i for i, line in enumerate(text[2:-1]) if "█" in line]
    assert len(rows) == 1
    assert rows[0] / len(text[2:-1]) == pytest.approx(300 / 512, abs=0.1)


def test_half_blocks_hold_two_rows():
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 8).repeat(1, 8)[None, None]
    panel = terminal.head_grid(weights, color=True, width=16).splitlines()[2]
    assert re.sub(r"\x1b\[[0-9;]*m", "", panel) == "▀▄" * 8
    assert f"38;5;{terminal.COLORS[-1]}m" in panel


def test_a_large_mask_is_pooled():
    lines = terminal.mask_matrix(causal(), 1000, width=40, color=False).splitlines()
    assert lines[0] == "causal()"
    assert [len(line) for line in lines[1:]] == sorted(len(line) for line in lines[1:])
    assert len(lines[-1]) == 40


def test_batches_of_masks():
    assert terminal.mask_matrix(padding([1, 2]), 2).splitlines() == [
        "padding((2,))",
        "batch entry 0",
        "■ ·",
        "■ ·",
        "batch entry 1",
        "■ ■",
        "■ ■",
    ]


def test_positive_and_negative_colors():
    from regard.viewing.terminal._screen import NEGATIVE_COLORS, POSITIVE_COLORS

    text = terminal.position_encoding(torch.tensor([[1.0, -1.0]]), color=True, width=80)
    assert text.startswith(f"\x1b[38;5;{POSITIVE_COLORS[-1]};48;5;{NEGATIVE_COLORS[-1]}m▀")


def test_light_is_at_the_largest_weight():
    grid = torch.zeros(2, 2)
    grid[0, 1] = 1.0
    lines = terminal.image_overlay(torch.ones(16, 16), grid, smooth=False, color=False, width=40).splitlines()
    halves = [line.partition(" ")[2] for line in lines]
    assert [half.count("█") for half in halves] == [8] * 4 + [0] * 4
    assert halves[0].endswith("█" * 8)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("cat", 3),
        ("注意", 4),
        ("e\u0301", 1),
        ("👍🏽", 2),
        ("👩\u200d💻", 2),
        ("🇩🇪", 2),
        ("❤\ufe0f", 2),
        ("", 0),
        ("ｱ", 1),
    ],
)
def test_text_width(text, width):
    assert text_width(text) == width
    assert "".join(grapheme_clusters(text)) == text


def test_combining_marks_are_limited():
    assert len("".join(grapheme_clusters("a" + "\u0301" * 100))) < 8


def test_joined_emoji_are_simplified():
    assert clean_label("👩\u200d💻!") == "👩!"
    assert clean_label("\u0301a") == "·a", "a mark without a base character"


@pytest.mark.parametrize("max_width", [1, 2, 5, 12])
@pytest.mark.parametrize("text", ["internationalization", "注意力机制是什么", "e\u0301" * 20, "x" * 100_000])
def test_truncated_text_fits(text, max_width):
    assert text_width(truncate(text, max_width)) <= max_width
    assert truncate(text, max_width).endswith("…")


PANELS = ["inputs", "add vectors", "write weights", "outputs", "targets", "read vectors", "read weights"]


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("steps", [7, 60, 400])
def test_all_panels_of_a_memory(steps, color):
    text = terminal.memory_timeline(MemoryData(**memory_data(steps)), width=100, color=color)
    assert all(name in text for name in PANELS)
    assert max(map(display_width, text.splitlines())) <= 100


def test_a_short_memory_has_two_sides_and_a_long_one_is_stacked():
    short, long = (
        terminal.memory_timeline(MemoryData(**memory_data(steps)), width=100, color=False).splitlines()
        for steps in (7, 60)
    )
    assert any("write weights" in line and "read weights" in line for line in short)
    assert not any("write weights" in line and "read weights" in line for line in long)


def test_panels_of_a_memory_share_the_time_axis():
    impulse = torch.zeros(6, 3)
    impulse[4] = 1.0  # at the fifth step only
    vectors = dict.fromkeys(("inputs", "add_vectors"), impulse)
    text = terminal.memory_timeline(
        MemoryData(write_weights=torch.eye(40)[[0] * 6] * impulse[:, :1], **vectors), width=60, color=False
    )
    marked = [line for line in text.splitlines() if line.strip(" █") == "" and "█" in line]
    assert len(marked) >= 3 + 3 + 1
    assert {(line.index("█"), len(line)) for line in marked} == {(16, 20)}


def test_outputs_and_targets_share_a_scale():
    half, bits = torch.full((4, 2), 0.5), torch.ones(4, 2)
    text = terminal.memory_timeline(
        MemoryData(read_weights=torch.eye(4), outputs=half, targets=bits), width=60, color=False
    )
    outputs, targets = text.split("outputs")[1].split("targets")
    assert "▒" in outputs
    assert "█" not in outputs
    assert "█" in targets.split("read weights")[0]


def test_outputs_with_one_channel_are_bars():
    results, best = torch.linspace(0, 1, 16)[:, None], torch.full((16, 1), 0.5)
    target_mask = torch.arange(16) > 3
    text = terminal.memory_timeline(
        MemoryData(read_weights=torch.eye(16), outputs=results, targets=best, target_mask=target_mask),
        width=16,
        color=False,
    ).splitlines()
    first = text.index(next(line for line in text if line.startswith("outputs")))
    outputs, targets = text[first + 1 : first + 4], text[first + 5 : first + 8]
    assert all(line[:4].strip() == "" for line in outputs + targets), "no targets"
    assert outputs[0].endswith("█")
    assert outputs[2][4] != " "
    assert [set(line[4:]) for line in targets] == [set(), {"▄"}, {"█"}], "the middle of three lines"


def test_row_labels_of_a_memory():
    text = terminal.memory_timeline(
        MemoryData(write_weights=torch.eye(5), row_labels=[6, 7, 0, 1, 3]), color=False, width=80
    )
    assert text.splitlines()[0] == "write weights, 5 steps, rows 6-7, 0-1, 3"


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: terminal.head_grid(torch.eye(2)), r"\(layers, heads, queries, keys\), got \(2, 2\)"),
        (lambda: terminal.memory_timeline(MemoryData()), "requires write_weights"),
        (lambda: terminal.memory_timeline(MemoryData(inputs=torch.rand(4, 2))), "inputs requires write_weights"),
        (
            lambda: terminal.memory_timeline(MemoryData(read_weights=torch.eye(4), outputs=torch.rand(3, 2))),
            "steps_of_outputs 3",
        ),
        (lambda: terminal.mask_matrix(causal()), "num_queries is required"),
        (lambda: terminal.image_overlay(torch.rand(4), torch.eye(2)), "an image is"),
        (lambda: terminal.regression_curve(torch.rand(3), *[torch.rand(4)] * 3), "x 3, y 4"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
