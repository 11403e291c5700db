"""`regard show`."""

import json
import re

import pytest

from tests.cli.calls import assert_refused, call, run

PROBE = "<img src=x onerror=alert(1)>"


def data_of(path) -> dict:
    """What a page was made from."""
    html = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_in_the_terminal(backwards):
    answer = call("show", backwards, "abcd")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[0] == "dcba"
    assert lines[2].split() == list("abcd"), "the source is the head of the table"
    assert [line.split(" │")[0] for line in lines[3:7]] == list("dcba")
    assert lines[-1].startswith("With these weights permuted at random"), "the faithfulness follows the alignment"


def test_in_the_terminal_in_chinese(backwards):
    lines = call("show", backwards, "abcd", "--lang", "zh").stdout.splitlines()
    assert lines[-3].startswith("空白为 0，░ 不超过 ")
    heads = call("show", backwards, "abcd", "--heads", "--lang", "zh", "--no-faithfulness").stdout.splitlines()
    assert heads[2:4] == ["第 0 层", "第 0 头"]
    assert heads[-1].startswith("空白为 0，")


def test_a_page_contains_search_weights_and_faithfulness(backwards, tmp_path):
    answer = call("show", backwards, "abc", "--beam-size", 3, "--out", tmp_path / "x.html", "--lang", "zh")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("cba\n随机打乱注意力权重后")
    data = data_of(tmp_path / "x.html")
    assert (data["text"], data["target"]) == (["abc", "cba"], ["c", "b", "a", "</s>"])
    assert (data["layers"], data["heads"], data["beamSize"], data["forced"], data["language"]) == (1, 1, 3, False, "zh")
    assert set(data["faithfulness"]) == {"en", "zh"}
    winner = [step[place] for step, place in zip(data["tree"], data["bestPath"], strict=True)]
    assert [node["text"] for node in winner] == data["target"]
    assert winner[-1]["end"]
    chosen = [[option for option in step if option["chosen"]] for step in data["nextTokens"]]
    assert [one["text"] for (one,) in chosen] == data["target"]
    assert [one["p"] for (one,) in chosen] == pytest.approx([node["p"] for node in winner], abs=1e-4)
    assert all(sum(option["p"] for option in step) <= 1.0001 for step in data["nextTokens"])


def test_show_of_a_target(backwards, tmp_path):
    answer = call("show", backwards, "abc", "--target", "abc", "--out", tmp_path / "x.html", "--no-faithfulness")
    assert answer.stdout == "abc\n"
    data = data_of(tmp_path / "x.html")
    assert (data["forced"], data["tree"], data["faithfulness"]) == (True, [], None)
    assert data["target"] == ["a", "b", "c", "</s>"]
    assert data["score"] < -3, "the model would not have written it"


def test_figures(backwards, tmp_path):
    pytest.importorskip("matplotlib")
    for name, begins in (("x.png", b"\x89PNG"), ("y.svg", b"<?xml")):
        assert call("show", backwards, "abc", "--out", tmp_path / name).returncode == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert call("show", backwards, "abc", "--heads", "--out", tmp_path / "z.png").returncode == 0
    assert (tmp_path / "z.png").read_bytes() != (tmp_path / "x.png").read_bytes()


def test_a_text_file_has_no_colors(backwards, tmp_path):
    call("show", backwards, "abc", "--out", tmp_path / "x.txt", "--layer", 0, "--head", 0, "--no-words")
    text = (tmp_path / "x.txt").read_text(encoding="utf-8")
    assert text.startswith("cba\n")
    assert "\x1b" not in text
    assert "</s> │" in text, "tokens have the end of the sentence"


def test_every_head(backwards, tmp_path):
    assert "layer 0" in call("show", backwards, "abc", "--heads").stdout
    call("show", backwards, "abc", "--heads", "--out", tmp_path / "x.html")
    data = data_of(tmp_path / "x.html")
    assert (data["queries"], data["keys"], data["layers"]) == (list("cba"), list("abc"), 1)


def test_json(backwards, tmp_path):
    answer = call("show", backwards, "abc", "--json", "--out", tmp_path / "x.html")
    result = json.loads(answer.stdout)
    assert (result["source"], result["translation"], result["out"]) == ("abc", "cba", str(tmp_path / "x.html"))
    assert result["alignment"]["shape"] == [1, 1, 4, 4]
    assert result["next"][0][0]["text"] == "c"
    assert "sentence" in result["faithfulness"]
    assert len(result["search"]) >= 4


def test_standard_input(backwards):
    assert call("show", backwards, stdin=b"abc\n").stdout.startswith("cba\n")
    assert_refused(call("show", backwards, stdin=b""), "the text is empty: there is nothing to show")


def test_a_long_text_is_truncated_on_request(backwards):
    answer = call("show", backwards, "abcdef", "--too-long", "truncate", "--no-faithfulness")
    assert answer.stdout.startswith("dcba\n")


@pytest.mark.parametrize("text", [PROBE[:4], "</s>", "😀é", "של", "\u202eab", "\udcff"])
def test_text_is_never_markup(backwards, tmp_path, text):
    answer = call("show", backwards, text, "--out", tmp_path / "x.html", "--no-faithfulness")
    assert answer.returncode == 0, answer.stderr
    html = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<img" not in html
    assert data_of(tmp_path / "x.html")["text"][0] == text.encode("utf-8", "replace").decode()


def test_a_target_is_never_markup(backwards, tmp_path):
    call("show", backwards, "abc", "--target", "<b>", "--out", tmp_path / "x.html", "--no-faithfulness")
    assert "<b>" not in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert data_of(tmp_path / "x.html")["text"] == ["abc", "<b>"]


def test_a_character_without_a_font_prints_one_sentence(backwards, tmp_path):
    answer = call("show", backwards, "a\U000f0000", "--out", tmp_path / "x.png", "--no-faithfulness")
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.startswith("No font has")
    assert "MissingGlyphs" not in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "--json"], "there is nothing to show: the text is empty"),
        (
            ["word " * 10_000],
            "the text has 50,000 tokens, but this model takes 4 (max_length); split it, or cut it with --too-long",
        ),
        (["abc", "--target", "x" * 10_000], "the translation has 10,000 tokens, but this model takes 1 to 4"),
        (["abc", "--target", " "], "the translation is empty"),
        (["abc", "--out", "x.pdf"], "its name must end in .html, .png, .svg, .txt"),
        (["abc", "--layer", "1"], "no layer 1: this model has 1, counted from 0"),
        (["abc", "--head", "-1"], "invalid value '-1' for head: must be at least 0"),
        (["abc", "--heads", "--head", "0"], "for heads: cannot be combined with layer or head, because it shows all"),
        (["abc", "--beam-size", "0"], "invalid value '0' for beam_size"),
        (["abc", "--out", "no/such/folder/x.html"], "no folder no/such/folder for x.html; create it first"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(backwards, arguments, words):
    assert_refused(call("show", backwards, *arguments), words)


def test_without_a_run(tmp_path):
    assert_refused(call("show"), "Missing argument 'RUN'")
    assert_refused(call("show", tmp_path, "abc"), f"no run in {tmp_path}")


@pytest.fixture(scope="module")
def run_without_attention(tmp_path_factory):
    """A model without attention, which has hardly learned anything."""
    folder = tmp_path_factory.mktemp("runs") / "run_without_attention"
    words = [
        "attention_scope=none",
        "max_length=4",
        "hidden_dim=8",
        "steps=1",
        "monitor=loss",
        "average_last=0",
        "batch_tokens=100",
    ]
    answer = run("train", "reverse", *words, "--out", str(folder), "--json")
    assert answer.returncode == 0, answer.stderr
    return folder


def test_a_model_without_attention(run_without_attention, tmp_path):
    answer = call("show", run_without_attention, "abc", "--beam-size", 2, "--out", tmp_path / "x.html")
    assert answer.returncode == 0, answer.stderr
    data = data_of(tmp_path / "x.html")
    assert (data["layers"], data["heads"], data["faithfulness"]) == (0, 0, None)
    assert data["tree"]
    assert "no attention" in call("show", run_without_attention, "abc").stdout
    assert_refused(
        call("show", run_without_attention, "abc", "--out", tmp_path / "x.png"), "this model has no attention"
    )
    assert_refused(call("show", run_without_attention, "abc", "--layer", 0), "no layer 0: this model has 0")
