"""Requests made from the API's own description, right and wrong ones: every answer is one that it describes."""

from collections import Counter

import hypothesis
import pytest
import schemathesis

from tests.fuzz.conftest import FULL, tries
from tests.serving.servers import tiny_captioner, tiny_classifier, tiny_translator

# schemathesis itself now and then asks Python's chance and not hypothesis's
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
HOST = "testserver"  # the name by which schemathesis calls an application
MODES = {"right": schemathesis.GenerationMode.POSITIVE, "wrong": schemathesis.GenerationMode.NEGATIVE}
EACH = tries(6, 330)  # requests of a mode to each operation; 31 kinds of them are 10,000 requests
# A text may be right by its form and still too long, empty or no image: the description says so in words.
CHECKS = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "404", "413", "422"]},
    "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "413", "422"]},
}


def described(model, *paths):
    """The operations of an application, as it describes them."""
    from regard.serving import application
    from regard.serving._limits import Limits

    limits = Limits(body=50_000, characters=300, texts=4, beam=4, points=8, pixels=10_000, pause=0.0)
    app = application(model, host=HOST, limits=limits)
    config = schemathesis.Config.from_dict({"checks": CHECKS})
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app, config=config)
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if not paths or operation.path in paths]


def asked(operation, mode):
    """Ask many times; how often which status was answered."""
    statuses = Counter()

    @hypothesis.settings(
        max_examples=EACH,
        deadline=None,
        database=None,
        derandomize=EACH < 100,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate,) if EACH < 100 else tuple(hypothesis.Phase),
    )
    @hypothesis.given(operation.as_strategy(generation_mode=MODES[mode]))
    def ask(case):
        answer = case.call_and_validate(timeout=20)
        statuses[answer.status_code] += 1
        assert "Traceback" not in answer.text
        if answer.status_code >= 400:
            told = answer.json()["error"]
            assert set(told) == {"code", "message"}
            assert told["message"].endswith(".")

    try:
        ask()
    except hypothesis.errors.Unsatisfiable:
        assert mode == "wrong"  # nothing can be wrong with a request that has no parts
    return statuses


@pytest.mark.parametrize("mode", MODES)
def test_a_translator(mode):
    found = {}
    for operation in described(tiny_translator(max_length=20)):
        found[operation.label] = asked(operation, mode)
    if mode == "right":
        assert found["GET /v1/health"][200]
    if mode == "right" and FULL:  # a few tries may all be refused in words
        assert found["POST /v1/translate"][200]
        assert found["POST /v1/translate/stream"][200]
        assert found["POST /v1/attend"][200]


@pytest.mark.parametrize("mode", MODES)
def test_a_classifier(mode):
    (operation,) = described(tiny_classifier(), "/v1/classify")
    assert asked(operation, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_captioner(mode):
    (operation,) = described(tiny_captioner(), "/v1/caption")
    assert asked(operation, mode)
