"""The API for programs: streams, alignments, classes, captions, health, metrics, tokens, overload."""

import base64
import io
import json
import re
import threading

import httpx
import numpy
import pytest

from tests.serving.servers import in_thread, refused, tiny_captioner, tiny_classifier, tiny_translator, until


def events(answer):
    """The events of a stream, each with its data."""
    parts = [part.split("\n") for part in answer.text.strip().split("\n\n")]
    return [(event.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for event, data in parts]


def test_a_stream_tells_each_token_and_then_the_whole(client, translator):
    answer = client.post("/v1/translate/stream", json={"text": "abc"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *told, (last, whole) = events(answer)
    assert last == "end"
    assert {name for name, _ in told} == {"token"}
    best = translator.search(["abc"], translator.decoding_config(beam_size=1))[0][0]
    assert whole["token_ids"] == best.token_ids
    ids = [token["id"] for _, token in told]
    assert ids == best.token_ids[: len(ids)]
    assert len(ids) >= len(best.token_ids) - 1  # the last is known only with the whole
    assert told[-1][1]["text"] == translator.target.decode(ids)


def test_streams_of_many_are_each_their_own(client, translator):
    texts = ["abc", "de", "hello world", "lower"]
    found = {}

    def ask(text):
        found[text] = events(client.post("/v1/translate/stream", json={"text": text}))[-1][1]["token_ids"]

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    best = translator.search(texts, translator.decoding_config(beam_size=1))
    assert [found[text] for text in texts] == [one[0].token_ids for one in best]


def test_a_stream_can_be_drawn_by_chance(client):
    body = {"text": "abc", "sample": {"temperature": 2.0, "top_k": 10, "seed": 3}}
    first, second = (events(client.post("/v1/translate/stream", json=body))[-1] for _ in range(2))
    assert first == second
    others = [
        events(client.post("/v1/translate/stream", json={"text": "abc", "sample": {"seed": seed}}))[-1][1]
        for seed in range(4)
    ]
    assert len({tuple(one["token_ids"]) for one in others}) > 1


def test_what_cannot_be_streamed_has_its_status(client):
    refused(client.post("/v1/translate/stream", json={"text": "a" * 41}), 413, "input_too_long", "41 tokens")
    refused(client.post("/v1/translate/stream", json={"text": " "}), 422, "empty_input")
    refused(client.post("/v1/translate/stream", json={"text": "a", "beam": 5}), 422, "invalid", "beam")
    for name in ("temperature", "top_p"):  # in float32 these would be 0
        bad = {"text": "a", "sample": {name: 5e-324}}
        refused(client.post("/v1/translate/stream", json=bad), 422, "invalid", name)


def test_a_stream_that_breaks_says_so(translator, monkeypatch):
    from regard.models.transformer import Transformer
    from regard.serving import application

    begin, calls = Transformer.start_decoding, []

    def breaking(self, *args):
        steps = begin(self, *args)
        step = steps.step

        def broken(tokens):
            calls.append(tokens)
            if len(calls) > 3:
                raise ZeroDivisionError("secret")
            return step(tokens)

        monkeypatch.setattr(steps, "step", broken, raising=False)
        return steps

    monkeypatch.setattr(translator.model, "start_decoding", breaking.__get__(translator.model), raising=False)
    with in_thread(application(translator)) as address:
        answer = httpx.post(f"{address}/v1/translate/stream", json={"text": "abc"})
    assert events(answer)[-1][0] == "error"
    assert events(answer)[-1][1]["error"]["code"] == "internal"
    assert "secret" not in answer.text


def test_alignments_are_those_of_the_translator(client, translator):
    pairs = [{"source": "abc", "target": "cb"}, {"source": "de"}]
    told = client.post("/v1/align", json={"pairs": pairs, "layer": 1, "head": 0}).json()["alignments"]
    given, own = told
    seen = translator.align("abc", "cb")
    words = seen.select_head(1, 0).merge_words()
    assert (given["source"], given["target"]) == (list("abc"), list("cb"))
    assert numpy.allclose(given["weights"], words.weights[0, 0], atol=1e-5)
    assert {tuple(link) for link in given["links"]} == seen.links(1, 0)
    assert given["log_prob"] == pytest.approx(translator.score(["abc"], ["cb"])[0].log_prob, abs=1e-4)
    best = translator.search(["de"])[0][0]
    assert own["translation"] == translator.to_text(best)
    assert own["log_prob"] == pytest.approx(best.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"pairs": []}, 422, "invalid", "pairs"),
        ({"pairs": [{"source": ""}]}, 422, "empty_input", "text 1"),
        ({"pairs": [{"source": "a", "target": "b" * 50}]}, 413, "input_too_long", "translation 1 has 50 tokens"),
        ({"pairs": [{"source": "a"}] * 4}, 413, "too_many_texts", "at most 3"),
        ({"pairs": [{"source": "a"}], "layer": 2}, 422, "no_layer", "2 layers"),
        ({"pairs": [{"source": "a"}], "head": 2}, 422, "no_head", "2 heads"),
        ({"pairs": [{"source": "a"}], "method": "any"}, 422, "invalid", "method"),
    ],
)
def test_what_cannot_be_aligned_is_refused_in_a_sentence(client, body, status, code, words):
    refused(client.post("/v1/align", json=body), status, code, words)


def test_numbers_are_numbers(client):
    refused(client.post("/v1/translate", json={"texts": ["a"], "beam": "3"}), 422, "invalid", "beam")
    refused(client.post("/v1/translate", json={"texts": ["a"], "beam": True}), 422, "invalid", "beam")


@pytest.fixture(scope="module")
def classifying():
    from regard.serving import application

    classifier = tiny_classifier()
    with in_thread(application(classifier)) as address, httpx.Client(base_url=address) as client:
        yield client, classifier


def test_documents_are_classified_as_by_the_classifier(classifying):
    client, classifier = classifying
    texts = ["hello world. lower newer!", "abc"]
    told = client.post("/v1/classify", json={"texts": texts}).json()["documents"]
    for one, wanted in zip(told, classifier.classify(texts), strict=True):
        assert one["label"] == wanted.label
        assert one["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-5)
    (looked,) = client.post("/v1/classify", json={"texts": texts[:1], "look": True}).json()["documents"]
    assert [sentence["words"] for sentence in looked["sentences"]] == [["hello", "world", "."], ["lower", "newer", "!"]]
    assert sum(sentence["weight"] for sentence in looked["sentences"]) == pytest.approx(1, abs=1e-4)


def test_a_classifier_says_what_it_does_and_what_it_does_not(classifying, client):
    classifier, _ = classifying
    about = classifier.get("/v1/model").json()["model"]
    assert (about["does"], about["labels"]) == (["classify"], ["neg", "pos"])
    refused(classifier.post("/v1/translate", json={"texts": ["a"]}), 404, "no_model", "translates")
    refused(client.post("/v1/classify", json={"texts": ["a"]}), 404, "no_model", "classifies")
    refused(client.post("/v1/caption", json={"images": ["a"]}), 404, "no_model", "images")
    refused(classifier.post("/v1/classify", json={"texts": [""]}), 422, "empty_input")


def picture(side=8, kind="PNG"):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(numpy.arange(side * side, dtype=numpy.uint8).reshape(side, side)).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def test_images_are_described(tmp_path):
    from regard.serving import application
    from regard.serving._limits import Limits

    secret = tmp_path / "secret.png"
    secret.write_bytes(base64.b64decode(picture()))
    captioner = tiny_captioner()
    with in_thread(application(captioner, limits=Limits(pixels=1000, texts=2))) as address:

        def ask(*images, **more):
            return httpx.post(f"{address}/v1/caption", json={"images": images, **more})

        told = ask(picture(), picture(kind="JPEG")).json()["captions"]
        assert [one["caption"] for one in told] == captioner.caption(
            [numpy.asarray(_opened(text)) for text in (picture(), picture(kind="JPEG"))]
        )
        (looked,) = ask(picture(), look=True).json()["captions"]
        assert len(looked["words"]) == len(looked["weights"]) == len(looked["probabilities"])
        refused(ask("no base64!"), 422, "no_image", "image 1")
        refused(ask(base64.b64encode(b"GIF89a").decode()), 422, "no_image")
        refused(ask(str(secret)), 422, "no_image")  # a path is not opened
        refused(ask(base64.b64encode(str(secret).encode()).decode()), 422, "no_image")
        refused(ask(picture(40)), 413, "too_many_pixels", "40 x 40")
        refused(ask(*[picture()] * 3), 413, "too_many_images")


def _opened(text):
    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")


def test_health_and_metrics(translator):
    from regard.serving import application

    with in_thread(application(translator)) as address, httpx.Client(base_url=address) as client:
        assert client.get("/v1/health/live").json() == {"status": "ok"}
        assert client.get("/v1/health/ready").status_code == 200
        for _ in range(2):
            client.post("/v1/translate", json={"texts": ["ab", "cd"]})
        client.get("/v1/look/nothing/0")
        client.get("/anything/a/client/chooses")
        client.request("BREW", "/v1/model")
        told = client.get("/v1/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = told.text.splitlines()
    assert 'regard_requests_total{route="/v1/translate",method="POST",status="200"} 2' in lines
    assert 'regard_requests_total{route="/v1/look/{id}/{layer}",method="GET",status="404"} 1' in lines
    assert 'regard_requests_total{route="other",method="GET",status="404"} 1' in lines
    assert 'regard_requests_total{route="/v1/model",method="other",status="405"} 1' in lines
    assert 'regard_request_seconds_count{route="/v1/translate"} 2' in lines
    assert "regard_batch_texts_sum 4" in lines
    assert 'regard_tokens_total{side="source"} 8' in lines
    assert "regard_waiting_texts 0" in lines
    for line in lines:
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2


def test_a_token_is_asked_for_where_one_is_set(translator):
    from regard.serving import application

    with in_thread(application(translator, token="s3cret")) as address, httpx.Client(base_url=address) as client:
        for wrong in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}, {"Authorization": "ü"}):
            wrong = {name: value.encode("latin-1") for name, value in wrong.items()}
            answer = client.get("/v1/model", headers=wrong)
            refused(answer, 401, "no_token", "Bearer")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/model", headers={"Authorization": "bearer s3cret"}).status_code == 200
        refused(client.post("/v1/translate", json={"texts": ["a"]}), 401, "no_token")
        refused(client.get("/v1/metrics"), 401, "no_token")
        assert client.get("/v1/health/live").status_code == 200
        assert client.get("/v1/health/ready").status_code == 200
        assert client.get("/").status_code == 200  # the page asks for it


def test_at_overload_requests_are_sent_away_before_they_are_read(monkeypatch):
    from regard.serving import application
    from regard.serving._limits import Limits

    translator, begun, gate = tiny_translator(), threading.Event(), threading.Event()
    search = translator.search

    def slow(*args):
        begun.set()
        assert gate.wait(20)
        return search(*args)

    monkeypatch.setattr(translator, "search", slow)
    with in_thread(application(translator, limits=Limits(waiting=2))) as address:
        found = []

        def ask():
            found.append(httpx.post(f"{address}/v1/translate", json={"texts": ["a", "b"]}, timeout=30))

        first = threading.Thread(target=ask)
        first.start()
        until(begun.is_set)
        for content in (b'{"texts": ["a"]}', b"this is no JSON"):
            answer = httpx.post(f"{address}/v1/translate", content=content)
            refused(answer, 429, "busy")
            assert int(answer.headers["retry-after"]) >= 1
        assert httpx.get(f"{address}/v1/model").status_code == 200
        gate.set()
        first.join()
        assert found[0].status_code == 200
        assert httpx.post(f"{address}/v1/translate", json={"texts": ["a"]}).status_code == 200


def test_what_takes_too_long_is_given_up(monkeypatch):
    from regard.serving import application
    from regard.serving._limits import Limits

    translator, gate = tiny_translator(), threading.Event()
    monkeypatch.setattr(translator, "search", lambda *args: gate.wait(20) and [])
    with in_thread(application(translator, limits=Limits(seconds=0.2))) as address:
        refused(httpx.post(f"{address}/v1/translate", json={"texts": ["a"]}), 504, "too_slow", "0.2 seconds")
        gate.set()


def test_a_body_that_does_not_come_is_given_up(translator):
    import socket
    from urllib.parse import urlsplit

    from regard.serving import application
    from regard.serving._limits import Limits

    with in_thread(application(translator, limits=Limits(seconds=0.2))) as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port), timeout=20) as client:
            client.sendall(b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_the_description_names_every_route_and_its_refusals(client):
    paths = client.get("/v1/openapi.json").json()["paths"]
    for path in ("translate", "translate/stream", "align", "classify", "caption", "look"):
        told = paths[f"/v1/{path}"]["post"]
        assert told["description"]
        assert {"200", "401", "413", "422", "429", "503", "504"} <= set(told["responses"])
        refusal = told["responses"]["429"]["content"]["application/json"]["schema"]
        assert refusal == {"$ref": "#/components/schemas/Refused"}


def test_the_clients_of_the_documentation_work(client, translator):
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[:2]:
        exec(block, names)
    address = str(client.base_url).rstrip("/")
    assert names["translate"](["abc", "de"], address) == translator.translate(["abc", "de"])
    assert list(names["stream"]("abc", address))[-1] == translator.translate("abc", beam_size=1)
