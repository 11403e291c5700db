"""`regard push`: what is uploaded, and its card. The API of the hub is replaced; its protocol is huggingface_hub's."""

from typing import ClassVar

import pytest

import regard
from regard.errors import DownloadError, UnsupportedError, UsageError
from regard.export import export
from regard.export.hub import CardFacts, push
from regard.tasks import train

hub = pytest.importorskip("huggingface_hub")


class FakeApi:
    endpoint = "https://hub.example"
    calls: ClassVar[list] = []
    error = None

    def __init__(self, token=None):
        self.token = token

    def create_repo(self, name, **options):
        if FakeApi.error:
            raise FakeApi.error
        FakeApi.calls.append((name, options))

    def upload_folder(self, repo_id, folder_path, commit_message):
        from pathlib import Path

        files = {path.relative_to(folder_path).as_posix(): path.read_bytes() for path in Path(folder_path).rglob("*.*")}
        FakeApi.calls.append((repo_id, files))


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(hub, "HfApi", FakeApi)
    FakeApi.calls, FakeApi.error = [], None
    return FakeApi


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "rnn"
    options = {"steps": 2, "validate_every": 2, "average_last": 0, "monitor": "loss", "hidden_dim": 8}
    train("reverse", folder, log=lambda line: None, **options)
    return folder


def test_a_run_without_counterpart_is_uploaded_for_regard(run, api, tmp_path):
    facts = CardFacts(
        "mit", "Generated strings.", "Only strings of eight letters.", [("test", "exact", 5.0, "regard x")]
    )
    assert push(run, "me/reverse", facts, private=True) == "https://hub.example/me/reverse"
    assert api.calls[0] == ("me/reverse", {"private": True, "exist_ok": True})
    files = api.calls[1][1]
    assert {"model.safetensors", "export.json", "README.md", "processor/source.json"} <= files.keys()
    card = files["README.md"].decode()
    for words in ("license: mit", "| test | exact | 5 | `regard x` |", "Generated strings.", "Only strings of eight",
                  "| validation (selected the weights) | loss |", "hidden_dim=8"):  # fmt: skip
        assert words in card
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert regard.load(tmp_path).translate("abc") == regard.load(run).translate("abc")


def test_an_export_is_uploaded_as_it_is_and_keeps_its_card(run, api, tmp_path):
    out = export(run, "onnx", tmp_path / "out")
    before = (out / "README.md").read_text()
    push(out, "me/reverse")
    assert "encoder.onnx" in api.calls[1][1]
    assert "Not stated by the publisher." in api.calls[1][1]["README.md"].decode()
    assert (out / "README.md").read_text() == before


def test_refusals(run, api, tmp_path):
    with pytest.raises(UsageError, match="user/model"):
        push(run, "reverse")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="hf upload"):
        push(tmp_path, "me/reverse")
    api.error = OSError("401: log in first\nmore")
    with pytest.raises(DownloadError, match=r"me/reverse was not uploaded: 401: log in first$"):
        push(run, "me/reverse")


def test_the_card_has_measured_numbers_with_their_command(run, api, capsys):
    from regard.cli import main

    with pytest.raises(SystemExit) as exit:
        main(["push", str(run), "me/reverse", "--license", "mit", "--measure"])
    assert exit.value.code == 0
    assert capsys.readouterr().out == "pushed to https://hub.example/me/reverse\n"
    card = api.calls[1][1]["README.md"].decode()
    assert "| test | exact_match |" in card
    assert "`regard evaluate rnn --split test`" in card
