"""Recipes of pictures: trained, resumed, loaded, judged, looked at."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.captions import CaptionedImages, ImageArray
from regard.data.images import load_image, to_rgb
from regard.errors import ConfigError, DataError, InputError
from regard.tasks import ImageCaptioner, get_recipe, load, resume, train
from regard.tasks.captioning.predictor import caption_report
from regard.training import RunFolder, load_weights
from tests.recipes.albums import TINY, squares
from tests.recipes.tiny import quiet

pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.usefixtures("few_scenes")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squares")
    return {
        f"{name}_files": (squares(folder, name, count, seed),)
        for name, count, seed in (("train", 60, 0), ("valid", 12, 1), ("test", 20, 2))
    }


@pytest.fixture(scope="module")
def told(files, tmp_path_factory):
    """A run that has learned to name a color and a side."""
    folder = tmp_path_factory.mktemp("runs") / "squares"
    words = [
        "conv_channels=8",
        "feature_dim=40",
        "embed_dim=32",
        "hidden_dim=48",
        "image_size=24",
        "batch_size=30",
        "dropout=0",
        "min_word_count=1",
    ]
    rate = ["lr=0.01", "schedule=constant", "steps=100", "validate_every=50", "num_threads=1", "warmup_steps=5"]
    train("captions", folder, [*words, *rate], log=quiet, **files)
    return folder


def test_it_learns_to_tell(told, files):
    captioner = load(told)
    assert isinstance(captioner, ImageCaptioner)
    found = get_recipe("captions").task.judge(get_recipe("captions"), captioner)
    assert found["part"] == "test"
    assert found["pictures"] == 20
    assert found["bleu1"] > 90


def test_images_come_as_files_arrays_and_tensors(told, files):
    from PIL import Image

    captioner = load(told)
    path = str(files["test_files"][0]).replace(".jsonl", "/3.png")
    line = json.loads(Path(files["test_files"][0]).read_text(encoding="utf-8").splitlines()[3])
    with Image.open(path) as file:
        image = file.copy()
    pixels = torch.tensor(list(image.tobytes())).view(20, 24, 3)
    forms = [path, image, pixels.byte().numpy(), pixels / 255]
    assert captioner.caption(forms) == line["captions"] * 4
    assert captioner.caption([]) == []
    with pytest.raises(TypeError, match="takes many images"):
        captioner.caption(path)
    with pytest.raises(InputError, match="an image is"):
        captioner.caption([torch.rand(3, 20, 24)])
    with pytest.raises(InputError, match="numbers outside of 0"):
        captioner.caption([torch.rand(20, 24) * 300])
    with pytest.raises(DataError, match="There is no image"):
        captioner.caption(["nowhere.png"])


def test_transparent_is_white_however_an_image_comes(tmp_path):
    from PIL import Image

    pixels = np.zeros((16, 16, 4), dtype=np.uint8)
    pixels[..., 0], pixels[:, 8:, 3] = 255, 128  # nothing at the left, half of red at the right
    image = Image.fromarray(pixels)
    image.save(tmp_path / "clear.png")
    image.convert("LA").save(tmp_path / "gray.png")
    wanted = load_image(str(tmp_path / "clear.png"), 16, color=True)
    assert wanted[:, 0, 0].tolist() == [1, 1, 1]
    for form in (image, pixels, torch.from_numpy(pixels), pixels / 255):
        torch.testing.assert_close(load_image(form, 16, color=True), wanted, atol=0.004, rtol=0)
        torch.testing.assert_close(to_rgb(form), wanted.permute(1, 2, 0), atol=0.004, rtol=0)
    assert torch.equal(load_image(image.convert("LA"), 16), load_image(str(tmp_path / "gray.png"), 16))


def test_sixteen_bits_are_the_same_however_an_image_comes(tmp_path):
    from PIL import Image

    numbers = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    image = Image.fromarray(numbers)
    image.save(tmp_path / "deep.png")
    for form in (str(tmp_path / "deep.png"), image, numbers):
        found = load_image(form, 16)[0]
        torch.testing.assert_close(found, torch.from_numpy(numbers / 65535).float(), atol=0.002, rtol=0)
    with pytest.raises(DataError, match="the image has numbers of 32 bits"):
        load_image(Image.fromarray(np.ones((4, 4), dtype=np.float32)), 16)


def test_a_look_has_weights_for_each_word(told, files):
    captioner = load(told)
    looked = captioner.explain(str(files["test_files"][0]).replace(".jsonl", "/3.png"))
    assert looked.weights.shape == (len(looked.words), 3, 3)
    torch.testing.assert_close(looked.weights.sum((1, 2)), torch.ones(len(looked.words)))
    assert all(0 < share <= 1 for share in looked.probabilities)
    assert looked.caption == " ".join(looked.words)
    assert looked.image.shape == (20, 24, 3)
    assert looked.to_figure("a title").png()[1:4] == b"PNG"
    assert looked.words[0] in looked.to_text().splitlines()[0]
    plain = json.loads(json.dumps(looked.to_json()))
    assert len(plain["weights"]) == len(plain["words"])


def test_a_beam_finds_what_is_at_least_as_likely(told, files):
    captioner = load(told)
    pictures = captioner.to_model_input(str(files["test_files"][0]).replace(".jsonl", "/1.png"))[None]
    greedy = captioner.search(pictures, captioner.decoding_config(beam_size=1, length_penalty=0.0))[0]
    beam = captioner.search(pictures, captioner.decoding_config(beam_size=4, length_penalty=0.0))[0]
    assert beam.log_prob >= greedy.log_prob - 1e-5


@pytest.mark.parametrize("scope", ["soft", "hard", "none"])
def test_scenes_of_every_scope(scope, tmp_path):
    train("digit-scenes", tmp_path / "run", [*TINY, f"attention_scope={scope}"], log=quiet)
    captioner = load(tmp_path / "run")
    assert captioner.has_attention == (scope != "none")
    found = get_recipe("digit-scenes").task.judge(get_recipe("digit-scenes"), captioner)
    assert found["pictures"] == 20
    assert ("inside" in found) == (scope != "none")
    looked = captioner.explain(torch.rand(32, 32))
    if scope == "none":
        assert looked.weights is None
        with pytest.raises(ValueError, match="has no attention"):
            looked.to_figure()
    elif scope == "hard" and looked.words:
        assert set(looked.weights.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    "more", [["dropout=0.3", "doubly_stochastic_weight=0.1"], ["attention_scope=hard", "soft_warmup=0"]]
)
def test_an_interrupted_run_goes_on_bit_for_bit(more, tmp_path):
    train("digit-scenes", tmp_path / "whole", [*TINY, *more], log=quiet)
    train("digit-scenes", tmp_path / "parts", [*TINY, *more, "steps=2"], log=quiet)
    resume(tmp_path / "parts", log=quiet, steps=4)
    whole, again = (load_weights(RunFolder.open(tmp_path / name).find_weights()) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_files_go_on_bit_for_bit(files, tmp_path):
    words = [*TINY, "min_word_count=1"]
    train("captions", tmp_path / "whole", words, log=quiet, **files)
    train("captions", tmp_path / "parts", [*words, "steps=2"], log=quiet, **files)
    resume(tmp_path / "parts", log=quiet, steps=4)
    whole, again = (load_weights(RunFolder.open(tmp_path / name).find_weights()) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_hard_begins_with_soft(tmp_path):
    train("digit-scenes", tmp_path / "soft", TINY, log=quiet)
    outcome = train(
        "digit-scenes", tmp_path / "hard", [*TINY, "attention_scope=hard"], init_from=tmp_path / "soft", log=quiet
    )
    assert outcome.step == 4


def test_nothing_to_judge_is_said(told):
    with pytest.raises(DataError, match="nothing to evaluate"):
        caption_report(load(told), CaptionedImages(ImageArray(torch.zeros(0, 3, 24, 24)), []))


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("captions", [], "captions needs files to train on: --train"),
        ("captions", ["train_files=nowhere.jsonl", "valid_files=x.jsonl"], "there is no file .*nowhere.jsonl"),
        ("mnist-scenes", [], "needs its data: data_dir=FOLDER with the four files of MNIST"),
        ("mnist-scenes", ["data_dir=nowhere"], "there is no such folder"),
        ("flickr8k", ["data_dir=."], "there is no features.npz"),
        ("digit-scenes", ["color=on"], "invalid value 'on' for color"),
        ("digit-scenes", ["attention_scope=both"], "for attention_scope: expected one of soft, hard, none"),
        ("digit-scenes", ["monitor=bits"], "for monitor: expected one of loss, captions, digits, bleu"),
        ("digit-scenes", ["image_size=8"], "invalid value '8' for image_size: must be at least 16"),
        ("digit-scenes", ["feature_dim=16"], "invalid value '16' for feature_dim: must be above 16"),
        ("digit-scenes", ["soft_fraction=2"], "invalid value '2.0' for soft_fraction: must be at most 1"),
        (
            "digit-scenes",
            ["attention_scope=none", "score=dot"],
            "invalid value 'dot' for score: needs attention_scope=soft or attention_scope=hard",
        ),
        ("digit-scenes", ["score=nothing"], "invalid value 'nothing' for score"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_folder_is_made(name, words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        train(name, tmp_path / "run", words, log=quiet)
    assert not (tmp_path / "run").exists()
