"""The study of the Neural Turing Machine: it runs in parts and keeps the rows of earlier ones."""

import json

import pytest

pytest.importorskip("matplotlib")

from regard.studies import STUDIES, ntm2014
from regard.tasks import load, train
from regard.tasks.algorithms.config import AlgorithmEvaluateOptions


@pytest.fixture(autouse=True)
def few_test_sequences(monkeypatch):
    monkeypatch.setattr(ntm2014, "NUM_TEST_SEQUENCES", 2)


def test_other_parts_keep_their_rows(tmp_path):
    before = [{"task": task, "model": "ntm", "tried": "length 1", "bits": 7.25} for task in ("sort", "copy")]
    (tmp_path / "numbers.json").write_text(json.dumps({"rows": before}))
    lines = []
    result = STUDIES["ntm2014"].run(tmp_path, quick=True, log=lines.append, only=["copy"])
    assert [row["task"] for row in result["rows"]] == ["copy"] * 8 + ["sort"]  # both models, four lengths each
    assert result["rows"][-1] == before[0]
    assert "copy, lstm:" in lines
    assert json.loads((tmp_path / "numbers.json").read_text())["rows"] == result["rows"]
    for name in ("copy.png", "memory.png"):
        assert (tmp_path / name).stat().st_size > 5_000
    assert not (tmp_path / "recall-ntm").exists()


def test_unknown_parts_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no part 'walk'; its parts are copy, repeat-copy, recall"):
        STUDIES["ntm2014"].run(tmp_path, only=["walk"])
    with pytest.raises(ValueError, match="no part 'copy'; it has none"):
        STUDIES["costs"].run(tmp_path, only=["copy"])


def test_a_quick_run_is_not_resumed_as_the_study(tmp_path):
    STUDIES["ntm2014"].run(tmp_path, quick=True, log=str, only=["copy"])
    with pytest.raises(FileExistsError, match=r"copy-ntm holds a run with another steps \(30, not 5000\)"):
        STUDIES["ntm2014"].run(tmp_path, log=str, only=["copy"])


def test_overrides_apply_to_all_trainings(tmp_path):
    overrides = ["steps=2", "validate-every=2", "seed=3", "num_threads=1"]
    result = STUDIES["ntm2014"].run(tmp_path, log=str, only=["copy"], overrides=overrides)
    assert {row["sequences"] for row in result["rows"]} == {32}
    assert result["settings"] == overrides
    note = "Options of the last run: steps=2 validate-every=2 seed=3 num_threads=1."
    assert note in (tmp_path / "table.md").read_text()
    for model in ("ntm", "lstm"):
        config = load(tmp_path / f"copy-{model}").config
        assert (config.steps, config.seed, config.lr) == (2, 3, 3e-4)  # other options keep their defaults


def test_invalid_overrides_are_refused_before_the_study(tmp_path):
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


def test_a_study_with_generated_data_refuses_a_folder(tmp_path):
    with pytest.raises(ValueError, match="generates all its data; leave --data out"):
        STUDIES["ntm2014"].run(tmp_path, data="texts")


def test_the_optimal_cost_is_drawn_as_a_line(tmp_path):
    overrides = [
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
        train("ngrams", tmp_path / f"ngrams-{model}", [*overrides, f"model={model}", "num_threads=1"], log=str)
    axes = ntm2014._plot_curves(tmp_path, "ngrams").axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    predictor = load(tmp_path / "ngrams-ntm")
    best = predictor.evaluate([{"length": 9}], AlgorithmEvaluateOptions(num_sequences=160)).metrics["best"]
    assert set(lines) == {"NTM", "LSTM", "best possible"}
    assert lines["best possible"][0] == pytest.approx(best)
    assert min(lines["NTM"]) > best


def test_every_study_has_a_chinese_summary():
    assert all(study.summary_zh.endswith("。") for study in STUDIES.values())
