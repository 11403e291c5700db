"""Training from parallel files: every file type, omitted pairs, and invalid files."""

import json
import shutil

import pytest

from regard.errors import ConfigError, DataError
from regard.tasks import load, make_config, resume, train
from regard.tasks.translation import data
from tests.tasks.tiny_runs import FILES, PAIRS, TINY, final_state, quiet, write_pairs

pytestmark = pytest.mark.usefixtures("small_vocabulary")


def overrides_for(folder, form):
    extra = {"tsv columns": ["columns=2,0"], "jsonl keys": ["columns=en,fr"]}.get(form, [])
    return [
        *FILES,
        f"train_files={write_pairs(folder, form)}",
        f"valid_files={write_pairs(folder, form, 'v', PAIRS[::5])}",
        *extra,
    ]


@pytest.fixture(scope="module")
def from_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    train("translation", folder / "run", overrides_for(folder, "two"), log=quiet)
    return folder / "run"


@pytest.mark.parametrize("form", ["tsv", "tsv columns", "gz", "jsonl", "jsonl keys"])
def test_every_form_of_file_gives_the_same_run(from_files, tmp_path, form):
    train("translation", tmp_path / "run", overrides_for(tmp_path, form), log=quiet)
    assert final_state(tmp_path / "run") == final_state(from_files)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["train"]["used"] == len(PAIRS)


@pytest.mark.parametrize(
    ("form", "columns", "part"),
    [
        ("tsv columns", "en,de", "numbers"),
        ("tsv columns", "-1,0", "numbers"),
        ("tsv columns", "0,en", "numbers"),
        ("jsonl keys", "0,1", "names"),
    ],
)
def test_columns_that_do_not_fit_the_file_are_refused(tmp_path, form, columns, part):
    files = write_pairs(tmp_path, form)
    with pytest.raises(ConfigError) as caught:
        train(
            "translation",
            tmp_path / "run",
            [*FILES, f"train_files={files}", f"valid_files={files}", f"columns={columns}"],
            log=quiet,
        )
    for lines in (f"columns {columns}", files, part):
        assert lines in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_columns_do_not_apply_to_plain_files(tmp_path):
    words = [
        f"train_files={write_pairs(tmp_path, 'tsv columns')}",
        f"valid_files={write_pairs(tmp_path, 'two')}",
        "columns=2,0",
    ]
    splits = data.translation(make_config("translation", [*FILES, *words]))
    (first, _), (same, _) = next(iter(splits.train)), next(iter(splits.valid))
    assert first == same


def test_a_stream_trains_and_resumes(tmp_path):
    words = [*overrides_for(tmp_path, "gz"), "streaming=on"]
    train("translation", tmp_path / "run", words, log=quiet)
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    for step in (6, 8):
        shutil.rmtree(tmp_path / "cut" / "checkpoints" / f"step-{step:08d}")
    (tmp_path / "cut" / "weights" / "best.safetensors").unlink()
    resume(tmp_path / "cut", log=quiet)
    assert final_state(tmp_path / "cut")["model.safetensors"] == final_state(tmp_path / "run")["model.safetensors"]
    assert len(load(tmp_path / "run").translate(["the red cat is here"])) == 1


def test_relative_paths_are_made_absolute(tmp_path, monkeypatch):
    write_pairs(tmp_path / "text", "tsv")
    monkeypatch.chdir(tmp_path / "text")
    train("translation", tmp_path / "run", [*FILES, "train_files=a.tsv", "valid_files=a.tsv", "steps=4"], log=quiet)
    monkeypatch.chdir(tmp_path)
    assert resume(tmp_path / "run", log=quiet, steps=5).step == 5


def test_omitted_pairs_are_reported(tmp_path):
    pairs = [("", "vide"), *PAIRS, ("the cat " * 40, "le chat"), ("un", " ")]
    train_files, valid = write_pairs(tmp_path, "tsv", "a", pairs), write_pairs(tmp_path, "tsv", "v", pairs)
    lines = []
    words = [*FILES, f"train_files={train_files}", f"valid_files={valid}", "max_length=30", "steps=2"]
    train("translation", tmp_path / "run", words, log=lines.append)
    record = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    for part in ("train", "valid"):
        assert (record[part]["read"], record[part]["used"]) == (len(pairs), len(PAIRS))
        assert record[part]["empty_lines"] == [1, len(pairs)]
        assert record[part]["too_long_lines"] == [len(pairs) - 1]
    assert any("2 with an empty side left out" in line for line in lines)


@pytest.mark.parametrize("which", ["train", "valid"])
def test_overflow_error_names_the_line(tmp_path, which):
    pairs = [*PAIRS, ("the cat " * 40, "le chat")]
    good, long = write_pairs(tmp_path, "tsv"), write_pairs(tmp_path, "tsv", "v", pairs)
    files = {"train": good, "valid": good, which: long}
    words = [*FILES, *(f"{split}_files={path}" for split, path in files.items()), "max_length=30", "overflow=error"]
    with pytest.raises(DataError) as caught:
        train("translation", tmp_path / "run", words, log=quiet)
    assert f"Line {len(pairs)} of {tmp_path}/v.tsv" in str(caught.value)
    assert "set overflow to drop or truncate" in str(caught.value)


def test_overflow_truncate_applies_to_validation_pairs(tmp_path):
    pairs = [*PAIRS[:4], ("the cat " * 40, "le chat"), ("the cat", "le chat " * 40)]
    valid, files = write_pairs(tmp_path, "tsv", "v", pairs), write_pairs(tmp_path, "tsv", "a", PAIRS)
    words = [
        *FILES,
        f"train_files={files}",
        f"valid_files={valid}",
        "max_length=30",
        "steps=1",
        "overflow=truncate",
        "monitor=bleu",
    ]
    lines = []
    train("translation", tmp_path / "run", words, log=lines.append)
    record = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["valid"]
    assert (record["read"], record["used"], record["too_long_lines"]) == (6, 6, [5, 6])
    assert any("2 over 30 tokens truncated (lines 5, 6)" in line for line in lines)


def test_too_small_batches_name_their_option(tmp_path):
    files = write_pairs(tmp_path, "tsv", "a", [*PAIRS, ("the cat " * 40, "le chat")])
    words = [*FILES, f"train_files={files}", f"valid_files={files}", "batch_tokens=30"]
    with pytest.raises(DataError, match="a batch holds 30; raise batch_tokens, or set max_length"):
        train("translation", tmp_path / "run", words, log=quiet)


def test_generated_pairs_are_counted(tmp_path):
    lines = []
    train("dates", tmp_path / "run", [*TINY, "steps=1", "max_length=12"], log=lines.append)
    record = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["train"]
    assert record["read"] == record["used"] + record["too_long"] > record["too_long"] > 0
    assert record["is_generated"] is True
    assert any(line.startswith("train: ") and "over 12 tokens left out" in line for line in lines)


def test_resume_notices_a_changed_file(tmp_path):
    words = [
        *FILES,
        f"train_files={write_pairs(tmp_path, 'tsv')}",
        f"valid_files={write_pairs(tmp_path, 'tsv', 'v')}",
        "steps=4",
    ]
    train("translation", tmp_path / "run", words, log=quiet)
    write_pairs(tmp_path, "tsv", "a", PAIRS[::-1])
    with pytest.raises(DataError, match="changed"):
        resume(tmp_path / "run", log=quiet, steps=8)


def wrong_files(folder):
    good = write_pairs(folder, "tsv", "good")
    (folder / "short.en").write_text("a\nb\n")
    (folder / "long.fr").write_text("a\nb\nc\n")
    (folder / "latin.tsv").write_bytes(b"a\tb\n\xe9t\xe9\tc\n")
    (folder / "one.tsv").write_text("a\tb\nonly one\n")
    (folder / "bad.jsonl").write_text('{"source": "a", "target": "b"}\n{"source"\n')
    (folder / "keys.jsonl").write_text('{"src": "a", "tgt": "b"}\n')
    (folder / "empty.tsv").write_text("")
    (folder / "blank.tsv").write_text("\t\n \t \n")
    (folder / "bad.tsv.gz").write_bytes(b"no gzip at all")
    return good


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ("missing.tsv", ["missing.tsv"]),
        ("short.en,long.fr", ["short.en has 2 lines", "long.fr has 3 lines"]),
        ("latin.tsv", ["latin.tsv", "line 2"]),
        ("one.tsv", ["one.tsv, line 2"]),
        ("bad.jsonl", ["bad.jsonl, line 2"]),
        ("keys.jsonl", ["keys.jsonl, line 1", "'src'"]),
        ("empty.tsv", ["empty.tsv"]),
        ("bad.tsv.gz", ["bad.tsv.gz"]),
        ("short.en", ["short.en"]),
        ("blank.tsv", []),
    ],
)
@pytest.mark.parametrize("which", ["train", "valid"])
@pytest.mark.parametrize("stream", ["off", "on"])
def test_invalid_files_are_refused_in_one_sentence(tmp_path, files, parts, which, stream):
    good = wrong_files(tmp_path)
    paths = ",".join(f"{tmp_path}/{name}" for name in files.split(","))
    options = {"train_files": good, "valid_files": good, f"{which}_files": paths, "streaming": stream}
    with pytest.raises(DataError) as caught:
        train("translation", tmp_path / "run", [*FILES, *(f"{k}={v}" for k, v in options.items())], log=quiet)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["train_files=latin.tsv", "valid_files=one.tsv", "score=dott", "init_from"])
def test_a_failed_start_leaves_the_folder_free(tmp_path, wrong):
    """After the option is corrected, the same command works."""
    good = wrong_files(tmp_path)
    right = [*FILES, f"train_files={good}", f"valid_files={good}", "steps=1"]
    name, _, value = wrong.partition("=")
    if not value:
        train("reverse", tmp_path / "letters", [*TINY, "steps=1"], log=quiet)  # its weights do not fit
    bad = [f"{name}={tmp_path / value if name != 'score' else value}"] if value else ["hidden_dim=24"]
    with pytest.raises(ValueError):  # noqa: PT011 - the messages are tested above
        train(
            "translation",
            tmp_path / "run",
            [*right, *bad],
            init_from=None if value else tmp_path / "letters",
            log=quiet,
        )
    train("translation", tmp_path / "run", right, log=quiet)


@pytest.mark.parametrize("words", [[], ["train_files=a.tsv"], ["valid_files=a.tsv"]])
def test_files_are_needed(tmp_path, words):
    with pytest.raises(ConfigError, match="translation needs text"):
        train("translation", tmp_path / "run", [*FILES, *words], log=quiet)
    assert not (tmp_path / "run").exists()


def test_recipes_name_the_data_that_they_need(tmp_path):
    for name in ("multi30k", "multi30k-tok", "tatoeba-zh-en", "tatoeba-fr-en", "g2p"):
        with pytest.raises(ConfigError, match="data_dir=FOLDER"):
            train(name, tmp_path / "run", log=quiet)
        with pytest.raises(ConfigError, match="there is no such folder"):
            train(name, tmp_path / "run", [f"data_dir={tmp_path}/none"], log=quiet)
    with pytest.raises(ConfigError, match="invalid value 'en-ja' for language_pair"):
        train("multi30k", tmp_path / "run", [f"data_dir={tmp_path}", "language_pair=en-ja"], log=quiet)
    assert make_config("g2p").language_pair == "eng_us"
