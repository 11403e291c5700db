"""Heatmaps in the terminal."""

import pytest
import torch

from regard.viewing import heatmap
from regard.viewing.terminal import COLORS


def cells_of(text: str) -> list[str]:
    return [line.partition("│")[2].rpartition("│")[0] for line in text.splitlines() if "│" in line]


def test_shades_grow_with_the_weights():
    weights = torch.tensor([[0.0, 0.125, 0.25, 0.375, 0.5]])
    assert cells_of(heatmap(weights, color=False, width=80)) == ["  ░░▒▒▓▓██"]


def test_only_exact_zeros_are_blank():
    assert cells_of(heatmap(torch.tensor([[1.0, 1e-30, 0.0]]), color=False, width=80)) == ["██░░  "]


def test_zero_and_empty_weights():
    assert cells_of(heatmap(torch.zeros(2, 3), color=False, width=80)) == [" " * 6] * 2
    assert cells_of(heatmap(torch.zeros(2, 0), color=False, width=80)) == ["", ""]
    assert heatmap(torch.zeros(0, 3), color=False, width=80) == ""


def test_nan_is_shown():
    assert cells_of(heatmap(torch.tensor([[float("nan"), 1.0]]), color=False, width=80)) == ["??██"]


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64])
def test_any_dtype(dtype):
    assert cells_of(heatmap(torch.eye(2).to(dtype), color=False, width=80)) == ["██  ", "  ██"]


def test_weights_that_need_a_gradient():
    assert cells_of(heatmap(torch.ones(1, 1, requires_grad=True), color=False, width=80)) == ["██"]


def test_large_weights_are_cut_with_a_note():
    text = heatmap(torch.rand(100, 500), color=False, width=40, height=10)
    assert len(cells_of(text)) == 10
    assert all(len(line) <= 40 for line in text.splitlines()[:10])
    assert text.splitlines()[-1] == "shown: 10 of 100 queries, 18 of 500 keys"


def test_the_legend_in_chinese():
    lines = heatmap(torch.eye(4), color=False, width=80, height=2, language="zh").splitlines()
    assert lines[-2:] == ["空白为 0，░ 不超过 0.25，█ 不超过 1", "已显示：2 / 4 个查询，4 / 4 个键"]
    with pytest.raises(ValueError, match="invalid value 'fr' for language"):
        heatmap(torch.eye(2), language="fr")


def test_a_narrow_terminal_shows_one_key():
    assert [len(row) for row in cells_of(heatmap(torch.rand(1, 5), color=False, width=1))] == [2]


def test_row_and_column_labels():
    text = heatmap(torch.eye(2), row_labels=["the", "cat"], column_labels=["le", "chat"], color=False, width=80)
    assert text.splitlines()[:6] == ["       c", "       h", "     l a", "     e t", "the │██  │", "cat │  ██│"]


def test_chinese_labels_are_two_columns_wide():
    lines = heatmap(
        torch.eye(2), row_labels=["注意", "a"], column_labels=["力", "b"], color=False, width=80
    ).splitlines()
    assert lines[:3] == ["      力b", "注意 │██  │", "   a │  ██│"]


def test_labels_cannot_move_the_cursor_or_fill_the_screen():
    text = heatmap(torch.ones(1, 1), row_labels=["\x1b[2J\n" + "x" * 100], column_labels=["\t"], color=False, width=80)
    assert "\x1b" not in text
    assert "x" * 20 not in text
    assert len(cells_of(text)) == 1


def test_color_is_a_background():
    text = heatmap(torch.tensor([[1.0, 0.0]]), color=True, width=80)
    assert text.startswith(f"│\x1b[48;5;{COLORS[-1]}m  \x1b[0m  │")


def test_color_depends_on_the_terminal_and_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in heatmap(torch.eye(2)), "not a terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b" in heatmap(torch.eye(2))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in heatmap(torch.eye(2))


@pytest.mark.parametrize(
    ("weights", "labels", "message"),
    [
        (torch.zeros(2, 3, 4), {}, r"\(queries, keys\), got \(2, 3, 4\)"),
        (torch.tensor([[-1.0]]), {}, "must not be negative"),
        (torch.eye(2), {"row_labels": ["a"]}, "1 row labels for 2 rows"),
        (torch.eye(2), {"column_labels": ["a", "b", "c"]}, "3 column labels for 2 columns"),
    ],
)
def test_invalid_weights_and_labels_are_rejected(weights, labels, message):
    with pytest.raises(ValueError, match=message):
        heatmap(weights, **labels)
