"""The studies of attention over images: both tables are written."""

import pytest

from regard.studies import vision as studies
from regard.studies.vision import vision, xu2015
from regard.tasks import grid
from tests.tasks.tiny_runs import quiet

pytest.importorskip("PIL.Image")

SMALL = {"image_size": 32, "conv_channels": 4, "feature_dim": 24, "hidden_dim": 8, "batch_size": 8, "num_threads": 1}
SHORT = {"steps": 2, "validate_every": 2, "save_every": 2}


@pytest.fixture(autouse=True)
def _few_scenes(monkeypatch):
    monkeypatch.setattr(grid, "NUM_VALID_SCENES", 12)
    monkeypatch.setattr(grid, "NUM_TEST_SCENES", 20)


@pytest.fixture(autouse=True)
def _small_networks(monkeypatch):
    trial = studies.run_trial
    monkeypatch.setattr(studies, "run_trial", lambda *args, **values: trial(*args, **{**values, **SMALL}))


def test_xu2015_compares_the_scopes(tmp_path):
    found = xu2015(tmp_path, "reverse", {**SHORT, "embed_dim": 8}, quiet)
    assert [row["scope"] for row in found["rows"]] == ["soft", "hard", "none"]
    assert "| scope | captions | digits | inside |" in found["table"]
    assert (tmp_path / "table.md").is_file()
    with pytest.raises(ValueError, match="neither Flickr8k"):
        xu2015(tmp_path, "reverse", {"data_dir": str(tmp_path)}, quiet)


def test_vision_compares_poolings(tmp_path, monkeypatch):
    for name in ("IMAGE_VARIANTS", "QUESTION_VARIANTS"):  # the first and the last are enough
        variants = list(getattr(studies, name).items())
        monkeypatch.setattr(studies, name, dict([variants[0], variants[-1]]))
    found = vision(tmp_path, "reverse", SHORT, quiet)
    assert [row["pooling"] for row in found["images"]] == [*studies.IMAGE_VARIANTS]
    assert [row["pooling"] for row in found["questions"]] == [*studies.QUESTION_VARIANTS]
    assert "| pooling | accuracy | inside |" in found["table"]
    assert "| there | count | where |" in found["table"]
    assert (tmp_path / "table.md").is_file()


def test_xu2015_has_the_rows_of_the_paper_for_flickr8k(tmp_path, monkeypatch):
    from tests.tasks.fixtures_images import write_features

    data = write_features(tmp_path / "flickr")
    values = {**SHORT, "embed_dim": 8, "min_word_count": 1, "data_dir": data}
    found = xu2015(tmp_path / "study", "reverse", values, quiet)
    assert found["recipe"] == "flickr8k"
    scopes = [row["scope"] for row in found["rows"]]
    assert scopes == ["soft", "hard", "none", "caption of the nearest training image", "paper, soft", "paper, hard"]
    assert found["rows"][3]["bleu4"] > 80
    assert all(row["bleu1_bare"] >= row["bleu1"] for row in found["rows"][:4])
