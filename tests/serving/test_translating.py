"""What is served, and translations."""

import pytest

from tests.serving.servers import refused


def test_health_says_whether_there_is_a_model(client, playground):
    assert client.get("/v1/health").json() | {"version": ""} == {"status": "ok", "version": "", "model": True}
    assert playground.get("/v1/health").json()["model"] is False


def test_model_tells_what_is_served(client, translator):
    told = client.get("/v1/model").json()
    about = told["model"]
    assert (about["run"], about["recipe"], about["model"]) == ("tiny", "reverse", "transformer")
    assert (about["layers"], about["heads"], about["max_length"]) == (2, 2, 40)
    assert about["parameters"] == sum(part.numel() for part in translator.model.parameters())
    assert about["does"] == ["translate"]
    assert told["limits"] == {"characters": 2_000, "texts": 3, "beam": 6, "points": 10, "seconds": 60.0, "tokens": 40}


def test_without_a_model_there_is_the_playground_only(playground):
    assert playground.get("/v1/model").json()["model"] is None
    refused(playground.post("/v1/translate", json={"texts": ["ab"]}), 404, "no_model", "RUN")
    refused(playground.post("/v1/look", json={"source": "ab", "target": "ba"}), 404, "no_model")


def test_tokens_are_counted_before_anybody_translates(client):
    told = client.post("/v1/tokens", json={"text": "ab!"}).json()
    assert told == {"count": 3, "limit": 40, "fits": True, "tokens": ["a", "b", "<unk>"], "unknown": [2]}
    assert client.post("/v1/tokens", json={"text": "a" * 41}).json()["fits"] is False
    assert client.post("/v1/tokens", json={"text": ""}).json()["count"] == 0
    assert client.post("/v1/tokens", json={"text": "ba", "side": "target"}).json()["tokens"] == ["b", "a"]


def test_translations_are_those_of_the_translator(client, translator):
    told = client.post("/v1/translate", json={"texts": ["abc", "de"], "best": 3, "beam": 4}).json()
    options = translator.decoding_config(beam_size=4, num_best=3)
    for text, here, there in zip(
        ["abc", "de"], told["translations"], translator.search(["abc", "de"], options), strict=True
    ):
        assert here["source"] == text
        assert [one["token_ids"] for one in here["hypotheses"]] == [one.token_ids for one in there]
        assert [one["score"] for one in here["hypotheses"]] == pytest.approx([one.score for one in there], abs=1e-5)
        assert [one["text"] for one in here["hypotheses"]] == [translator.to_text(one) for one in there]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"texts": [" \n"]}, 422, "empty_input", "text 1 is empty"),
        ({"texts": ["a", ""]}, 422, "empty_input", "text 2 is empty"),
        ({"texts": []}, 422, "invalid", "texts"),
        ({"texts": "a"}, 422, "invalid", "texts"),
        ({}, 422, "invalid", "texts"),
        ({"texts": ["a"], "bema": 3}, 422, "invalid", "bema"),
        ({"texts": ["a"], "beam": 0}, 422, "invalid", "beam"),
        ({"texts": ["a"] * 4}, 413, "too_many_texts", "at most 3"),
        ({"texts": ["a" * 41]}, 413, "input_too_long", "41 tokens"),
        ({"texts": ["a " * 1_500]}, 413, "input_too_long", "3,000 characters"),
        ({"texts": ["a"], "beam": 7}, 413, "beam_too_wide", "at most 6"),
        ({"texts": ["a"], "best": 7}, 413, "beam_too_wide", "at most 6"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_a_sentence(client, body, status, code, words):
    refused(client.post("/v1/translate", json=body), status, code, words)


@pytest.mark.parametrize(
    "text", ["🎉👩‍👩‍👧", "שלום עולם", "<script>alert(1)</script>", "a\u0000b", "\u202eabc", "e\u0301"]
)
def test_any_writing_is_text(client, text):
    told = client.post("/v1/translate", json={"texts": [text]})
    assert told.status_code == 200
    assert told.json()["translations"][0]["source"] == text


def test_half_a_surrogate_pair_becomes_a_question_mark(client):
    raw = b'{"texts": ["a\\ud800"]}'
    told = client.post("/v1/translate", content=raw, headers={"Content-Type": "application/json"})
    assert told.json()["translations"][0]["source"] == "a?"
