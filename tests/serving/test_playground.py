"""The playground computes with the library, whatever is chosen."""

import pytest
import torch

from regard import attention
from regard.attention import attend
from tests.serving.servers import assert_refused

QUERIES = [[0.5, -1.0], [2.0, 0.25]]
KEYS = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.3, 0.3]]


def post_attend(playground, **more):
    return playground.post("/v1/attend", json={"queries": QUERIES, "keys": KEYS, **more})


def test_attend_computes_with_the_library(playground):
    choices = {
        "score": {"name": "Cosine", "arguments": {"strength": 3.0}},
        "normalize": {"name": "sparsemax"},
        "mask": {"name": "causal"},
    }
    result = post_attend(playground, **choices, values=[[1.0], [2.0], [3.0], [4.0]]).json()
    query, key = torch.tensor(QUERIES, dtype=torch.float64), torch.tensor(KEYS, dtype=torch.float64)
    value = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
    expected = attend(
        query, key, value, attention.causal(), score=attention.Cosine(strength=3.0), normalize=attention.sparsemax
    )
    assert torch.allclose(torch.tensor(result["weights"], dtype=torch.float64), expected.weights)
    assert torch.allclose(torch.tensor(result["context"], dtype=torch.float64), expected.context)
    assert result["scores"][0][3] is None  # hidden: JSON has no minus infinity
    assert result["code"] == "attend(query, key, value, causal(), score=Cosine(strength=3.0), normalize=sparsemax)"


def test_without_values_the_keys_are_the_values(playground):
    result = post_attend(playground, score={"name": "Constant"}).json()
    mean = torch.tensor(KEYS).mean(0).tolist()
    assert result["context"][1] == pytest.approx(mean)


def test_hidden_keys(playground):
    result = post_attend(playground, hidden_keys=[0, 2], mask={"name": "padding", "arguments": {"length": 3}}).json()
    assert result["weights"] == [[0.0, 1.0, 0.0, 0.0]] * 2
    assert "padding(3) & dense(visible)" in result["code"]
    result = post_attend(playground, hidden_keys=[0, 1, 2, 3]).json()
    assert result["weights"] == [[0.0] * 4] * 2  # a query without visible keys
    assert result["context"] == [[0.0, 0.0]] * 2


def test_every_mechanism_of_the_catalogue_computes(playground):
    catalogue = playground.get("/v1/catalogue").json()
    assert {kind: len(parts) > 3 for kind, parts in catalogue.items()} == {
        "score": True,
        "normalizer": True,
        "mask": True,
    }
    for score in catalogue["score"]:
        fitting = next(part for part in catalogue["normalizer"] if part["input_kind"] == score["output_kind"])
        result = post_attend(playground, score={"name": score["name"]}, normalize={"name": fitting["name"]})
        assert result.status_code == 200, result.text
    for normalizer in catalogue["normalizer"]:
        score = next(part for part in catalogue["score"] if part["output_kind"] == normalizer["input_kind"])
        assert (
            post_attend(playground, score={"name": score["name"]}, normalize={"name": normalizer["name"]}).status_code
            == 200
        )
    for mask in catalogue["mask"]:
        assert post_attend(playground, mask={"name": mask["name"]}).status_code == 200
    for part in (part for parts in catalogue.values() for part in parts):
        assert part["summary"]["en"].endswith(".")
        assert part["summary"]["zh"].endswith("。")
        for one in part["arguments"]:
            assert one["min"] <= one["default"] <= one["max"]


def test_a_seed_gives_the_same_weights_again(playground):
    def additive(seed):
        return post_attend(playground, score={"name": "Additive", "arguments": {"seed": seed}}).json()["weights"]

    first, other = additive(1), additive(2)
    assert first == additive(1)
    assert first != other


def test_the_code_computes_the_same(playground):
    choices = {
        "score": {"name": "Gaussian", "arguments": {"width": 0.7}},
        "normalize": {"name": "Entmax", "arguments": {"alpha": 1.5}},
        "mask": {"name": "window"},
    }
    result = post_attend(playground, **choices).json()
    query, key = torch.tensor(QUERIES, dtype=torch.float64), torch.tensor(KEYS, dtype=torch.float64)
    names = {name: getattr(attention, name) for name in ("attend", "Gaussian", "Entmax", "window")}
    expected = eval(result["code"], {**names, "query": query, "key": key, "value": key})
    assert torch.allclose(torch.tensor(result["weights"], dtype=torch.float64), expected.weights)


@pytest.mark.parametrize(
    ("more", "status", "code", "words"),
    [
        ({"score": {"name": "Boxcar"}, "normalize": {"name": "softmax"}}, 422, "usage", "kernel"),
        ({"score": {"name": "os.system"}}, 422, "unknown_name", "ScaledDot"),
        ({"score": {"name": "__class__"}}, 422, "unknown_name", "ScaledDot"),
        ({"score": {"name": "Cosine", "arguments": {"power": 3}}}, 422, "unknown_name", "strength"),
        ({"score": {"name": "Dot", "arguments": {"power": 3}}}, 422, "unknown_name", "argument of Dot"),
        ({"score": {"name": "Cosine", "arguments": {"strength": 300}}}, 422, "invalid_input", "from 0 to 20"),
        ({"normalize": {"name": "TopK", "arguments": {"k": 1.5}}}, 422, "invalid_input", "integer"),
        ({"keys": []}, 422, "invalid_request", "keys"),
        ({"keys": [[1.0, 2.0], [1.0]]}, 422, "shape_mismatch", "same number"),
        ({"keys": [[1.0]]}, 422, "shape_mismatch", ""),
        ({"keys": [[1e300, 0]]}, 422, "invalid_request", "keys.0.0"),
        ({"values": [[1.0]]}, 422, "shape_mismatch", ""),
        ({"hidden_keys": [4]}, 422, "invalid_input", "from 0 to 3"),
        ({"hidden_keys": [-1]}, 422, "invalid_input", "from 0 to 3"),
        ({"keys": [[0.0, 0.0]] * 65}, 413, "too_many_points", "at most 64"),
    ],
)
def test_invalid_requests_are_refused_in_a_sentence(playground, more, status, code, words):
    answer = post_attend(playground, **more)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code
    assert words in answer.json()["error"]["message"]
    assert answer.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar", "epanechnikov"])
def test_regression_is_the_nadaraya_watson_estimator(playground, kernel):
    result = playground.get("/v1/regression", params={"kernel": kernel, "width": 3, "at": 17.3}).json()
    assert len(result["x"]) == len(result["y"]) == len(result["weights"]) == 133
    u = [abs(17.3 - x) / 3 for x in result["x"]]
    value = {
        "gaussian": lambda u: torch.tensor(-(u**2) / 2, dtype=torch.float64).exp().item(),
        "boxcar": lambda u: float(u <= 1),
        "epanechnikov": lambda u: max(0.0, 1 - u**2),
    }[kernel]
    kernels = [value(one) for one in u]
    assert result["weights"] == pytest.approx([one / sum(kernels) for one in kernels], abs=1e-9)
    assert result["prediction"] == pytest.approx(
        sum(k * y for k, y in zip(kernels, result["y"], strict=True)) / sum(kernels)
    )


def test_the_curve_has_gaps_without_measurements(playground):
    result = playground.get("/v1/regression", params={"kernel": "boxcar", "width": 0.1, "at": 5}).json()
    assert result["prediction"] is None
    assert None in result["curve"]
    assert result["num_isolated"] > 0
    assert_refused(playground.get("/v1/regression", params={"kernel": "tent"}), 422, "invalid_request", "kernel")
    assert_refused(playground.get("/v1/regression", params={"width": "nan"}), 422, "invalid_request", "width")
