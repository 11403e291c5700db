"""Image captioning: training, resuming, loading, evaluation and explanations."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.captions import CaptionedImages, ImageArray
from regard.data.images import load_image, to_rgb
from regard.errors import ConfigError, DataError, InputError, UnsupportedError
from regard.tasks import ImageCaptioner, load, resume, train
from regard.tasks.captioning.config import CaptionExplainOptions, CaptionOptions
from regard.tasks.loading import evaluate
from regard.training import RunFolder, load_weights
from tests.tasks.fixtures_images import TINY, write_features, write_squares
from tests.tasks.tiny_runs import quiet

pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.usefixtures("few_scenes")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squares")
    return {
        f"{name}_files": (write_squares(folder, name, count, seed),)
        for name, count, seed in (("train", 60, 0), ("valid", 12, 1), ("test", 20, 2))
    }


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """A run that has learned to name a color and a side."""
    folder = tmp_path_factory.mktemp("runs") / "squares"
    sizes = ["conv_channels=8", "feature_dim=40", "embed_dim=32", "hidden_dim=48", "image_size=24", "batch_size=30"]
    more = ["dropout=0", "min_word_count=1", "lr=0.01", "schedule=constant", "warmup_steps=5", "num_threads=1"]
    train("captions", folder, [*sizes, *more, "steps=100", "validate_every=50"], log=quiet, **files)
    return folder


def image_path(files, number):
    return str(files["test_files"][0]).replace(".jsonl", f"/{number}.png")


def test_training_learns_captions(trained):
    assert isinstance(load(trained), ImageCaptioner)
    report = evaluate(trained)["test"]
    assert report.num_examples == 20
    assert report.metrics["bleu1"] > 90
    assert "tok:none" in report.signatures["bleu"]
    rows = {row["captions"]: row for row in report.tables["comparison"]}
    assert rows["of the model"]["bleu1"] == report.metrics["bleu1"]
    assert rows["of the model, without brevity penalty"]["bleu1"] >= report.metrics["bleu1"]
    assert evaluate(trained, "valid", limit=5)["valid"].num_examples == 5


def test_a_run_is_loaded_where_its_data_is_missing(tmp_path, monkeypatch):
    data = Path(write_features(tmp_path / "flickr"))
    sizes = ["hidden_dim=16", "embed_dim=8", "batch_size=8", "min_word_count=1", "num_threads=1"]
    train("flickr8k", tmp_path / "run", [*sizes, "steps=2", "validate_every=2"], log=quiet, data_dir=str(data))
    before = load(tmp_path / "run")
    data.rename(tmp_path / "elsewhere")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    after = load(tmp_path / "moved")
    assert after.processor.feature_dim == 8
    grid = torch.rand(9, 8)
    assert after.predict([grid]) == before.predict([grid])
    with pytest.raises(ConfigError, match="there is no such folder"):
        evaluate(tmp_path / "moved")


def test_predict_takes_files_arrays_and_tensors(trained, files):
    from PIL import Image

    captioner = load(trained)
    path = image_path(files, 3)
    line = json.loads(Path(files["test_files"][0]).read_text(encoding="utf-8").splitlines()[3])
    with Image.open(path) as file:
        image = file.copy()
    pixels = torch.tensor(list(image.tobytes())).view(20, 24, 3)
    forms = [path, image, pixels.byte().numpy(), pixels / 255]
    assert [caption.text for caption in captioner.predict(forms)] == line["captions"] * 4
    assert captioner.predict([]) == []
    with pytest.raises(TypeError, match="expects a list of images"):
        captioner.predict(path)
    with pytest.raises(InputError, match="an image must be"):
        captioner.predict([torch.rand(3, 20, 24)])
    with pytest.raises(InputError, match="numbers outside of 0"):
        captioner.predict([torch.rand(20, 24) * 300])
    with pytest.raises(DataError, match="There is no image"):
        captioner.predict(["nowhere.png"])


def test_transparent_pixels_are_white(tmp_path):
    from PIL import Image

    pixels = np.zeros((16, 16, 4), dtype=np.uint8)
    pixels[..., 0], pixels[:, 8:, 3] = 255, 128  # nothing at the left, half of red at the right
    image = Image.fromarray(pixels)
    image.save(tmp_path / "clear.png")
    image.convert("LA").save(tmp_path / "gray.png")
    expected = load_image(str(tmp_path / "clear.png"), 16, color=True)
    assert expected[:, 0, 0].tolist() == [1, 1, 1]
    for form in (image, pixels, torch.from_numpy(pixels), pixels / 255):
        torch.testing.assert_close(load_image(form, 16, color=True), expected, atol=0.004, rtol=0)
        torch.testing.assert_close(to_rgb(form), expected.permute(1, 2, 0), atol=0.004, rtol=0)
    assert torch.equal(load_image(image.convert("LA"), 16), load_image(str(tmp_path / "gray.png"), 16))


def test_images_of_16_bits_load_alike_from_files_arrays_and_pillow(tmp_path):
    from PIL import Image

    numbers = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    image = Image.fromarray(numbers)
    image.save(tmp_path / "deep.png")
    for form in (str(tmp_path / "deep.png"), image, numbers):
        loaded = load_image(form, 16)[0]
        torch.testing.assert_close(loaded, torch.from_numpy(numbers / 65535).float(), atol=0.002, rtol=0)
    with pytest.raises(DataError, match="the image has numbers of 32 bits"):
        load_image(Image.fromarray(np.ones((4, 4), dtype=np.float32)), 16)


def test_an_explanation_has_weights_for_each_word(trained, files, tmp_path):
    captioner = load(trained)
    explanation = captioner.explain(image_path(files, 3))
    caption = explanation.prediction
    assert captioner.predict([image_path(files, 3)])[0].words == caption.words
    assert explanation.weights.shape == (len(caption.words), 3, 3)
    assert explanation.names == list(caption.words)
    torch.testing.assert_close(explanation.weights.sum((1, 2)), torch.ones(len(caption.words)))
    assert all(0 < probability <= 1 for probability in caption.probabilities)
    assert caption.text == " ".join(caption.words)
    assert caption.score < 0
    assert explanation.image.shape == (20, 24, 3)
    assert explanation.to_text().startswith(f"{caption.text}\n\n{caption.words[0]}")
    for suffix in (".txt", ".json", ".html", ".png", ".svg"):
        explanation.save(tmp_path / f"caption{suffix}")
        assert (tmp_path / f"caption{suffix}").stat().st_size > 100
    plain = json.loads((tmp_path / "caption.json").read_text(encoding="utf-8"))
    assert len(plain["attention"][0]["queries"]) == len(plain["words"]) == len(plain["probabilities"])
    assert not captioner.explain(image_path(files, 3), CaptionExplainOptions(smooth=False)).smooth


def test_beam_search_is_at_least_as_probable_as_greedy_search(trained, files):
    captioner = load(trained)
    greedy, beam = (
        captioner.predict([image_path(files, 1)], CaptionOptions(beam_size=size, length_penalty=0.0))[0]
        for size in (1, 4)
    )
    assert beam.score >= greedy.score - 1e-5
    assert captioner.num_candidates(CaptionOptions(beam_size=4)) == 4


@pytest.mark.parametrize("scope", ["soft", "hard", "none"])
def test_scenes_of_every_scope(scope, tmp_path):
    train("digit-scenes", tmp_path / "run", [*TINY, f"attention_scope={scope}"], log=quiet)
    captioner = load(tmp_path / "run")
    assert captioner.has_attention == (scope != "none")
    report = evaluate(tmp_path / "run")["test"]
    assert report.num_examples == 20
    assert {"captions", "digits"} <= report.metrics.keys()
    assert ("inside" in report.metrics) == (scope != "none")
    explanation = captioner.explain(torch.rand(32, 32))
    if scope == "none":
        assert explanation.weights is None
        with pytest.raises(UnsupportedError, match=r"has no attention|the caption is empty"):
            explanation.to_figure()
    elif scope == "hard" and explanation.names:
        assert set(explanation.weights.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    "more", [["dropout=0.3", "doubly_stochastic_weight=0.1"], ["attention_scope=hard", "soft_warmup=0"]]
)
def test_a_resumed_run_is_equal_bit_for_bit(more, tmp_path):
    train("digit-scenes", tmp_path / "full", [*TINY, *more], log=quiet)
    train("digit-scenes", tmp_path / "parts", [*TINY, *more, "steps=2"], log=quiet)
    resume(tmp_path / "parts", log=quiet, steps=4)
    full, parts = (load_weights(RunFolder.open(tmp_path / name).find_weights()) for name in ("full", "parts"))
    assert all(torch.equal(full[name], parts[name]) for name in full)


def test_a_resumed_run_of_files_is_equal_bit_for_bit(files, tmp_path):
    options = [*TINY, "min_word_count=1"]
    train("captions", tmp_path / "full", options, log=quiet, **files)
    train("captions", tmp_path / "parts", [*options, "steps=2"], log=quiet, **files)
    resume(tmp_path / "parts", log=quiet, steps=4)
    full, parts = (load_weights(RunFolder.open(tmp_path / name).find_weights()) for name in ("full", "parts"))
    assert all(torch.equal(full[name], parts[name]) for name in full)


def test_hard_attention_begins_with_the_weights_of_soft_attention(tmp_path):
    train("digit-scenes", tmp_path / "soft", TINY, log=quiet)
    result = train(
        "digit-scenes", tmp_path / "hard", [*TINY, "attention_scope=hard"], init_from=tmp_path / "soft", log=quiet
    )
    assert result.step == 4


def test_the_state_of_the_loss_is_in_checkpoints_only(tmp_path):
    from safetensors.torch import load_file

    train("digit-scenes", tmp_path / "run", [*TINY, "attention_scope=hard"], log=quiet)
    run = RunFolder.open(tmp_path / "run")
    assert not {"num_batches", "baseline"} & load_weights(run.find_weights()).keys()
    state = {}
    for path in sorted(run.checkpoints.glob("*4/*.safetensors")):
        state |= load_file(path)
    assert [float(value) for name, value in state.items() if name.endswith("num_batches")] == [4]
    assert any(name.endswith("baseline") for name in state)


def test_evaluation_needs_images(trained):
    empty = CaptionedImages(ImageArray(torch.zeros(0, 3, 24, 24)), [])
    with pytest.raises(DataError, match="nothing to evaluate"):
        load(trained).evaluate(empty)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("captions", [], "captions needs files to train on: --train"),
        ("captions", ["train_files=nowhere.jsonl", "valid_files=x.jsonl"], "no such file: .*nowhere.jsonl"),
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
def test_invalid_options_are_refused_before_a_folder_is_created(name, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        train(name, tmp_path / "run", options, log=quiet)
    assert not (tmp_path / "run").exists()
