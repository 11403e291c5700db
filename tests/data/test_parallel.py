"""Parallel text from files, and the error for every file that cannot be read."""

import contextlib
import gzip
import json
import lzma
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import ParallelFiles, SentencePair
from regard.errors import DataError


def write_files(folder, **files):
    """Write files (a_tsv_gz is a.tsv.gz), compressed by their suffix."""
    paths = []
    for name, content in files.items():
        path = Path(folder, name.replace("_", "."))
        raw = content.encode() if isinstance(content, str) else content
        compress = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
        path.write_bytes(compress(raw))
        paths.append(path)
    return paths


def sides(paths, **options):
    return [(pair.source, pair.target) for pair, _ in ParallelFiles(paths, **options)]


def read_error(paths, **options):
    with pytest.raises(DataError) as caught:
        list(ParallelFiles(paths, **options))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("suffix", ["", "_gz", "_xz"])
def test_all_formats_give_the_same_pairs(tmp_path, suffix):
    pairs = [("ein Haus", "a house"), ("zwei", "two"), ("猫", "cat")]
    plain = write_files(
        tmp_path,
        **{f"a_de{suffix}": "\n".join(s for s, _ in pairs), f"a_en{suffix}": "\n".join(t for _, t in pairs) + "\n"},
    )
    tsv = write_files(tmp_path, **{f"a_tsv{suffix}": "".join(f"1\t{t}\t{s}\n" for s, t in pairs)})
    records = [json.dumps({"x": s, "y": t, "z": 1}) for s, t in pairs]
    jsonl = write_files(tmp_path, **{f"a_jsonl{suffix}": "\n".join(records)})
    assert sides(plain) == sides(tsv, columns=(2, 1)) == sides(jsonl, keys=("x", "y")) == pairs
    assert [number for _, number in ParallelFiles(plain)] == [1, 2, 3]
    for paths in (plain, tsv, jsonl):
        assert ParallelFiles(paths).count_lines() == 3


def test_every_iteration_starts_at_the_beginning(tmp_path):
    pairs = ParallelFiles(write_files(tmp_path, a_tsv="a\tb\nc\td\n"))
    next(iter(pairs))
    assert len(list(pairs)) == len(list(pairs)) == 2


def test_only_line_feeds_end_a_line(tmp_path):
    strange = ["a\u2028b", "c\x0cd\x85", "e\rf"]
    paths = write_files(tmp_path, a_x=b"\xef\xbb\xbf" + "\r\n".join(strange).encode() + b"\r\n", a_y="1\n2\n\ufeff3\n")
    assert sides(paths) == list(zip(strange, ["1", "2", "\ufeff3"], strict=True))


@pytest.mark.parametrize("text", ["a\rb", "a\rb\r", "\ufeffa\r\r"])
def test_cr_line_ends_are_refused(tmp_path, text):
    paths = write_files(tmp_path, a_x=text, a_y="1\n2\n")
    assert f"{paths[0]}: its lines end with CR only; convert them to LF first" in read_error(paths)


@pytest.mark.parametrize("text", ["a\rb\n", "a\r\rb\r\n"])
def test_a_cr_inside_a_line_stays(tmp_path, text):
    paths = write_files(tmp_path, a_x=text, a_y="1\n", b_x="a\r", b_y="1")
    assert sides(paths[:2]) == [(text.removesuffix("\n").removesuffix("\r"), "1")]
    assert sides(paths[2:]) == [("a", "1")]


def test_blank_lines_are_empty_pairs(tmp_path):
    assert sides(write_files(tmp_path, a_tsv="a\tb\n \n\n")) == [("a", "b"), ("", ""), ("", "")]
    assert sides(write_files(tmp_path, a_jsonl='\n{"source": "a", "target": ""}')) == [("", ""), ("a", "")]


def test_links(tmp_path):
    gold = SentencePair("a b", "x y", ((0, 0), (1, 10)), ((1, 0),))
    three = write_files(tmp_path, a_x="a b\n", a_y="x y\n", a_links="0-0 1?0 1-10\n")
    assert [pair for pair, _ in ParallelFiles(three)] == [gold]
    tsv = write_files(tmp_path, a_tsv="a b\tx y\t0-0 1?0 1-10\n")
    assert [pair for pair, _ in ParallelFiles(tsv, columns=(0, 1, 2))] == [gold]
    assert next(iter(ParallelFiles(tsv)))[0].sure_links is None
    bad = write_files(tmp_path, b_tsv="a\tb\t0-0\na\tb\t0:0\n")
    assert "b.tsv, line 2: invalid link '0:0'; write 0-1" in read_error(bad, columns=(0, 1, 2))


@pytest.mark.parametrize(("first", "second"), [("1\n2\n3\n4\n", "1\n2\n"), ("1\n", "1\n2")])
def test_unequal_counts(tmp_path, first, second):
    paths = write_files(tmp_path, a_x=first, a_y=second)
    longer = paths[len(first) < len(second)]
    sentence = read_error(paths)
    assert f"a.x has {len(first.split())} lines" in sentence
    assert f"a.y has {len(second.split())} lines" in sentence
    assert f"{longer} is longer" in sentence
    with pytest.raises(DataError, match="is longer"):
        ParallelFiles(paths).count_lines()


def test_empty_file(tmp_path):
    paths = write_files(tmp_path, a_x="", a_y="1\n")
    assert f"{paths[0]} is empty" in read_error(paths)
    with pytest.raises(DataError, match="is empty"):
        ParallelFiles(write_files(tmp_path, a_tsv="")).count_lines()


def test_wrong_encoding(tmp_path):
    paths = write_files(tmp_path, a_x="gut\nschön\n".encode("latin-1"), a_y="1\n2\n")
    assert "a.x, line 2, byte 4 of the line: 0xf6 is not UTF-8" in read_error(paths)
    assert "0xff is not UTF-8" in read_error(write_files(tmp_path, b_tsv="a\tb\n".encode("utf-16")))
    assert "line 1: a NUL" in read_error(write_files(tmp_path, c_tsv="a\tb\n".encode("utf-16-le")))


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_broken_archives(tmp_path, suffix):
    lines = "".join(f"{i * 7919 % 10007}\t{i}\n" for i in range(5000))
    (path,) = write_files(tmp_path, **{f"a_tsv_{suffix}": lines})
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "breaks off after line" in read_error([path])
    with pytest.raises(DataError, match="breaks off"):
        ParallelFiles([path]).count_lines()
    path.write_bytes(lines.encode())
    assert "cannot be decompressed" in read_error([path])
    path.write_bytes(content[:200] + b"\0" * 40 + content[240:])
    read_error([path])


def test_too_few_columns(tmp_path):
    paths = write_files(tmp_path, a_tsv="a\tb\nalone\n")
    assert "a.tsv, line 2: 1 column, but column 1 is required" in read_error(paths)


def test_default_columns_require_equal_rows(tmp_path):
    """A tab inside a text shifts the columns after it, so the row is ambiguous."""
    more = write_files(tmp_path, a_tsv="\na\tb\nc\td\te\n")
    assert "a.tsv, line 3: 3 columns, but line 2 has 2" in read_error(more)
    assert sides(more, columns=(0, 1)) == [("", ""), ("a", "b"), ("c", "d")]
    fewer = write_files(tmp_path, b_tsv="a\tb\tc\n\nd\te\n")
    assert "b.tsv, line 3: 2 columns, but line 1 has 3" in read_error(fewer)
    assert sides(write_files(tmp_path, c_tsv="a\tb\tc\nd\te\tf\n")) == [("a", "b"), ("d", "e")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('["a", "b"]', "a list, but each line must be one object"),
        ("null", "null, but each line"),
        ('{"src": "a", "target": "b"}', "no key 'source', only 'src', 'target'"),
        ('{"source": 7, "target": "b"}', "'source' is a number, but must be text"),
        ('{"source": null, "target": "b"}', "'source' is null"),
        ('{"source": "a", "target": ["b"]}', "'target' is a list"),
        ('{"source": "a", "target": {}}', "'target' is an object"),
        ('{"source": true, "target": "b"}', "'source' is true or false"),
        ('{"source": "\\ud83d", "target": "b"}', "'source' has a NUL or half a surrogate pair"),
        ('{"source": "a", "target": "\\u0000"}', "'target' has a NUL"),
    ],
)
def test_broken_records(tmp_path, line, message):
    good = '{"source": "a \\ud83d\\ude00", "target": "b"}'
    assert f"a.jsonl, line 2: {message}" in read_error(write_files(tmp_path, a_jsonl=f"{good}\n{line}\n"))


def test_missing_files(tmp_path):
    write_files(tmp_path, train_de="a\n", train_en="a\n")
    assert "There is no file" in read_error([tmp_path / "trian.de", tmp_path / "train.en"])
    assert "the folder has train.de" in read_error([tmp_path / "trian.de", tmp_path / "train.en"])
    assert "there is no folder" in read_error([tmp_path / "no" / "a.tsv"])
    (tmp_path / "f.tsv").mkdir()
    assert "is a folder" in read_error([tmp_path / "f.tsv"])


def test_invalid_arguments(tmp_path):
    assert "not 4 files" in read_error(["a", "b", "c", "d"])
    assert "is a single file" in read_error(["a.en"])
    assert "a.tsv: columns must be two numbers" in read_error(["a.tsv"], columns=(0, -1))
    assert read_error(["a.tsv"], columns=(0,)).endswith("such as 0,1, not 0.")
    assert read_error(["a.tsv"], columns=()).endswith("not none.")
    assert read_error(["a.jsonl"], keys=("a",)).endswith("such as source,target, not a.")


def test_source_and_target_are_different_columns(tmp_path):
    message = "must be different ones for source and target, not"
    assert f"a.tsv: columns {message} 0,0." in read_error(["a.tsv"], columns=(0, 0))
    assert f"a.jsonl: keys {message} en,en." in read_error(["a.jsonl"], keys=("en", "en"))


any_bytes = st.one_of(
    st.binary(max_size=60),
    st.text(st.sampled_from("ab\t\n\r \u2028\x00\ud800\\"), max_size=30).map(
        lambda t: t.encode("utf-8", "surrogatepass")
    ),
    st.lists(st.sampled_from([b'{"source": "a", "target": ', b'"\\ud800"}', b"1}", b'"b"}', b"\n"])).map(b"".join),
)


@given(
    any_bytes,
    any_bytes,
    st.sampled_from(["a.tsv", "a.jsonl", "a.tsv.gz", "a.jsonl.xz", "a.x", "a.x.gz"]),
    st.booleans(),
)
def test_any_bytes_give_pairs_or_a_data_error(first, second, name, compress):
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder, name), Path(folder, "other")
        packer = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes) if compress else bytes
        path.write_bytes(packer(first))
        other.write_bytes(second)
        pairs = ParallelFiles([path, other] if ".x" in name and "jsonl" not in name else [path])
        result = None
        with contextlib.suppress(DataError):
            result = list(pairs)
        if result is not None:
            assert len(result) == pairs.count_lines() >= 1
            assert all("\n" not in pair.source or pairs.file_type == ".jsonl" for pair, _ in result)
            "".join(pair.source + pair.target for pair, _ in result).encode()  # no half characters
