"""No work twice: a command reads run.json once, encodes a text once, and runs the network as often as it has to."""

from collections import Counter

import pytest

from regard import cli
from regard.data import Tokenizer
from regard.models import RNNSeq2Seq, Transformer
from regard.tasks import train
from regard.training import RunFolder
from tests.tasks.tiny_runs import TINY, quiet

pytestmark = pytest.mark.usefixtures("small_vocabulary")
MODELS = {"rnn": [], "transformer": ["model=transformer", "embed_dim=16", "num_heads=2", "num_layers=1"]}


def main(*arguments):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(list(arguments))
    assert exit_info.value.code == 0


@pytest.fixture(scope="module", params=list(MODELS))
def run(request, tmp_path_factory, small_vocabulary):
    folder = tmp_path_factory.mktemp("runs") / request.param
    train("reverse", folder, [*TINY, *MODELS[request.param], "steps=1"], log=quiet)
    return str(folder)


@pytest.fixture
def calls(monkeypatch):
    """How often run.json was read, each text encoded, and the encoder of the network run."""
    counts = Counter()

    def count(owner, method, name):
        original = getattr(owner, method)

        def counted(self, *args, **kwargs):
            counts[name(*args)] += 1
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, method, counted)

    count(RunFolder, "read_record", lambda: "run.json")
    count(Tokenizer, "encode", lambda text, *_: text)
    for model in (RNNSeq2Seq, Transformer):
        count(model, "encode", lambda *_: "passes")
    return counts


def test_translate_encodes_each_text_once(run, calls, capsys):
    main("translate", run, "star", "cab")
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert calls == {"run.json": 1, "star": 1, "cab": 1, "passes": 1}


@pytest.mark.parametrize("suffix", ["html", "json", "png", "txt"])
def test_show_runs_the_network_five_times(run, calls, tmp_path, capsys, suffix):
    main("show", run, "star", "--out", str(tmp_path / f"star.{suffix}"))
    capsys.readouterr()
    assert calls["run.json"] == calls["star"] == 1
    assert calls["passes"] <= 5  # the search, the translation, and three changes of its attention or source


def test_evaluate_reads_the_record_once(run, calls, capsys):
    main("evaluate", run, "--limit", "5")
    capsys.readouterr()
    assert calls["run.json"] == 1
