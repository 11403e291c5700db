"""The same routes for other tasks: documents, images, questions about images, generated text."""

import base64
import threading

import httpx
import pytest

from tests.serving.servers import (
    assert_refused,
    decode_image,
    encode_image,
    in_thread,
    tiny_classifier,
    tiny_generator,
    tiny_image_classifier,
    tiny_visual_qa,
    wait_until,
)


@pytest.fixture(scope="module")
def serve():
    """A function that serves a predictor and returns a client."""
    from contextlib import ExitStack

    from regard.serving import Limits, build_app

    with ExitStack() as stack:

        def start(predictor):
            app = build_app(predictor, limits=Limits(max_pixels=1000, max_inputs=2, max_candidates=3))
            return stack.enter_context(httpx.Client(base_url=stack.enter_context(in_thread(app)), timeout=30))

        yield start


@pytest.fixture(scope="module")
def documents(serve):
    classifier = tiny_classifier()
    return serve(classifier), classifier


@pytest.fixture(scope="module")
def images(serve):
    classifier = tiny_image_classifier()
    return serve(classifier), classifier


def test_documents_are_classified(documents):
    client, classifier = documents
    texts = ["hello world. lower newer!", "abc"]
    for path in ("classify", "predict"):
        answer = client.post(f"/v1/{path}", json={"inputs": texts}).json()["predictions"]
        for one, expected in zip(answer, classifier.predict(texts), strict=True):
            assert one["label"] == one["text"] == expected.label
            assert one["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)


def test_documents_are_explained(documents):
    client, _ = documents
    text = "hello world. lower newer!"
    (prediction,) = client.post("/v1/classify", json={"inputs": [text], "explain": True}).json()["predictions"]
    sentences = prediction["explanation"]["sentences"]
    assert [one["words"] for one in sentences] == [["hello", "world", "."], ["lower", "newer", "!"]]
    assert sum(one["weight"] for one in sentences) == pytest.approx(1, abs=1e-4)
    stored = client.post("/v1/explanations", json={"input": text}).json()
    assert [one["group"] for one in stored["maps"]] == ["sentences", "sentence 1", "sentence 2"]
    answer = client.get(f"/v1/explanations/{stored['id']}/maps/1/heads/0")
    assert answer.headers["x-shape"] == "1,3"
    assert_refused(client.get(f"/v1/explanations/{stored['id']}/faithfulness"), 404, "unsupported")


def test_capabilities_and_unsupported_routes(documents):
    client, _ = documents
    model = client.get("/v1/model").json()["model"]
    assert model["capabilities"] == ["predict", "classify", "stream", "explanations"]
    assert (model["task"], model["labels"]) == ("text-classification", ["neg", "pos"])
    assert_refused(client.post("/v1/translate", json={"inputs": ["a"]}), 404, "unsupported", "predict, classify")
    assert_refused(client.post("/v1/score", json={"pairs": []}), 404, "unsupported")
    assert_refused(client.post("/v1/classify", json={"inputs": [""]}), 422, "empty_input")


def test_images_are_classified(images):
    client, classifier = images
    pictures = [encode_image(), encode_image(kind="JPEG")]
    answer = client.post("/v1/classify", json={"inputs": pictures}).json()["predictions"]
    for one, expected in zip(answer, classifier.predict([decode_image(text) for text in pictures]), strict=True):
        assert one["label"] == expected.label
        assert one["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    (explained,) = client.post("/v1/classify", json={"inputs": pictures[:1], "explain": True}).json()["predictions"]
    assert explained["explanation"]["attention"][0]["name"] == "grid"
    stored = client.post("/v1/explanations", json={"input": pictures[0]}).json()
    rows, columns = stored["maps"][0]["grid"]
    shape = client.get(f"/v1/explanations/{stored['id']}/maps/0/heads/0").headers["x-shape"]
    assert int(shape.split(",")[1]) == rows * columns


def test_invalid_images_are_refused(images, tmp_path):
    client, _ = images
    secret = tmp_path / "secret.png"
    secret.write_bytes(base64.b64decode(encode_image()))

    def ask(*pictures):
        return client.post("/v1/classify", json={"inputs": pictures})

    assert_refused(ask("no base64!"), 422, "invalid_input", "input 1")
    assert_refused(ask(base64.b64encode(b"GIF89a").decode()), 422, "invalid_input")
    assert_refused(ask(str(secret)), 422, "invalid_input")  # a path is not opened
    assert_refused(ask(base64.b64encode(str(secret).encode()).decode()), 422, "invalid_input")
    assert_refused(ask(encode_image(40)), 413, "input_too_long", "40 x 40")
    assert_refused(ask(*[encode_image()] * 3), 413, "too_many_inputs")


def test_questions_about_images_are_answered(serve):
    model = tiny_visual_qa()
    client, question = serve(model), "how many 3s"
    body = {"inputs": [{"image": encode_image(), "question": question}]}
    (answer,) = client.post("/v1/ask", json=body).json()["predictions"]
    assert answer["probabilities"] == pytest.approx(
        model.predict([(decode_image(encode_image()), question)])[0].probabilities, abs=1e-5
    )
    assert client.post("/v1/explanations", json={"input": body["inputs"][0]}).json()["maps"]
    schema = client.get("/v1/openapi.json").json()["components"]["schemas"]["Input"]
    assert (set(schema["properties"]), schema["additionalProperties"]) == ({"image", "question"}, False)
    assert_refused(client.post("/v1/ask", json={"inputs": [encode_image()]}), 422, "invalid_request", "inputs.0")
    assert_refused(
        client.post("/v1/ask", json={"inputs": [{"image": "a", "question": "b"}]}), 422, "invalid_input", "image of"
    )
    wrong = {"image": encode_image(), "question": "why"}
    assert_refused(client.post("/v1/ask", json={"inputs": [wrong]}), 422, "invalid_input")


def test_texts_are_generated(serve):
    generator = tiny_generator()
    client = serve(generator)
    body = {"inputs": ["hello", ""], "options": {"max_tokens": 4, "seed": 1}}
    first, second = (client.post("/v1/generate", json=body).json() for _ in range(2))
    assert first == second
    assert [one["text"] for one in first["predictions"]] == [
        one.text for one in generator.predict(["hello", ""], generator.predict_options(max_tokens=4, seed=1))
    ]
    assert client.post("/v1/tokens", json={"text": "hello"}).json()["count"] > 0
    assert_refused(
        client.post("/v1/generate", json={"inputs": ["a"], "options": {"num_samples": 4}}), 413, "too_many_candidates"
    )
    assert "explanations" not in client.get("/v1/model").json()["model"]["capabilities"]
    assert_refused(client.post("/v1/explanations", json={"input": "a"}), 404, "unsupported")


def test_the_pixels_of_all_images_have_a_limit(monkeypatch):
    """64 files of 16 kB that would unpack to 4 GB."""
    from regard.serving import Limits, build_app

    classifier, start, gate = tiny_image_classifier(), threading.Event(), threading.Event()
    predict = classifier.predict

    def wait(*args):
        start.set()
        assert gate.wait(20)
        return predict(*args)

    limits = Limits(max_pixels=300, max_total_pixels=500)
    app = build_app(classifier, limits=limits)
    with in_thread(app) as address, httpx.Client(base_url=address, timeout=30) as client:

        def classify(*sides):
            return client.post("/v1/classify", json={"inputs": [encode_image(side) for side in sides]})

        assert_refused(classify(*[8] * 8), 413, "too_many_pixels", "500 pixels")
        assert_refused(classify(18), 413, "input_too_long")
        assert classify(16).status_code == 200
        monkeypatch.setattr(classifier, "predict", wait)
        first = threading.Thread(target=classify, args=(16,))
        first.start()
        wait_until(start.is_set)
        assert_refused(classify(16), 429, "busy")
        gate.set()
        first.join()
        assert classify(16).status_code == 200


def test_large_images_of_a_small_request_are_not_decoded():
    from regard.serving import build_app

    image = encode_image(4472)
    body = {"inputs": [image] * (900_000 // len(image))}
    assert len(body["inputs"]) >= 6
    with in_thread(build_app(tiny_image_classifier())) as address:
        assert_refused(httpx.post(f"{address}/v1/classify", json=body, timeout=30), 413, "too_many_pixels")
