"""Looks: the weights that come over the wire are those of the model."""

import numpy
import pytest
import torch

from tests.serving.servers import refused


@pytest.fixture
def seen(client):
    return client.post("/v1/look", json={"source": "abcd", "target": "dcb", "within": True}).json()


def block(client, seen, path):
    answer = client.get(f"/v1/look/{seen['id']}/{path}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    shape = [int(size) for size in answer.headers["x-shape"].split(",")]
    return torch.from_numpy(numpy.frombuffer(answer.content, "<u2").reshape(shape) / 65_535)


def test_a_look_tells_its_sides_and_layers(seen):
    assert seen["sides"]["source"]["tokens"] == ["a", "b", "c", "d", "</s>"]
    assert seen["sides"]["target"]["words"] == ["d", "c", "b", "</s>"]
    assert seen["sides"]["written"]["tokens"] == ["<s>", "d", "c", "b"]
    kinds = [(layer["kind"], layer["rows"], layer["columns"], layer["heads"]) for layer in seen["layers"]]
    across, reading, writing = (
        ("across", "target", "source", 2),
        ("reading", "source", "source", 2),
        ("writing", "target", "written", 2),
    )
    assert kinds == [across] * 2 + [reading] * 2 + [writing] * 2


def test_blocks_are_the_weights_of_the_alignment(client, translator, seen):
    weights = translator.align("abcd", "dcb").weights.double()
    for layer in range(2):
        for head in range(2):
            assert (block(client, seen, f"{layer}/{head}") - weights[layer, head]).abs().max() < 1e-5
        assert (block(client, seen, f"{layer}/mean") - weights[layer].mean(0)).abs().max() < 2e-5
    assert (block(client, seen, "across/mean") - weights.mean((0, 1))).abs().max() < 2e-5


def test_blocks_within_a_sentence_are_those_of_the_layers(client, translator, seen):
    kept = []
    hooks = [
        layer.self_attn.register_forward_hook(lambda module, given, out: kept.append(out.weights[0].double()))
        for stack in (translator.model.encoder, translator.model.decoder)
        for layer in stack.layers
    ]
    translator.align("abcd", "dcb")
    for hook in hooks:
        hook.remove()
    for number, weights in enumerate(kept, start=2):
        for head in range(2):
            assert (block(client, seen, f"{number}/{head}") - weights[head]).abs().max() < 1e-5
    assert block(client, seen, "4/0").triu(1).max() == 0  # nobody looks at what is not yet written


def test_looks_within_are_there_if_wanted(client):
    seen = client.post("/v1/look", json={"source": "abcd", "target": "dcb"}).json()
    assert {layer["kind"] for layer in seen["layers"]} == {"across"}
    refused(client.get(f"/v1/look/{seen['id']}/reading/mean"), 404, "no_layer")


def test_a_hypothesis_is_looked_at_by_its_tokens(client, translator):
    best = client.post("/v1/translate", json={"texts": ["abc"]}).json()["translations"][0]["hypotheses"][0]
    seen = client.post("/v1/look", json={"source": "abc", "token_ids": best["token_ids"]}).json()
    weights = translator.align_token_ids(["abc"], [best["token_ids"]])[0].weights.double()
    assert (block(client, seen, "1/1") - weights[1, 1]).abs().max() < 1e-5
    assert seen["token_log_probs"] is None


def test_a_translation_by_hand_is_scored(client, translator, seen):
    assert seen["token_log_probs"] == pytest.approx(translator.score(["abcd"], ["dcb"])[0].token_log_probs, abs=1e-5)


def test_thumbnails_show_the_darkest(client):
    seen = client.post("/v1/look", json={"source": "abcdefgh" * 5, "target": "ab"}).json()
    small, whole = block(client, seen, "0"), block(client, seen, "0/1")
    assert tuple(small.shape) == (2, 3, 32)
    assert tuple(whole.shape) == (3, 41)
    assert torch.equal(small[1].amax(-1), whole.amax(-1))


def test_measures_are_those_of_viewing(client, translator, seen):
    from regard.viewing import measures

    told = client.get(f"/v1/look/{seen['id']}/0/1/measures").json()
    weights = translator.align("abcd", "dcb").weights[0]
    assert told["entropy"] == pytest.approx(float(measures.entropy(weights[1]).mean()) / 0.693147, abs=1e-3)
    assert told["agreement"] == pytest.approx(float(measures.head_similarity(weights)[0, 1]), abs=1e-3)
    assert "agreement" not in client.get(f"/v1/look/{seen['id']}/across/mean/measures").json()


def test_faithfulness_is_measured(client, translator, seen):
    from regard.tasks.translation.faithfulness import measure_faithfulness

    told = client.get(f"/v1/look/{seen['id']}/faithfulness").json()
    there = measure_faithfulness(translator, "abcd", "dcb").to_json()
    assert told["permuted"]["probability_mass"] == pytest.approx(there["permuted"]["probability_mass"], abs=1e-4)
    assert set(told["sentence"]) == {"en", "zh"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"source": "ab"}, 422, "invalid"),
        ({"source": "ab", "target": "b", "token_ids": [5]}, 422, "invalid"),
        ({"source": " ", "target": "b"}, 422, "empty_input"),
        ({"source": "a" * 41, "target": "b"}, 413, "input_too_long"),
        ({"source": "ab", "target": "b" * 42}, 413, "input_too_long"),
        ({"source": "ab", "target": "b" * 3_000}, 413, "input_too_long"),
        ({"source": "ab", "token_ids": [2]}, 422, "no_token"),
        ({"source": "ab", "token_ids": [100_000]}, 422, "no_token"),
        ({"source": "ab", "token_ids": [-1]}, 422, "invalid"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_a_sentence(client, body, status, code):
    refused(client.post("/v1/look", json=body), status, code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("9", "no_layer"),
        ("0/2", "no_head"),
        ("-1/0", "no_layer"),
        ("across/0", "no_layer"),
        ("9/0/measures", "no_layer"),
    ],
)
def test_there_are_so_many_layers_and_heads(client, seen, path, code):
    refused(client.get(f"/v1/look/{seen['id']}/{path}"), 404, code)


def test_old_looks_leave(client, seen):
    for text in ("a", "b"):
        client.post("/v1/look", json={"source": text, "target": "a"})
    assert client.get(f"/v1/look/{seen['id']}/0/0").status_code == 200  # which makes it the newest
    for text in ("c", "d"):
        client.post("/v1/look", json={"source": text, "target": "a"})
    assert client.get(f"/v1/look/{seen['id']}/0/0").status_code == 200
    for text in ("e", "f", "g"):
        client.post("/v1/look", json={"source": text, "target": "a"})
    refused(client.get(f"/v1/look/{seen['id']}/0/0"), 404, "no_look", "look again")


def test_bytes_bound_the_store_too():
    from regard.serving._looks import Layer, Look, Looks

    def look():
        layer = Layer("across", "target", "source", numpy.zeros((1, 10, 10), "uint16"))
        return Look("a", [5], {}, [layer], None, True)

    looks, kept = Looks(100, 450), [look() for _ in range(4)]
    for one in kept:
        looks.keep(one)
    assert looks.find(kept[3].id) is kept[3]
    assert looks.find(kept[2].id) is kept[2]
    with pytest.raises(Exception, match="no longer kept"):
        looks.find(kept[1].id)
