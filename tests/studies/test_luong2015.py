"""The study of Luong et al.: nine small trainings that differ in their attention only."""

import json

import pytest

from regard.studies import STUDIES
from regard.studies.bahdanau_luong import SHARED_OPTIONS
from tests.tasks.tiny_runs import PAIRS, quiet, write_pairs


@pytest.fixture
def captions(tmp_path, monkeypatch):
    """A folder in the format of Multi30k, and options for equally small networks."""
    small = {"hidden_dim": 8, "embed_dim": 8, "vocab_size": 40, "batch_tokens": 400, "warmup_steps": 1}
    monkeypatch.setitem(SHARED_OPTIONS, "multi30k", {**SHARED_OPTIONS["multi30k"], **small})
    folder = tmp_path / "multi30k"
    for part, pairs in {"train": PAIRS[8:], "val": PAIRS[:4], "test_2016_flickr": PAIRS[4:8]}.items():
        write_pairs(folder, "two", part, pairs)
        (folder / f"{part}.fr").rename(folder / f"{part}.de")
    return folder


def test_every_variant_is_trained_once_and_has_a_row(captions, tmp_path, monkeypatch):
    overrides, out = ["steps=2", "validate_every=2", "num_threads=1", "device=cpu"], tmp_path / "study"
    result = STUDIES["luong2015"].run(out, data=str(captions), log=quiet, overrides=overrides)
    names = [row["model"] for row in result["rows"]]
    assert names[0] == "none"
    assert names[-1] == "local-p (general) + feeding"
    assert len(set(names)) == 9
    assert all(0 <= row["bleu"] <= 100 and row["steps"] == 2 for row in result["rows"])
    assert [line.split(" | ")[0].strip("| ") for line in result["table"].splitlines()[2:11]] == names
    assert (out / "table.md").read_text(encoding="utf-8").strip() == result["table"].strip()
    configs = [json.loads((out / str(index) / "run.json").read_text())["config"] for index in range(9)]
    assert {config["decoder_type"] for config in configs} == {"luong"}
    assert [index for index, config in enumerate(configs) if config["window_radius"] == 10] == [7, 8]

    trainings = []
    monkeypatch.setattr("regard.studies.runner.train", lambda *args, **kwargs: trainings.append(args))
    second = STUDIES["luong2015"].run(out, data=str(captions), log=quiet, overrides=overrides)
    assert [row["bleu"] for row in second["rows"]] == [row["bleu"] for row in result["rows"]]
    assert not trainings
