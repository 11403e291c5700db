"""Attention records: tokens, files, memory, measures and notebook output."""

import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
from rich.console import Console

from regard.attention import MultiHead
from regard.viewing import AttentionRecord, AttentionRecords, watch

HOSTILE = ['<script>alert("1")</script>', "שלום", "猫 & 🐈", "a\u2028b"]


def example_records():
    first = AttentionRecord(
        "encoder.self_attn", 0, (0, 2), torch.rand(2, 2, 4, 4), [tuple(HOSTILE), ("a",)], [tuple(HOSTILE), ("a",)]
    )
    return AttentionRecords(
        [
            first,
            AttentionRecord("cross_attn", 1, (1,), torch.rand(1, 1, 0, 3)),
            AttentionRecord("cross_attn", 1, (1,), torch.rand(1, 1, 1, 3), call=1),
        ]
    )


def assert_equal_records(actual, expected):
    assert len(actual) == len(expected)
    for record, other in zip(actual, expected, strict=True):
        assert record.metadata() == other.metadata()
        assert torch.equal(record.weights, other.weights)
        assert other.weights.dtype == torch.float32


@pytest.mark.parametrize("name", ["records.json", "records.safetensors", "records"])
def test_saved_records_are_loaded_bit_for_bit(tmp_path, name):
    records = example_records()
    records.save(tmp_path / name)
    assert_equal_records(records, AttentionRecords.load(tmp_path / name))


def test_tensors_that_share_memory_are_saved(tmp_path):
    weights = torch.rand(2, 1, 3, 3)
    records = AttentionRecords([AttentionRecord("a", 0, (0,), weights[:1]), AttentionRecord("b", 1, (0,), weights[:1])])
    records.save(tmp_path / "x.safetensors")
    assert_equal_records(records, AttentionRecords.load(tmp_path / "x.safetensors"))


@pytest.mark.parametrize("name", ["records.json", "records.safetensors", "records"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_kept(tmp_path, name, dtype):
    weights = torch.rand(1, 2, 3, 3, dtype=torch.float64).to(dtype)
    AttentionRecords([AttentionRecord("a", 0, (0, 1), weights)]).save(tmp_path / name)
    loaded = AttentionRecords.load(tmp_path / name)[0].weights
    assert loaded.dtype == dtype
    assert torch.equal(loaded, weights)


@pytest.mark.parametrize("name", ["records.json", "records.safetensors", "records/000001.safetensors"])
def test_truncated_files_are_rejected(tmp_path, name):
    path = tmp_path / name
    example_records().save(tmp_path / name.split("/")[0])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="damaged"):
        AttentionRecords.load(tmp_path / name.split("/")[0])


def test_incomplete_folders_are_rejected(tmp_path):
    example_records().save(tmp_path / "records")
    (tmp_path / "records" / "000003.safetensors.half").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"is incomplete; delete it to load the 3 records before it"):
        AttentionRecords.load(tmp_path / "records")
    (tmp_path / "records" / "000003.safetensors.half").unlink()
    assert len(AttentionRecords.load(tmp_path / "records")) == 3
    (tmp_path / "records" / "000001.safetensors").unlink()
    with pytest.raises(ValueError, match=r"000001.safetensors is missing; the next file is 000002"):
        AttentionRecords.load(tmp_path / "records")


def test_other_files_are_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"invalid file name 'x.pkl'"):
        example_records().save(tmp_path / "x.pkl")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        AttentionRecords.load(tmp_path / "nothing")
    (tmp_path / "other.json").write_text('{"records": []}')
    with pytest.raises(ValueError, match=r"not a file of AttentionRecords\.save"):
        AttentionRecords.load(tmp_path / "other.json")
    for inside in ("[{}]", "5", "[5]", '[{"weights": {"type": "save", "shape": [1], "values": [1]}}]'):
        (tmp_path / "other.json").write_text(f'{{"kind": "regard records 2", "records": {inside}}}')
        with pytest.raises(ValueError, match=r"not a file of AttentionRecords\.save"):
            AttentionRecords.load(tmp_path / "other.json")
    with pytest.raises(FileExistsError, match=r"other.json is a file: records need a new folder"):
        AttentionRecords(save_to=tmp_path / "other.json")
    example_records().save(tmp_path / "full")
    with pytest.raises(FileExistsError, match="is not empty"):
        example_records().save(tmp_path / "full")


def test_records_are_written_to_a_folder_during_the_watch(tmp_path):
    heads, x = MultiHead(8, 2), torch.randn(2, 3, 8)
    with watch(heads, tokens=["a", "b", "c"], save_to=tmp_path / "records") as records:
        output = heads(x)
        assert torch.equal(AttentionRecords.load(tmp_path / "records")[0].weights, output.weights)
        heads(x)
    assert records[0].key_tokens == [("a", "b", "c")] * 2
    assert_equal_records(records, AttentionRecords.load(tmp_path / "records"))


MEMORY_SCRIPT = """
import re, sys, torch
from regard.attention import MultiHead
from regard.viewing import AttentionRecords, watch

def resident():  # megabytes of this process in memory
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

heads, x = MultiHead(8, 8), torch.randn(1, 512, 8)
with torch.no_grad(), watch(heads, save_to=sys.argv[1]) as records:
    heads(x)
    before = resident()
    for _ in range(50):
        heads(x)
    grown = resident() - before
total = sum(record.weights.numel() for record in records) * 4 / 2**20
first = records[7].weights.sum(-1)
assert torch.allclose(first, torch.ones_like(first))
print(grown, total, len(AttentionRecords.load(sys.argv[1])), resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_saved_weights_take_no_memory(tmp_path):
    command = [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path / "records")]
    numbers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    grown, total, loaded, after = map(float, numbers)
    assert (total, loaded) == (51 * 8, 51)
    assert grown < total / 3
    assert after < total / 3


def test_records_are_selected_by_index_and_name():
    records = example_records()
    assert records["encoder.self_attn"] is records[0]
    assert records[-1].call == 1
    assert isinstance(records[:2], AttentionRecords)
    assert records.layers() == ["encoder.self_attn", "cross_attn"]
    assert [record.call for record in records.calls("cross_attn")] == [0, 1]
    assert repr(records) == "AttentionRecords(3 records of 2 modules)"
    with pytest.raises(KeyError, match="was called 2 times: use calls"):
        records["cross_attn"]
    with pytest.raises(KeyError, match=r"no record of 'other'; there are 3 records of encoder.self_attn, cross_attn"):
        records["other"]
    with pytest.raises(IndexError, match="no record 3"):
        records[3]
    with pytest.raises(KeyError, match="nothing was recorded: call the model"):
        AttentionRecords()["self_attn"]


def test_tokens_are_set_where_they_fit():
    records = AttentionRecords(
        [AttentionRecord("a", 0, (0,), torch.rand(2, 1, 3, 3)), AttentionRecord("b", 1, (0,), torch.rand(2, 1, 2, 3))]
    )
    records.set_tokens(query_tokens=["x", "y"], key_tokens=[["k", "l", "m"], ["k"]])
    assert records["a"].query_tokens is None
    assert records["a"].key_tokens == records["b"].key_tokens == [("k", "l", "m"), ("k",)]
    assert records["b"].query_tokens == [("x", "y")] * 2
    queries, keys, weights = records["b"].example(1)
    assert (queries, keys, weights.shape) == (("x", "y"), ("k",), (1, 2, 1))
    records.set_tokens(key_tokens=["1", "2", "3"], name_pattern="a*")
    assert records["a"].key_tokens[0] == ("1", "2", "3")
    assert records["b"].key_tokens[0] == ("k", "l", "m")
    with pytest.raises(ValueError, match=r"no record has 4 queries; records have .* 2 x 2 x 3, 2 x 3 x 3"):
        records.set_tokens(query_tokens=list("abcd"))
    with pytest.raises(ValueError, match="no record has 3 keys in 3 examples"):
        records.set_tokens(key_tokens=[list("abc")] * 3)
    with pytest.raises(ValueError, match="requires query_tokens, key_tokens or both"):
        records.set_tokens()


@pytest.mark.bare
@pytest.mark.parametrize("tokens", ["abc", [1, 2, 3], torch.arange(3), [[1, 2, 3]], ["a", "b", 3], ["a", ["b"]]])
def test_invalid_tokens_are_rejected_before_the_model_runs(tokens):
    heads = MultiHead(8, 2)
    with pytest.raises(TypeError, match="tokens must be a list of strings"), watch(heads, tokens=tokens):
        pytest.fail("too late")
    with pytest.raises(TypeError, match="tokens must be a list of strings"):
        AttentionRecords([AttentionRecord("a", 0, (0,), torch.rand(1, 1, 3, 3))]).set_tokens(key_tokens=tokens)


def test_calls_with_different_batches_are_not_concatenated():
    records = AttentionRecords([AttentionRecord("a", 0, (0,), torch.rand(rows, 1, 1, 2)) for rows in (2, 3)])
    with pytest.raises(ValueError, match="different batches"):
        records.concat_calls("a")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value.startswith("data:image/png;base64,")

    def handle_data(self, data):
        self.text += data


def test_notebook_output_is_escaped():
    records = example_records()
    records._records[0].name = "<b>bold</b>"
    for html in (records._repr_html_(), records[0]._repr_html_(), records.measures()._repr_html_()):
        page = Tags()
        page.feed(html)
        assert set(page.tags) <= {"div", "b", "svg", "image", "rect", "text", "table", "tr", "td", "th", "img", "p"}
        assert "<b>bold</b>" in page.text
    page = Tags()
    page.feed(records[0]._repr_html_())
    assert "<script>alert" in page.text
    assert page.tags.count("image") == 2
    assert re.search("猫 & 🐈", page.text)


def test_notebook_output_is_limited():
    large = AttentionRecord(
        "a", 0, tuple(range(20)), torch.rand(1, 20, 300, 300), [tuple("w" * 300)], [tuple("w" * 300)]
    )
    assert len(large._repr_html_()) < 3e6
    assert len(AttentionRecords([large] * 24)._repr_html_()) < 5e6
    wide = AttentionRecord("a", 0, (0,), torch.rand(1, 1, 1, 10_000))._repr_html_()
    assert int(re.search(r'svg [^>]*width="(\d+)"', wide)[1]) < 400
    assert int(re.search(r'<image [^>]*height="(\d+)"', wide)[1]) >= 1
    empty = AttentionRecord("a", 0, (0, 1), torch.rand(0, 2, 3, 3))
    assert "layer 0" in empty._repr_html_() + AttentionRecords([empty])._repr_html_()
    assert "16 of 20 heads" in large._repr_html_()
    assert (
        "and 6 more records"
        in AttentionRecords([AttentionRecord("a", 0, (0,), torch.rand(1, 1, 2, 2))] * 30)._repr_html_()
    )


def test_measures_of_every_head():
    eye = torch.eye(4)[None, None]
    records = AttentionRecords(
        [
            AttentionRecord("a", 0, (0, 1), torch.cat([eye, torch.full((1, 1, 4, 4), 0.25)], 1)),
            AttentionRecord("step", 1, (5,), torch.full((1, 1, 1, 3), 1 / 3), call=0),
            AttentionRecord("step", 1, (5,), torch.tensor([[[[1.0, 0, 0]]]]), call=1),
        ]
    )
    first, second, step = records.measures().to_json()
    assert (first["name"], first["head"], first["entropy"], first["distance"], first["diagonality"]) == (
        "a",
        0,
        0,
        0,
        1,
    )
    assert second["entropy"] == pytest.approx(1.3863, abs=1e-3)
    assert first["head_similarity"] == second["head_similarity"] < 1
    assert step["entropy"] == pytest.approx(1.0986 / 2, abs=1e-3)
    assert step["distance"] is step["head_similarity"] is None
    assert json.loads(json.dumps(records.measures().to_json())) == records.measures().to_json()
    console = Console(width=90, file=io.StringIO())
    console.print(records.measures())
    assert "entropy" in console.file.getvalue()


def test_padding_is_excluded_from_measures():
    weights = torch.rand(1, 1, 4, 4)
    weights[..., 2:] = 0
    weights[..., :2] = torch.tensor([1.0, 0.0])
    weights[:, :, 2:] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    records = AttentionRecords([AttentionRecord("a", 0, (0,), weights, [("x", "y")], [("x", "y")])])
    assert records.measures().to_json()[0]["entropy"] == 0
    assert records.measures().to_json()[0]["sparsity"] == 0.5


@pytest.mark.filterwarnings("ignore")  # a font may be missing here
def test_a_record_as_a_figure(tmp_path):
    example_records()[0].to_figure(index=0).save(tmp_path / "heads.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
