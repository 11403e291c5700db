"""Readers of data files on random bytes and damaged files: they read them, or raise an error of one sentence."""

import gzip
import io
import lzma
import random
import traceback

import numpy
import pytest

from regard.errors import RegardError
from tests.fuzz.conftest import num_trials
from tests.fuzz.damage import corrupt, forbid_code, memory_limit

pytestmark = pytest.mark.bare
LINES = "a dog runs\tein Hund rennt\t0-0 1-1 2?2\nthe house\tdas Haus\t0-0 1-1\n\nüber 東京\tx\t0-0\n"
JSON = '{"source": "a dog", "target": "ein Hund", "label": "pos", "text": "Good. Bad."}\n\n'
CSV = 'label,text\npos,"A ""fine"" film.\nAnd long."\nneg,dull\n'
CAPTIONS = '{"image": "there.png", "captions": ["a dog", "a cat"]}\n{"image": "there.png", "caption": "a dog"}\n'
PIECES = [
    b"\t",
    b"\n",
    b"\r\n",
    b'"',
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"{",
    b"}",
    b"0-0",
    b"1?2",
    b"\xe2\x80\xa8",
    b"9" * 40,
]


def parallel(path):
    from regard.data import ParallelFiles

    columns = {"columns": (0, 1, 2)} if path.name.startswith("a.tsv") else {}
    if not path.name.endswith("txt"):
        list(ParallelFiles([path], **columns))
    ParallelFiles([path, path]).count_lines()
    list(ParallelFiles([path, path]))


def documents(path):
    from regard.data.document_batches import DocumentBatches
    from regard.data.documents import DocumentFiles, DocumentSplitter

    data = DocumentBatches(DocumentFiles([path]), tokenizer(), DocumentSplitter())
    next(data.batches())
    list(data.iter_eval_batches())


def plain(path):
    from regard.data.passages import PlainTextFiles

    list(PlainTextFiles([path]))


def gold(path):
    from regard.decoding import read_gold

    read_gold(path)


def tokens(path):
    from regard.data import Tokenizer

    tokenizer = Tokenizer.load(path)
    tokenizer.decode(tokenizer.encode("a dog runs"))


def image(path):
    from regard.data.images import read_image

    read_image(path, 16)


def captions(path):
    from regard.data.captions import read_captioned_images

    path.with_name("there.png").write_bytes(encode_image("PNG"))
    read_captioned_images([path], 16)


def digits(path):
    from regard.data.images import load_mnist

    labels = b"\0\0\x08\x01" + (2).to_bytes(4, "big") + b"\1\2"
    path.with_name("t10k-labels-idx1-ubyte").write_bytes(labels)
    load_mnist(path.parent, "test")


def tokenizer():
    from regard.data import Tokenizer

    return Tokenizer.train(["a dog runs . good bad"] * 3, "word", 20)


def saved_tokenizer(tmp_path, model_type):
    from regard.data import Tokenizer

    Tokenizer.train(["a dog runs through the snow"] * 3, model_type, 30).save(tmp_path / "saved")
    return (tmp_path / "saved").read_bytes()


def encode_image(kind):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(numpy.arange(300, dtype=numpy.uint8).reshape(10, 10, 3)).save(file, kind)
    return file.getvalue()


def idx():
    return b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in (2, 28, 28)) + bytes(2 * 28 * 28)


# The reader, the file name, and valid content.
CASES = {
    "plain": (parallel, "a.txt", LINES),
    "tsv": (parallel, "a.tsv", LINES),
    "jsonl": (parallel, "a.jsonl", JSON),
    "gz": (parallel, "a.tsv.gz", gzip.compress(LINES.encode())),
    "xz": (parallel, "a.jsonl.xz", lzma.compress(JSON.encode())),
    "documents.tsv": (documents, "a.tsv", "pos\tA fine film. Good!\nneg\tdull\n"),
    "documents.csv": (documents, "a.csv", CSV),
    "documents.jsonl": (documents, "a.jsonl", JSON),
    "passages": (plain, "a.txt.gz", gzip.compress(LINES.encode())),
    "gold": (gold, "a.gold", LINES.replace("\n\n", "\n")),
    "bpe": (tokens, "a.json", "bpe"),
    "unigram": (tokens, "a.json", "unigram"),
    "png": (image, "a.png", "PNG"),
    "jpeg": (image, "a.jpg", "JPEG"),
    "captions": (captions, "a.jsonl", CAPTIONS),
    "idx": (digits, "t10k-images-idx3-ubyte", idx()),
    "idx.gz": (digits, "t10k-images-idx3-ubyte.gz", gzip.compress(idx())),
}


def check_error(error):
    """Require an error of regard with one sentence; every other error is a bug in the reader."""
    assert isinstance(error, RegardError), "".join(traceback.format_exception(error))
    assert 0 < len(str(error)) < 2_000


@pytest.mark.parametrize("name", CASES)
def test_damaged_files_are_read_or_refused(name, tmp_path, time_limit):
    read, file, valid = CASES[name]
    content = _content(valid, tmp_path)
    path = tmp_path / file
    path.write_bytes(content)
    read(path)  # valid content is read
    rng, refused = random.Random(f"{name} {num_trials(0, 1)}"), 0
    for _ in range(num_trials(12, 130)):
        path.write_bytes(_corrupt(content, rng))
        with time_limit(), memory_limit(), forbid_code():
            try:
                read(path)
            except Exception as error:
                check_error(error)
                refused += 1
    assert refused


def _content(valid, tmp_path):
    if valid in ("bpe", "unigram"):
        return saved_tokenizer(tmp_path, valid)
    if valid in ("PNG", "JPEG"):
        return encode_image(valid)
    return valid.encode() if isinstance(valid, str) else valid


def _corrupt(content, rng):
    draw = rng.random()
    if draw < 0.2:
        return rng.randbytes(rng.choice([0, 1, 3, 50, 2000]))
    if draw < 0.4:
        return b"".join(rng.choices([*PIECES, rng.randbytes(5), content[:9]], k=rng.randint(1, 30)))
    return corrupt(content, rng)


def test_long_words_are_not_cached():
    trained = tokenizer()
    for number in range(10):
        trained.encode("x" * 1000 + str(number))
    trained.encode("dog")
    assert list(trained._cache) == ["▁dog"]
