"""A flipped bit anywhere in the folder of a run is detected, or changes nothing."""

import random
import shutil

import pytest

from regard.errors import RegardError
from tests.fuzz.conftest import num_trials
from tests.serving.servers import tiny_run

pytestmark = pytest.mark.bare
SMALL_FILES = ("run.json", "processor/processor.json", "processor/source.json", "processor/target.json")
WEIGHTS = ("weights/best.safetensors",)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A translator, of which a few bits would change the translations."""
    return tiny_run(tmp_path_factory.mktemp("flipped") / "translation", embed_dim=8, num_layers=1, ffn_dim=8)


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def flip(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def require_sentence(error):
    assert 0 < len(str(error)) < 500
    assert "\n" not in str(error)


def translate(folder):
    from regard.tasks import load

    return [one.text for one in load(folder).predict(["abc def", "hello world"])]


@pytest.mark.parametrize("name", SMALL_FILES)
def test_every_byte_of_a_small_file(run, name):
    """The record and the processor as they are checked; a translation for each byte takes too long."""
    from regard.tasks import read_record
    from regard.tasks.registry import check_processor
    from regard.training import RunFolder

    def read():
        check_processor(RunFolder(run), record := read_record(RunFolder(run)))
        return record

    rng, before = random.Random(name), read()
    content, detected = (run / name).read_bytes(), 0
    for place in range(len(content)):
        flip(run / name, place, rng.randrange(8))
        try:
            record = read()
        except RegardError as error:
            require_sentence(error)
            detected += 1
        else:  # a space between two values, or the name of the checksum, which has no other use
            assert name == "run.json"
            assert {key: record[key] for key in before} == before
        (run / name).write_bytes(content)
    assert detected > 0.7 * len(content)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_sample_of_the_bits_of_weights(run, name):
    from regard.training import load_weights

    rng, before = random.Random(name), load_weights(run / name)
    content = (run / name).read_bytes()
    header = int.from_bytes(content[:8], "little") + 8
    places = list(range(0, header, num_trials(5, 1))) + rng.sample(
        range(header, len(content)), num_trials(200, len(content) - header)
    )
    for place in places:
        flip(run / name, place, rng.randrange(8))
        try:
            after = load_weights(run / name)
        except RegardError as error:
            require_sentence(error)
        else:
            assert place < header, "a value differs"
            assert after.keys() == before.keys()
            assert all(after[key].equal(before[key]) for key in before)
        (run / name).write_bytes(content)


def test_translations_are_the_same_or_refused(run):
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.parts[-2] != "recent"]
    rng, before = random.Random(num_trials(0, 1)), translate(run)
    for number in range(num_trials(24, 1000)):
        file = files[number % len(files)]
        content = file.read_bytes()
        if content:
            flip(file, rng.randrange(len(content)), rng.randrange(8))
        try:
            assert translate(run) == before, file
        except RegardError as error:
            require_sentence(error)
        file.write_bytes(content)


def test_damaged_weights_are_not_exported(run, tmp_path):
    from regard.errors import CheckpointCorruptError
    from regard.export import export

    path = run / "weights" / "best.safetensors"
    flip(path, path.stat().st_size - 100, 3)
    with pytest.raises(CheckpointCorruptError, match=r"best\.safetensors is damaged"):
        export(run, "safetensors", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_of_other_programs_have_no_checksum(tmp_path):
    import safetensors.torch
    import torch

    from regard.training import load_weights

    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "w.safetensors", {"format": "pt"})
    assert load_weights(tmp_path / "w.safetensors")["a"].tolist() == [1, 1]


def test_a_record_may_be_edited_without_its_checksum(run):
    from regard.errors import RunFormatError

    text = (run / "run.json").read_text()
    assert '"beam_size": 2' in text
    (run / "run.json").write_text(text.replace('"beam_size": 2', '"beam_size": 3'))
    with pytest.raises(RunFormatError, match='remove "sha256"'):
        translate(run)
    lines = (run / "run.json").read_text().splitlines()
    assert lines[1].startswith('  "sha256": ')
    (run / "run.json").write_text("\n".join([lines[0], *lines[2:]]))
    translate(run)
