"""`regard translate`."""

import gzip
import json
import lzma
import os
import random
import subprocess
from dataclasses import replace

import pytest

from tests.cli.calls import ENVIRONMENT, PYTHON, assert_refused, call


def test_texts_are_translated_in_order(backwards):
    answer = call("translate", backwards, "abc", "xyz")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "cba\nzyx\n"
    assert answer.stderr == ""


def test_a_pipe_is_translated_at_once_and_in_order(backwards):
    """More lines than a block holds, of all lengths, some empty, the last without a line end."""
    rng = random.Random(0)
    lines = ["".join(rng.choices("abcdefgh", k=rng.randrange(5))) for _ in range(1400)]
    process = subprocess.Popen(
        [*PYTHON, "translate", str(backwards)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT},
    )
    try:
        process.stdin.write(b"wxyz\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"zyxw\n", "the first answer came before the second question"
        out, err = process.communicate("\n".join([*lines, "abc"]).encode(), timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, b"")
    *result, last, rest = out.decode().split("\n")
    assert (last, rest) == ("cba", "")
    assert all((line == "") == (there == "") for line, there in zip(lines, result, strict=True))
    right = sum(line[::-1] == there for line, there in zip(lines, result, strict=True))
    assert right > 1300


def test_windows_line_ends_and_byte_order_marks(backwards):
    answer = call("translate", backwards, stdin=b"\xef\xbb\xbfabc\r\n\r\nxyz\r\n")
    assert answer.stdout == "cba\n\nzyx\n"


def test_empty_standard_input(backwards):
    assert call("translate", backwards, stdin=b"").stdout == ""


def test_a_wrong_encoding_names_its_line(backwards):
    answer = call("translate", backwards, stdin=b"abc\nd\xff\n")
    assert answer.returncode == 2
    assert "standard input, line 2: byte 2 is not UTF-8" in answer.stderr


@pytest.mark.parametrize(("suffix", "pack"), [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_plain_and_compressed_files(backwards, tmp_path, suffix, pack):
    file, out = tmp_path / f"in.txt{suffix}", tmp_path / "out.txt"
    with pack(file, "wt", encoding="utf-8") as stream:
        stream.write("abc\n\nxyz\n")
    answer = call("translate", backwards, "--file", file, "--out", out)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == ""
    assert out.read_text(encoding="utf-8") == "cba\n\nzyx\n"


def test_a_line_that_is_too_long_is_refused_before_any_output(backwards, tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("abc\nabcdef\n", encoding="utf-8")
    assert_refused(
        call("translate", backwards, "--file", file), f"{file}, line 2: the text has 6 tokens, but this model takes 4"
    )


def test_a_line_that_is_too_long_is_truncated_on_request(backwards):
    answer = call("translate", backwards, "--too-long", "truncate", stdin=b"abc\nwxyzzz\n")
    assert answer.stdout == "cba\nzyxw\n"
    assert answer.stderr == "standard input, line 2 was cut after 4 of 6 characters\n"


def test_num_best_prints_scores(backwards):
    rows = [line.split("\t") for line in call("translate", backwards, "abc", "xy", "--num-best", 3).stdout.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    assert [rows[0][2], rows[3][2]] == ["cba", "yx"]
    scores = [float(row[1]) for row in rows]
    assert scores[0] == max(scores[:3])
    assert_refused(call("translate", backwards, "abc", "--num-best", 3, "--beam-size", 2), "increase beam_size")


def test_json(backwards):
    answer = call("translate", backwards, "--json", "--num-best", 2, "--align", stdin=b"abc\n\n")
    first, empty = json.loads(answer.stdout)["predictions"]
    assert (first["input"], first["text"]) == ({"text": "abc"}, "cba")
    assert first["tokens"] == ["c", "b", "a"]
    assert first["log_prob"] == pytest.approx(sum(first["token_log_probs"]))
    assert [len(one["text"]) > 0 and one["score"] < first["score"] for one in first["alternatives"]] == [True]
    assert first["alignment"]["source_words"] == ["a", "b", "c"]
    assert first["alignment"]["target_words"] == ["c", "b", "a"]
    assert [len(first["alignment"]["word_weights"][0][0]), first["alignment"]["shape"]] == [3, [1, 1, 4, 4]]
    assert empty == {"input": {"text": ""}, "text": ""}


@pytest.mark.parametrize("way", [["--beam-size", 1], ["--beam-size", 3], ["--sample", "--seed", 1], ["--trace"]])
def test_every_decoding_method_returns_word_alignments(backwards, way):
    answer = call("translate", backwards, "abc", "--align", "--json", *way)
    (result,) = json.loads(answer.stdout)["predictions"]
    words = result["alignment"]
    assert words["target_words"] == result["tokens"]
    assert len(words["word_weights"][0][0]) == len(words["target_words"])
    assert all(len(row) == 3 for row in words["word_weights"][0][0])


def test_an_alignment_is_printed(backwards):
    lines = call("translate", backwards, "abcd", "--align").stdout.splitlines()
    assert lines[0] == "dcba"
    assert lines[1].split() == list("abcd"), "the source stands above its columns"
    assert [line.split(" │")[0] for line in lines[2:6]] == list("dcba")
    darkest = [line.index("█") for line in lines[2:6] if "█" in line]
    assert darkest == sorted(darkest, reverse=True), "it reads from behind"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--layer", 1], "no layer 1: this model has 1, counted from 0"),
        (["--head", 1, "--json"], "no head 1: this model has 1, counted from 0"),
        (["--head", -1], "invalid value '-1' for head: must be at least 0"),
    ],
)
def test_an_unknown_layer_is_refused_before_any_output(backwards, words, sentence):
    assert_refused(call("translate", backwards, "--align", *words, stdin=b"\nabcd\n"), sentence)


def test_sampling_with_a_seed_is_reproducible(backwards):
    draw = ["--sample", "--temperature", 5.0, "--num-best", 5]
    first, again, other = (
        call("translate", backwards, *draw, "--seed", seed, stdin=b"abc\nxyz\n").stdout for seed in (1, 1, 2)
    )
    assert first == again != other
    safe = call("translate", backwards, "abc", "--sample", "--top-k", 1)
    assert safe.stdout == "cba\n"


def test_the_search_is_returned(backwards):
    answer = call("translate", backwards, "abc", "xy", "--beam-size", 3, "--trace", "--json")
    first, second = json.loads(answer.stdout)["predictions"]
    assert (first["text"], second["text"]) == ("cba", "yx")
    assert {candidate["parent"] for candidate in first["search"][0]} == {-1}
    assert "c" in {candidate["text"] for candidate in first["search"][0]}


def test_streaming(backwards):
    assert call("translate", backwards, "abc", "xy", "--stream").stdout == "cba\nyx\n"
    assert_refused(call("translate", backwards, "abc", "--stream", "--json"), "cannot be combined with --json")


def test_unknown_tokens_are_replaced_on_request(backwards):
    """A model that writes <unk> is hard to come by, so its hypothesis is changed."""
    from regard.data import UNK_ID
    from regard.tasks import load
    from regard.tasks.translation.config import TranslateOptions

    translator = load(backwards)
    (best,) = translator.search(["aßc"], translator.decoding_config())
    ids = list(best[0].token_ids)
    ids[1] = UNK_ID
    wrong = [[replace(best[0], token_ids=ids)]]
    (result,) = translator.make_predictions(["aßc"], wrong, TranslateOptions(replace_unknown=True))
    assert result.text[1] in "aßc"
    assert "<unk>" in translator.make_predictions(["aßc"], wrong, TranslateOptions())[0].text
    assert call("translate", backwards, "abc", "--replace-unknown").stdout == "cba\n"


def test_help_lists_the_options_of_the_run(backwards):
    output = " ".join(call("translate", backwards, "--help").stdout.split())
    for words in (
        "--beam-size INTEGER beam size; 1 is greedy search [at least 1; at most 1,000]",
        "--align / --no-align",
        "--top-p NUMBER",
        "--too-long",
    ):
        assert words in output
    assert_refused(call("translate", backwards, "abc", "--beam-siz", 3), "--beam-size")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["abc", "--file", "in.txt"], "--file cannot be combined with INPUT"),
        (["abc", "--seed", "1"], "invalid value '1' for seed: needs sample=on"),
        (["abc", "--sample", "--beam-size", "3"], "for beam_size: sample=on does not search"),
        (["abc", "--coverage-penalty", "0.2"], "for coverage_penalty: needs beam_size=2 or more"),
        (["abc", "--beam-size", "0"], "invalid value '0' for beam_size: must be at least 1"),
        (["abc", "--num-best", "0"], "invalid value '0' for num_best: must be at least 1"),
        (["abc", "--length-penalty", "-1"], "for length_penalty: must be at least 0"),
        (["abc", "--coverage-penalty", "-1"], "for coverage_penalty: must be at least 0"),
        (["abc", "--sample", "--temperature", "0"], "for temperature: must be at least 0.001"),
        (["abc", "--sample", "--top-k", "-1"], "for top_k: must be at least 0"),
        (["abc", "--sample", "--top-p", "2"], "for top_p: must be at most 1"),
        (["abc", "--device", "gpu"], "no device 'gpu'; did you mean cpu"),
        (["--file", "nowhere.txt"], "There is no file nowhere.txt"),
        (["abc", "--out", "no/such/folder/x"], "no/such/folder/x: no such file or directory"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(backwards, arguments, words):
    assert_refused(call("translate", backwards, *arguments), words)


def test_a_folder_without_a_run(tmp_path):
    assert_refused(call("translate", tmp_path, "abc"), f"no run in {tmp_path}")
