"""Hosts, origins, sizes, methods and security headers."""

import httpx
import pytest

from tests.serving.servers import assert_refused, in_thread, wait_until


def test_every_response_has_security_headers(client):
    for path in ("/", "/v1/health", "/nowhere", "/explorer/explorer.js"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert not any(name.startswith("access-control") for name in headers)


def test_pages_are_a_fixed_table(client):
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/explorer/explorer.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/web/heat.js").status_code == 200
    for path in (
        "/web/__init__.py",
        "/explorer/../app.py",
        "/web/..%2f__init__.py",
        "/web/%2e%2e/__init__.py",
        "/web//etc/passwd",
        "/explorer/",
    ):
        assert_refused(client.get(path), 404, "not_found")


def test_the_page_has_no_script_or_style_of_its_own(client):
    page = client.get("/").text
    assert "<script>" not in page
    assert "style=" not in page
    assert "<style" not in page


def test_other_host_names_are_refused(client):
    for host in ("127.0.0.1:1", "localhost", "LOCALHOST:8000", "[::1]:8000", "localhost."):
        assert client.get("/v1/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.7", "[", ""):
        assert client.get("/v1/health", headers={"Host": host}).status_code in (400, 421)
    assert_refused(client.get("/v1/health", headers={"Host": "evil.example"}), 421, "forbidden_host")


def test_pages_of_other_sites_are_refused(client):
    own = str(client.base_url).rstrip("/")
    assert client.get("/v1/health", headers={"Origin": own}).status_code == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert_refused(client.get("/v1/health", headers={"Origin": origin}), 403, "forbidden_origin")


@pytest.mark.parametrize("origin", ["http://[", "//", "\x7f"])
def test_invalid_origins_are_refused(client, origin):
    assert_refused(client.get("/v1/health", headers={"Origin": origin}), 403, "forbidden_origin")


def test_a_sender_of_a_large_body_gets_an_error(client):
    """Five megabytes are more than the sockets hold: closing at once would lose the answer."""
    assert_refused(client.post("/v1/tokens", content=b"x" * 5_000_000), 413, "body_too_large")


def test_large_bodies_are_not_read(client):
    assert_refused(client.post("/v1/tokens", content=b"x" * 20_001), 413, "body_too_large", "20,000 bytes")

    def pieces():  # without a length in the headers
        for _ in range(30):
            yield b" " * 1_000

    assert_refused(
        client.post("/v1/tokens", content=pieces(), headers={"Content-Type": "application/json"}), 413, "body_too_large"
    )


@pytest.mark.parametrize("length", ["-5", "many"])
def test_invalid_lengths_are_refused(client, length):
    try:
        answer = client.post("/v1/tokens", content=b"{}", headers={"Content-Length": length})
    except httpx.HTTPError:
        return  # not even sent, or not even answered
    assert 400 <= answer.status_code < 500


def test_invalid_json_is_refused(client):
    as_json = {"Content-Type": "application/json"}
    for content in (b"{", b"\xff", b"[1,", b'{"text": NaN}', b"null", b"[" * 9_000):
        answer = client.post("/v1/tokens", content=content, headers=as_json)
        assert_refused(answer, 422 if answer.status_code == 422 else 400, answer.json()["error"]["code"])


def test_unknown_addresses_and_methods(client):
    assert_refused(client.get("/v2/health"), 404, "not_found")
    assert_refused(client.delete("/v1/translate"), 405, "method_not_allowed")
    assert client.delete("/v1/translate").headers["allow"] == "POST"


def test_an_internal_error_is_sent_without_a_traceback(translator, monkeypatch):
    from regard.serving import build_app

    def broken(*args, **kwargs):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(translator, "predict", broken)
    with in_thread(build_app(translator)) as address:
        answer = httpx.post(f"{address}/v1/translate", json={"inputs": ["a"]})
    assert_refused(answer, 500, "internal")
    assert "secret" not in answer.text


def test_the_openapi_schema_refers_to_no_other_server(client):
    assert "/v1/translate" in client.get("/v1/openapi.json").json()["paths"]
    assert client.get("/docs").status_code == 404


def test_a_long_translation_does_not_block_other_routes(translator, monkeypatch):
    import threading

    from regard.serving import build_app

    start, gate = threading.Event(), threading.Event()

    def slow(*args, **kwargs):
        start.set()
        gate.wait(20)
        return predict(*args, **kwargs)

    predict = translator.predict
    monkeypatch.setattr(translator, "predict", slow)
    with in_thread(build_app(translator)) as address:
        asking = threading.Thread(
            target=httpx.post, args=(f"{address}/v1/translate",), kwargs={"json": {"inputs": ["a"]}}
        )
        asking.start()
        wait_until(start.is_set)
        assert httpx.get(f"{address}/v1/health").status_code == 200
        assert httpx.get(f"{address}/v1/regression").status_code == 200
        gate.set()
        asking.join()
