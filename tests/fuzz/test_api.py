"""Valid and invalid requests generated from the OpenAPI schema: every response is one that the schema describes."""

from collections import Counter

import hypothesis
import pytest

from tests.fuzz.conftest import FULL, num_trials
from tests.serving.servers import tiny_classifier, tiny_image_classifier, tiny_translator

schemathesis = pytest.importorskip("schemathesis", reason="it needs Python 3.11")
# It sometimes uses Python's random numbers instead of those of hypothesis
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
HOST = "testserver"  # the host name that schemathesis uses for an application
MODES = {"valid": schemathesis.GenerationMode.POSITIVE, "invalid": schemathesis.GenerationMode.NEGATIVE}
NUM_REQUESTS = num_trials(6, 330)  # of a mode to each operation; 31 kinds of them are 10,000 requests
# A valid body may hold a text that is too long or empty, or no image; the schema says so in words only.
CHECKS = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "404", "413", "422"]},
    "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "413", "422"]},
}


def operations_of(model, *paths):
    """The operations of an application by its own schema."""
    from regard.serving import Limits, build_app

    limits = Limits(
        max_body_bytes=50_000,
        max_characters=300,
        max_inputs=4,
        max_candidates=4,
        max_points=8,
        max_pixels=10_000,
        batch_delay=0.0,
    )
    app = build_app(model, host=HOST, limits=limits)
    config = schemathesis.Config.from_dict({"checks": CHECKS})
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app, config=config)
    operations = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in operations if not paths or operation.path in paths]


def send_requests(operation, mode):
    """Send many requests; count the responses by status."""
    statuses = Counter()

    @hypothesis.settings(
        max_examples=NUM_REQUESTS,
        deadline=None,
        database=None,
        derandomize=NUM_REQUESTS < 100,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate,) if NUM_REQUESTS < 100 else tuple(hypothesis.Phase),
    )
    @hypothesis.given(operation.as_strategy(generation_mode=MODES[mode]))
    def send(case):
        response = case.call_and_validate(timeout=20)
        statuses[response.status_code] += 1
        assert "Traceback" not in response.text
        if response.status_code >= 400:
            error = response.json()["error"]
            assert {"code", "message"} <= set(error)
            assert error["message"].endswith(".")

    try:
        send()
    except hypothesis.errors.Unsatisfiable:
        assert mode == "invalid"  # a request without parts cannot be invalid
    return statuses


@pytest.mark.parametrize("mode", MODES)
def test_a_translator(mode):
    statuses = {
        operation.label: send_requests(operation, mode) for operation in operations_of(tiny_translator(max_length=20))
    }
    if mode == "valid":
        assert statuses["GET /v1/health"][200]
    if mode == "valid" and FULL:  # a few requests may all be refused
        for operation in ("POST /v1/translate", "POST /v1/predict/stream", "POST /v1/attend"):
            assert statuses[operation][200]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make_model", [tiny_classifier, tiny_image_classifier])
def test_a_classifier(make_model, mode):
    (operation,) = operations_of(make_model(), "/v1/classify")
    assert send_requests(operation, mode)
