import pytest
import torch

from regard.viewing import heatmap
from regard.viewing.terminal import COLORS


def rows_of(picture: str) -> list[str]:
    return [line.partition("│")[2].rpartition("│")[0] for line in picture.splitlines() if "│" in line]


def test_shades_grow_with_the_weights():
    weights = torch.tensor([[0.0, 0.125, 0.25, 0.375, 0.5]])
    assert rows_of(heatmap(weights, color=False, width=80)) == ["  ░░▒▒▓▓██"]


def test_only_exact_zeros_are_blank():
    assert rows_of(heatmap(torch.tensor([[1.0, 1e-30, 0.0]]), color=False, width=80)) == ["██░░  "]


def test_all_zero_and_empty_weights_can_be_drawn():
    assert rows_of(heatmap(torch.zeros(2, 3), color=False, width=80)) == [" " * 6] * 2
    assert rows_of(heatmap(torch.zeros(2, 0), color=False, width=80)) == ["", ""]
    assert heatmap(torch.zeros(0, 3), color=False, width=80) == ""


def test_nan_is_shown_as_such():
    assert rows_of(heatmap(torch.tensor([[float("nan"), 1.0]]), color=False, width=80)) == ["??██"]


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64])
def test_any_dtype(dtype):
    assert rows_of(heatmap(torch.eye(2).to(dtype), color=False, width=80)) == ["██  ", "  ██"]


def test_weights_that_need_a_gradient():
    assert rows_of(heatmap(torch.ones(1, 1, requires_grad=True), color=False, width=80)) == ["██"]


def test_what_does_not_fit_is_cut_with_a_note():
    picture = heatmap(torch.rand(100, 500), color=False, width=40, height=10)
    assert len(rows_of(picture)) == 10
    assert all(len(line) <= 40 for line in picture.splitlines()[:10])
    assert picture.splitlines()[-1] == "shown: 10 of 100 queries, 18 of 500 keys"


def test_the_legend_speaks_chinese_where_it_is_asked_to():
    drawn = heatmap(torch.eye(4), color=False, width=80, height=2, language="zh").splitlines()
    assert drawn[-2:] == ["空白为 0，░ 至多 0.25，█ 至多 1", "画出的查询：2 / 4，键：4 / 4"]
    with pytest.raises(ValueError, match="speaks 'en' or 'zh', not 'fr'"):
        heatmap(torch.eye(2), language="fr")


def test_a_very_narrow_terminal_still_sees_a_key():
    assert [len(row) for row in rows_of(heatmap(torch.rand(1, 5), color=False, width=1))] == [2]


def test_labels_stand_at_their_rows_and_columns():
    picture = heatmap(
        torch.eye(2), row_labels=["the", "cat"], column_labels=["le", "chat"], color=False, width=80
    )
    assert picture.splitlines()[:6] == [
        "       c",
        "       h",
        "     l a",
        "     e t",
        "the │██  │",
        "cat │  ██│",
    ]


def test_chinese_labels_are_two_columns_wide():
    lines = heatmap(torch.eye(2), rows=["注意", "a"], columns=["力", "b"], color=False, width=80).splitlines()
    assert lines[:3] == ["      力b", "注意 │██  │", "   a │  ██│"]


def test_labels_cannot_move_the_cursor_or_fill_the_screen():
    picture = heatmap(
        torch.ones(1, 1), row_labels=["\x1b[2J\n" + "x" * 100], column_labels=["\t"], color=False, width=80
    )
    assert "\x1b" not in picture
    assert "x" * 20 not in picture
    assert len(rows_of(picture)) == 1


def test_color_is_a_background():
    picture = heatmap(torch.tensor([[1.0, 0.0]]), color=True, width=80)
    assert picture.startswith(f"│\x1b[48;5;{COLORS[-1]}m  \x1b[0m  │")


def test_color_needs_a_terminal_and_no_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in heatmap(torch.eye(2)), "not a terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b" in heatmap(torch.eye(2))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in heatmap(torch.eye(2))


@pytest.mark.parametrize(
    ("weights", "labels", "words"),
    [
        (torch.zeros(2, 3, 4), {}, r"\(queries, keys\), not \(2, 3, 4\)"),
        (torch.tensor([[-1.0]]), {}, "never negative"),
        (torch.eye(2), {"rows": ["a"]}, "1 row labels for 2 rows"),
        (torch.eye(2), {"columns": ["a", "b", "c"]}, "3 column labels for 2 columns"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(weights, labels, words):
    with pytest.raises(ValueError, match=words):
        heatmap(weights, **labels)
