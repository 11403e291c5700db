"""The pictures in characters: nothing wraps, nothing is lost, letters are as wide as terminals think."""

import re

import pytest
import torch

from regard.attention import Sinusoidal, causal, padding, window
from regard.viewing import terminal
from regard.viewing._text import grapheme_clusters, text_width, truncate
from regard.viewing.terminal.screen import clean_label, display_width

WEIGHTS = torch.rand(2, 8, 40, 50)
LINES = torch.linspace(0, 6, 50)
DRAW = {
    "heat": lambda **how: terminal.heatmap(WEIGHTS[0, 0], ["注意力" * 9] * 40, ["👩‍💻"] * 50, **how),
    "heads": lambda **how: terminal.head_grid(WEIGHTS, **how),
    "mask": lambda **how: terminal.mask_matrix(causal() & window(9, 0), 50, **how),
    "positions": lambda **how: terminal.position_encoding(Sinusoidal(16).encoding(300), **how),
    "memory": lambda **how: terminal.memory_timeline(
        writes=torch.rand(200, 30), reads=torch.rand(200, 30), **how
    ),
    "all of a memory": lambda **how: terminal.memory_timeline(**told(200), **how),
    "regression": lambda **how: terminal.regression_curve(
        LINES, LINES.cos(), LINES, LINES.sin(), torch.rand(50, 50), **how
    ),
    "overlay": lambda **how: terminal.image_overlay(
        torch.rand(60, 90, 3), torch.rand(5, 4, 4), list("abcde"), **how
    ),
}


def told(steps, outputs=8):
    """All that can be told of a memory."""
    weights = {name: torch.eye(12)[torch.arange(steps) % 12] for name in ("writes", "reads")}
    vectors = {
        "inputs": torch.rand(steps, 9),
        "added": torch.randn(steps, 5),
        "returned": torch.randn(steps, 5),
    }
    said = {name: torch.rand(steps, outputs) for name in ("outputs", "wanted")}
    return weights | vectors | said


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("columns", [24, 40, 80, 200])
@pytest.mark.parametrize("kind", DRAW)
def test_no_line_is_wider_than_the_terminal(kind, columns, color):
    lines = DRAW[kind](width=columns, color=color).splitlines()
    assert max(map(display_width, lines)) <= columns
    assert ("\x1b" in "".join(lines)) == color or kind == "mask"


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")
    assert max(map(display_width, terminal.head_grid(WEIGHTS).splitlines())) <= 33
    assert max(map(display_width, terminal.position_encoding(Sinusoidal(4).encoding(300)).splitlines())) == 33


def test_a_peak_in_a_large_head_is_seen():
    weights = torch.full((1, 1, 512, 512), 1e-4)
    weights[0, 0, 300, 200] = 1.0
    picture = terminal.head_grid(weights, color=False, width=60).splitlines()
    rows = [i for i, line in enumerate(picture[2:-1]) if "█" in line]
    assert len(rows) == 1
    assert rows[0] / len(picture[2:-1]) == pytest.approx(300 / 512, abs=0.1)


def test_half_blocks_show_two_rows_in_a_line():
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 8).repeat(1, 8)[None, None]
    panel = terminal.head_grid(weights, color=True, width=16).splitlines()[2]
    assert re.sub(r"\x1b\[[0-9;]*m", "", panel) == "▀▄" * 8
    assert f"38;5;{terminal.COLORS[-1]}m" in panel


def test_a_large_mask_is_drawn_small_and_named():
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


def test_positive_and_negative_have_colors_of_their_own():
    from regard.viewing.terminal.screen import NEGATIVE_COLORS, POSITIVE_COLORS

    picture = terminal.position_encoding(torch.tensor([[1.0, -1.0]]), color=True, width=80)
    assert picture.startswith(f"\x1b[38;5;{POSITIVE_COLORS[-1]};48;5;{NEGATIVE_COLORS[-1]}m▀")


def test_light_is_where_the_word_looked():
    grid = torch.zeros(2, 2)
    grid[0, 1] = 1.0
    lines = terminal.image_overlay(torch.ones(16, 16), grid, smooth=False, color=False, width=40).splitlines()
    halves = [line.partition(" ")[2] for line in lines]
    assert [half.count("█") for half in halves] == [8] * 4 + [0] * 4
    assert halves[0].endswith("█" * 8)


@pytest.mark.parametrize(
    ("text", "wide"),
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
def test_letters_are_as_wide_as_terminals_think(text, wide):
    assert text_width(text) == wide
    assert "".join(grapheme_clusters(text)) == text


def test_marks_do_not_pile_up():
    assert len("".join(grapheme_clusters("a" + "\u0301" * 100))) < 8


def test_joined_emoji_are_shown_as_their_first():
    assert clean_label("👩\u200d💻!") == "👩!"
    assert clean_label("\u0301a") == "·a", "a mark with nothing to stand on"


@pytest.mark.parametrize("room", [1, 2, 5, 12])
@pytest.mark.parametrize("text", ["internationalization", "注意力机制是什么", "e\u0301" * 20, "x" * 100_000])
def test_shortened_text_fits(text, room):
    assert text_width(truncate(text, room)) <= room
    assert truncate(text, room).endswith("…")


PANELS = ["inputs", "added", "write weights", "outputs", "wanted", "returned", "read weights"]


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("steps", [7, 60, 400])
def test_all_that_goes_with_a_memory_is_drawn(steps, color):
    drawn = terminal.memory_timeline(**told(steps), width=100, color=color)
    assert all(name in drawn for name in PANELS)
    assert max(map(display_width, drawn.splitlines())) <= 100


def test_a_short_memory_stands_side_by_side_and_a_long_one_below_itself():
    short, long = (
        terminal.memory_timeline(**told(steps), width=100, color=False).splitlines() for steps in (7, 60)
    )
    assert any("write weights" in line and "read weights" in line for line in short)
    assert not any("write weights" in line and "read weights" in line for line in long)


def test_every_strip_of_a_memory_has_one_time_axis():
    one = torch.zeros(6, 3)
    one[4] = 1.0  # something at the fifth step, and nowhere else
    vectors = dict.fromkeys(("inputs", "added"), one)
    drawn = terminal.memory_timeline(
        writes=torch.eye(40)[[0] * 6] * one[:, :1], **vectors, width=60, color=False
    )
    marked = [line for line in drawn.splitlines() if line.strip(" █") == "" and "█" in line]
    assert len(marked) >= 3 + 3 + 1
    assert {(line.index("█"), len(line)) for line in marked} == {(16, 20)}


def test_outputs_and_wanted_share_a_scale_in_the_terminal_too():
    half, bits = torch.full((4, 2), 0.5), torch.ones(4, 2)
    drawn = terminal.memory_timeline(reads=torch.eye(4), outputs=half, wanted=bits, width=60, color=False)
    outputs, wanted = drawn.split("outputs")[1].split("wanted")
    assert "▒" in outputs
    assert "█" not in outputs
    assert "█" in wanted.split("read weights")[0]


def test_one_output_is_drawn_as_heights():
    said, best = torch.linspace(0, 1, 16)[:, None], torch.full((16, 1), 0.5)
    asked = torch.arange(16) > 3
    drawn = terminal.memory_timeline(
        reads=torch.eye(16), outputs=said, wanted=best, asked=asked, width=16, color=False
    ).splitlines()
    first = drawn.index(next(line for line in drawn if line.startswith("outputs")))
    outputs, wanted = drawn[first + 1 : first + 4], drawn[first + 5 : first + 8]
    assert all(line[:4].strip() == "" for line in outputs + wanted), "not asked for"
    assert outputs[0].endswith("█")
    assert outputs[2][4] != " "
    assert [set(line[4:]) for line in wanted] == [set(), {"▄"}, {"█"}], "the middle of three lines"


def test_rows_of_a_memory_are_named():
    drawn = terminal.memory_timeline(writes=torch.eye(5), rows=[6, 7, 0, 1, 3], color=False, width=80)
    assert drawn.splitlines()[0] == "write weights, 5 steps, rows 6-7, 0-1, 3"


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: terminal.head_grid(torch.eye(2)), r"\(layers, heads, queries, keys\), not \(2, 2\)"),
        (lambda: terminal.memory_timeline(), "writes="),
        (
            lambda: terminal.memory_timeline(inputs=torch.rand(4, 2)),
            "inputs needs the weights of the write head",
        ),
        (
            lambda: terminal.memory_timeline(reads=torch.eye(4), outputs=torch.rand(3, 2)),
            "steps_of_outputs 3",
        ),
        (lambda: terminal.mask_matrix(causal()), "how many queries"),
        (lambda: terminal.image_overlay(torch.rand(4), torch.eye(2)), "an image is"),
        (lambda: terminal.regression_curve(torch.rand(3), *[torch.rand(4)] * 3), "x 3, y 4"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
