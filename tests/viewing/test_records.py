"""Records: labels, files that come back bit for bit, memory that stays small, and what a notebook shows."""

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


def records():
    first = AttentionRecord(
        "encoder.look", 0, (0, 2), torch.rand(2, 2, 4, 4), [tuple(HOSTILE), ("a",)], [tuple(HOSTILE), ("a",)]
    )
    return AttentionRecords(
        [
            first,
            AttentionRecord("look_back", 1, (1,), torch.rand(1, 1, 0, 3)),
            AttentionRecord("look_back", 1, (1,), torch.rand(1, 1, 1, 3), call=1),
        ]
    )


def same(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one.about() == other.about()
        assert torch.equal(one.weights, other.weights)
        assert other.weights.dtype == torch.float32


@pytest.mark.parametrize("name", ["seen.json", "seen.safetensors", "seen"])
def test_files_come_back_bit_for_bit(tmp_path, name):
    seen = records()
    seen.save(tmp_path / name)
    same(seen, AttentionRecords.load(tmp_path / name))


def test_tensors_that_share_memory_are_saved(tmp_path):
    weights = torch.rand(2, 1, 3, 3)
    seen = AttentionRecords(
        [AttentionRecord("a", 0, (0,), weights[:1]), AttentionRecord("b", 1, (0,), weights[:1])]
    )
    seen.save(tmp_path / "x.safetensors")
    same(seen, AttentionRecords.load(tmp_path / "x.safetensors"))


@pytest.mark.parametrize("name", ["seen.json", "seen.safetensors", "seen"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_numbers_come_back_as_they_were(tmp_path, name, dtype):
    weights = torch.rand(1, 2, 3, 3, dtype=torch.float64).to(dtype)
    AttentionRecords([AttentionRecord("a", 0, (0, 1), weights)]).save(tmp_path / name)
    found = AttentionRecords.load(tmp_path / name)[0].weights
    assert found.dtype == dtype
    assert torch.equal(found, weights)


@pytest.mark.parametrize("name", ["seen.json", "seen.safetensors", "seen/000001.safetensors"])
def test_half_a_file_is_refused(tmp_path, name):
    path = tmp_path / name
    records().save(tmp_path / name.split("/")[0])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="damaged"):
        AttentionRecords.load(tmp_path / name.split("/")[0])


def test_a_watch_that_was_killed_is_noticed(tmp_path):
    records().save(tmp_path / "seen")
    (tmp_path / "seen" / "000003.safetensors.half").write_bytes(b"x")
    with pytest.raises(
        ValueError, match=r"was not written to its end; delete it to load the 3 records before it"
    ):
        AttentionRecords.load(tmp_path / "seen")
    (tmp_path / "seen" / "000003.safetensors.half").unlink()
    assert len(AttentionRecords.load(tmp_path / "seen")) == 3
    (tmp_path / "seen" / "000001.safetensors").unlink()
    with pytest.raises(ValueError, match=r"000001.safetensors is missing; the next one is 000002"):
        AttentionRecords.load(tmp_path / "seen")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"not as x.pkl"):
        records().save(tmp_path / "x.pkl")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        AttentionRecords.load(tmp_path / "nothing")
    (tmp_path / "other.json").write_text('{"records": []}')
    with pytest.raises(ValueError, match=r"not written by Seen.save"):
        AttentionRecords.load(tmp_path / "other.json")
    for inside in ("[{}]", "5", "[5]", '[{"weights": {"type": "save", "shape": [1], "values": [1]}}]'):
        (tmp_path / "other.json").write_text(f'{{"kind": "regard records 1", "records": {inside}}}')
        with pytest.raises(ValueError, match=r"not written by Seen.save"):
            AttentionRecords.load(tmp_path / "other.json")
    with pytest.raises(FileExistsError, match=r"other.json is a file: records go to a new folder"):
        AttentionRecords(save_to=tmp_path / "other.json")
    records().save(tmp_path / "full")
    with pytest.raises(FileExistsError, match="is not empty"):
        records().save(tmp_path / "full")


def test_records_go_to_a_folder_as_they_come(tmp_path):
    heads, x = MultiHead(8, 2), torch.randn(2, 3, 8)
    with watch(heads, tokens=["a", "b", "c"], save_to=tmp_path / "seen") as seen:
        looked = heads(x)
        assert torch.equal(AttentionRecords.load(tmp_path / "seen")[0].weights, looked.weights)
        heads(x)
    assert seen[0].key_tokens == [("a", "b", "c")] * 2
    same(seen, AttentionRecords.load(tmp_path / "seen"))


MEMORY = """
import re, sys, torch
from regard.attention import MultiHead
from regard.viewing import Seen, watch

def resident():  # megabytes of this process in memory
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

heads, x = MultiHead(8, 8), torch.randn(1, 512, 8)
with torch.no_grad(), watch(heads, to=sys.argv[1]) as seen:
    heads(x)
    before = resident()
    for _ in range(50):
        heads(x)
    grown = resident() - before
total = sum(record.weights.numel() for record in seen) * 4 / 2**20
first = seen[7].weights.sum(-1)
assert torch.allclose(first, torch.ones_like(first))
print(grown, total, len(Seen.load(sys.argv[1])), resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_weights_on_the_disk_are_not_in_memory(tmp_path):
    call = [sys.executable, "-c", MEMORY, str(tmp_path / "seen")]
    told = subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()
    grown, total, loaded, after = map(float, told)
    assert (total, loaded) == (51 * 8, 51)
    assert grown < total / 3
    assert after < total / 3


def test_records_are_found():
    seen = records()
    assert seen["encoder.look"] is seen[0]
    assert seen[-1].call == 1
    assert isinstance(seen[:2], AttentionRecords)
    assert seen.layers() == ["encoder.look", "look_back"]
    assert [record.call for record in seen.calls("look_back")] == [0, 1]
    assert repr(seen) == "Seen(3 records of 2 attentions)"
    with pytest.raises(KeyError, match=r"was called 2 times: seen.calls"):
        seen["look_back"]
    with pytest.raises(
        KeyError, match=r"'nobody' was not seen; there are 3 records of encoder.look, look_back"
    ):
        seen["nobody"]
    with pytest.raises(IndexError, match="no record 3"):
        seen[3]
    with pytest.raises(KeyError, match="nothing was seen: call the model"):
        AttentionRecords()["look"]


def test_labels_go_where_they_fit():
    seen = AttentionRecords(
        [
            AttentionRecord("a", 0, (0,), torch.rand(2, 1, 3, 3)),
            AttentionRecord("b", 1, (0,), torch.rand(2, 1, 2, 3)),
        ]
    )
    seen.set_tokens(query_tokens=["x", "y"], key_tokens=[["k", "l", "m"], ["k"]])
    assert seen["a"].query_tokens is None
    assert seen["a"].key_tokens == seen["b"].key_tokens == [("k", "l", "m"), ("k",)]
    assert seen["b"].query_tokens == [("x", "y")] * 2
    queries, keys, weights = seen["b"].example(1)
    assert (queries, keys, weights.shape) == (("x", "y"), ("k",), (1, 2, 1))
    seen.set_tokens(key_tokens=["1", "2", "3"], name_pattern="a*")
    assert seen["a"].key_tokens[0] == ("1", "2", "3")
    assert seen["b"].key_tokens[0] == ("k", "l", "m")
    with pytest.raises(
        ValueError, match=r"no record has 4 queries; batch x .* here are 2 x 2 x 3, 2 x 3 x 3"
    ):
        seen.set_tokens(query_tokens=list("abcd"))
    with pytest.raises(ValueError, match="no record has 3 keys in 3 rows"):
        seen.set_tokens(key_tokens=[list("abc")] * 3)
    with pytest.raises(ValueError, match="give queries, keys or both"):
        seen.set_tokens()


@pytest.mark.bare
@pytest.mark.parametrize(
    "words", ["abc", [1, 2, 3], torch.arange(3), [[1, 2, 3]], ["a", "b", 3], ["a", ["b"]]]
)
def test_what_is_no_list_of_words_is_refused_before_the_model_runs(words):
    heads = MultiHead(8, 2)
    with pytest.raises(TypeError, match="words are a list of texts"), watch(heads, tokens=words):
        pytest.fail("too late")
    with pytest.raises(TypeError, match="words are a list of texts"):
        AttentionRecords([AttentionRecord("a", 0, (0,), torch.rand(1, 1, 3, 3))]).set_tokens(key_tokens=words)


def test_rows_of_a_beam_are_not_joined():
    seen = AttentionRecords([AttentionRecord("a", 0, (0,), torch.rand(rows, 1, 1, 2)) for rows in (2, 3)])
    with pytest.raises(ValueError, match="different rows"):
        seen.concat_calls("a")


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


def test_a_notebook_shows_them_and_runs_nothing():
    seen = records()
    seen._records[0].name = "<b>bold</b>"
    for shown in (seen._repr_html_(), seen[0]._repr_html_(), seen.measures()._repr_html_()):
        page = Tags()
        page.feed(shown)
        assert set(page.tags) <= {
            "div",
            "b",
            "svg",
            "image",
            "rect",
            "text",
            "table",
            "tr",
            "td",
            "th",
            "img",
            "p",
        }
        assert "<b>bold</b>" in page.text
    page = Tags()
    page.feed(seen[0]._repr_html_())
    assert "<script>alert" in page.text
    assert page.tags.count("image") == 2
    assert re.search("猫 & 🐈", page.text)


def test_much_is_shown_in_little():
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


def test_measures_are_a_table():
    eye = torch.eye(4)[None, None]
    seen = AttentionRecords(
        [
            AttentionRecord("a", 0, (0, 1), torch.cat([eye, torch.full((1, 1, 4, 4), 0.25)], 1)),
            AttentionRecord("step", 1, (5,), torch.full((1, 1, 1, 3), 1 / 3), call=0),
            AttentionRecord("step", 1, (5,), torch.tensor([[[[1.0, 0, 0]]]]), call=1),
        ]
    )
    first, second, step = seen.measures().to_json()
    assert (first["name"], first["head"], first["entropy"], first["distance"], first["diagonality"]) == (
        "a",
        0,
        0,
        0,
        1,
    )
    assert second["entropy"] == pytest.approx(1.3863, abs=1e-3)
    assert first["agreement"] == second["agreement"] < 1
    assert step["entropy"] == pytest.approx(1.0986 / 2, abs=1e-3)
    assert step["distance"] is step["agreement"] is None
    assert json.loads(json.dumps(seen.measures().to_json())) == seen.measures().to_json()
    console = Console(width=90, file=io.StringIO())
    console.print(seen.measures())
    assert "entropy" in console.file.getvalue()


def test_padding_is_not_measured():
    weights = torch.rand(1, 1, 4, 4)
    weights[..., 2:] = 0
    weights[..., :2] = torch.tensor([1.0, 0.0])
    weights[:, :, 2:] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    seen = AttentionRecords([AttentionRecord("a", 0, (0,), weights, [("x", "y")], [("x", "y")])])
    assert seen.measures().to_json()[0]["entropy"] == 0
    assert seen.measures().to_json()[0]["sparsity"] == 0.5


@pytest.mark.filterwarnings("ignore")  # a font may be missing here
def test_a_record_draws_itself(tmp_path):
    records()[0].picture(row=0).save(tmp_path / "heads.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
