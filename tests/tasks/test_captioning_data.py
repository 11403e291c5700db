"""The data of image captioning: features, captions by name, words, and what is held out."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.captions import CaptionBatches, CaptionedImages, ImageArray
from regard.decoding import Hypothesis
from regard.errors import DataError, InputError
from regard.tasks import ImageCaptioner, get_recipe, get_task, load, make_config, train
from regard.tasks.captioning.predictor import caption_bleu
from regard.tasks.captioning.task import CaptioningProcessor, train_tokenizer
from regard.tasks.loading import evaluate
from regard.training import RunFolder
from tests.tasks.fixtures_images import TINY, write_features
from tests.tasks.tiny_runs import quiet

pytest.importorskip("PIL.Image")


def test_ready_features(tmp_path):
    data = write_features(tmp_path / "flickr")
    words = [
        "hidden_dim=24",
        "embed_dim=16",
        "batch_size=8",
        "steps=60",
        "validate_every=30",
        "lr=0.02",
        "warmup_steps=5",
        "beam_size=2",
    ]
    train(
        "flickr8k",
        tmp_path / "run",
        [*words, "min_word_count=2", "dropout=0", "num_threads=1"],
        log=quiet,
        data_dir=data,
    )
    captioner = load(tmp_path / "run")
    report = evaluate(tmp_path / "run")["test"]
    assert report.metrics["bleu4"] > 80
    rows = {row["captions"]: row for row in report.tables["comparison"]}
    assert rows["of the nearest training image"]["bleu4"] > 80
    assert captioner.tokenizer.decode([1]) == "<unk>"
    assert captioner.tokenizer.lowercase
    with pytest.raises(InputError, match="trained on features and cannot read images") as caught:
        captioner.predict(["dog.jpg"])
    assert caught.value.row == 0
    example = next(iter(get_recipe("flickr8k").load_data(captioner.config).tests["test"]))
    explanation = captioner.explain(captioner.get_input(example))
    assert explanation.weights.shape[1:] == (3, 3)
    assert explanation.image.shape == (56, 56, 3)


def load_splits(folder, *lines):
    """A folder as that of Flickr8k with other captions."""
    data = Path(write_features(folder))
    (data / "captions.tsv.xz").unlink()
    (data / "captions.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return get_recipe("flickr8k").load_data(make_config("flickr8k", data_dir=str(data)))


def test_features_and_captions_meet_by_name(tmp_path):
    config = make_config("flickr8k", data_dir=write_features(tmp_path / "whole"))
    whole = get_recipe("flickr8k").load_data(config).train.load()
    lines = ["\t".join([name, "train", *texts]) for name, texts in zip(whole.file_names, whole.captions, strict=True)]
    other = load_splits(tmp_path / "other", *reversed(lines), "").train.load()
    assert other.file_names == whole.file_names[::-1]
    assert torch.equal(other.images.values, whole.images.values.flip(0))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1.jpg a dog", r"captions.tsv, line 2: the second field must be the split \(train, dev, test\), not ''"),
        ("1.jpg\tval\ta dog", "line 2: the second field must be the split .*, not 'val'"),
        ("1.jpg\ttrain", "line 2: 1.jpg has no captions"),
        ("1.jpg\ttrain\t \t", "line 2: 1.jpg has no captions"),
        ("99.jpg\ttrain\ta dog", "line 2: .*features.npz has no features of 99.jpg"),
    ],
)
def test_a_line_of_captions_that_cannot_be_used_is_said(line, sentence, tmp_path):
    with pytest.raises(DataError, match=sentence):
        load_splits(tmp_path / "flickr", "0.jpg\ttrain\ta dog", line).train.load()


def test_a_split_without_lines_is_said(tmp_path):
    with pytest.raises(DataError, match="no line is of the split dev"):
        load_splits(tmp_path / "flickr", "0.jpg\ttrain\ta dog").valid.load()


def test_damaged_features_are_said(tmp_path):
    settings = make_config("flickr8k", data_dir=write_features(tmp_path / "flickr"))
    file = tmp_path / "flickr" / "features.npz"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"no features", b"", b"\x80\x04K\x01."):
        file.write_bytes(damaged)
        with pytest.raises(DataError) as caught:
            get_recipe("flickr8k").load_data(settings)
        assert str(caught.value) == f"{file} is damaged: it must be a NumPy archive of features; download it again"
    np.savez(file, q=np.zeros(3))
    with pytest.raises(DataError, match=r"q must be numbers \(dim, images, cells\), not float64 \(3,\)"):
        get_recipe("flickr8k").load_data(settings)
    np.savez(file, q=np.ones((8, 24, 9)))
    with pytest.raises(DataError, match="has no array 'image'"):
        get_recipe("flickr8k").load_data(settings).train.load()
    np.savez(file, q=np.ones((8, 24, 9)), image=["1.jpg"])
    with pytest.raises(DataError, match="image must be the names of the 24 images"):
        get_recipe("flickr8k").load_data(settings).train.load()


def test_rare_words_are_not_known():
    texts = [["a b c d e f"], ["A B C D E F"], ["a b c d e g"]]
    pictures = CaptionedImages(ImageArray(torch.zeros(3, 1, 8, 8)), texts)
    for least, known in ((1, "abcdefg"), (2, "abcdef"), (3, "abcde")):
        words = train_tokenizer(pictures, make_config("captions", min_word_count=least))
        assert sorted(words.vocabulary.tokens[4:]) == [f"▁{letter}" for letter in known]


def test_a_word_must_be_there_often_enough():
    pictures = CaptionedImages(ImageArray(torch.zeros(2, 1, 8, 8)), [["a b"], ["a c"]])
    with pytest.raises(DataError, match=r"min_word_count=1000: no word .*; the most frequent, 'a', occurs 2 times"):
        train_tokenizer(pictures, make_config("captions", min_word_count=1000))


def begun(folder, *words, **given):
    """What is said before a training of one step, in lines."""
    said = []
    train("captions", folder, [*TINY, "steps=1", "image_size=16", "batch_size=4", *words], log=said.append, **given)
    return said


@pytest.fixture
def told_of(tmp_path):
    """From captions to a file with an image for each."""
    from PIL import Image

    Image.new("RGB", (16, 16)).save(tmp_path / "x.png")

    def write(name, *captions):
        for place, _ in enumerate(captions):
            shutil.copy(tmp_path / "x.png", tmp_path / f"{name}{place}.png")
        lines = [json.dumps({"image": f"{name}{place}.png", "captions": [text]}) for place, text in enumerate(captions)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return (str(tmp_path / f"{name}.jsonl"),)

    return write


def test_both_parts_are_reported_before_the_training(told_of, tmp_path):
    train_on = told_of("train", *["a b c d e"] * 3, "a rare word")
    valid = told_of("valid", "a b x", "a b c d e a")
    said = begun(tmp_path / "run", "max_length=5", "min_word_count=2", train_files=train_on, valid_files=valid)
    assert said[0] == "train: 4 pairs read, 4 used; 2 of 18 tokens (11 %) are not in the vocabulary."
    assert said[1] == (
        "valid: 2 pairs read, 1 used; 1 over 5 tokens left out (line 2); 1 of 3 tokens (33 %) is not in the vocabulary."
    )
    assert RunFolder.open(tmp_path / "run").read_record()["data"]["valid"]["unknown"] == 1


@pytest.mark.parametrize("text", ["a b c d e a", "x y"])
def test_nothing_to_choose_by_is_said_before_the_training(text, told_of, tmp_path):
    train_on, valid = told_of("train", "a b c d e"), told_of("valid", text)
    with pytest.raises(DataError, match="valid: No caption can be used: 1 pair read"):
        begun(tmp_path / "run", "max_length=5", "min_word_count=1", train_files=train_on, valid_files=valid)
    assert not (tmp_path / "run").exists()


def test_every_twentieth_image_is_held_out(told_of, tmp_path):
    settings = make_config("captions", train_files=told_of("many", *(f"a {i}" for i in range(1, 46))), image_size=16)
    gallery = get_recipe("captions").load_data(settings)
    train_on, valid = gallery.train.load(), gallery.valid.load()
    assert valid.captions == [["a 20"], ["a 40"]]
    assert [Path(name).name for name in valid.file_names] == ["many19.png", "many39.png"]
    assert len(train_on) == len(train_on.images) == 43
    assert not {one for (one,) in train_on.captions} & {"a 20", "a 40"}
    few = make_config("captions", train_files=told_of("few", "a b"), image_size=16)
    with pytest.raises(DataError, match=r"have 1 image, too few to hold one of 20 out; .*--valid"):
        get_recipe("captions").load_data(few).train.load()


def test_that_images_are_held_out_is_said(told_of, tmp_path):
    said = begun(tmp_path / "run", train_files=told_of("many", *["a b c d e"] * 20))
    assert said[1] == "valid: 1 pair read, 1 used. Every twentieth image was held out for it."


def test_chinese_is_cut_into_characters_and_joined_again():
    text = "一只狗在雪地里奔跑。"
    pictures = CaptionedImages(ImageArray(torch.zeros(1, 1, 8, 8)), [[text]])
    settings = make_config("captions", min_word_count=1)
    words = train_tokenizer(pictures, settings)
    assert sorted(words.vocabulary.tokens[4:]) == sorted(f"▁{sign}" for sign in text)
    written = CaptionBatches(pictures, words).make_batch(torch.tensor([0])).target[0, 1:-1].tolist()
    assert len(written) == len(text)
    processor = CaptioningProcessor(words, color=True)
    captioner = ImageCaptioner(get_task("image-to-text").build_model(settings, processor), processor, settings)
    best = Hypothesis(written, 0.0, 0.0, [0.0] * len(text), True)
    assert captioner.to_text(best) == text
    captioner.search = lambda images, options: [best for _ in images]
    explanation = captioner.explain(torch.zeros(64, 64, 3))
    assert explanation.prediction.text == text
    assert explanation.names == list(text)
    assert caption_bleu([text], [[text]], lowercase=True)[0]["bleu4"] == pytest.approx(100)
