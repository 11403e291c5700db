"""Pages as Python builds them: one file, no network, escaped text, exact numbers."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser

import pytest
import torch

from regard.attention import Additive, Attention, Boxcar, Constant, MultiHead, causal, sparsemax
from regard.errors import UnsupportedError
from regard.viewing import pages
from regard.viewing.pages import AttentionTrace, MemoryPageData, NextToken, TokenizedSentence, TranslationPageData
from regard.viewing.pages import page as page_module
from regard.viewing.pages.content import MAX_THUMBNAIL_SIDE, build_thumbnails
from tests.viewing.memory_data import copy_with_memory
from tests.viewing.translation_data import HOSTILE, example_translation, hostile_translation

PAGES = {
    "translation": lambda: pages.translation_page(hostile_translation()),
    "walkthrough": lambda: pages.attention_walkthrough(MultiHead(8, 2), torch.randn(5, 8), HOSTILE, causal()),
    "memory": lambda: pages.memory_page(copy_with_memory(torch.eye(4)), title=HOSTILE[0]),
    "heads": lambda: pages.head_grid(torch.rand(2, 2, 5, 5), HOSTILE, title=HOSTILE[1]),
}


class Elements(HTMLParser):
    """The elements of a page, and the text of each kind of script."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.texts.setdefault(self.tags[-1][1].get("id") or "script", data)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_one_file_with_escaped_text(name):
    html = PAGES[name]().html
    page = Elements(html)
    tags = {tag for tag, _ in page.tags}
    assert tags == {"html", "meta", "link", "title", "style", "main", "script"}
    assert not any("src" in attributes for _, attributes in page.tags)
    assert [a["href"] for tag, a in page.tags if tag == "link"] == ["data:,"]
    assert set(re.findall(r"https?://[^\s'\"]+", html)) <= {"http://www.w3.org/2000/svg"}
    data = json.loads(page.texts["data"])
    text = json.dumps(data, ensure_ascii=False)
    assert any(json.dumps(word, ensure_ascii=False)[1:-1] in text for word in HOSTILE)


@pytest.mark.parametrize("name", PAGES)
def test_top_level_names_of_bundled_modules_are_unique(name):
    """They are bundled into one script, where duplicate names and imports would be errors."""
    script = Elements(PAGES[name]().html).texts["script"]
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, re.MULTILINE)
    names += [
        n
        for group in re.findall(r"^const [\[{]([^=]*)[\]}] =", script, re.MULTILINE)
        for n in re.findall(r"\w+", group)
    ]
    assert len(names) == len(set(names)) > 10
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def test_the_policy_contains_the_hashes_of_script_and_style():
    import hashlib

    html = pages.translation_page(example_translation()).html
    for tag, kind in (("script", ' type="module"'), ("style", "")):
        text = re.search(rf"<{tag}{kind}>(.*?)</{tag}>", html, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in html
    assert "connect-src" not in html, "default-src 'none' covers it"
    assert "default-src 'none'" in html


def test_every_text_exists_in_both_languages():
    for path in sorted(page_module.ASSET_FOLDER.glob("*.js")):
        text = path.read_text(encoding="utf-8")
        tables = re.findall(r"^  en: \{(.*?)^  \},\n  zh: \{(.*?)^  \},", text, re.DOTALL | re.MULTILINE)
        for english, chinese in tables:
            en, zh = (
                {key: set(re.findall(r"\{\w+\}", text)) for key, text in re.findall(r"'?([\w-]+)'?:\s+'([^']*)'", side)}
                for side in (english, chinese)
            )
            symbols = {key for key in en if key.startswith("m-")}  # q, k, v are the same everywhere
            assert en.keys() - symbols <= zh.keys() <= en.keys(), path.name
            assert all(zh[key] == en[key] for key in zh), path.name


def test_weights_are_embedded_exactly():
    html = pages.translation_page(example_translation()).html
    page = Elements(html)
    blocks = {i: text for i, text in page.texts.items() if i.startswith("w-")}
    assert set(blocks) == {"w-0-0", "w-0-1", "w-1-0", "w-1-1"}
    raw = zlib.decompress(base64.b64decode(blocks["w-1-1"]))
    back = torch.frombuffer(bytearray(raw), dtype=torch.uint16).double().view(4, 5) / 65535
    assert torch.allclose(back, example_translation().weights[1, 1].double(), atol=1e-5)


def test_quantized_weights_are_clamped():
    odd = torch.tensor([[float("nan"), -1.0, 2.0, float("inf")]])
    assert page_module.quantize_uint16(odd).hex() == "00000000ffffffff"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": torch.rand(1, 1, 2, 2)}, "target_tokens 4, steps_of_next_tokens 4, queries_of_weights 2"),
        ({"next_tokens": [[NextToken("a", 1.0)]]}, "target_tokens 4, steps_of_next_tokens 1"),
        ({"best_path": [0]}, "tree and best_path"),
        ({"source": TokenizedSentence("", [], end=False)}, "source or the target has no tokens"),
    ],
)
def test_inconsistent_translations_are_rejected(change, message):
    with pytest.raises(ValueError, match=message):
        TranslationPageData(**{**vars(example_translation()), **change})


def test_inconsistent_texts_are_rejected():
    with pytest.raises(ValueError, match="words and groups"):
        TokenizedSentence("a", ["a"], words=["a"])
    with pytest.raises(ValueError, match="2 words, but 1 groups"):
        TokenizedSentence("a", ["a"], words=["a", "b"], groups=[[0]])
    with pytest.raises(ValueError, match="from 0 to 0"):
        TokenizedSentence("a", ["a"], words=["a"], groups=[[1]])


@pytest.mark.parametrize("selection", [{"layer": 2}, {"head": -1}])
def test_unknown_layers_and_heads_are_rejected(selection):
    with pytest.raises(ValueError, match="this model has 2, counted from 0"):
        pages.translation_page(example_translation(), **selection)


@pytest.mark.bare
def test_unknown_languages_are_rejected():
    with pytest.raises(ValueError, match="invalid value 'tlh' for language: must be 'en' or 'zh'"):
        pages.translation_page(example_translation(), language="tlh")


def test_a_page_is_saved_and_displayed(tmp_path):
    page = pages.translation_page(example_translation(), language="zh")
    page.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == page.html
    assert 'lang="zh-Hans"' in page.html
    frame = Elements(page._repr_html_()).tags
    assert [tag for tag, _ in frame] == ["iframe"]
    assert frame[0][1]["srcdoc"] == page.html
    with pytest.raises(ValueError, match=r"invalid file name 'x\.pdf'"):
        page.save(tmp_path / "x.pdf")


@pytest.mark.parametrize("sizes", [{}, {"head_dim": 4, "value_head_dim": 3, "query_dim": 16, "key_dim": 16}])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("mask", [None, causal()])
def test_a_trace_ends_with_the_output_of_the_layer(kv_heads, mask, sizes):
    heads, x = MultiHead(12 if sizes else 16, 4, kv_heads, **sizes), torch.randn(6, 16)
    torch.nn.init.normal_(heads.k_proj.bias)
    trace = AttentionTrace.build(heads, x, list("abcdef"), mask)
    output = heads(x, mask=mask)
    matrices = trace.matrices
    assert torch.allclose(matrices["output"], output.context, atol=1e-6)
    assert torch.allclose(matrices["weights"], output.weights, atol=1e-6)
    for name in "qkv":  # the formula of a cell: row of x times column of W, plus bias
        assert torch.allclose(x @ matrices[f"w{name}"] + matrices[f"b{name}"], matrices[name], atol=1e-5)
    assert torch.allclose(matrices["dots"] / 2, matrices["scaled"])
    assert torch.allclose(matrices["weights"] @ matrices["v"], matrices["context"], atol=1e-6)
    assert torch.allclose(matrices["joined"] @ matrices["wo"] + matrices["bo"], matrices["output"], atol=1e-5)
    hidden = matrices["scores"].isinf()
    assert int(hidden.sum()) == (0 if mask is None else 4 * 15)
    assert torch.equal(matrices["scores"][~hidden], matrices["scaled"][~hidden])


def test_a_trace_of_another_attention_names_its_parts():
    attention, x = Attention(Additive(4, 4, 8), sparsemax), torch.randn(3, 4)
    trace = AttentionTrace.build(attention, x, ["a", "b", "c"])
    assert (trace.score, trace.normalize, trace.num_heads) == ("Additive", "sparsemax", 1)
    assert "dots" not in trace.matrices
    assert torch.allclose(trace.matrices["context"][0], attention(x, x, x).context)
    stages = json.loads(Elements(pages.attention_walkthrough(attention, x, ["a", "b", "c"]).html).texts["data"])[
        "stages"
    ]
    assert [stage["name"] for stage in stages] == ["input", "plain", "scores", "weights", "sum"]
    assert AttentionTrace.build(Attention(Constant()), x, ["a", "b", "c"]).score == "Constant"
    assert AttentionTrace.build(Attention(Boxcar(1.0)), x, ["a", "b", "c"]).normalize == "kernel_sum"


@pytest.mark.parametrize("options", [{"qk_norm": torch.nn.RMSNorm}, {"add_bias_kv": True}, {"add_zero_attn": True}])
def test_a_trace_refuses_operations_that_it_does_not_show(options):
    with pytest.raises(UnsupportedError, match="shows no qk_norm and no extra keys"):
        AttentionTrace.build(MultiHead(8, 2, **options), torch.randn(3, 8), list("abc"))


def test_a_trace_has_no_dropout():
    heads, x = MultiHead(8, 2, dropout=0.9).train(), torch.randn(4, 8)
    trace = AttentionTrace.build(heads, x, list("abcd"))
    assert torch.allclose(trace.matrices["output"], heads.eval()(x).context, atol=1e-6)
    assert trace.normalize == "softmax"


def test_the_stages_of_a_walkthrough():
    html = pages.attention_walkthrough(MultiHead(8, 2), torch.randn(3, 8), ["a", "b", "c"], causal()).html
    names = [stage["name"] for stage in json.loads(Elements(html).texts["data"])["stages"]]
    assert names == ["input", "project", "dots", "divide", "mask", "weights", "sum", "output"]


@pytest.mark.bare
@pytest.mark.parametrize(
    ("x", "tokens", "message"),
    [
        (torch.randn(2, 3, 8), ["a", "b", "c"], r"\(3 tokens, dim\), got \(2, 3, 8\)"),
        (torch.randn(3, 8), ["a"], r"\(1 tokens, dim\)"),
        (torch.randn(65, 8), ["a"] * 65, "1 to 64 tokens, got 65"),
        (torch.randn(0, 8), [], "1 to 64 tokens, got 0"),
    ],
)
def test_invalid_walkthroughs_are_rejected(x, tokens, message):
    with pytest.raises(ValueError, match=message):
        pages.attention_walkthrough(MultiHead(8, 2), x, tokens)


def test_the_example_memory_copies_its_input():
    sequence = (torch.rand(6, 5) > 0.5).float()
    data = copy_with_memory(sequence)
    assert torch.allclose(data.outputs[6:], sequence, atol=1e-3)
    assert torch.equal(data.write_weights[:6, 0].argmax(-1), torch.arange(6))
    assert torch.equal(data.read_weights[6:, 0].argmax(-1), torch.arange(6))


@pytest.mark.bare
def test_inconsistent_memory_data_is_rejected():
    good = vars(copy_with_memory(torch.eye(4)))
    with pytest.raises(ValueError, match="steps_of_inputs 8, steps_of_outputs 3"):
        MemoryPageData(**{**good, "outputs": torch.rand(3, 4)})
    with pytest.raises(ValueError, match=r"\(inputs\): the tensor is empty"):
        MemoryPageData(**{name: None if value is None else value[:0] for name, value in good.items()})
    with pytest.raises(ValueError, match="rows_of_read_weights 5, rows_of_write_weights 12"):
        MemoryPageData(**{**good, "read_weights": torch.rand(8, 1, 5)})
    with pytest.raises(ValueError, match="read_heads_of_read_weights 1, read_heads_of_read_vectors 2"):
        MemoryPageData(**{**good, "read_vectors": torch.rand(8, 2, 4)})
    with pytest.raises(ValueError, match="outputs_of_outputs 4, outputs_of_targets 3"):
        MemoryPageData(**{**good, "targets": torch.rand(8, 3)})
    with pytest.raises(ValueError, match=r"\(target_mask\) expects a tensor of shape \(steps\), got \(8, 1\)"):
        MemoryPageData(**{**good, "target_mask": torch.ones(8, 1).bool()})
    with pytest.raises(ValueError, match="no head 1 in write_weights, which has 1"):
        pages.memory_page(MemoryPageData(**good), heads=(0, 1))


def test_optional_memory_data():
    data = vars(copy_with_memory(torch.eye(4)))
    names = ("inputs", "outputs", "read_weights", "write_weights", "memory")
    required = {name: data[name] for name in names}
    assert '"selected":{"read_weights":0,"write_weights":0}' in pages.memory_page(
        MemoryPageData(**required)
    ).html.replace(" ", "")


def test_thumbnails_keep_the_maximum():
    weights = torch.zeros(1, 1, 200, 100)
    weights[0, 0, 150, 20] = 0.3
    small = build_thumbnails(weights)
    assert small.shape == (1, 1, MAX_THUMBNAIL_SIDE, MAX_THUMBNAIL_SIDE)
    assert int((small > 0).sum()) == 1
    assert small[0, 0, 150 * MAX_THUMBNAIL_SIDE // 200, 20 * MAX_THUMBNAIL_SIDE // 100] == 255
    assert build_thumbnails(torch.ones(1, 2, 3, 4)).shape == (1, 2, 3, 4)


@pytest.mark.bare
def test_heads_and_tokens_must_match():
    with pytest.raises(ValueError, match="queries 3, query_tokens 2"):
        pages.head_grid(torch.rand(1, 1, 3, 3), ["a", "b"])
    with pytest.raises(ValueError, match=r"\(layers, heads, queries, keys\), got \(3, 3\)"):
        pages.head_grid(torch.rand(3, 3), ["a", "b", "c"])
    for scores in (torch.full((1, 1, 1, 1), -0.1), torch.full((1, 1, 1, 1), 2.0)):
        with pytest.raises(ValueError, match="must be from 0 to 1; pass weights, not scores"):
            pages.head_grid(scores, ["a"])


def test_a_page_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match=r"cannot write the page to .*x.html: no folder"):
        PAGES["heads"]().save(tmp_path / "no" / "x.html")
