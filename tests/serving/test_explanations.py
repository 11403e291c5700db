"""Stored explanations: the weights over HTTP are those of the model."""

import numpy
import pytest
import torch

from tests.serving.servers import assert_refused


@pytest.fixture
def explanation(client):
    return post_explanation(client, "abcd", target="dcb", self_attention=True).json()


def post_explanation(client, text, **options):
    return client.post("/v1/explanations", json={"input": text, "options": options})


def get_weights(client, explanation, path):
    answer = client.get(f"/v1/explanations/{explanation['id']}/{path}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    shape = [int(size) for size in answer.headers["x-shape"].split(",")]
    return torch.from_numpy(numpy.frombuffer(answer.content, "<u2").reshape(shape) / 65_535)


def test_an_explanation_describes_its_sequences_and_maps(explanation):
    target, source, previous = explanation["sequences"]
    assert source["tokens"] == ["a", "b", "c", "d", "</s>"]
    assert target["words"] == [["d", [0]], ["c", [1]], ["b", [2]], ["</s>", [3]]]
    assert previous["tokens"] == ["<s>", "d", "c", "b"]
    maps = [(one["group"], one["queries"], one["keys"], one["heads"], one["is_causal"]) for one in explanation["maps"]]
    cross, encoder, decoder = (
        ("cross", 0, 1, 2, False),
        ("encoder_self", 1, 1, 2, False),
        ("decoder_self", 0, 2, 2, True),
    )
    assert maps == [cross] * 2 + [encoder] * 2 + [decoder] * 2
    assert explanation["prediction"]["text"] == "dcb"


def test_weights_are_those_of_the_alignment(client, translator, explanation):
    weights = translator.align("abcd", "dcb").weights.double()
    for layer in range(2):
        for head in range(2):
            assert (
                get_weights(client, explanation, f"maps/{layer}/heads/{head}") - weights[layer, head]
            ).abs().max() < 1e-5
        assert (
            get_weights(client, explanation, f"maps/{layer}/heads/mean") - weights[layer].mean(0)
        ).abs().max() < 2e-5
    assert (get_weights(client, explanation, "maps/cross/heads/mean") - weights.mean((0, 1))).abs().max() < 2e-5


def test_self_attention_weights_are_those_of_the_layers(client, translator, explanation):
    recorded = []
    hooks = [
        layer.self_attn.register_forward_hook(
            lambda module, inputs, output: recorded.append(output.weights[0].double())
        )
        for stack in (translator.model.encoder, translator.model.decoder)
        for layer in stack.layers
    ]
    translator.align("abcd", "dcb")
    for hook in hooks:
        hook.remove()
    for number, weights in enumerate(recorded, start=2):
        for head in range(2):
            assert (get_weights(client, explanation, f"maps/{number}/heads/{head}") - weights[head]).abs().max() < 1e-5
    assert get_weights(client, explanation, "maps/4/heads/0").triu(1).max() == 0  # causal


def test_self_attention_is_computed_on_request(client):
    explanation = post_explanation(client, "abcd", target="dcb").json()
    assert {one["group"] for one in explanation["maps"]} == {"cross"}
    assert_refused(
        client.get(f"/v1/explanations/{explanation['id']}/maps/encoder_self/heads/mean"), 404, "map_not_found"
    )


def test_a_hypothesis_is_explained_by_its_tokens(client, translator):
    best = client.post("/v1/translate", json={"inputs": ["abc"]}).json()["predictions"][0]
    explanation = post_explanation(client, "abc", token_ids=best["token_ids"]).json()
    weights = translator.align_token_ids(["abc"], [best["token_ids"]])[0].weights.double()
    assert (get_weights(client, explanation, "maps/1/heads/1") - weights[1, 1]).abs().max() < 1e-5
    assert explanation["prediction"]["text"] == best["text"]


def test_a_target_is_scored(client, translator, explanation):
    assert explanation["prediction"]["token_log_probs"] == pytest.approx(
        translator.score(["abcd"], ["dcb"])[0].token_log_probs, abs=1e-5
    )


def test_thumbnails_show_the_maximum(client):
    explanation = post_explanation(client, "abcdefgh" * 5, target="ab").json()
    small, full = get_weights(client, explanation, "maps/0"), get_weights(client, explanation, "maps/0/heads/1")
    assert tuple(small.shape) == (2, 3, 32)
    assert tuple(full.shape) == (3, 41)
    assert torch.equal(small[1].amax(-1), full.amax(-1))


def test_measures_are_those_of_viewing(client, translator, explanation):
    from regard.viewing import measures

    result = client.get(f"/v1/explanations/{explanation['id']}/maps/0/heads/1/measures").json()
    weights = translator.align("abcd", "dcb").weights[0]
    assert result["entropy"] == pytest.approx(float(measures.entropy(weights[1]).mean()) / 0.693147, abs=1e-3)
    assert result["head_similarity"] == pytest.approx(float(measures.head_similarity(weights)[0, 1]), abs=1e-3)
    path = f"/v1/explanations/{explanation['id']}/maps/cross/heads/mean/measures"
    assert "head_similarity" not in client.get(path).json()


def test_faithfulness_is_measured(client, translator, explanation):
    from regard.tasks.translation.faithfulness import measure_faithfulness

    result = client.get(f"/v1/explanations/{explanation['id']}/faithfulness").json()
    expected = measure_faithfulness(translator, "abcd", "dcb").to_json()
    assert result["permuted"]["probability_mass"] == pytest.approx(expected["permuted"]["probability_mass"], abs=1e-4)
    assert set(result["sentence"]) == {"en", "zh"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_request"),
        ({"input": "ab", "options": {"target": "b", "token_ids": [5]}}, 422, "invalid_config"),
        ({"input": " ", "options": {"target": "b"}}, 422, "empty_input"),
        ({"input": "a" * 41, "options": {"target": "b"}}, 413, "input_too_long"),
        ({"input": "ab", "options": {"target": "b" * 42}}, 413, "input_too_long"),
        ({"input": "ab", "options": {"target": "b" * 3_000}}, 413, "input_too_long"),
        ({"input": "ab", "options": {"token_ids": [2]}}, 422, "invalid_input"),
        ({"input": "ab", "options": {"token_ids": [100_000]}}, 422, "invalid_input"),
        ({"input": "ab", "options": {"token_ids": [-1]}}, 422, "invalid_config"),
        ({"input": "ab", "options": {"beam_size": 7}}, 413, "too_many_candidates"),
    ],
)
def test_invalid_requests_are_refused_in_a_sentence(client, body, status, code):
    assert_refused(client.post("/v1/explanations", json=body), status, code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("maps/9", "map_not_found"),
        ("maps/0/heads/2", "head_not_found"),
        ("maps/-1/heads/0", "map_not_found"),
        ("maps/cross/heads/0", "map_not_found"),
        ("maps/9/heads/0/measures", "map_not_found"),
    ],
)
def test_unknown_maps_and_heads_are_refused(client, explanation, path, code):
    assert_refused(client.get(f"/v1/explanations/{explanation['id']}/{path}"), 404, code)


def test_the_least_recently_used_explanation_is_dropped(client, explanation):
    for text in ("a", "b"):
        post_explanation(client, text, target="a")
    assert (
        client.get(f"/v1/explanations/{explanation['id']}/maps/0/heads/0").status_code == 200
    )  # which makes it the newest
    for text in ("c", "d"):
        post_explanation(client, text, target="a")
    assert client.get(f"/v1/explanations/{explanation['id']}/maps/0/heads/0").status_code == 200
    for text in ("e", "f", "g"):
        post_explanation(client, text, target="a")
    assert_refused(
        client.get(f"/v1/explanations/{explanation['id']}/maps/0/heads/0"),
        404,
        "explanation_not_found",
        "request it again",
    )


def test_bytes_limit_the_store_too():
    from regard.errors import RequestError
    from regard.serving.explanations import AttentionLayer, ExplanationStore, StoredExplanation
    from regard.tasks import AttentionMap

    def explanation():
        attention_map = AttentionMap("cross", torch.zeros(1, 10, 10), "a" * 10, "b" * 10)
        return StoredExplanation({}, [AttentionLayer.from_map(attention_map)], None)

    store, stored = ExplanationStore(100, 450), [explanation() for _ in range(4)]
    for one in stored:
        store.add(one)
    assert store.get(stored[3].id) is stored[3]
    assert store.get(stored[2].id) is stored[2]
    with pytest.raises(RequestError) as refusal:
        store.get(stored[1].id)
    assert refusal.value.code == "explanation_not_found"
