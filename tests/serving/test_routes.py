"""The routes of a translator: predictions, streams, scores, alignments, tokens; status, metrics and overload."""

import json
import re
import threading
import time

import httpx
import numpy
import pytest

from tests.serving.servers import assert_refused, in_thread, tiny_translator, wait_until


def events(answer):
    """The events of a stream, each with its data."""
    parts = [part.split("\n") for part in answer.text.strip().split("\n\n")]
    return [(event.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for event, data in parts]


def post_stream(client, text, **options):
    return client.post("/v1/predict/stream", json={"input": text, "options": options})


def test_health_says_whether_there_is_a_model(client, playground):
    assert client.get("/v1/health").json() | {"version": ""} == {"status": "ok", "version": "", "model": True}
    assert playground.get("/v1/health").json()["model"] is False


def test_the_model_is_described(client, translator):
    answer = client.get("/v1/model").json()
    model = answer["model"]
    assert (model["run"], model["recipe"], model["model"]) == ("tiny", "reverse", "transformer")
    assert (model["task"], model["verb"]) == ("translation", "translate")
    assert (model["num_layers"], model["num_heads"], model["max_length"]) == (2, 2, 40)
    assert model["parameters"] == sum(part.numel() for part in translator.model.parameters())
    assert model["capabilities"] == ["predict", "translate", "stream", "explanations", "score", "align", "tokens"]
    assert [(one["name"], one["kind"]) for one in model["inputs"]] == [("text", "text")]
    assert model["options"]["predict"]["properties"]["num_best"]["maximum"] == 1000
    assert (answer["limits"]["max_inputs"], answer["limits"]["max_candidates"]) == (3, 6)


def test_a_server_without_a_model_has_only_the_playground(playground):
    assert playground.get("/v1/model").json()["model"] is None
    assert_refused(playground.post("/v1/translate", json={"inputs": ["ab"]}), 404, "no_model", "RUN")
    assert_refused(playground.post("/v1/explanations", json={"input": "ab"}), 404, "no_model")


def test_tokens_are_counted(client):
    answer = client.post("/v1/tokens", json={"text": "ab!"}).json()
    assert answer == {"count": 3, "limit": 40, "fits": True, "tokens": ["a", "b", "<unk>"], "unknown": [2]}
    assert client.post("/v1/tokens", json={"text": "a" * 41}).json()["fits"] is False
    assert client.post("/v1/tokens", json={"text": ""}).json()["count"] == 0
    assert client.post("/v1/tokens", json={"text": "ba", "side": "target"}).json()["tokens"] == ["b", "a"]


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/translate"])
def test_translations_are_those_of_the_translator(client, translator, path):
    texts = ["abc", "de"]
    body = {"inputs": texts, "options": {"num_best": 3, "beam_size": 4}}
    answer = client.post(path, json=body).json()
    results = translator.search(texts, translator.decoding_config(beam_size=4, num_best=3))
    for prediction, expected in zip(answer["predictions"], results, strict=True):
        hypotheses = [prediction, *prediction["alternatives"]]
        assert [one["token_ids"] for one in hypotheses] == [one.token_ids for one in expected]
        assert [one["score"] for one in hypotheses] == pytest.approx([one.score for one in expected], abs=1e-5)
        assert [one["text"] for one in hypotheses] == [translator.to_text(one) for one in expected]


def test_predictions_are_explained_on_request(client, translator):
    answer = client.post("/v1/predict", json={"inputs": ["abc"], "explain": True}).json()
    (prediction,) = answer["predictions"]
    alignment = translator.align_token_ids(["abc"], [prediction["token_ids"]])[0]
    weights = prediction["explanation"]["alignment"]["weights"]
    assert numpy.allclose(weights, alignment.weights, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"inputs": [" \n"]}, 422, "empty_input", "input 1 is empty"),
        ({"inputs": ["a", ""]}, 422, "empty_input", "input 2 is empty"),
        ({"inputs": []}, 422, "invalid_request", "inputs"),
        ({"inputs": "a"}, 422, "invalid_request", "inputs"),
        ({}, 422, "invalid_request", "inputs"),
        ({"inputs": ["a"], "option": {}}, 422, "invalid_request", "option"),
        ({"inputs": ["a"], "options": {"bema": 3}}, 422, "invalid_request", "bema"),
        ({"inputs": ["a"], "options": {"beam_size": 0}}, 422, "invalid_request", "beam_size"),
        ({"inputs": ["a"], "options": {"beam_size": "3"}}, 422, "invalid_request", "beam_size"),
        ({"inputs": ["a"], "options": {"beam_size": True}}, 422, "invalid_request", "beam_size"),
        ({"inputs": ["a"], "options": {"seed": 3}}, 422, "invalid_config", "sample"),
        ({"inputs": ["a"] * 4}, 413, "too_many_inputs", "at most 3"),
        ({"inputs": ["a" * 41]}, 413, "input_too_long", "41 tokens"),
        ({"inputs": ["a " * 1_500]}, 413, "input_too_long", "3,000 characters"),
        ({"inputs": ["a"], "options": {"beam_size": 7}}, 413, "too_many_candidates", "at most 6"),
        ({"inputs": ["a"], "options": {"num_best": 7}}, 413, "too_many_candidates", "at most 6"),
    ],
)
def test_invalid_requests_are_refused_in_a_sentence(client, body, status, code, words):
    assert_refused(client.post("/v1/translate", json=body), status, code, words)


def test_an_error_names_the_row_of_an_input(client):
    assert client.post("/v1/predict", json={"inputs": ["a", ""]}).json()["error"]["row"] == 1


@pytest.mark.parametrize(
    "text", ["🎉👩‍👩‍👧", "שלום עולם", "<script>alert(1)</script>", "a\u0000b", "\u202eabc", "e\u0301"]
)
def test_texts_in_any_script(client, text):
    assert client.post("/v1/translate", json={"inputs": [text]}).status_code == 200


def test_half_a_surrogate_pair_becomes_a_question_mark(client):
    raw, as_json = b'{"text": "a\\ud800"}', {"Content-Type": "application/json"}
    tokens = client.post("/v1/tokens", content=raw, headers=as_json).json()
    assert tokens == client.post("/v1/tokens", json={"text": "a?"}).json()


def test_a_stream_sends_partial_predictions_and_then_the_complete_one(client, translator):
    answer = post_stream(client, "abc")
    assert answer.headers["content-type"].startswith("text/event-stream")
    *partial, (last, complete) = events(answer)
    assert last == "end"
    assert {name for name, _ in partial} == {"partial"}
    best = translator.search(["abc"], translator.decoding_config(beam_size=1))[0][0]
    assert complete["token_ids"] == best.token_ids
    assert [len(one["token_ids"]) for _, one in partial] == list(range(1, len(partial) + 1))
    assert partial[-1][1]["token_ids"] == best.token_ids[: len(partial)]
    assert len(partial) >= len(best.token_ids) - 1  # the last token is known with the complete prediction
    assert partial[-1][1]["text"] == translator.target.decode(best.token_ids[: len(partial)])


def test_a_beam_search_sends_the_end_only(client, translator):
    ((name, complete),) = events(post_stream(client, "abc", beam_size=3))
    assert name == "end"
    best = translator.search(["abc"], translator.decoding_config(beam_size=3))[0][0]
    assert complete["token_ids"] == best.token_ids


def test_concurrent_streams_are_independent(client, translator):
    texts = ["abc", "de", "hello world", "lower"]
    results = {}

    def ask(text):
        *partial, (_, complete) = events(post_stream(client, text))
        assert all(one["token_ids"] == complete["token_ids"][: len(one["token_ids"])] for _, one in partial)
        results[text] = complete["token_ids"]

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    best = translator.search(texts, translator.decoding_config(beam_size=1))
    assert [results[text] for text in texts] == [one[0].token_ids for one in best]


def test_a_stream_can_be_sampled(client):
    options = {"sample": True, "temperature": 2.0, "top_k": 10, "seed": 3}
    first, second = (events(post_stream(client, "abc", **options))[-1] for _ in range(2))
    assert first == second
    others = [events(post_stream(client, "abc", sample=True, seed=seed))[-1][1] for seed in range(4)]
    assert len({tuple(one["token_ids"]) for one in others}) > 1


def test_errors_before_a_stream_have_a_status(client):
    assert_refused(post_stream(client, "a" * 41), 413, "input_too_long", "41 tokens")
    assert_refused(post_stream(client, " "), 422, "empty_input")
    assert_refused(client.post("/v1/predict/stream", json={"input": "a", "beam": 5}), 422, "invalid_request", "beam")
    for name in ("temperature", "top_p"):  # in float32 these would be 0
        assert_refused(post_stream(client, "a", sample=True, **{name: 5e-324}), 422, "invalid_request", name)


def test_a_stream_that_fails_sends_an_error(translator, monkeypatch):
    from regard.models.transformer import Transformer
    from regard.serving import build_app

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
    with in_thread(build_app(translator)) as address:
        answer = httpx.post(f"{address}/v1/predict/stream", json={"input": "abc"})
    assert events(answer)[-1][0] == "error"
    assert events(answer)[-1][1]["error"]["code"] == "internal"
    assert "secret" not in answer.text


def test_scores_are_those_of_the_translator(client, translator):
    pairs = [{"input": "abc", "target": "cb"}, {"input": "de", "target": ""}]
    scores = client.post("/v1/score", json={"pairs": pairs}).json()["scores"]
    results = translator.score(["abc", "de"], ["cb", ""])
    assert [one["log_prob"] for one in scores] == pytest.approx([one.log_prob for one in results], abs=1e-4)
    assert [one["token_ids"] for one in scores] == [list(one.token_ids) for one in results]
    assert_refused(client.post("/v1/score", json={"pairs": [{"input": "abc"}]}), 422, "invalid_request", "target")


def test_alignments_are_those_of_the_translator(client, translator):
    body = {"pairs": [{"input": "abc", "target": "cb"}, {"input": "de"}], "options": {"layer": 1, "head": 0}}
    aligned, own = client.post("/v1/align", json=body).json()["alignments"]
    alignment = translator.align("abc", "cb")
    words = alignment.select_head(1, 0).merge_words()
    assert (aligned["source"], aligned["target"]) == (list("abc"), list("cb"))
    assert numpy.allclose(aligned["weights"], words.weights[0, 0], atol=1e-5)
    assert {tuple(link) for link in aligned["links"]} == alignment.links(1, 0)
    assert aligned["log_prob"] == pytest.approx(translator.score(["abc"], ["cb"])[0].log_prob, abs=1e-4)
    best = translator.search(["de"])[0][0]
    assert own["text"] == translator.to_text(best)
    assert own["log_prob"] == pytest.approx(best.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"pairs": []}, 422, "invalid_request", "pairs"),
        ({"pairs": [{"input": ""}]}, 422, "empty_input", "input 1"),
        ({"pairs": [{"input": "a", "target": "b" * 50}]}, 413, "input_too_long", "50 tokens"),
        ({"pairs": [{"input": "a"}] * 4}, 413, "too_many_inputs", "at most 3"),
        ({"pairs": [{"input": "a"}], "options": {"layer": 2}}, 422, "invalid_config", "2 layers"),
        ({"pairs": [{"input": "a"}], "options": {"head": 2}}, 422, "invalid_config", "2 heads"),
        ({"pairs": [{"input": "a"}], "options": {"method": "any"}}, 422, "invalid_request", "method"),
    ],
)
def test_invalid_alignments_are_refused_in_a_sentence(client, body, status, code, words):
    assert_refused(client.post("/v1/align", json=body), status, code, words)


def test_health_and_metrics(translator):
    from regard.serving import build_app

    with in_thread(build_app(translator)) as address, httpx.Client(base_url=address) as client:
        assert client.get("/v1/health/live").json() == {"status": "ok"}
        assert client.get("/v1/health/ready").status_code == 200
        for _ in range(2):
            client.post("/v1/translate", json={"inputs": ["ab", "cd"]})
        client.get("/v1/explanations/nothing/maps/0")
        client.get("/anything/a/client/chooses")
        client.request("BREW", "/v1/model")
        answer = client.get("/v1/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'regard_requests_total{method="POST",route="/v1/translate",status="200"} 2.0' in lines
    route = "/v1/explanations/{id}/maps/{map}"
    assert f'regard_requests_total{{method="GET",route="{route}",status="404"}} 1.0' in lines
    assert 'regard_requests_total{method="GET",route="other",status="404"} 1.0' in lines
    assert 'regard_requests_total{method="other",route="/v1/model",status="405"} 1.0' in lines
    assert 'regard_request_duration_seconds_count{route="/v1/translate"} 2.0' in lines
    assert "regard_batch_size_sum 4.0" in lines
    assert 'regard_tokens_total{direction="input"} 8.0' in lines
    assert any(line.startswith('regard_tokens_total{direction="output"}') for line in lines)
    assert "regard_queued_inputs 0.0" in lines
    assert "regard_requests_in_progress 1.0" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


def test_a_token_is_required_if_one_is_set(translator):
    from regard.serving import build_app

    with in_thread(build_app(translator, token="s3cret")) as address, httpx.Client(base_url=address) as client:
        for wrong in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}, {"Authorization": "ü"}):
            wrong = {name: value.encode("latin-1") for name, value in wrong.items()}
            answer = client.get("/v1/model", headers=wrong)
            assert_refused(answer, 401, "unauthorized", "Bearer")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/model", headers={"Authorization": "bearer s3cret"}).status_code == 200
        assert_refused(client.post("/v1/translate", json={"inputs": ["a"]}), 401, "unauthorized")
        assert_refused(client.get("/v1/metrics"), 401, "unauthorized")
        assert client.get("/v1/health/live").status_code == 200
        assert client.get("/v1/health/ready").status_code == 200
        assert client.get("/").status_code == 200  # the page asks for the token


def test_at_overload_requests_are_refused_before_they_are_parsed(monkeypatch):
    from regard.serving import Limits, build_app

    translator, start, gate = tiny_translator(), threading.Event(), threading.Event()
    predict = translator.predict

    def slow(*args):
        start.set()
        assert gate.wait(20)
        return predict(*args)

    monkeypatch.setattr(translator, "predict", slow)
    with in_thread(build_app(translator, limits=Limits(max_queued=2))) as address:
        results = []

        def ask():
            results.append(httpx.post(f"{address}/v1/translate", json={"inputs": ["a", "b"]}, timeout=30))

        first = threading.Thread(target=ask)
        first.start()
        wait_until(start.is_set)
        for path in ("translate", "predict", "explanations", "align"):
            for content in (b'{"inputs": ["a"]}', b"this is no JSON"):
                answer = httpx.post(f"{address}/v1/{path}", content=content)
                assert_refused(answer, 429, "busy")
                assert int(answer.headers["retry-after"]) >= 1
        assert httpx.get(f"{address}/v1/model").status_code == 200
        gate.set()
        first.join()
        assert results[0].status_code == 200
        assert httpx.post(f"{address}/v1/translate", json={"inputs": ["a"]}).status_code == 200


def test_a_slow_response_times_out(monkeypatch):
    from regard.serving import Limits, build_app

    translator, gate = tiny_translator(), threading.Event()
    monkeypatch.setattr(translator, "predict", lambda *args: gate.wait(20) and [])
    with in_thread(build_app(translator, limits=Limits(timeout=0.2))) as address:
        assert_refused(httpx.post(f"{address}/v1/translate", json={"inputs": ["a"]}), 504, "timeout", "0.2 seconds")
        gate.set()


def test_a_body_that_does_not_arrive_times_out(translator):
    import socket
    from urllib.parse import urlsplit

    from regard.serving import Limits, build_app

    with in_thread(build_app(translator, limits=Limits(timeout=0.2))) as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port), timeout=20) as client:
            client.sendall(b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_the_schema_describes_every_route_and_its_errors(client):
    schema = client.get("/v1/openapi.json").json()
    for path in ("predict", "translate", "predict/stream", "explanations", "score", "align"):
        route = schema["paths"][f"/v1/{path}"]["post"]
        assert route["description"]
        assert {"200", "401", "413", "422", "429", "503", "504"} <= set(route["responses"])
        error = route["responses"]["429"]["content"]["application/json"]["schema"]
        assert error == {"$ref": "#/components/schemas/ErrorResponse"}
    models = schema["components"]["schemas"]
    assert models["TranslateOptions"]["additionalProperties"] is False
    assert models["TranslateOptions"]["properties"]["sample"]["description"]
    assert models["Translation"]["required"] == ["text", "score"]
    assert models["Translation"]["properties"]["tokens"]["items"] == {"type": "string"}
    assert models["Translation"]["properties"]["finished"]["description"]


def test_the_clients_of_the_documentation_work(client, translator):
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[:2]:
        exec(block, names)
    address = str(client.base_url).rstrip("/")
    assert names["translate"](["abc", "de"], address) == translator.translate(["abc", "de"])
    assert list(names["stream"]("abc", address))[-1] == translator.translate("abc", beam_size=1)


def test_large_lists_and_objects_are_refused_before_each_item(translator):
    """One error for each of half a million items took seconds, in which the server answered nobody."""
    from regard.serving import build_app

    numbers, names = [1] * 480_000, {f"{index}": "" for index in range(82_000)}
    points = {"queries": [[1.0]], "keys": [[1.0]]}
    bodies = [
        ("predict", {"inputs": numbers}, 413, "too_many_inputs"),
        ("score", {"pairs": numbers}, 413, "too_many_inputs"),
        ("predict", names, 422, "invalid_request"),
        ("predict", {"inputs": ["a"], "options": names}, 422, "invalid_request"),
        ("attend", {**points, "queries": numbers}, 422, "invalid_request"),
        ("attend", {**points, "queries": [[""] * 16] * 17_500}, 422, "invalid_request"),
        ("attend", {**points, "hidden_keys": [""] * 300_000}, 422, "invalid_request"),
        ("attend", {**points, "score": {"name": "Dot", "arguments": names}}, 422, "invalid_request"),
    ]
    headers = {"Content-Type": "application/json"}
    with in_thread(build_app(translator)) as address, httpx.Client(base_url=address, timeout=30) as client:
        client.post("/v1/predict", json={"inputs": [""]})
        for path, body, status, code in bodies:
            content = json.dumps(body, separators=(",", ":")).encode()
            assert 800_000 < len(content) < 1_000_000
            began = time.process_time()
            answer = client.post(f"/v1/{path}", content=content, headers=headers)
            assert time.process_time() < began + 0.5
            assert_refused(answer, status, code)
