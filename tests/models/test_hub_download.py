"""`from_pretrained(name)` downloads from a server that answers as the hub does, with its cache; nothing is executed."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from safetensors.torch import save_file

from regard.models import Transformer
from regard.models.pretrained import to_transformers

pytest.importorskip("huggingface_hub")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """
import regard, sys
model = regard.from_pretrained("someone/tiny", revision="v1")
print(type(model).__name__, model.lm_head.in_features)
try:
    regard.from_pretrained("someone/missing")
except regard.errors.DownloadError as error:
    print("refused:", error)
"""


class Hub(BaseHTTPRequestHandler):
    """The two routes of the hub that a download needs: the list of files, and a file."""

    def __init__(self, files, paths, *args):
        self.files, self.paths = files, paths
        super().__init__(*args)

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.paths.append(path)
        api, resolve = "/api/models/someone/tiny/revision/v1", f"/someone/tiny/resolve/{COMMIT}/"
        if path == api:
            siblings = [{"rfilename": name} for name in self.files]
            body = {"id": "someone/tiny", "sha": COMMIT, "siblings": siblings, "private": False, "downloads": 0,
                    "likes": 0, "tags": []}  # fmt: skip
            self._answer(json.dumps(body).encode(), {"Content-Type": "application/json"})
        elif path.startswith("/api/models/someone/tiny/tree/"):
            rows = [
                {"type": "file", "path": name, "size": len(one), "oid": hashlib.sha1(one).hexdigest()}
                for name, one in self.files.items()
            ]
            self._answer(json.dumps(rows).encode(), {"Content-Type": "application/json"})
        elif path.startswith(resolve) and path.removeprefix(resolve) in self.files:
            content = self.files[path.removeprefix(resolve)]
            self._answer(content, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'})
        else:
            self._answer(b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository Not Found"}, 404)

    def _answer(self, content, headers, status=200):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def test_a_name_is_downloaded(tmp_path):
    torch.manual_seed(0)
    config, weights = to_transformers(
        Transformer(11, 11, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=16, tie_embeddings="all")
    )
    save_file(weights, tmp_path / "model.safetensors")
    files = {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": (tmp_path / "model.safetensors").read_bytes(),
        "modeling.py": b"raise SystemExit('code of the checkpoint was run')",
        "pytorch_model.bin": b"not needed",
    }
    paths: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, files, paths))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "home")}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=90
        )
        return done.stdout + done.stderr

    try:
        answer = run()
        assert "Transformer 8\n" in answer, answer
        assert "refused: someone/missing is no folder, and could not be downloaded from the hub" in answer
        fetched = {path.rpartition("/")[2] for path in paths if "/resolve/" in path}
        assert fetched == {"config.json", "model.safetensors"}
    finally:
        server.shutdown()
        server.server_close()
    environment["HF_HUB_OFFLINE"] = "1"
    assert "Transformer 8\n" in run()  # from the cache
