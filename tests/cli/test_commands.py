"""The terminal front end as a user meets it: a process, its two streams and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app import paths
from tests.support.models import Models

ENDLESS = "Count from one to one hundred in words, separated by commas."
QUESTION = "Name three colours."
SHORT = ("--max-tokens", "12", "--temperature", "0", "--threads", "1")


def slipstream(*arguments: str | Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def answer_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    """What stands on standard error, which must be short and for people."""
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("slipstream: ")
    assert lines[0].endswith(".")
    return lines[0]


def check_counters(answer: dict[str, Any]) -> None:
    """The invariants of DESIGN, section 2, from the outside."""
    counted, tokens = answer["speculation"], answer["tokens"]
    sources = [token["source"] for token in tokens]
    assert set(sources) <= {"draft", "recovered", "bonus", "plain"}
    assert counted["drafted"] == counted["accepted"] + counted["rejected"] + counted["discarded"]
    assert counted["accepted"] == sources.count("draft")
    assert counted["drafted"] == sum(int(length) * n for length, n in counted["draft_lengths"].items())
    assert counted["rounds"] == sum(counted["draft_lengths"].values())
    assert len(tokens) == answer["answer_tokens"]
    assert "".join(token["text"] for token in tokens) == answer["text"]
    tested = counted["drafted"] - counted["discarded"]
    assert counted["draft_acceptance_rate"] == (pytest.approx(counted["accepted"] / tested) if tested else None)


@pytest.mark.slow
def test_a_deep_pair_reports_what_its_draft_did(models: Models) -> None:
    result = slipstream(
        "ask", "--json", "--target", models.path("deep-q8"), "--draft", models.path("smol-q4"),
        "--max-tokens", "32", "--temperature", "0", "--threads", "1", "--draft-length", "3", "Why is the sky blue?",
    )  # fmt: skip
    answer = answer_of(result)
    check_counters(answer)
    assert answer["speculation"]["accepted"] > 0
    assert answer["drafter"] == "chained"
    assert answer["target"]["layers"] == 150
    assert answer["draft"]["layers"] == 30
    assert answer["stop_reason"] == "max_tokens"
    assert set(answer["timing"]) == {
        "load_s", "prefill_s", "first_token_s", "decode_s", "draft_s", "verify_s", "sample_s", "tokens_per_s",
    }  # fmt: skip


@pytest.mark.parametrize(("draft", "drafter"), [("lookup", "lookup"), ("none", "none"), ("smol-q4", "chained")])
def test_every_drafter_gives_the_same_greedy_answer(models: Models, draft: str, drafter: str) -> None:
    pair = ("--target", models.path("smol-q8"), "--draft", models.path(draft) if drafter == "chained" else draft)
    answer = answer_of(slipstream("ask", "--json", *pair, *SHORT, QUESTION))
    check_counters(answer)
    assert answer["drafter"] == drafter
    assert (answer["draft"] is None) == (drafter != "chained")
    plain = answer_of(slipstream("ask", "--json", "--target", pair[1], "--draft", "none", *SHORT, QUESTION))
    assert answer["text"] == plain["text"]
    assert plain["speculation"]["draft_acceptance_rate"] is None


def test_without_a_target_the_starter_answers_a_pipe() -> None:
    result = slipstream("ask", *SHORT, stdin="Say hello.\n")
    assert result.returncode == 0
    assert result.stdout.strip()
    assert "\x1b" not in result.stdout + result.stderr
    assert "12 tokens" in result.stderr


@pytest.mark.parametrize(("way", "drafter"), [("model", "model"), ("auto", "chained"), ("lookup", "lookup")])
def test_the_pair_chosen_last_is_used(models: Models, home: Path, way: str, drafter: str) -> None:
    settings = paths.settings_file()
    settings.parent.mkdir(parents=True)
    chosen = {"target": str(models.path("smol-q8")), "draft": str(models.path("smol-q4")), "drafter": way}
    settings.write_text(json.dumps(chosen))
    answer = answer_of(slipstream("ask", "--json", *SHORT, "Hello"))
    assert answer["target"]["file"] == chosen["target"]
    assert answer["drafter"] == drafter
    if way == "lookup":
        assert answer["draft"] is None
    else:
        assert answer["draft"]["file"] == chosen["draft"]


def test_what_an_answer_taught_helps_the_next_one(models: Models, home: Path) -> None:
    pair = ("--target", models.path("smol-q8"), "--draft", models.path("smol-q4"))
    answer_of(slipstream("ask", "--json", *pair, *SHORT, QUESTION))
    kept = list(paths.experience_folder().iterdir())
    assert len(kept) == 1
    before = kept[0].read_bytes()
    answer_of(slipstream("ask", "--json", *pair, *SHORT, QUESTION))
    assert [kept[0]] == list(paths.experience_folder().iterdir())
    assert kept[0].read_bytes() != before  # the second answer went on from the first


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("broken-truncated", "damaged"),
        ("broken-text", "not a GGUF file"),
        ("broken-mmproj", "projector"),
        ("broken-version", "version 99"),
        ("embedding-model", "embedding model"),
    ],
)
def test_a_file_that_is_no_model_ends_with_3(models: Models, name: str, named: str) -> None:
    result = slipstream("ask", "--target", models.path(name), "Hello")
    assert result.returncode == 3
    assert named in one_sentence(result)
    assert result.stdout == ""


@pytest.mark.parametrize(("name", "named"), [("broken-text", "not a GGUF"), ("broken-truncated", "damaged")])
def test_a_draft_that_cannot_serve_ends_with_3(models: Models, name: str, named: str) -> None:
    result = slipstream("ask", "--target", models.path("smol-q8"), "--draft", models.path(name), "Hello")
    assert result.returncode == 3
    assert named in one_sentence(result)


def test_files_that_are_not_there_end_with_3(tmp_path: Path) -> None:
    assert slipstream("ask", "--target", tmp_path / "no.gguf", "Hello").returncode == 3
    result = slipstream("ask", "--draft", tmp_path / "no.gguf", "Hello")
    assert result.returncode == 3
    assert "no.gguf" in one_sentence(result)


def test_a_prompt_longer_than_the_context_ends_with_3(models: Models) -> None:
    result = slipstream("ask", "--target", models.path("smol-q8"), "--context", "512", stdin="word " * 2000)
    assert result.returncode == 3
    assert "512" in one_sentence(result)


def test_a_template_that_raises_is_said_and_answered(models: Models) -> None:
    result = slipstream("ask", "--target", models.path("broken-template"), *SHORT, "Hello")
    assert result.returncode == 0
    assert result.stdout.strip()
    assert "template" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "--draft-length", "99", "Hello"],
        ["ask", "--gpu-layers", "some", "Hello"],
        ["ask", "--top-k", "-1", "Hello"],
        ["ask", "--verify", "never", "Hello"],
        ["ask", "--temperature", "-1", "Hello"],
        ["ask", ""],
        ["fly"],
    ],
    ids=" ".join,
)
def test_bad_usage_ends_with_2(arguments: Sequence[str]) -> None:
    result = slipstream(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_engine_that_dies_ends_with_4(models: Models) -> None:
    process = _ask_for_much(models)
    worker = _worker_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "memory" in err
    assert "Traceback" not in err
    assert out  # what was written stays


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_ends_with_130_and_leaves_no_worker(models: Models) -> None:
    process = _ask_for_much(models)
    worker = _worker_of(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def _ask_for_much(models: Models) -> subprocess.Popen[str]:
    """A running `ask` that has begun to write."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "app",
            "ask",
            "--target",
            str(models.path("smol-q8")),
            ENDLESS,
            "--temperature",
            "0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    return process


def _worker_of(pid: int) -> int:
    import psutil  # noqa: PLC0415

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children():
            if "--engine-worker" in child.cmdline():
                return int(child.pid)
        time.sleep(0.05)
    raise AssertionError("no worker")


def test_a_reader_that_leaves_early_is_no_error(models: Models) -> None:
    command = f"{sys.executable} -m app ask --max-tokens 40 'Tell a story' | head -c 5; echo ' '${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in result.stderr
    assert result.stdout.split()[-1] in ("0", "141")


def test_without_a_display_one_line_names_the_way_out() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    result = subprocess.run(
        [sys.executable, "-m", "app"], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "slipstream ask" in result.stderr


def test_the_doctor_knows_this_machine() -> None:
    report = answer_of(slipstream("doctor", "--json"))
    assert report["engine"]["works"]
    assert any(device["type"] == "cpu" for device in report["engine"]["devices"])
    assert report["engine"]["starter_tokens_per_s"] > 0
    assert report["versions"]["llama-cpp-python"]
    assert report["memory"]["total"] > report["memory"]["free"] > 0
    assert report["processor"]["features"]
    assert report["starter_model"]["size"] > 50_000_000


def test_the_doctor_names_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    result = slipstream("doctor", SLIPSTREAM_HOME=str(blocked / "home"))
    assert "Traceback" not in result.stderr
    assert "Problem:" in result.stdout
