"""Scenes of digits: images, boxes and captions agree."""

import gzip
import struct

import pytest
import torch

from regard.data import EOS_ID, Tokenizer
from regard.data.captions import SceneCaptionCollator
from regard.data.images import Digits, load_mnist, load_sklearn_digits
from regard.data.scenes import CAPTION_WORDS, SceneGenerator
from regard.data.sources import GeneratedBatches, seeded_generator
from regard.errors import DataError


@pytest.fixture(scope="module")
def scenes():
    return SceneGenerator(load_sklearn_digits("train"))


@pytest.fixture(scope="module")
def rendered(scenes):
    return scenes.sample(seeded_generator(1), 300)


def test_splits_share_no_digit():
    parts = [load_sklearn_digits(name) for name in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [1347, 150, 300]
    digits = [{tuple(image.flatten().tolist()) for image in part.images} for part in parts]
    assert not digits[0] & digits[1]
    assert not (digits[0] | digits[1]) & digits[2]
    assert all(set(part.labels.tolist()) == set(range(10)) for part in parts)


def test_boxes_are_separate_and_inside_the_scene(rendered):
    left, top, right, bottom = rendered.boxes.unbind(-1)
    assert int(rendered.boxes.min()) >= 0
    assert int(rendered.boxes.max()) <= 64
    sides = right - left
    assert torch.equal(sides, bottom - top)
    assert set(sides.flatten().tolist()) == {8, 9, 10, 11, 13, 14, 15, 16}
    for a, b in ((0, 1), (0, 2), (1, 2)):
        is_separate = (right[:, a] < left[:, b]) | (bottom[:, a] < top[:, b]) | (bottom[:, b] < top[:, a])
        assert bool(is_separate.all())


def test_captions_are_unambiguous(rendered):
    x, y = (rendered.boxes[..., i] + rendered.boxes[..., i + 2] for i in (0, 1))
    assert int((x[:, 1:] - x[:, :-1]).min()) >= 8  # twice the middles
    assert int((y - 64).abs().min()) >= 8
    sizes = rendered.boxes[..., 2] - rendered.boxes[..., 0]
    assert torch.equal(rendered.is_large, sizes > 12)


def test_captions_are_correct(rendered):
    for row in range(20):
        words = rendered.format_captions()[row].split()
        assert len(words) == 11
        assert words[3] == words[7] == ","
        for digit in range(3):
            size, name, place = words[4 * digit : 4 * digit + 3]
            _, top, _, bottom = rendered.boxes[row, digit].tolist()
            assert name == str(int(rendered.labels[row, digit]))
            assert size == ("large" if bottom - top > 12 else "small")
            assert place == ("below" if top + bottom > 64 else "above")


def test_digits_are_in_their_boxes():
    one = Digits(torch.rand(1, 8, 8), torch.tensor([7]))
    rendered = SceneGenerator(one, num_distractors=1).sample(seeded_generator(0), 200)
    num_exact = 0
    for row in range(200):
        for left, top, right, bottom in rendered.boxes[row].tolist():
            if right - left == 8:  # neither larger nor smaller: the very pixels
                num_exact += 1
                torch.testing.assert_close(rendered.images[row, top:bottom, left:right], one.images[0])
    assert num_exact > 20


def test_a_flat_digit_stays_flat_in_any_size():
    flat = Digits(torch.full((2, 28, 28), 0.5), torch.tensor([1, 2]))
    rendered = SceneGenerator(flat, 96, (14, 28)).sample(seeded_generator(0), 20)
    for row in range(20):
        for left, top, right, bottom in rendered.boxes[row].tolist():
            inside = rendered.images[row, top:bottom, left:right]
            torch.testing.assert_close(inside, torch.full_like(inside, 0.5))


def test_distractors_cover_no_digit():
    flat = Digits(torch.ones(2, 8, 8), torch.tensor([1, 2]))
    bare, full = (SceneGenerator(flat, num_distractors=count).sample(seeded_generator(0), 50) for count in (0, 8))
    assert torch.equal(bare.boxes, full.boxes)
    areas = ((bare.boxes[..., 2] - bare.boxes[..., 0]) ** 2).sum(1)
    assert torch.equal(bare.images.sum((1, 2)).round().long(), areas)
    assert bool((full.images.sum((1, 2)) > bare.images.sum((1, 2)) + 50).all())
    assert float(full.images.max()) == 1


def test_scenes_are_a_function_of_their_seed(scenes):
    first, again, other = (scenes.sample(seeded_generator(seed), 5) for seed in (3, 3, 4))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


def test_caption_batches_resume_exactly(scenes):
    words = Tokenizer.train([" ".join(CAPTION_WORDS)], "word", 30)
    source = GeneratedBatches(scenes.sample, SceneCaptionCollator(words), batch_size=4, seed=5)
    stream = source.batches()
    batches = [next(stream) for _ in range(4)]
    again = source.batches(batches[1][1])
    for batch, position in batches[2:]:
        same, there = next(again)
        assert there == position
        assert torch.equal(same.images, batch.images)
        assert torch.equal(same.target, batch.target)
    batch = batches[0][0]
    assert batch.target.shape == (4, 13)
    assert words.decode(batch.target[0].tolist()) == scenes.sample(seeded_generator(5, 0), 4).format_captions()[0]
    assert set(batch.target[:, -1].tolist()) == {EOS_ID}
    assert batch.num_tokens == 4 * 12
    parts = [batch.shard(rank, 3) for rank in range(3)]
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    assert torch.equal(parts[1].images[0], batch.images[1])


def test_digits_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 digits of 8 to 30 pixels do not fit into a scene of 64"):
        SceneGenerator(Digits(torch.rand(1, 8, 8), torch.tensor([0])), digit_sizes=(8, 30))


def _idx(path, array):
    head = struct.pack(f">BBBB{array.dim()}I", 0, 0, 8, array.dim(), *array.shape)
    path.write_bytes(gzip.compress(head + bytes(array.flatten().tolist())))


def test_mnist_files(tmp_path):
    images, labels = torch.randint(0, 256, (6, 28, 28)), torch.arange(6)
    for name in ("train", "t10k"):
        _idx(tmp_path / f"{name}-images-idx3-ubyte.gz", images)
        _idx(tmp_path / f"{name}-labels-idx1-ubyte.gz", labels)
    test, train, valid = (load_mnist(tmp_path, part) for part in ("test", "train", "valid"))
    assert test.labels.tolist() == list(range(6))
    assert train.labels.tolist() + valid.labels.tolist() == list(range(6))
    torch.testing.assert_close(test.images, images / 255)
    content = (tmp_path / "t10k-images-idx3-ubyte.gz").read_bytes()
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(gzip.decompress(content)[:-5]))
    with pytest.raises(DataError, match="not a complete file of MNIST"):
        load_mnist(tmp_path, "test")
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(content[:50])
    with pytest.raises(DataError, match="breaks off"):
        load_mnist(tmp_path, "test")
    with pytest.raises(DataError, match="There is no file"):
        load_mnist(tmp_path / "nowhere", "test")
