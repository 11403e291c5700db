"""`regard serve`: start, requests and shutdown."""

import contextlib
import re
import signal
import socket
import threading
from collections import Counter

import httpx
import pytest

from tests.cli.calls import assert_refused, call
from tests.serving.servers import in_process, tiny_run, wait_until


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return str(tiny_run(tmp_path_factory.mktemp("serve") / "made"))


def test_a_run_is_served_until_ctrl_c(run):
    with in_process(run, "--port", "0", "--lang", "zh") as (address, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?lang=zh", address)
        root = address.split("?")[0]
        assert "explorer.js" in httpx.get(root).text
        result = httpx.get(f"{root}v1/model").json()["model"]
        assert (result["run"], result["recipe"]) == ("tiny", "translation")
        best = httpx.post(f"{root}v1/translate", json={"inputs": ["abc"]}).json()
        assert best["predictions"][0]["tokens"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_without_a_run_there_is_the_playground():
    with in_process("--port", "0") as (address, process):
        assert httpx.get(f"{address}v1/model").json()["model"] is None
        assert httpx.get(f"{address}v1/regression").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_sigterm_under_load_loses_no_response(run):
    """Accepted requests are answered; later ones get 503, or no connection."""
    with in_process(run, "--port", "0") as (address, process):
        statuses, lost = Counter(), []

        def ask():
            with httpx.Client(base_url=address, timeout=60) as client:
                while True:
                    try:
                        answer = client.post("/v1/translate", json={"inputs": ["abc def ghi", "lower"]})
                    except httpx.ConnectError:
                        return  # the server has stopped
                    except httpx.HTTPError as error:
                        lost.append(error)
                        return
                    statuses[answer.status_code] += 1
                    if answer.status_code != 200:
                        assert answer.json()["error"]["code"] == "stopping"
                        assert answer.headers["connection"] == "close"
                        return

        clients = [threading.Thread(target=ask) for _ in range(8)]
        for client in clients:
            client.start()
        wait_until(lambda: statuses[200] >= 20, 60)
        process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join()
        assert process.wait(30) == 0
        assert lost == []
        assert set(statuses) <= {200, 503}
        assert process.stderr.read() == ""


def test_clients_that_keep_sending_do_not_delay_the_shutdown():
    with in_process("--port", "0") as (address, process):

        def ask():
            while process.poll() is None:
                with contextlib.suppress(httpx.HTTPError):
                    httpx.get(f"{address}v1/model")

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        for client in clients:
            client.join()


def test_a_token_comes_from_the_environment(run, monkeypatch):
    monkeypatch.setenv("REGARD_TOKEN", "s3cret")
    with in_process(run, "--port", "0") as (address, _):
        assert httpx.get(f"{address}v1/model").status_code == 401
        known = {"Authorization": "Bearer s3cret"}
        assert httpx.get(f"{address}v1/model", headers=known).status_code == 200


def test_a_run_without_inputs_is_refused(tmp_path):
    from regard.tasks import train

    small = {
        "steps": 1,
        "validate_every": 1,
        "save_every": 1,
        "hidden_dim": 8,
        "memory_rows": 8,
        "memory_width": 4,
        "batch_size": 2,
    }
    train("copy", tmp_path / "copy", log=lambda line: None, **small)
    assert_refused(call("serve", tmp_path / "copy", "--port", "0"), "takes no input, so it cannot be served")
    assert_refused(call("serve", "--port", "0", "--token", "two words"), "without spaces")


def test_a_port_in_use_is_refused():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert_refused(call("serve", "--port", listener.getsockname()[1]), "is in use; choose another with --port")


def test_invalid_arguments_are_refused_in_a_sentence(tmp_path):
    assert_refused(call("serve", "--port", "70000"), "from 0 to 65535")
    assert_refused(call("serve", "--port", "0", "--host", "no.such.host.invalid"), "no address")
    assert_refused(call("serve", tmp_path / "nothing", "--port", "0"), "nothing")
    assert_refused(call("serve", "--port", "0", tmp_path, "--device", "abacus"), "no device")


def test_a_public_host_prints_a_warning(monkeypatch):
    """Nothing listens but for a moment at this machine's own address: tests open no door."""
    from regard.cli import serve as serve_module

    listening = serve_module._listen
    monkeypatch.setattr(serve_module, "_listen", lambda host, port: listening("127.0.0.1", port))
    monkeypatch.setattr("regard.serving.server.run_server", lambda app, listener: None)
    answer = call("serve", "--port", "0", "--host", "0.0.0.0", "--no-open")
    assert answer.stdout.startswith("regard: http://127.0.0.1:")
    assert "everybody who can reach 0.0.0.0" in answer.stderr
    assert "everybody" not in call("serve", "--port", "0", "--no-open").stderr


def test_a_missing_extra_names_its_pip_command(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert_refused(call("serve", "--port", "0"), 'pip install "regard[serve]"')
