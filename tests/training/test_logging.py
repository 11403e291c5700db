"""metrics.jsonl, log.txt, the display and the learning curve."""

import io
import json
import sys
from pathlib import Path

import pytest

from regard.errors import StorageError
from regard.training import logging
from regard.training.logging import plot_curve
from tests.training.toy import train


def test_the_log_has_every_line_and_a_resumed_run_appends_to_it(tmp_path):
    lines = []
    train(tmp_path, log=lines.append, steps=20)
    train(tmp_path, log=lines.append, steps=30)
    text = (tmp_path / "log.txt").read_text().splitlines()
    assert [line[21:] for line in text] == lines
    assert "resumed from step 20" in lines
    assert lines[-1] == "done: all 30 steps are done"
    assert any(line.startswith("step 28   validation   loss ") for line in lines)


def test_without_a_terminal_there_are_plain_lines(tmp_path, capsys):
    train(tmp_path, log=None, steps=14)
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 14/14   loss " in err
    assert "\x1b" not in err


def test_in_a_terminal_there_is_a_bar(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    train(tmp_path, log=None, steps=14)
    assert "14/14" in terminal.getvalue()
    assert "tokens/s" in terminal.getvalue()
    assert "validation" in terminal.getvalue()


def test_metrics_are_truncated_to_the_size_in_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntwo\nthree, half")
    lines = logging.AppendOnlyFile(path, max_bytes=8)
    lines.add("next")
    assert lines.sync() == 13
    lines.close()
    assert path.read_bytes() == b"one\ntwo\nnext\n"
    logging.AppendOnlyFile(path, max_bytes=1000).close()
    assert path.stat().st_size == 13, "a file that is shorter is not padded"


def test_metrics_on_a_full_disk_are_one_sentence():
    lines = logging.AppendOnlyFile(Path("/dev/full"))
    with pytest.raises(StorageError, match=r"^/dev/full could not be written: no space left on device$"):
        lines.add("x")
    lines.close()


def test_points_are_written_every_few_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(logging, "LOG_INTERVAL", 0.0)
    train(tmp_path, steps=6, save_every=4)
    train(tmp_path, steps=9, save_every=4)
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [point["step"] for point in points if "loss" in point] == list(range(1, 10))


def test_the_plot_of_the_learning_curve(tmp_path):
    pytest.importorskip("matplotlib")
    train(tmp_path, steps=20, monitor="accuracy")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_plot(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not plot_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png", "loss")


def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    train(tmp_path, steps=14, tensorboard=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [event.step for event in events.Scalars("valid/loss")] == [7, 14]
    losses = [point["loss"] for point in points if "loss" in point]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses)


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (float("nan"), "nan"), (-3.5, "-3.5000"), (1234.5, "1234.50")])
def test_number_formats(value, text):
    assert logging.format_number(value) == text
