"""A task in one file is trained, loaded, used, evaluated and explained without an edit of the package."""

import json

import pytest
import torch

from regard.errors import ConfigError, RunFormatError, UnknownNameError
from regard.tasks import TASKS, TaskEntry, get_recipe, get_task, load, make_config, resume, train
from regard.tasks.loading import evaluate
from tests.tasks.needle import NeedlePredictor


@pytest.fixture(scope="module", autouse=True)
def needle():
    TASKS["needle"] = TaskEntry("tests.tasks.needle", verb="find")
    yield
    del TASKS["needle"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "needle"
    train("needle", folder, ["device=cpu"], log=lambda line: None)
    return folder


def test_the_recipe_and_the_task_are_found_by_name():
    assert get_recipe("needle").task == get_task("needle").name == "needle"
    assert make_config("needle", ["length=5"]).length == 5


def test_the_folder_has_what_is_needed_to_load_the_model(run):
    record = json.loads((run / "run.json").read_text())
    assert record["task"] == record["recipe"] == "needle"
    assert record["format"] == 2
    assert record["config"]["embed_dim"] == 32
    assert record["model"]["parameters"] == sum(p.numel() for p in load(run).model.parameters())
    assert json.loads((run / "processor" / "processor.json").read_text())["labels"] == list("0123456789")


def test_the_predictor_answers(run):
    predictor = load(run)
    assert isinstance(predictor, NeedlePredictor)
    predictions = predictor.predict(["abcdefgh3jkl", "7bcdefghijkl"])
    assert [one.text for one in predictions] == ["3", "7"]
    assert all(0.9 < one.score <= 1 for one in predictions)


def test_evaluation_selects_a_split(run):
    assert evaluate(run)["test"].metrics["accuracy"] > 99
    assert evaluate(run, "valid", limit=10)["valid"].num_examples == 10
    with pytest.raises(UnknownNameError):
        evaluate(run, "dev")


def test_an_explanation_is_saved_in_every_form(run, tmp_path):
    explanation = load(run).explain("abcdefgh3jkl")
    torch.testing.assert_close(explanation.maps[0].weights.sum(-1), torch.ones(1, 1))
    assert int(explanation.maps[0].weights.argmax()) == 8
    for suffix in ("txt", "json", "html", "png", "svg"):
        explanation.save(tmp_path / f"needle.{suffix}")
        assert (tmp_path / f"needle.{suffix}").stat().st_size > 100
    assert json.loads((tmp_path / "needle.json").read_text())["attention"][0]["name"] == "pooling"


def test_a_run_is_resumed(run, tmp_path):
    folder = tmp_path / "run"
    train("needle", folder, ["steps=50"], log=lambda line: None)
    with pytest.raises(ConfigError):
        resume(folder, embed_dim=64)
    assert resume(folder, lambda line: None, steps=100).step == 100
    resumed, direct = load(folder).model.state_dict(), load(run).model.state_dict()
    assert all(torch.equal(resumed[name], direct[name]) for name in direct)


def test_weights_of_another_run_are_the_first_ones(run, tmp_path):
    result = train("needle", tmp_path / "run", ["steps=1", "lr=1e-9"], init_from=run, log=lambda line: None)
    assert result.scores["accuracy"] > 99


def test_a_run_of_an_old_format_is_refused(run, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "recipe": "needle", "settings": {}}))
    with pytest.raises(RunFormatError):
        load(tmp_path)


def test_the_run_is_served_over_http(run):
    import httpx

    from regard.serving import build_app
    from tests.serving.servers import assert_refused, in_thread

    with in_thread(build_app(load(run), about={"run": "needle"})) as address, httpx.Client(base_url=address) as client:
        model = client.get("/v1/model").json()["model"]
        assert (model["task"], model["verb"]) == ("needle", "find")
        assert model["capabilities"] == ["predict", "find", "stream", "explanations"]
        for path in ("find", "predict"):
            answer = client.post(f"/v1/{path}", json={"inputs": ["abcdefgh3jkl", "7bcdefghijkl"]}).json()
            assert [one["text"] for one in answer["predictions"]] == ["3", "7"]
        stored = client.post("/v1/explanations", json={"input": "abcdefgh3jkl"}).json()
        assert (stored["prediction"]["label"], stored["maps"][0]["name"]) == ("3", "pooling")
        weights = client.get(f"/v1/explanations/{stored['id']}/maps/pooling/heads/mean")
        assert weights.headers["x-shape"] == "1,12"
        values = torch.frombuffer(bytearray(weights.content), dtype=torch.uint16).float()
        assert int(values.argmax()) == 8
        assert_refused(client.post("/v1/translate", json={"inputs": ["a"]}), 404, "unsupported", "find")
