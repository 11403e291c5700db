"""Captioned images, and the files they are read from."""

import json
from itertools import islice

import numpy as np
import pytest
import torch

from regard.data import Tokenizer
from regard.data.captions import CaptionBatches, CaptionedImages, ImageArray, read_captioned_images
from regard.data.images import read_image
from regard.errors import DataError

Image = pytest.importorskip("PIL.Image")

TEXTS = [[f"a{'b' * i} c", "a c d e"] for i in range(7)]


@pytest.fixture
def words():
    return Tokenizer.train([text for texts in TEXTS for text in texts], "word", 40)


@pytest.fixture
def captioned():
    numbers = torch.arange(7, dtype=torch.uint8)[:, None, None, None].expand(7, 1, 8, 8).contiguous()
    return CaptionedImages(ImageArray(numbers, 1.0), TEXTS)


def test_an_epoch_is_every_caption_once(captioned, words):
    data = CaptionBatches(captioned, words, batch_size=4)
    batches = [batch for batch, _ in islice(data.batches(), 4)]
    assert [len(batch) for batch in batches].count(4) == 3
    pairs = []
    for batch in batches:
        for image, row in zip(batch.images[:, 0, 0, 0].tolist(), batch.target.tolist(), strict=True):
            pairs.append((int(image), words.decode(row)))
    assert sorted(pairs) == sorted((i, text) for i, texts in enumerate(TEXTS) for text in texts)
    shuffled = [batch for batch, _ in islice(data.batches(), 8)][4:]
    assert [b.target.tolist() for b in batches] != [b.target.tolist() for b in shuffled]


def test_every_position_resumes_exactly(captioned, words):
    stream = list(islice(CaptionBatches(captioned, words, batch_size=4, seed=3).batches(), 9))
    for start in (0, 3, 5):
        resumed = CaptionBatches(captioned, words, batch_size=4, seed=3).batches(stream[start][1])
        for batch, position in stream[start + 1 :]:
            same, same_position = next(resumed)
            assert same_position == position
            assert torch.equal(same.target, batch.target)
            assert torch.equal(same.images, batch.images)
    with pytest.raises(DataError, match="changed since this position was saved"):
        next(CaptionBatches(captioned, words, batch_size=4, seed=4).batches(stream[0][1]))


def test_captions_that_are_too_long_are_counted(captioned, words):
    data = CaptionBatches(captioned, words, batch_size=4, max_length=3)
    assert len(data) == 7
    assert "7 over 3 tokens left out" in str(data.report)
    with pytest.raises(DataError, match="No caption can be used"):
        CaptionBatches(captioned, words, max_length=1)


def test_head(captioned):
    assert len(captioned.head(3)) == len(captioned.head(3).images) == 3
    assert captioned.head(3).images.select(slice(2, 3)).mean() == 2


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for name, mode, value in (("a.png", "RGB", (255, 0, 0)), ("b.jpg", "L", 128), ("c.png", "RGBA", (0, 0, 0, 0))):
        Image.new(mode, (20, 10), value).save(tmp_path / "images" / name)
    return tmp_path


def _jsonl(path, *records):
    path.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
    return path


def test_images_become_squares(folder):
    red, gray, clear = (read_image(folder / "images" / name, 16) for name in ("a.png", "b.jpg", "c.png"))
    assert red.shape == gray.shape == clear.shape == (3, 16, 16)
    assert red[:, 3, 3].tolist() == [255, 0, 0]
    assert abs(int(gray[0, 3, 3]) - 128) < 3
    assert clear.float().mean() == 255  # transparent is white
    assert read_image(folder / "images" / "a.png", 16, color=False).shape == (1, 16, 16)
    assert read_image(folder / "images" / "a.png").shape == (3, 10, 20)


def test_16_bits_are_scaled_by_their_full_range(tmp_path):
    numbers = np.repeat(np.array([[0, 1000, 32768, 65535]], dtype=np.uint16), 4, 0)
    Image.fromarray(numbers).save(tmp_path / "deep.png")
    Image.fromarray(numbers).save(tmp_path / "deep.tif")
    Image.fromarray(numbers).save(tmp_path / "clear.png", transparency=1000)
    for name, second in (("deep.png", 4), ("deep.tif", 4), ("clear.png", 255)):
        assert read_image(tmp_path / name, color=False)[0, 0].tolist() == [0, second, 128, 255]
        assert read_image(tmp_path / name)[2, 3].tolist() == [0, second, 128, 255]


@pytest.mark.parametrize(("mode", "dtype"), [("F", np.float32), ("I", np.int32)])
def test_numbers_without_a_known_range_are_refused(tmp_path, mode, dtype):
    Image.fromarray(np.ones((4, 4), dtype=dtype)).save(tmp_path / "wide.tif")
    with pytest.raises(DataError, match=rf"wide.tif has numbers of 32 bits \(mode {mode}\).* convert it"):
        read_image(tmp_path / "wide.tif")


def test_a_file_that_is_not_an_image_is_refused(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image at all")
    with pytest.raises(DataError) as caught:
        read_image(tmp_path / "bad.png")
    reason = "cannot be read as an image: unknown format; repair it or leave it out."
    assert str(caught.value) == f"{tmp_path / 'bad.png'} {reason}"


def test_exif_orientation(tmp_path):
    image = Image.fromarray(np.repeat(np.arange(8, dtype=np.uint8)[:, None] * 30, 4, 1))
    exif = image.getexif()
    exif[0x0112] = 3  # upside down
    image.save(tmp_path / "turned.png", exif=exif)
    assert read_image(tmp_path / "turned.png", color=False)[0, :, 0].tolist() == [i * 30 for i in range(7, -1, -1)]


def test_read_captioned_images(folder):
    file = _jsonl(
        folder / "x.jsonl",
        {"image": "images/a.png", "captions": ["red", "all red"]},
        "",
        {"image": "images/b.jpg", "caption": "gray"},
        {"image": "images/a.png", "captions": ["red again"]},
    )
    captioned = read_captioned_images([file], 16)
    assert captioned.captions == [["red", "all red", "red again"], ["gray"]]
    assert len(captioned.images) == 2
    assert captioned.images.select(slice(1))[0, :, 0, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "x.jsonl, line 2: not JSON"),
        ("[1]", 'x.jsonl, line 2: there is no "image"'),
        ('{"image": 3}', 'x.jsonl, line 2: there is no "image"'),
        ('{"image": "images/a.png"}', 'x.jsonl, line 2: "captions" must be a list of texts'),
        ('{"image": "images/a.png", "captions": []}', 'x.jsonl, line 2: "captions" must be a list'),
        ('{"image": "images/a.png", "captions": [" "]}', 'x.jsonl, line 2: "captions" must be a list'),
        ('{"image": "images/no.png", "captions": ["x"]}', "x.jsonl, line 2: There is no image .*no.png"),
        ('{"image": "images/bad.png", "captions": ["x"]}', "x.jsonl, line 2: .*bad.png cannot be read as an image"),
        ('{"image": "images", "captions": ["x"]}', "x.jsonl, line 2: .*images is a folder"),
        ('{"image": "images/cut.jpg", "captions": ["x"]}', "x.jsonl, line 2: .*cut.jpg cannot be read as an image"),
    ],
)
def test_errors_name_file_and_line(folder, line, sentence):
    (folder / "images" / "bad.png").write_bytes(b"no image at all")
    (folder / "images" / "cut.jpg").write_bytes((folder / "images" / "b.jpg").read_bytes()[:-40])
    file = _jsonl(folder / "x.jsonl", {"image": "images/a.png", "captions": ["red"]}, line)
    with pytest.raises(DataError, match=sentence):
        read_captioned_images([file], 16)


def test_an_empty_list_is_refused(folder):
    with pytest.raises(DataError, match="There are no captions in"):
        read_captioned_images([_jsonl(folder / "x.jsonl", "", " ")], 16)
