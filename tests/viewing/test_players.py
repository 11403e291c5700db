"""The players as Python makes them: one file, no network, no text that could become a tag, no wrong number."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser

import pytest
import torch

from regard.attention import Additive, Attention, Boxcar, Constant, MultiHead, causal, sparsemax
from regard.viewing import pages as players
from regard.viewing.pages import AttentionTrace, MemoryPageData, NextToken, TokenizedText, TranslationPageData
from regard.viewing.pages import page as web
from regard.viewing.pages.content import MAX_THUMBNAIL_SIDE, build_thumbnails
from tests.viewing.plays import HOSTILE, hostile, translated
from tests.viewing.tapes import copying

PLAYERS = {
    "translation": lambda: players.translation_page(hostile()),
    "walk": lambda: players.attention_walkthrough(MultiHead(8, 2), torch.randn(5, 8), HOSTILE, causal()),
    "tape": lambda: players.memory_page(copying(torch.eye(4)), title=HOSTILE[0]),
    "heads": lambda: players.head_grid(torch.rand(2, 2, 5, 5), HOSTILE, title=HOSTILE[1]),
}


class Elements(HTMLParser):
    """The elements of a page, and the text of each kind of script."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found and self.found[-1][0] == "script":
            self.texts.setdefault(self.found[-1][1].get("id") or "script", data)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_page_is_one_file_and_no_text_becomes_a_tag(name):
    html = PLAYERS[name]().html
    page = Elements(html)
    tags = {tag for tag, _ in page.found}
    assert tags == {"html", "meta", "link", "title", "style", "main", "script"}
    assert not any("src" in attributes for _, attributes in page.found)
    assert [a["href"] for tag, a in page.found if tag == "link"] == ["data:,"]
    assert set(re.findall(r"https?://[^\s'\"]+", html)) <= {"http://www.w3.org/2000/svg"}
    data = json.loads(page.texts["data"])
    told = json.dumps(data, ensure_ascii=False)
    assert any(json.dumps(word, ensure_ascii=False)[1:-1] in told for word in HOSTILE)


@pytest.mark.parametrize("name", PLAYERS)
def test_the_modules_of_a_page_use_every_name_once(name):
    """They are joined into one script, where a name twice would be an error, and an import too."""
    script = Elements(PLAYERS[name]().html).texts["script"]
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, re.MULTILINE)
    names += [
        n
        for group in re.findall(r"^const [\[{]([^=]*)[\]}] =", script, re.MULTILINE)
        for n in re.findall(r"\w+", group)
    ]
    assert len(names) == len(set(names)) > 10
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def test_the_policy_knows_the_script_by_its_hash():
    import hashlib

    html = players.translation_page(translated()).html
    for tag, kind in (("script", ' type="module"'), ("style", "")):
        text = re.search(rf"<{tag}{kind}>(.*?)</{tag}>", html, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in html
    assert "connect-src" not in html, "default-src 'none' says it already"
    assert "default-src 'none'" in html


def test_every_module_exists_in_both_languages():
    for path in sorted(web.ASSET_FOLDER.glob("*.js")):
        text = path.read_text(encoding="utf-8")
        tables = re.findall(r"^  en: \{(.*?)^  \},\n  zh: \{(.*?)^  \},", text, re.DOTALL | re.MULTILINE)
        for english, chinese in tables:
            ours, theirs = (
                {
                    key: set(re.findall(r"\{\w+\}", said))
                    for key, said in re.findall(r"'?([\w-]+)'?:\s+'([^']*)'", side)
                }
                for side in (english, chinese)
            )
            symbols = {key for key in ours if key.startswith("m-")}  # q, k, v are the same everywhere
            assert ours.keys() - symbols <= theirs.keys() <= ours.keys(), path.name
            assert all(theirs[key] == ours[key] for key in theirs), path.name


def test_weights_come_back_as_they_were():
    html = players.translation_page(translated()).html
    page = Elements(html)
    blocks = {i: text for i, text in page.texts.items() if i.startswith("w-")}
    assert set(blocks) == {"w-0-0", "w-0-1", "w-1-0", "w-1-1"}
    raw = zlib.decompress(base64.b64decode(blocks["w-1-1"]))
    back = torch.frombuffer(bytearray(raw), dtype=torch.uint16).double().view(4, 5) / 65535
    assert torch.allclose(back, translated().weights[1, 1].double(), atol=1e-5)


def test_weights_that_are_no_shares_are_kept_in_bounds():
    odd = torch.tensor([[float("nan"), -1.0, 2.0, float("inf")]])
    assert web.quantize_uint16(odd).hex() == "00000000ffffffff"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": torch.rand(1, 1, 2, 2)}, r"\(layers, heads, 4, 5\)"),
        ({"next": [[NextToken("a", 1.0)]]}, "options for 1 steps, but 4 target tokens"),
        ({"path": [0]}, "tree and path"),
        ({"source": TokenizedText("", [], end=False)}, "nothing to play"),
    ],
)
def test_a_translation_that_does_not_fit_together_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        TranslationPageData(**{**vars(translated()), **change})


def test_a_sentence_that_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="words and groups"):
        TokenizedText("a", ["a"], words=["a"])
    with pytest.raises(ValueError, match="2 words, but 1 groups"):
        TokenizedText("a", ["a"], words=["a", "b"], groups=[[0]])
    with pytest.raises(ValueError, match="from 0 to 0"):
        TokenizedText("a", ["a"], words=["a"], groups=[[1]])


@pytest.mark.parametrize("which", [{"layer": 2}, {"head": -1}])
def test_a_head_that_is_not_there_is_refused(which):
    with pytest.raises(ValueError, match="this model has 2, counted from 0"):
        players.translation_page(translated(), **which)


@pytest.mark.bare
def test_a_language_that_nobody_speaks_here_is_refused():
    with pytest.raises(ValueError, match="speaks 'en' or 'zh', not 'tlh'"):
        players.translation_page(translated(), language="tlh")


def test_a_player_saves_itself_and_shows_itself(tmp_path):
    player = players.translation_page(translated(), language="zh")
    player.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == player.html
    assert 'lang="zh-Hans"' in player.html
    frame = Elements(player._repr_html_()).found
    assert [tag for tag, _ in frame] == ["iframe"]
    assert frame[0][1]["srcdoc"] == player.html
    with pytest.raises(ValueError, match=r"must end in \.html, not 'x\.pdf'"):
        player.save(tmp_path / "x.pdf")


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("mask", [None, causal()])
def test_a_walk_ends_where_the_layer_ends(kv_heads, mask):
    heads, x = MultiHead(16, 4, kv_heads), torch.randn(6, 16)
    torch.nn.init.normal_(heads.k_proj.bias)
    walked = AttentionTrace.build(heads, x, list("abcdef"), mask)
    seen = heads(x, mask=mask)
    made = walked.matrices
    assert torch.allclose(made["output"], seen.context, atol=1e-6)
    assert torch.allclose(made["weights"], seen.weights, atol=1e-6)
    for one in "qkv":  # what a page says of a cell: row of x times column of W, plus bias
        assert torch.allclose(x @ made[f"w{one}"] + made[f"b{one}"], made[one], atol=1e-5)
    assert torch.allclose(made["dots"] / 2, made["scaled"])
    assert torch.allclose(made["weights"] @ made["v"], made["context"], atol=1e-6)
    assert torch.allclose(made["joined"] @ made["wo"] + made["bo"], made["output"], atol=1e-5)
    hidden = made["scores"].isinf()
    assert int(hidden.sum()) == (0 if mask is None else 4 * 15)
    assert torch.equal(made["scores"][~hidden], made["scaled"][~hidden])


def test_a_walk_through_another_attention_names_its_parts():
    attention, x = Attention(Additive(4, 4, 8), sparsemax), torch.randn(3, 4)
    walked = AttentionTrace.build(attention, x, ["a", "b", "c"])
    assert (walked.score, walked.normalize, walked.num_heads) == ("Additive", "sparsemax", 1)
    assert "dots" not in walked.matrices
    assert torch.allclose(walked.matrices["context"][0], attention(x, x, x).context)
    stages = json.loads(
        Elements(players.attention_walkthrough(attention, x, ["a", "b", "c"]).html).texts["data"]
    )["stages"]
    assert [stage["name"] for stage in stages] == ["input", "plain", "scores", "weights", "sum"]
    assert AttentionTrace.build(Attention(Constant()), x, ["a", "b", "c"]).score == "Constant"
    assert AttentionTrace.build(Attention(Boxcar(1.0)), x, ["a", "b", "c"]).normalize == "kernel_sum"


def test_a_walk_is_at_rest_also_in_training():
    heads, x = MultiHead(8, 2, dropout=0.9).train(), torch.randn(4, 8)
    walked = AttentionTrace.build(heads, x, list("abcd"))
    assert torch.allclose(walked.matrices["output"], heads.eval()(x).context, atol=1e-6)
    assert walked.normalize == "softmax"


def test_the_steps_of_a_walk():
    html = players.attention_walkthrough(MultiHead(8, 2), torch.randn(3, 8), ["a", "b", "c"], causal()).html
    names = [stage["name"] for stage in json.loads(Elements(html).texts["data"])["stages"]]
    assert names == ["input", "project", "dots", "divide", "mask", "weights", "sum", "output"]


@pytest.mark.bare
@pytest.mark.parametrize(
    ("x", "tokens", "words"),
    [
        (torch.randn(2, 3, 8), ["a", "b", "c"], r"\(tokens, dim\) with 3 tokens, not \(2, 3, 8\)"),
        (torch.randn(3, 8), ["a"], "with 1 tokens"),
        (torch.randn(65, 8), ["a"] * 65, "1 to 64 tokens, not 65"),
        (torch.randn(0, 8), [], "1 to 64 tokens, not 0"),
    ],
)
def test_a_walk_that_cannot_be_shown_is_refused(x, tokens, words):
    with pytest.raises(ValueError, match=words):
        players.attention_walkthrough(MultiHead(8, 2), x, tokens)


def test_the_memory_of_the_tests_really_copies():
    sequence = (torch.rand(6, 5) > 0.5).float()
    told = copying(sequence)
    assert torch.allclose(told.outputs[6:], sequence, atol=1e-3)
    assert torch.equal(told.writes[:6, 0].argmax(-1), torch.arange(6))
    assert torch.equal(told.reads[6:, 0].argmax(-1), torch.arange(6))


@pytest.mark.bare
def test_a_tape_that_does_not_fit_together_is_refused():
    good = vars(copying(torch.eye(4)))
    with pytest.raises(ValueError, match="outputs must have 2 axes, the first of 8 moments"):
        MemoryPageData(**{**good, "outputs": torch.rand(3, 4)})
    with pytest.raises(ValueError, match="nothing to play"):
        MemoryPageData(**{name: None if one is None else one[:0] for name, one in good.items()})
    with pytest.raises(ValueError, match=r"reads must be \(8, 1, 12\)"):
        MemoryPageData(**{**good, "reads": torch.rand(8, 1, 5)})
    with pytest.raises(ValueError, match=r"returned must be \(8, 1, 4\)"):
        MemoryPageData(**{**good, "returned": torch.rand(8, 2, 4)})
    with pytest.raises(ValueError, match=r"wanted must be \(8, 4\) as the outputs are, not \(8, 3\)"):
        MemoryPageData(**{**good, "wanted": torch.rand(8, 3)})
    with pytest.raises(ValueError, match=r"asked must have 1 axis, the first of 8 moments"):
        MemoryPageData(**{**good, "asked": torch.ones(8, 1).bool()})
    with pytest.raises(ValueError, match="no head 1 among the 1 of writes"):
        players.memory_page(MemoryPageData(**good), heads=(0, 1))


def test_a_tape_needs_only_what_it_needs():
    told = vars(copying(torch.eye(4)))
    least = {name: told[name] for name in ("inputs", "outputs", "reads", "writes", "memory")}
    assert '"open":{"reads":0,"writes":0}' in players.memory_page(MemoryPageData(**least)).html.replace(
        " ", ""
    )


def test_thumbnails_keep_the_largest():
    weights = torch.zeros(1, 1, 200, 100)
    weights[0, 0, 150, 20] = 0.3
    small = build_thumbnails(weights)
    assert small.shape == (1, 1, MAX_THUMBNAIL_SIDE, MAX_THUMBNAIL_SIDE)
    assert int((small > 0).sum()) == 1
    assert small[0, 0, 150 * MAX_THUMBNAIL_SIDE // 200, 20 * MAX_THUMBNAIL_SIDE // 100] == 255
    assert build_thumbnails(torch.ones(1, 2, 3, 4)).shape == (1, 2, 3, 4)


@pytest.mark.bare
def test_heads_that_do_not_fit_their_words_are_refused():
    with pytest.raises(ValueError, match="2 queries and 2 keys for weights"):
        players.head_grid(torch.rand(1, 1, 3, 3), ["a", "b"])
    with pytest.raises(ValueError, match=r"\(layers, heads, queries, keys\), not \(3, 3\)"):
        players.head_grid(torch.rand(3, 3), ["a", "b", "c"])
    for scores in (torch.full((1, 1, 1, 1), -0.1), torch.full((1, 1, 1, 1), 2.0)):
        with pytest.raises(ValueError, match="from 0 to 1, and these are not: scores, perhaps"):
            players.head_grid(scores, ["a"])


def test_a_page_that_cannot_be_written_says_why(tmp_path):
    with pytest.raises(OSError, match=r"cannot be written to .*x.html: there is no folder"):
        PLAYERS["heads"]().save(tmp_path / "no" / "x.html")
