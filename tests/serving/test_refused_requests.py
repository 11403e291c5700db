"""Requests that are refused: in the words of the command line, not in those of a library."""

import pytest


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "inputs: this field is missing."),
        ({"inputs": "abc"}, "inputs: expected a list."),
        ({"inputs": []}, "inputs: at least 1 is needed."),
        ({"inputs": [3]}, "inputs.0: expected a text."),
        ({"inputs": ["a"], "opts": 3}, "opts: there is no such field."),
        (["a"], "The request: expected an object."),
        ({"inputs": ["a"], "options": 3}, "options: expected an object."),
        ({"inputs": ["a"], "options": {"beam": 3}}, "no option 'beam'; did you mean beam_size?"),
        (
            {"inputs": ["a"], "options": {"beam_size": 5000}},
            "invalid value '5000' for beam_size: must be at most 1,000.",
        ),
        (
            {"inputs": ["a"], "options": {"beam_size": "x"}},
            "invalid value 'x' for beam_size: expected an integer or none.",
        ),
    ],
)
def test_answers_have_words_of_ours(client, body, message):
    response = client.post("/v1/predict", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["message"] == message
    for word in ("Input should", "Extra inputs", "Field required", "pydantic", "dictionary"):
        assert word not in response.text


def test_the_limit_of_candidates_names_both_limits(client):
    response = client.post("/v1/predict", json={"inputs": ["a"], "options": {"beam_size": 500}})
    assert response.status_code == 413
    message = response.json()["error"]["message"]
    assert message.startswith(
        "These options ask for 500 candidates of each input; at most 6 are computed by this server"
    )
    assert "regard predict" in message
