"""Alignments: words, links, error rates, gold files, JSON, and replacing unknown words."""

import json

import pytest
import torch

from regard.decoding import (
    Alignment,
    GoldAlignment,
    alignment_error_rate,
    best_head,
    parse_gold,
    read_gold,
    replace_unknown,
)


def example(**changes):
    """Two layers of one head; "le chat" has pieces le, ch, at; the target is "the cat" as the, c, a, t."""
    layer = torch.tensor(
        [[0.7, 0.1, 0.1, 0.1], [0.0, 0.5, 0.3, 0.2], [0.1, 0.2, 0.6, 0.1], [0.2, 0.2, 0.3, 0.3], [0.0, 0.0, 0.1, 0.9]]
    )
    fields = {
        "source": ("▁le", "▁ch", "at", "</s>"),
        "target": ("▁the", "▁c", "a", "t", "</s>"),
        "weights": torch.stack((layer, layer.flip(1)))[:, None],
        "source_groups": ((0,), (1, 2)),
        "target_groups": ((0,), (1, 2, 3)),
    }
    return Alignment(**fields | changes)


def test_weights_of_words_are_sums_and_means():
    source, target, weights = example().merge_words(include_end=True)
    assert (source, target) == (("le", "chat", "</s>"), ("the", "cat", "</s>"))
    expected = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.0, 0.1, 0.9]])
    torch.testing.assert_close(weights[0, 0], expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 3))


def test_eos_is_dropped_with_and_without_renormalization():
    plain = example().merge_words(renormalize=False).weights[0, 0]
    torch.testing.assert_close(plain, torch.tensor([[0.7, 0.2], [0.1, 0.7]]))
    scaled = example().merge_words()
    torch.testing.assert_close(scaled.weights[0, 0], torch.tensor([[7 / 9, 2 / 9], [1 / 8, 7 / 8]]))
    assert (scaled.source, scaled.target) == (("le", "chat"), ("the", "cat"))
    without_attention = example(weights=torch.zeros(1, 1, 5, 4)).merge_words().weights
    assert not without_attention.any()


def test_without_ends_and_groups_every_token_is_a_word():
    alignment = Alignment(("a", "b"), ("c",), torch.tensor([[[[0.4, 0.6]]]]), source_end=False, target_end=False)
    assert alignment.merge_words(include_end=True).source == ("a", "b")
    assert alignment.merge_words().target == ("c",)
    assert alignment.links() == {(1, 0)}


def test_links_go_to_the_word_with_the_largest_weight():
    assert example().links(layer=0, head=0) == {(0, 0), (1, 1)}
    # In layer 1 the columns are reversed: "the" attends most to EOS, so it has no link.
    assert example().links(layer=1, head=0) == {(1, 1)}
    assert example().links(layer=0, head=0, method="threshold", threshold=0.15) == {(0, 0), (1, 0), (1, 1)}
    assert example().links(layer=0, method="threshold", threshold=0.8) == set()
    assert example(weights=torch.zeros(1, 1, 5, 4)).links() == set()
    equal = Alignment(("a", "b", "."), ("c", "d", "."), torch.full((1, 1, 3, 3), 1 / 3))
    assert equal.links() == {(0, 0), (0, 1)}  # of equals, the first


def test_without_a_layer_or_head_the_average_decides():
    weights = torch.tensor([[[0.9, 0.1, 0.0]], [[0.1, 0.8, 0.1]], [[0.1, 0.8, 0.1]]])
    alignment = Alignment(("a", "b", "."), ("c",), weights[None], target_end=False)
    assert [alignment.links(0, head) for head in range(3)] == [{(0, 0)}, {(1, 0)}, {(1, 0)}]
    assert alignment.links() == alignment.links(layer=0) == {(1, 0)}
    torch.testing.assert_close(alignment.select_head().weights, weights.mean(0)[None, None])
    assert alignment.select_head(head=1).weights.shape == (1, 1, 1, 3)


def test_empty_sentences_have_no_links():
    alignment = Alignment(("</s>",), ("</s>",), torch.ones(1, 1, 1, 1))
    assert alignment.links() == set()
    assert alignment.merge_words().weights.shape == (1, 1, 0, 0)


def test_json_round_trip():
    for alignment in (example(), example(source_words=("Le", "chat")), example(weights=torch.zeros(0, 0, 5, 4))):
        text = json.dumps(alignment.to_json())
        again = Alignment.from_json(json.loads(text))
        assert json.dumps(again.to_json()) == text
        assert again.merge_words().source == alignment.merge_words().source
        torch.testing.assert_close(again.weights, alignment.weights, atol=1e-6, rtol=0)
        assert {*alignment.to_json()} == {*vars(alignment), "shape", "word_weights"}
    assert example(weights=torch.full((1, 1, 5, 4), 1 / 3)).to_json(digits=3)["weights"][0][0][0][0] == 0.333


def test_json_has_words_and_the_weights_between_them():
    data = example().to_json()
    assert (data["source_words"], data["target_words"]) == (["le", "chat"], ["the", "cat"])
    torch.testing.assert_close(torch.tensor(data["word_weights"]), example().merge_words().weights, atol=1e-6, rtol=0)
    assert example(target_words=("The", "cat")).to_json()["target_words"] == ["The", "cat"]


def test_the_error_rate_is_that_of_the_paper():
    sure, possible = [{(0, 0), (1, 1)}, {(0, 1)}], [{(0, 0), (1, 1), (1, 2)}, {(0, 1), (1, 0)}]
    assert alignment_error_rate(sure, sure, possible) == 0
    assert alignment_error_rate([set(), set()], sure, possible) == 1
    predicted = [{(0, 0), (1, 2), (2, 2)}, {(1, 0)}]
    # A has 4, S has 3; of A 1 is sure and 3 are possible.
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - (1 + 3) / (4 + 3))
    assert alignment_error_rate(predicted, sure, [{(1, 2)}, {(1, 0)}]) == pytest.approx(
        1 - 4 / 7
    )  # sure ones are possible
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - 2 / 7)
    assert alignment_error_rate([], []) == 0
    with pytest.raises(ValueError, match="not of 1 predicted, 2 sure"):
        alignment_error_rate([set()], sure, possible)


def test_gold_links_are_read(tmp_path):
    path = tmp_path / "gold.tsv"
    path.write_text("the cat\tle chat noir\t0-0 1-1 1?2\r\n\tx\t\n", encoding="utf-8")
    first, second = read_gold(path)
    assert first.target == ("le", "chat", "noir")
    assert (first.sure, first.possible) == ({(0, 0), (1, 1)}, {(0, 0), (1, 1), (1, 2)})
    assert second == GoldAlignment((), ("x",), frozenset(), frozenset())


def test_gold_links_are_parsed_from_lines():
    assert parse_gold(["the cat\tle chat noir\t0-0 1-1 1?2"], "x.xz")[0].source == ("the", "cat")
    with pytest.raises(ValueError, match=r"^x\.xz, line 2: .*not 1 fields"):
        parse_gold(iter(["a\tb\t", "a"]), "x.xz")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a b\tc", "not 2 fields"),
        ("a b\tc\t0-0\t", "not 4 fields"),
        ("a b\tc\t0-0 1:0", "not '1:0'"),
        ("a b\tc\t0-0 -1-0", "not '-1-0'"),
        ("a b\tc\t2-0", "link 2-0 is outside the sentences of 2 and 1 words"),
        ("a b\tc\t0?1", r"link 0\?1 is outside"),
        ("", "not 1 fields"),
    ],
)
def test_damaged_gold_files_are_refused_with_the_line(tmp_path, line, message):
    path = tmp_path / "gold.tsv"
    path.write_text(f"a\tb\t0-0\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"gold\.tsv, line 2: .*{message}"):
        read_gold(path)


def test_gold_files_in_other_encodings_are_refused_with_the_line(tmp_path):
    path = tmp_path / "gold.tsv"
    path.write_bytes("a\tb\t0-0\né\tb\t0-0\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"gold\.tsv, line 2: .*UTF-8"):
        read_gold(path)


def test_best_head():
    gold = GoldAlignment(("le", "chat"), ("the", "cat"), frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))
    assert best_head([example(), example()], [gold, gold]) == (0, 0, 0.0)
    reversed_layers = example(weights=example().weights.flip(0))
    assert best_head([reversed_layers], [gold]).layer == 1
    with pytest.raises(ValueError, match="each of 2 gold alignments, not 1"):
        best_head([reversed_layers], [gold, gold])
    with pytest.raises(ValueError, match="the target of alignment 0 has 4 words, its gold alignment has 2"):
        best_head([example(target_groups=None)], [gold])
    with pytest.raises(ValueError, match="no attention"):
        best_head([example(weights=torch.zeros(0, 0, 5, 4))], [gold])


def test_unknown_words_are_replaced():
    alignment = example(source_words=("Loïc", "Žižek"))
    assert replace_unknown(alignment, []) == ("the", "cat")
    assert replace_unknown(alignment, [0], layer=0) == ("Loïc", "cat")
    assert replace_unknown(alignment, {2}, layer=0) == ("the", "Žižek")
    assert replace_unknown(alignment, {0, 3}, {"Loïc": "Luke"}, layer=0, head=0) == ("Luke", "Žižek")
    assert replace_unknown(alignment, {4}) == ("the", "cat")  # EOS is not a word
    end = example(weights=torch.eye(4)[None, None, [3, 3, 3, 3, 3]] + 1e-3 * torch.eye(5, 4))
    assert replace_unknown(end, {1}) == ("the", "chat")  # the largest weight is that of EOS
    only = example(weights=torch.eye(4)[None, None, [3, 3, 3, 3, 3]])
    assert replace_unknown(only, {1}) == ("the", "cat")  # it attends to EOS only


@pytest.mark.bare
def test_alignments_of_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match=r"\(layers, heads, 5 target tokens, 4 source tokens\)"):
        example(weights=torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match="source_groups has position 3, but the source has 3 tokens"):
        example(source_groups=((0,), (1, 2, 3)))
    with pytest.raises(ValueError, match="3 target_words for 2 target groups"):
        example(target_words=("a", "b", "c"))
    with pytest.raises(ValueError, match="no attention"):
        example(weights=torch.zeros(0, 0, 5, 4)).links()


def test_the_html_table_escapes_its_words():
    html = example(target_words=("<script>alert(1)</script>", "猫&狗"))._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/scrip…" in html
    assert "猫&amp;狗" in html
    assert html.count("<td") == 3 * 3
    assert html.count("120,1.000)") == 1  # the largest is darkest
    long = tuple("w" * 80)
    assert Alignment(long, long, torch.rand(1, 1, 80, 80))._repr_html_().count("<td") == 60 * 60
    assert "&rarr;" in example(weights=torch.zeros(0, 1, 5, 4))._repr_html_()
