"""The study of the Neural Turing Machine: part by part, and what was measured before stays."""

import json

import pytest

pytest.importorskip("matplotlib")

from regard.studies import STUDIES
from regard.studies import ntm2014 as _ntm2014
from regard.tasks import load, train


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(_ntm2014, "NUM_TEST_SEQUENCES", 2)


def test_one_part_at_a_time(tmp_path):
    before = [{"task": task, "model": "ntm", "tried": "length 1", "bits": 7.25} for task in ("sort", "copy")]
    (tmp_path / "numbers.json").write_text(json.dumps({"rows": before}))
    said = []
    found = STUDIES["ntm2014"].run(tmp_path, quick=True, log=said.append, only=["copy"])
    assert [row["task"] for row in found["rows"]] == ["copy"] * 8 + ["sort"]  # both models, four lengths each
    assert found["rows"][-1] == before[0]
    assert "copy, lstm:" in said
    assert json.loads((tmp_path / "numbers.json").read_text())["rows"] == found["rows"]
    for name in ("copy.png", "memory.png"):
        assert (tmp_path / name).stat().st_size > 5_000
    assert not (tmp_path / "recall-ntm").exists()


def test_parts_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="no part 'walk'; its parts are copy, repeat-copy, recall"):
        STUDIES["ntm2014"].run(tmp_path, only=["walk"])
    with pytest.raises(ValueError, match="no part 'copy'; it has none"):
        STUDIES["costs"].run(tmp_path, only=["copy"])


def test_a_rehearsal_is_not_taken_for_the_study(tmp_path):
    STUDIES["ntm2014"].run(tmp_path, quick=True, log=str, only=["copy"])
    with pytest.raises(FileExistsError, match=r"copy-ntm holds a run with another steps \(30, not 5000\)"):
        STUDIES["ntm2014"].run(tmp_path, log=str, only=["copy"])


def test_all_trainings_of_a_study_share_settings(tmp_path):
    words = ["steps=2", "validate-every=2", "seed=3", "num_threads=1"]
    found = STUDIES["ntm2014"].run(tmp_path, log=str, only=["copy"], overrides=words)
    assert {row["sequences"] for row in found["rows"]} == {32}
    assert found["settings"] == words
    assert "given, the last time: steps=2 validate-every=2 seed=3 num_threads=1." in (tmp_path / "table.md").read_text()
    for model in ("ntm", "lstm"):
        settings = load(tmp_path / f"copy-{model}").config
        assert (settings.steps, settings.seed, settings.lr) == (2, 3, 3e-4)  # what is not named stays


def test_settings_of_a_study_are_checked_before_it_begins(tmp_path):
    folder = tmp_path / "study"
    with pytest.raises(ValueError, match="stps is no option of every training; did you mean steps"):
        STUDIES["ntm2014"].run(folder, overrides=["stps=2"])
    with pytest.raises(ValueError, match="batch_size is no option of every training"):
        STUDIES["ntm2014"].run(folder, overrides=["batch_size=2"])
    with pytest.raises(ValueError, match="data by --data FOLDER"):
        STUDIES["luong2015"].run(folder, overrides=["data_dir=multi30k"])
    with pytest.raises(ValueError, match="invalid value '0' for steps"):
        STUDIES["ntm2014"].run(folder, overrides=["steps=0"])
    with pytest.raises(ValueError, match="trains nothing; leave steps=2 out"):
        STUDIES["costs"].run(folder, overrides=["steps=2"])
    assert not folder.exists()


def test_a_study_that_makes_its_data_takes_none(tmp_path):
    with pytest.raises(ValueError, match="makes all its data on the fly; leave --data out"):
        STUDIES["ntm2014"].run(tmp_path, data="texts")


def test_the_best_possible_guess_is_a_line(tmp_path):
    words = [
        "min_size=7",
        "max_size=9",
        "hidden_dim=8",
        "memory_rows=4",
        "memory_width=3",
        "num_layers=1",
        "batch_size=2",
        "steps=2",
    ]
    for model in ("ntm", "lstm"):
        train("ngrams", tmp_path / f"ngrams-{model}", [*words, f"model={model}", "num_threads=1"], log=str)
    axes = _ntm2014._plot_curves(tmp_path, "ngrams").axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    best = load(tmp_path / "ngrams-ntm").evaluate([{"length": 9}], AlgorithmEvaluateOptions(num_sequences=160)).tables["sizes"][0]["best"]
    assert set(lines) == {"NTM", "LSTM", "best possible"}
    assert lines["best possible"][0] == pytest.approx(best)
    assert min(lines["NTM"]) > best
