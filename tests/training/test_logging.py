"""metrics.jsonl, log.txt, the display and the learning curve."""

import io
import json
import resource
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


def test_a_damaged_line_of_the_metrics_stops_no_training(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    train(tmp_path, steps=14)
    content = bytearray((tmp_path / "metrics.jsonl").read_bytes())
    content[1] ^= 0x80  # of the first line
    (tmp_path / "metrics.jsonl").write_bytes(content)
    monkeypatch.setattr(logging, "PLOT_INTERVAL", 0.0)
    monkeypatch.setattr(logging, "plot_curve", plot_curve)
    lines = []
    assert train(tmp_path, steps=28, log=lines.append)[1].step == 28
    assert sum("has damaged lines, which the learning curve leaves out: 1" in line for line in lines) == 1
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_that_cannot_be_drawn_stops_no_training(tmp_path, monkeypatch):
    monkeypatch.setattr(logging, "PLOT_INTERVAL", 0.0)
    (tmp_path / "curve.png").mkdir()
    monkeypatch.setattr(logging, "plot_curve", plot_curve)
    lines = []
    assert train(tmp_path, steps=14, log=lines.append)[1].step == 14
    assert any(line.startswith("the learning curve could not be drawn: ") for line in lines)


def test_a_torn_line_is_removed_before_the_next_one(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"one\ntw")
    lines = logging.AppendOnlyFile(path)
    lines.add("three")
    lines.close()
    assert path.read_bytes() == b"one\nthree\n"


def test_a_full_disk_tears_no_line(tmp_path):
    """A real limit on the size of the file: a part of the second line is written, then nothing."""
    path, before = tmp_path / "metrics.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    lines = logging.AppendOnlyFile(path)
    lines.add("x" * 50)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80, before[1]))
    try:
        with pytest.raises(StorageError, match="file too large"):
            lines.add("y" * 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    lines.add("z")
    lines.close()
    assert path.read_text() == "x" * 50 + "\nz\n"
