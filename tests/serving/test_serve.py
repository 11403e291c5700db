"""`regard serve` as people start and stop it."""

import re
import signal
import socket

import httpx
import pytest

from tests.cli.calls import call, refused
from tests.serving.servers import in_process, tiny_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return str(tiny_run(tmp_path_factory.mktemp("serve") / "made"))


def test_a_run_is_served_until_it_is_told_to_stop(run):
    with in_process(run, "--port", "0", "--lang", "zh") as (address, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?lang=zh", address)
        root = address.split("?")[0]
        assert "explorer.js" in httpx.get(root).text
        told = httpx.get(f"{root}v1/model").json()["model"]
        assert (told["run"], told["recipe"]) == ("tiny", "translation")
        best = httpx.post(f"{root}v1/translate", json={"texts": ["abc"]}).json()
        assert best["translations"][0]["hypotheses"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_without_a_run_there_is_the_playground():
    with in_process("--port", "0") as (address, process):
        assert httpx.get(f"{address}v1/model").json()["model"] is None
        assert httpx.get(f"{address}v1/regression").status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        assert "Traceback" not in process.stderr.read()


def test_a_taken_port_is_told_in_a_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused(call("serve", "--port", taken.getsockname()[1]), "is taken; choose another with --port")


def test_what_cannot_be_served_is_told_in_a_sentence(tmp_path):
    refused(call("serve", "--port", "70000"), "from 0 to 65535")
    refused(call("serve", "--port", "0", "--host", "no.such.host.invalid"), "There is no address")
    refused(call("serve", tmp_path / "nothing", "--port", "0"), "nothing")
    refused(call("serve", "--port", "0", tmp_path, "--device", "abacus"), "no device")


def test_other_hosts_are_warned_of(monkeypatch):
    """Nothing listens but for a moment at this machine's own address: tests open no door."""
    from regard.cli import _serve

    listening = _serve._listening
    monkeypatch.setattr(_serve, "_listening", lambda host, port: listening("127.0.0.1", port))
    monkeypatch.setattr(_serve, "_answer", lambda app, listener: None)
    answer = call("serve", "--port", "0", "--host", "0.0.0.0", "--no-open")
    assert answer.stdout.startswith("regard: http://127.0.0.1:")
    assert "everybody who can reach 0.0.0.0" in answer.stderr
    assert "everybody" not in call("serve", "--port", "0", "--no-open").stderr


def test_a_missing_extra_is_told_with_the_command(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fastapi", None)
    refused(call("serve", "--port", "0"), 'pip install "regard[serve]"')
