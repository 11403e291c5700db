"""Luong's gains: nine small trainings that differ in how they look, and in nothing else."""

import json

import pytest

from regard.studies import STUDIES
from regard.studies import bahdanau_luong as _luong2015
from regard.studies import bahdanau_luong as _shared
from tests.tasks.tiny_runs import PAIRS, quiet, write_pairs


@pytest.fixture
def captions(tmp_path, monkeypatch):
    """A folder in the form of Multi30k, and networks as small as it."""
    small = {"hidden_dim": 8, "embed_dim": 8, "vocab_size": 40, "batch_tokens": 400, "warmup_steps": 1}
    monkeypatch.setitem(_luong2015.SHARED_OPTIONS, "multi30k", {**_shared.SHARED_OPTIONS["multi30k"], **small})
    folder = tmp_path / "multi30k"
    for part, pairs in {"train": PAIRS[8:], "val": PAIRS[:4], "test_2016_flickr": PAIRS[4:8]}.items():
        write_pairs(folder, "two", part, pairs)
        (folder / f"{part}.fr").rename(folder / f"{part}.de")
    return folder


def test_all_ways_of_looking_are_trained_once_and_told_in_one_table(captions, tmp_path, monkeypatch):
    words, out = ["steps=2", "validate_every=2", "num_threads=1", "device=cpu"], tmp_path / "study"
    found = STUDIES["luong2015"].run(out, data=str(captions), log=quiet, overrides=words)
    names = [row["model"] for row in found["rows"]]
    assert names[0] == "none"
    assert names[-1] == "local-p (general) + feeding"
    assert len(set(names)) == 9
    assert all(0 <= row["bleu"] <= 100 and row["steps"] == 2 for row in found["rows"])
    assert [line.split(" | ")[0].strip("| ") for line in found["table"].splitlines()[2:11]] == names
    assert (out / "table.md").read_text(encoding="utf-8").strip() == found["table"].strip()
    kept = {number: json.loads((out / str(number) / "run.json").read_text())["config"] for number in range(9)}
    assert {settings["order"] for settings in kept.values()} == {"luong"}
    assert [number for number, settings in kept.items() if settings["radius"] == 10] == [7, 8]

    trained = []
    monkeypatch.setattr("regard.studies.runner.train", lambda *given, **named: trained.append(given))
    again = STUDIES["luong2015"].run(out, data=str(captions), log=quiet, overrides=words)
    assert [row["bleu"] for row in again["rows"]] == [row["bleu"] for row in found["rows"]]
    assert not trained
