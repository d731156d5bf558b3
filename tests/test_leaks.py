"""The check that fails a test for what it leaves running finds each kind, and nothing that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import leaks
from tests.support.leaks import LeakWatch

SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeakWatch]:
    monkeypatch.setattr(leaks, "GRACE", 0.3)
    with pytest.MonkeyPatch.context() as patch:
        yield LeakWatch(patch)


def test_a_thread_that_goes_on_is_a_leak_until_it_ends(watch: LeakWatch) -> None:
    before = watch.running()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert watch.left_behind(before) == {thread}
    end.set()
    thread.join()
    assert watch.left_behind(before) == set()


def test_daemon_threads_may_go_on(watch: LeakWatch) -> None:
    before = watch.running()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    assert watch.left_behind(before) == set()
    end.set()
    thread.join()


def test_a_child_process_is_a_leak_and_is_ended(watch: LeakWatch) -> None:
    before = watch.running()
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as child:
        assert watch.left_behind(before) == {child}
        assert str(child.pid) in leaks.describe(child)
        leaks.stop(child)
        assert watch.left_behind(before) == set()


def test_what_ran_before_is_not_blamed(watch: LeakWatch) -> None:
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as child:
        assert watch.left_behind(watch.running()) == set()
        child.kill()


LEAKING = {
    "thread": "threading.Thread(target=END.wait).start()",
    "child process": f"globals()['child'] = subprocess.Popen({SLEEP!r}, stdin=subprocess.PIPE)",
}


@pytest.mark.parametrize("leak", LEAKING)
def test_a_leaking_test_fails_and_the_next_does_not(tmp_path: Path, leak: str) -> None:
    """The whole way: pytest with our conftest over a file that leaks."""
    test = tmp_path / "test_leaking.py"
    test.write_text(
        "import subprocess, threading\n"
        "END = threading.Event()\n"
        f"def test_leaking():\n    {LEAKING[leak]}\n"
        "def test_next():\n    END.set()\n"
    )
    plugins = ["-p", "no:cacheprovider", "-p", "no:pytest-qt", "-p", "tests.conftest"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", tmp_path, "-c", os.devnull, test],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "left running: " in run.stdout
    assert leak in run.stdout.lower()
    assert "2 passed, 1 error" in run.stdout
