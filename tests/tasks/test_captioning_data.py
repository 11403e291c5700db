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
    """The splits of a folder as that of Flickr8k with other captions."""
    data = Path(write_features(folder))
    (data / "captions.tsv.xz").unlink()
    (data / "captions.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return get_recipe("flickr8k").load_data(make_config("flickr8k", data_dir=str(data)))


def test_features_and_captions_are_matched_by_name(tmp_path):
    config = make_config("flickr8k", data_dir=write_features(tmp_path / "full"))
    full = get_recipe("flickr8k").load_data(config).train.load()
    lines = ["\t".join([name, "train", *texts]) for name, texts in zip(full.file_names, full.captions, strict=True)]
    other = load_splits(tmp_path / "other", *reversed(lines), "").train.load()
    assert other.file_names == full.file_names[::-1]
    assert torch.equal(other.images.values, full.images.values.flip(0))


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
def test_errors_name_the_line_of_captions(line, sentence, tmp_path):
    with pytest.raises(DataError, match=sentence):
        load_splits(tmp_path / "flickr", "0.jpg\ttrain\ta dog", line).train.load()


def test_error_for_a_split_without_lines(tmp_path):
    with pytest.raises(DataError, match="no line is of the split dev"):
        load_splits(tmp_path / "flickr", "0.jpg\ttrain\ta dog").valid.load()


def test_errors_for_damaged_features(tmp_path):
    config = make_config("flickr8k", data_dir=write_features(tmp_path / "flickr"))
    file = tmp_path / "flickr" / "features.npz"
    full = file.read_bytes()
    for damaged in (full[: len(full) // 2], b"no features", b"", b"\x80\x04K\x01."):
        file.write_bytes(damaged)
        with pytest.raises(DataError) as caught:
            get_recipe("flickr8k").load_data(config)
        assert str(caught.value) == f"{file} is damaged: it must be a NumPy archive of features; download it again"
    np.savez(file, q=np.zeros(3))
    with pytest.raises(DataError, match=r"q must be numbers \(dim, images, cells\), not float64 \(3,\)"):
        get_recipe("flickr8k").load_data(config)
    np.savez(file, q=np.ones((8, 24, 9)))
    with pytest.raises(DataError, match="has no array 'image'"):
        get_recipe("flickr8k").load_data(config).train.load()
    np.savez(file, q=np.ones((8, 24, 9)), image=["1.jpg"])
    with pytest.raises(DataError, match="image must be the names of the 24 images"):
        get_recipe("flickr8k").load_data(config).train.load()


def test_rare_words_are_not_in_the_vocabulary():
    texts = [["a b c d e f"], ["A B C D E F"], ["a b c d e g"]]
    images = CaptionedImages(ImageArray(torch.zeros(3, 1, 8, 8)), texts)
    for min_count, expected in ((1, "abcdefg"), (2, "abcdef"), (3, "abcde")):
        words = train_tokenizer(images, make_config("captions", min_word_count=min_count))
        assert sorted(words.vocabulary.tokens[4:]) == [f"▁{letter}" for letter in expected]


def test_error_if_no_word_is_frequent_enough():
    images = CaptionedImages(ImageArray(torch.zeros(2, 1, 8, 8)), [["a b"], ["a c"]])
    with pytest.raises(DataError, match=r"min_word_count=1000: no word .*; the most frequent, 'a', occurs 2 times"):
        train_tokenizer(images, make_config("captions", min_word_count=1000))


def train_one_step(folder, *overrides, **options):
    """The log of a training of one step."""
    lines = []
    train(
        "captions", folder, [*TINY, "steps=1", "image_size=16", "batch_size=4", *overrides], log=lines.append, **options
    )
    return lines


@pytest.fixture
def write_captions(tmp_path):
    """A function that writes a file of captions with an image for each."""
    from PIL import Image

    Image.new("RGB", (16, 16)).save(tmp_path / "x.png")

    def write(name, *captions):
        for place, _ in enumerate(captions):
            shutil.copy(tmp_path / "x.png", tmp_path / f"{name}{place}.png")
        lines = [json.dumps({"image": f"{name}{place}.png", "captions": [text]}) for place, text in enumerate(captions)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return (str(tmp_path / f"{name}.jsonl"),)

    return write


def test_both_splits_are_reported_before_the_training(write_captions, tmp_path):
    train_files = write_captions("train", *["a b c d e"] * 3, "a rare word")
    valid = write_captions("valid", "a b x", "a b c d e a")
    lines = train_one_step(
        tmp_path / "run", "max_length=5", "min_word_count=2", train_files=train_files, valid_files=valid
    )
    assert lines[0] == "train: 4 pairs read, 4 used; 2 of 18 tokens (11 %) are not in the vocabulary."
    assert lines[1] == (
        "valid: 2 pairs read, 1 used; 1 over 5 tokens left out (line 2); 1 of 3 tokens (33 %) is not in the vocabulary."
    )
    assert RunFolder.open(tmp_path / "run").read_record()["data"]["valid"]["unknown"] == 1


@pytest.mark.parametrize("text", ["a b c d e a", "x y"])
def test_error_for_a_validation_split_without_usable_captions(text, write_captions, tmp_path):
    train_files, valid = write_captions("train", "a b c d e"), write_captions("valid", text)
    with pytest.raises(DataError, match="valid: No caption can be used: 1 pair read"):
        train_one_step(tmp_path / "run", "max_length=5", "min_word_count=1", train_files=train_files, valid_files=valid)
    assert not (tmp_path / "run").exists()


def test_every_twentieth_image_is_held_out(write_captions, tmp_path):
    config = make_config(
        "captions", train_files=write_captions("many", *(f"a {i}" for i in range(1, 46))), image_size=16
    )
    splits = get_recipe("captions").load_data(config)
    train_images, valid = splits.train.load(), splits.valid.load()
    assert valid.captions == [["a 20"], ["a 40"]]
    assert [Path(name).name for name in valid.file_names] == ["many19.png", "many39.png"]
    assert len(train_images) == len(train_images.images) == 43
    assert not {one for (one,) in train_images.captions} & {"a 20", "a 40"}
    few = make_config("captions", train_files=write_captions("few", "a b"), image_size=16)
    with pytest.raises(DataError, match=r"few.jsonl has 1 example, too few to hold one of 20 out; .*--valid"):
        get_recipe("captions").load_data(few).valid.load()


def test_report_says_that_images_were_held_out(write_captions, tmp_path):
    lines = train_one_step(tmp_path / "run", train_files=write_captions("many", *["a b c d e"] * 20))
    assert lines[1] == "valid: 1 pair read, 1 used. Every twentieth image was held out for it."


def test_chinese_captions_are_split_into_characters():
    text = "一只狗在雪地里奔跑。"
    images = CaptionedImages(ImageArray(torch.zeros(1, 1, 8, 8)), [[text]])
    config = make_config("captions", min_word_count=1)
    words = train_tokenizer(images, config)
    assert sorted(words.vocabulary.tokens[4:]) == sorted(f"▁{sign}" for sign in text)
    token_ids = CaptionBatches(images, words).make_batch(torch.tensor([0])).target[0, 1:-1].tolist()
    assert len(token_ids) == len(text)
    processor = CaptioningProcessor(words, color=True)
    captioner = ImageCaptioner(get_task("image-to-text").build_model(config, processor), processor, config)
    best = Hypothesis(token_ids, 0.0, 0.0, [0.0] * len(text), True)
    assert captioner.to_text(best) == text
    captioner.search = lambda images, options: [best for _ in images]
    explanation = captioner.explain(torch.zeros(64, 64, 3))
    assert explanation.prediction.text == text
    assert explanation.names == list(text)
    assert caption_bleu([text], [[text]], lowercase=True)[0]["bleu4"] == pytest.approx(100)
