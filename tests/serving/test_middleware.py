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


def test_more_host_names_can_be_allowed(translator):
    """Behind a proxy, pages have its name, and the Host header is this server's own or the proxy's."""
    from regard.serving import build_app

    app = build_app(translator, allow_hosts=["", "Regard", "example.org", "example.org:8443"])
    with in_thread(app) as address, httpx.Client(base_url=address) as client:
        for host in ("regard", "regard:8000", "example.org", "127.0.0.1"):
            for origin in ("https://example.org", "https://example.org:8443", f"http://{host}"):
                headers = {"Host": host, "Origin": origin}
                assert client.get("/v1/health", headers=headers).status_code == 200
        for origin in ("https://example.org:1", "https://other.example", "null"):
            answer = client.get("/v1/health", headers={"Host": "example.org", "Origin": origin})
            assert_refused(answer, 403, "forbidden_origin")
        for host in ("other.example", "org", "a.example.org"):
            assert_refused(client.get("/v1/health", headers={"Host": host}), 421, "forbidden_host")


def test_a_root_path_is_removed_and_the_token_required():
    """Whether the proxy removes the path or not; a path that is removed twice would get around the token."""
    from regard.serving import build_app

    known = {"Authorization": "Bearer s3cret"}
    with in_thread(build_app(root_path="/model/", token="s3cret")) as address:
        for prefix in ("", "/model"):
            assert "explorer.js" in httpx.get(f"{address}{prefix}/").text
            assert httpx.get(f"{address}{prefix}/v1/health/live").status_code == 200
            assert_refused(httpx.get(f"{address}{prefix}/v1/model"), 401, "unauthorized")
            assert httpx.get(f"{address}{prefix}/v1/model", headers=known).status_code == 200
        assert httpx.get(f"{address}/v1/openapi.json", headers=known).json()["servers"] == [{"url": "/model"}]
        for path in ("/model/model/v1/model", "/modelv1/model", "//v1/model", "/model//v1/model"):
            assert httpx.get(f"{address}{path}").status_code in (401, 404)


def test_the_token_is_required_of_a_mounted_application():
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from regard.serving import build_app

    with in_thread(Starlette(routes=[Mount("/inner", build_app(token="s3cret"))])) as address:
        assert_refused(httpx.get(f"{address}/inner/v1/model"), 401, "unauthorized")
        assert httpx.get(f"{address}/inner/v1/health/live").status_code == 200


def test_empty_tokens_are_refused():
    from regard.errors import UsageError
    from regard.serving import build_app

    for token in ("", " "):
        with pytest.raises(UsageError):
            build_app(token=token)


def test_head_is_get_without_a_body(client):
    for path in ("/", "/v1/health", "/v1/regression"):
        answer, full = client.head(path), client.get(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-length"] == full.headers["content-length"]
    assert client.head("/v1/translate").status_code == 405
    assert client.head("/nowhere").status_code == 404


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_another_content_type_is_named(client, headers):
    answer = client.post("/v1/tokens", content=b'{"text": 1}', headers=headers)
    assert_refused(answer, 422, "invalid_request", "Content-Type")


def test_a_body_that_cannot_be_read_is_named(client):
    for content in (b"\xff", b"[" * 9_000):
        answer = client.post("/v1/tokens", content=content, headers={"Content-Type": "application/json"})
        assert_refused(answer, 400, "bad_request", "body")
