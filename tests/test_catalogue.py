"""The machinery of the catalogue; what the entries promise is tested in tests/contract."""

import pickle

import pytest
import torch

from regard.catalogue import KINDS, MECHANISMS, Mechanism, get_mechanism
from regard.catalogue.mechanism import find_by_name, parse_docstring
from regard.cli.mechanisms import LABELS
from regard.config import load_translations
from regard.errors import UnknownNameError

PLAIN = {"cost": "", "fast_path": ""}


@pytest.mark.parametrize("name", ["Additive", "additive", "ADD-itive", "add_i tive", "bahdanau"])
def test_names_and_aliases_in_any_spelling(name):
    assert get_mechanism(name).name == "Additive"


def test_names_and_aliases_are_unique():
    words = [word.casefold().replace(" ", "") for e in MECHANISMS for word in (e.name, *e.aliases)]
    assert sorted(words) == sorted(set(words))


def test_a_name_takes_precedence_over_an_alias():
    entries = [Mechanism("Dot", "score", **PLAIN), Mechanism("Other", "score", aliases=("dott",), **PLAIN)]
    assert find_by_name(entries, "dot").name == "Dot"
    assert find_by_name(entries, "DOTT").name == "Other"


def test_an_unknown_name_suggests_similar_ones():
    with pytest.raises(UnknownNameError, match=r"no mechanism .additve.; did you mean Additive or ") as e:
        get_mechanism("additve")
    assert e.value.suggestions[0] == "Additive"
    assert isinstance(e.value, LookupError)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


def test_a_prefix_ranks_above_a_similar_name():
    with pytest.raises(UnknownNameError) as e:
        get_mechanism("bah")
    assert e.value.suggestions[0] == "Additive"


def test_docstrings_are_parsed():
    doc = """How well a key answers
    a query.

        a = b
          + c

    More words, without a source.

    Reference: Bahdanau, Cho and Bengio (2015),
    arXiv 1409.0473.

    >>> print("1999")
    1999
    """
    summary, equation, paper = parse_docstring(doc)
    assert summary == "How well a key answers a query."
    assert equation == "a = b\n  + c"
    assert paper == "Bahdanau, Cho and Bengio (2015), arXiv 1409.0473."


@pytest.mark.parametrize("doc", ["", "One sentence."])
def test_docstrings_without_equation_or_reference(doc):
    assert parse_docstring(doc) == (doc, "", "")


@pytest.mark.parametrize("entry", MECHANISMS, ids=lambda entry: entry.name)
def test_every_mechanism_is_complete(entry):
    assert entry.kind in KINDS
    assert entry.object is not None
    assert entry.example() is not None
    for text in (entry.summary, entry.summary_zh, entry.cost, entry.fast_path):
        assert text.strip()


def test_the_words_of_the_command_are_in_chinese_too():
    assert {f"mechanisms.{name}" for name in (*LABELS, "picture")} <= load_translations("zh").keys()


def test_every_mechanism_has_a_chinese_summary():
    names = {key.removeprefix("Mechanism.") for key in load_translations("zh") if key.startswith("Mechanism.")}
    assert names == {entry.name for entry in MECHANISMS}
    assert all(entry.summary_zh.endswith("。") for entry in MECHANISMS)


@pytest.mark.parametrize("entry", MECHANISMS, ids=lambda entry: entry.name)
def test_every_mechanism_has_a_picture_that_preserves_the_random_state(entry):
    state = torch.get_rng_state()
    weights = entry.picture()
    assert torch.equal(torch.get_rng_state(), state)
    assert weights.dim() == 2
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert torch.equal(weights, entry.picture())
