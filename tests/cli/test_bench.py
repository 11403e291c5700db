"""`regard bench`, called as a user calls it."""

import json

from tests.cli.calls import assert_refused, call


def test_bench_measures_every_batch(backwards, texts):
    answer = call(
        "bench",
        "translate",
        backwards,
        "--file",
        texts / "a.x.xz",
        "--batch",
        1,
        "--batch",
        0,
        "--beam-size",
        2,
        "--json",
    )
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert (result["run"], result["options"]["beam_size"]) == (str(backwards), 2)
    assert [(one["engine"], one["batch_size"], one["num_inputs"]) for one in result["speeds"]] == [
        ("torch", 1, 15),
        ("torch", 0, 15),
    ]
    for one in result["speeds"]:
        assert one["inputs_per_second"] > 0
        assert one["latency"]["p50"] <= one["latency"]["p95"] <= one["latency"]["p99"]


def test_bench_measures_the_test_split_and_prints_a_table(backwards):
    answer = call("bench", "translate", backwards, "--batch", 0, "--limit", 5)
    assert answer.returncode == 0, answer.stderr
    head, row = answer.stdout.splitlines()
    assert head.split() == ["engine", "batch", "inputs/s", "tokens/s", "p50", "p95", "p99", "memory"]
    assert row.split()[:2] == ["torch", "all"]
    assert "5 inputs" in answer.stderr


def test_bench_refuses_an_unknown_verb(backwards):
    assert_refused(call("bench", "training", backwards), "no benchmark 'training'; choose from translate")
