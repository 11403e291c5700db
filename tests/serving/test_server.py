"""Clients that keep the server waiting: half a request, unread responses, too many connections."""

import resource
import signal
import threading
import time
from contextlib import ExitStack

import httpx
import pytest

from tests.serving.servers import assert_refused, in_guarded_thread, in_process, open_sockets, wait_until

TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture(scope="module")
def locked():
    """The address of a playground that requires a token, in a process of its own."""
    with in_process("--port", "0", "--token", "s3cret") as (address, process):
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_bodies_that_do_not_arrive_lock_nobody_out(locked):
    starts = ("POST /", "GET /", "GET /v1/health/live", "PUT /v1/health/ready", "POST /v1/attend")
    with ExitStack() as stack:
        for start in starts:
            request = f"{start} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n".encode()
            stack.enter_context(open_sockets(locked, 130, request))
        assert httpx.get(f"{locked}v1/model", headers=TOKEN).status_code == 200


def test_bodies_without_the_token_take_no_memory(locked):
    def memory():
        lines = httpx.get(f"{locked}v1/metrics", headers=TOKEN).text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("process_resident_memory_bytes"))

    before = memory()
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n" + b" " * 999_000
    with open_sockets(locked, 60, request):
        assert memory() < before + 20e6


def test_a_get_with_a_body_is_refused(locked):
    answer = httpx.request("GET", f"{locked}v1/model", headers=TOKEN, content=b"{}")
    assert_refused(answer, 400, "unexpected_body", "GET")


def test_half_a_body_at_the_end_gets_503():
    with in_process("--port", "0") as (address, process):
        request = b"POST /v1/attend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
        with open_sockets(address, 2, request) as sockets:
            httpx.get(f"{address}v1/health")  # the server has read them
            process.send_signal(signal.SIGTERM)
            for one in sockets:
                assert one.recv(1000).startswith(b"HTTP/1.1 503 ")
            assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_connections_stay_below_the_limit_of_descriptors():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    with in_process("--port", "0", preexec_fn=limit) as (address, process):
        begun = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-"
        with open_sockets(address, 150, begun) as early, open_sockets(address, 150, begun):
            assert httpx.get(f"{address}v1/health").status_code == 200
            early[0].settimeout(5)
            assert early[0].recv(1) == b""  # those that waited for the longest time were closed
            busy = processor_seconds(process.pid)
            time.sleep(0.5)
            assert processor_seconds(process.pid) < busy + 0.25
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / 100


def test_responses_that_are_not_read_lock_nobody_out(monkeypatch):
    from regard.serving import Limits, build_app, server

    monkeypatch.setattr(server, "CLIENT_SECONDS", 1, raising=False)
    app = build_app(token="s3cret", limits=Limits(max_requests=8))
    request = b"GET /explorer/texts.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
    with in_guarded_thread(app) as address, open_sockets(address, 9, request, SO_RCVBUF=4096):
        wait_until(lambda: app.state.server.metrics.num_open >= 9)
        time.sleep(0.3)
        assert app.state.server.metrics.num_open == 9
        assert httpx.get(f"{address}/v1/model", headers=TOKEN).status_code == 200
        wait_until(lambda: app.state.server.metrics.num_open == 0, 8)


def test_a_header_has_to_arrive_in_time(monkeypatch):
    from regard.serving import build_app, server

    monkeypatch.setattr(server, "CLIENT_SECONDS", 1, raising=False)
    with in_guarded_thread(build_app()) as address, httpx.Client(base_url=address) as idle:
        idle.get("/v1/health")
        connections = list(idle._transport._pool.connections)
        with open_sockets(address, 1, b"GET / HTTP/1.1\r\n") as (slow,):
            slow.settimeout(0.2)
            deadline = time.monotonic() + 8
            while is_open(slow):  # further lines of the header do not extend its time
                assert time.monotonic() < deadline
        assert idle.get("/v1/health").status_code == 200
        assert idle._transport._pool.connections == connections


def is_open(connection):
    """Whether a connection still takes lines of a header."""
    try:
        connection.sendall(b"A: b\r\n")
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_the_bodies_of_all_requests_have_a_limit():
    from regard.serving import Limits, build_app

    app = build_app(limits=Limits(max_total_body_bytes=2_500))
    half = b"POST /v1/attend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + b" " * 1_000
    points = {"queries": [[1.0]], "keys": [[1.0]] * 60}
    with in_guarded_thread(app) as address:
        with open_sockets(address, 2, half):
            wait_until(lambda: app.state.server.num_body_bytes == 2_000)
            answer = httpx.post(f"{address}/v1/attend", json={**points, "hidden_keys": [0] * 120})
            assert_refused(answer, 429, "busy")
            assert httpx.get(f"{address}/v1/regression").status_code == 200
        wait_until(lambda: app.state.server.num_body_bytes == 0)
        assert httpx.post(f"{address}/v1/attend", json={**points, "hidden_keys": [0] * 120}).status_code == 200


@pytest.fixture(scope="module")
def prediction(translator):
    """A prediction, so that tests of the server need not wait for a model."""
    return translator.predict(["abc"])[0]


def post(text):
    """The bytes of a request for a translation."""
    body = f'{{"inputs": ["{text}"]}}'.encode()
    header = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return header + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_requests_of_clients_that_left_are_not_computed(translator, prediction, monkeypatch):
    from regard.serving import build_app

    computed, start, gate = [], threading.Event(), threading.Event()

    def predict(items, options):
        computed.append(list(items))
        start.set()
        assert gate.wait(20)
        return [prediction] * len(items)

    monkeypatch.setattr(translator, "predict", predict)
    app = build_app(translator)
    with in_guarded_thread(app) as address, open_sockets(address, 1, post("abc")) as (first,):
        wait_until(start.is_set)
        with open_sockets(address, 5, post("de")):
            wait_until(lambda: app.state.server.worker.num_queued == 6)
        wait_until(lambda: app.state.server.worker.num_queued == 1)
        gate.set()
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert httpx.post(f"{address}/v1/translate", json={"inputs": ["lower"]}).status_code == 200
        metrics = httpx.get(f"{address}/v1/metrics").text
    assert computed == [["abc"], ["lower"]]
    assert 'regard_requests_total{method="POST",route="/v1/translate",status="499"} 5.0' in metrics


def test_a_stream_stops_when_its_client_leaves(translator, prediction, monkeypatch):
    from regard.serving import build_app

    emitted, gate = [], threading.Event()

    def stream(inputs, options, emit):
        for _ in range(50):
            emit(0, prediction)
            emitted.append(prediction)
            assert gate.wait(20)
        return [prediction]

    monkeypatch.setattr(translator, "stream_batch", stream)
    app = build_app(translator)
    with in_guarded_thread(app) as address:
        with httpx.stream("POST", f"{address}/v1/predict/stream", json={"input": "abc"}) as response:
            next(response.iter_lines())
        wait_until(lambda: app.state.server.metrics.num_open == 0)
        gate.set()
        wait_until(lambda: app.state.server.worker.num_queued == 0)
    assert len(emitted) == 1


def test_a_polite_client_is_served_beside_greedy_ones(translator, prediction, monkeypatch):
    """12 connections of one address send more than can be computed; another address gets every answer, in its turn."""
    from regard.serving import Limits, build_app

    monkeypatch.setattr(translator, "predict", lambda items, _: time.sleep(0.02) or [prediction] * len(items))
    limits = Limits(max_queued=16, max_batch_size=4, batch_delay=0.0)
    is_over, statuses = threading.Event(), []

    def ask_greedily(address):
        with httpx.Client(base_url=address, timeout=30) as client:
            while not is_over.is_set():
                client.post("/v1/translate", json={"inputs": ["ab"] * 4})
                time.sleep(0.02)

    with in_guarded_thread(build_app(translator, limits=limits)) as address:
        greedy = [threading.Thread(target=ask_greedily, args=(address,)) for _ in range(12)]
        for one in greedy:
            one.start()
        try:
            with httpx.Client(base_url=address, timeout=30, headers={"X-Forwarded-For": "192.0.2.1"}) as polite:
                for _ in range(12):
                    statuses.append(polite.post("/v1/translate", json={"inputs": ["abc"]}).status_code)
                    time.sleep(0.05)
        finally:
            is_over.set()
            for one in greedy:
                one.join()
    assert statuses == [200] * 12


def test_an_error_that_is_no_exception_does_not_end_the_model(translator, prediction, monkeypatch):
    from regard.serving import build_app

    class Panic(BaseException):
        """As tokenizers raise it."""

    def predict(items, options):
        if items == ["panic"]:
            raise Panic("secret")
        return [prediction]

    monkeypatch.setattr(translator, "predict", predict)
    with in_guarded_thread(build_app(translator)) as address:
        answer = httpx.post(f"{address}/v1/translate", json={"inputs": ["panic"]})
        assert_refused(answer, 500, "internal")
        assert httpx.post(f"{address}/v1/translate", json={"inputs": ["abc"]}).status_code == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_model_is_reported_at_once(translator, prediction, monkeypatch):
    from regard.serving import build_app

    def leave(*args):
        raise SystemExit

    app = build_app(translator)
    monkeypatch.setattr(translator, "predict", lambda items, _: [prediction])
    worker = app.state.server.worker
    monkeypatch.setattr(worker, "_finish", leave)
    with in_guarded_thread(app) as address, httpx.Client(base_url=address, timeout=30) as client:
        assert client.get("/v1/health/live").status_code == 200
        client.post("/v1/translate", json={"inputs": ["abc"]})
        wait_until(lambda: not worker.is_alive)
        for path in ("/v1/health/live", "/v1/health/ready"):
            assert_refused(client.get(path), 503, "model_stopped")
        assert_refused(client.post("/v1/translate", json={"inputs": ["abc"]}), 503, "model_stopped")
        assert client.get("/v1/regression").status_code == 200
