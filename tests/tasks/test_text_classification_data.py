"""The data of imdb, movie-reviews and chnsenticorp, and the study of the first."""

import json
import lzma
import os
from pathlib import Path

import pytest
import torch

from regard.errors import DataError
from regard.studies.han2016 import compare_models, han2016
from regard.tasks import get_recipe, load, make_config, train
from tests.tasks.fixtures_reviews import TINY, reviews
from tests.tasks.tiny_runs import quiet


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Data in the form of the three recipes that read a folder."""
    folder = tmp_path_factory.mktemp("shared")
    for part, seed in (("train", 3), ("test", 4)):
        with lzma.open(folder / f"{part}.tsv.xz", "wt", encoding="utf-8") as file:
            file.writelines(f"{label}\t8\t{text}\\nYes.\n" for label, text in reviews(60, seed))
    with lzma.open(folder / "movie_reviews.jsonl.xz", "wt", encoding="utf-8") as file:
        for number, (label, text) in enumerate(reviews(50, 5)):
            record = {"id": number, "label": label, "fold": number % 10, "sentences": text.lower().split(". ")}
            file.write(json.dumps(record) + "\n")
    chinese = folder / "chn"
    chinese.mkdir()
    for name, texts in {
        "train": "很好 差 好 糟",
        "train.nodup": "很好 差 好",
        "dev": "好 差",
        "test": "好吧 糟",
    }.items():
        lines = (f"房间{text}。\t{int('好' in text)}\n" for text in texts.split())
        (chinese / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def test_imdb_holds_out_the_same_reviews_for_every_seed(shared):
    first, second = (
        get_recipe("imdb").load_data(make_config("imdb", data_dir=str(shared), seed=seed)) for seed in (0, 1)
    )
    assert list(first.valid) == list(second.valid)
    assert len(list(first.train)) + len(list(first.valid)) == 60
    assert not {document.line for document in first.train} & {document.line for document in first.valid}
    assert all(document.text.endswith("\nYes.") for document in first.tests["test"])


def test_movie_reviews_has_ten_folds(shared):
    tests = []
    for fold in range(10):
        config = make_config("movie-reviews", data_dir=str(shared), test_fold=fold)
        data = get_recipe("movie-reviews").load_data(config)
        train_documents, valid, test = map(list, (data.train, data.valid, data.tests["test"]))
        assert (len(train_documents), len(valid), len(test)) == (40, 5, 5)
        tests += test
    assert len(set(tests)) == len({document.text for document in tests})
    assert len(tests) == 50


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{bad", "line 2: not JSON"),
        ("", "line 2: not JSON"),
        ('{"label": "pos", "sentences": ["a"]}', "line 2: no fold, but the fold of a document must be 0 to 9"),
        ('{"label": "pos", "fold": "x", "sentences": ["a"]}', "line 2: fold 'x', but"),
        ('{"label": "pos", "fold": 10, "sentences": ["a"]}', "line 2: fold 10, but"),
        ('{"label": "pos", "fold": true, "sentences": ["a"]}', "line 2: fold True, but"),
    ],
)
def test_invalid_lines_of_movie_reviews(tmp_path, line, message):
    good = json.dumps({"label": "pos", "fold": 3, "sentences": ["a"]})
    (tmp_path / "movie_reviews.jsonl").write_text(f"{good}\n{line}\n{good}\n", encoding="utf-8")
    data = get_recipe("movie-reviews").load_data(make_config("movie-reviews", data_dir=str(tmp_path)))
    with pytest.raises(DataError, match=f"movie_reviews.jsonl, {message}"):
        list(data.train)


def test_chnsenticorp_leaves_out_test_texts_by_default(shared):
    name, data_dir = "chnsenticorp", str(shared / "chn")
    clean, full = (
        get_recipe(name).load_data(make_config(name, data_dir=data_dir, include_test_texts=include))
        for include in (False, True)
    )
    assert (len(list(clean.train)), len(list(full.train))) == (3, 4)
    assert [document.text for document in clean.tests["unseen"]] == ["房间好吧。"]
    assert len(list(clean.tests["test"])) == 2


def test_chinese_is_split_into_characters(shared, tmp_path):
    train("chnsenticorp", tmp_path / "run", [*TINY, f"data_dir={shared / 'chn'}"], log=quiet)
    explanation = load(tmp_path / "run").explain("房间很好！下次再来。")
    assert explanation.words == [["房", "间", "很", "好", "！"], ["下", "次", "再", "来", "。"]]


def test_compare_models_pairs_documents():
    right = {"attention": [[True, True, False, True], [True, True, True, True]], "linear": [[True, False, False, True]]}
    (comparison,) = compare_models(right)
    assert comparison["models"] == "attention - linear"
    assert comparison["difference"] == pytest.approx(37.5)
    pairs = torch.tensor([0.0, 1.0, 0.5, 0.0])
    assert comparison["standard error"] == pytest.approx(100 * float(pairs.std()) / 2)
    seeds = torch.tensor([0.75, 1.0]).var() / 2
    expected = 100 * float((pairs.var() / 4 + seeds) ** 0.5)
    assert comparison["with seeds"] == pytest.approx(expected)


def test_the_study_runs_and_resumes(shared, tmp_path):
    pytest.importorskip("sklearn")
    lines = []
    overrides = {"data_dir": str(shared), "steps": 30, "validate_every": 30, "save_every": 30}
    overrides |= {"hidden_dim": 8, "embed_dim": 8, "num_threads": 1, "vocab_size": 60, "batch_tokens": 400}
    result = han2016(tmp_path, "", overrides, lines.append, quick=True)
    assert [row["model"] for row in result["rows"]] == ["attention", "average", "max", "TF-IDF + linear"]
    assert [row["models"] for row in result["differences"]][2] == "attention - TF-IDF + linear"
    assert "| attention - max |" in result["table"]
    again = han2016(tmp_path, "", overrides, quiet, quick=True)
    assert again["differences"] == result["differences"]
    other = han2016(tmp_path, "", {**overrides, "seed": 7, "steps": 1}, quiet)
    assert [row["seed"] for row in other["rows"]] == [7, 7, 7, None]
    with pytest.raises(ValueError, match="--data FOLDER"):
        han2016(tmp_path, "", {}, quiet)


REAL = os.environ.get("REGARD_DATA")


@pytest.mark.skipif(REAL is None, reason="REGARD_DATA does not say where the data is")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("imdb", (22_500, 2_500, {"test": 25_000})),
        ("movie-reviews", (1600, 200, {"test": 200})),
        ("chnsenticorp", (7589, 1200, {"test": 1200, "unseen": 869})),
    ],
)
def test_sizes_of_the_real_data(name, sizes):
    data = get_recipe(name).load_data(make_config(name, data_dir=str(Path(str(REAL), name))))
    tests = {split: len(list(examples)) for split, examples in data.tests.items()}
    assert (len(list(data.train)), len(list(data.valid)), tests) == sizes
