"""The pictures in characters: nothing wraps, nothing is lost, letters are as wide as terminals think."""

import re

import pytest
import torch

from regard.attention import Sinusoidal, causal, padding, window
from regard.viewing import terminal
from regard.viewing._letters import clusters, shortened, width
from regard.viewing.terminal._screen import clean, seen_width

WEIGHTS = torch.rand(2, 8, 40, 50)
LINES = torch.linspace(0, 6, 50)
DRAW = {
    "heat": lambda **how: terminal.heat(WEIGHTS[0, 0], ["注意力" * 9] * 40, ["👩‍💻"] * 50, **how),
    "heads": lambda **how: terminal.heads(WEIGHTS, **how),
    "mask": lambda **how: terminal.mask(causal() & window(9, 0), 50, **how),
    "positions": lambda **how: terminal.positions(Sinusoidal(16).encoding(300), **how),
    "memory": lambda **how: terminal.memory(writes=torch.rand(200, 30), reads=torch.rand(200, 30), **how),
    "regression": lambda **how: terminal.regression(
        LINES, LINES.cos(), LINES, LINES.sin(), torch.rand(50, 50), **how
    ),
    "overlay": lambda **how: terminal.overlay(
        torch.rand(60, 90, 3), torch.rand(5, 4, 4), list("abcde"), **how
    ),
}


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("columns", [24, 40, 80, 200])
@pytest.mark.parametrize("kind", DRAW)
def test_no_line_is_wider_than_the_terminal(kind, columns, color):
    lines = DRAW[kind](width=columns, color=color).splitlines()
    assert max(map(seen_width, lines)) <= columns
    assert ("\x1b" in "".join(lines)) == color or kind == "mask"


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")
    assert max(map(seen_width, terminal.heads(WEIGHTS).splitlines())) <= 33
    assert max(map(seen_width, terminal.positions(Sinusoidal(4).encoding(300)).splitlines())) == 33


def test_a_peak_in_a_large_head_is_seen():
    weights = torch.full((1, 1, 512, 512), 1e-4)
    weights[0, 0, 300, 200] = 1.0
    picture = terminal.heads(weights, color=False, width=60).splitlines()
    rows = [i for i, line in enumerate(picture[2:-1]) if "█" in line]
    assert len(rows) == 1
    assert rows[0] / len(picture[2:-1]) == pytest.approx(300 / 512, abs=0.1)


def test_half_blocks_show_two_rows_in_a_line():
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 8).repeat(1, 8)[None, None]
    panel = terminal.heads(weights, color=True, width=16).splitlines()[2]
    assert re.sub(r"\x1b\[[0-9;]*m", "", panel) == "▀▄" * 8
    assert f"38;5;{terminal.COLORS[-1]}m" in panel


def test_a_large_mask_is_drawn_small_and_named():
    lines = terminal.mask(causal(), 1000, width=40, color=False).splitlines()
    assert lines[0] == "causal()"
    assert [len(line) for line in lines[1:]] == sorted(len(line) for line in lines[1:])
    assert len(lines[-1]) == 40


def test_batches_of_masks():
    assert terminal.mask(padding([1, 2]), 2).splitlines() == [
        "padding((2,))",
        "batch entry 0",
        "■ ·",
        "■ ·",
        "batch entry 1",
        "■ ■",
        "■ ■",
    ]


def test_positive_and_negative_have_colors_of_their_own():
    from regard.viewing.terminal._panel import MINUS, PLUS

    picture = terminal.positions(torch.tensor([[1.0, -1.0]]), color=True, width=80)
    assert picture.startswith(f"\x1b[38;5;{PLUS[-1]};48;5;{MINUS[-1]}m▀")


def test_light_is_where_the_word_looked():
    grid = torch.zeros(2, 2)
    grid[0, 1] = 1.0
    lines = terminal.overlay(torch.ones(16, 16), grid, smooth=False, color=False, width=40).splitlines()
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
    assert width(text) == wide
    assert "".join(clusters(text)) == text


def test_marks_do_not_pile_up():
    assert len("".join(clusters("a" + "\u0301" * 100))) < 8


def test_joined_emoji_are_shown_as_their_first():
    assert clean("👩\u200d💻!") == "👩!"
    assert clean("\u0301a") == "·a", "a mark with nothing to stand on"


@pytest.mark.parametrize("room", [1, 2, 5, 12])
@pytest.mark.parametrize("text", ["internationalization", "注意力机制是什么", "e\u0301" * 20, "x" * 100_000])
def test_shortened_text_fits(text, room):
    assert width(shortened(text, room)) <= room
    assert shortened(text, room).endswith("…")


@pytest.mark.bare
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: terminal.heads(torch.eye(2)), r"\(layers, heads, queries, keys\), not \(2, 2\)"),
        (lambda: terminal.memory(), "writes="),
        (lambda: terminal.mask(causal()), "how many queries"),
        (lambda: terminal.overlay(torch.rand(4), torch.eye(2)), "an image is"),
        (lambda: terminal.regression(torch.rand(3), *[torch.rand(4)] * 3), "x 3, y 4"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
