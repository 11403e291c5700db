"""The studies of images: rows and tables."""

import pytest

from regard.studies import vision as studies
from regard.studies.vision import vision, xu2015
from regard.tasks import grid
from tests.tasks.tiny_runs import quiet

pytest.importorskip("PIL.Image")

SMALL = {"image_size": 32, "conv_channels": 4, "feature_dim": 24, "hidden_dim": 8, "batch_size": 8, "num_threads": 1}
QUICK_OPTIONS = {"steps": 2, "validate_every": 2, "save_every": 2}


@pytest.fixture(autouse=True)
def few_scenes(monkeypatch):
    monkeypatch.setattr(grid, "NUM_VALID_SCENES", 12)
    monkeypatch.setattr(grid, "NUM_TEST_SCENES", 20)


@pytest.fixture(autouse=True)
def small_networks(monkeypatch):
    run_trial = studies.run_trial
    monkeypatch.setattr(studies, "run_trial", lambda *args, **values: run_trial(*args, **{**values, **SMALL}))


def test_xu2015_compares_the_scopes(tmp_path):
    result = xu2015(tmp_path, "reverse", {**QUICK_OPTIONS, "embed_dim": 8}, quiet)
    assert [row["scope"] for row in result["rows"]] == ["soft", "hard", "none"]
    assert "| scope | captions | digits | inside |" in result["table"]
    with pytest.raises(ValueError, match="neither Flickr8k"):
        xu2015(tmp_path, "reverse", {"data_dir": str(tmp_path)}, quiet)


def test_vision_compares_poolings(tmp_path, monkeypatch):
    for name in ("IMAGE_VARIANTS", "QUESTION_VARIANTS"):  # the first and the last are enough
        variants = list(getattr(studies, name).items())
        monkeypatch.setattr(studies, name, dict([variants[0], variants[-1]]))
    result = vision(tmp_path, "reverse", QUICK_OPTIONS, quiet)
    assert [row["pooling"] for row in result["images"]] == [*studies.IMAGE_VARIANTS]
    assert [row["pooling"] for row in result["questions"]] == [*studies.QUESTION_VARIANTS]
    assert "| pooling | accuracy | inside |" in result["table"]
    assert "| there | count | where |" in result["table"]


def test_xu2015_has_the_rows_of_the_paper_for_flickr8k(tmp_path, monkeypatch):
    from tests.tasks.fixtures_images import write_features

    data = write_features(tmp_path / "flickr")
    values = {**QUICK_OPTIONS, "embed_dim": 8, "min_word_count": 1, "data_dir": data}
    result = xu2015(tmp_path / "study", "reverse", values, quiet)
    assert result["recipe"] == "flickr8k"
    scopes = [row["scope"] for row in result["rows"]]
    assert scopes == ["soft", "hard", "none", "caption of the nearest training image", "paper, soft", "paper, hard"]
    assert result["rows"][3]["bleu4"] > 80
    assert all(row["bleu1_bare"] >= row["bleu1"] for row in result["rows"][:4])
