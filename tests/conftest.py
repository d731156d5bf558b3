"""What every test gets: folders of its own, models on demand, and a check that it leaves nothing running.

With SLIPSTREAM_WITHOUT_QT set, PySide6 cannot be imported and `tests/ui` is left out: the proof that what is below it
stands without Qt. Run it as `SLIPSTREAM_WITHOUT_QT=1 pytest -p no:pytest-qt`.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

# Both are read when a library is loaded, so they are set before the imports below.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two OpenMP pools on busy cores collapse

import pytest

from tests.support import leaks
from tests.support.models import Models, cache_folder

WITHOUT_QT = bool(os.environ.get("SLIPSTREAM_WITHOUT_QT"))
collect_ignore = ["ui"] if WITHOUT_QT else []
_failed = pytest.StashKey[bool]()


class _HiddenQt(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] in ("PySide6", "shiboken6"):
            raise ModuleNotFoundError(f"{fullname} is hidden in this run", name=fullname)


if WITHOUT_QT:
    sys.meta_path.insert(0, _HiddenQt())


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.hasplugin("pytest-qt"):
        for option in ("qt_api", "qt_log_level_fail", "qt_log_ignore"):
            parser.addini(option, "of pytest-qt, which is off in this run")


def pytest_configure(config: pytest.Config) -> None:
    if WITHOUT_QT and config.pluginmanager.hasplugin("pytest-qt"):
        raise pytest.UsageError("pytest-qt imports PySide6: with SLIPSTREAM_WITHOUT_QT, run `pytest -p no:pytest-qt`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def _session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures that outlive a test start before its own folders are set; the user's are out of reach for them too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for all of the application's folders in this test."""
    folder = tmp_path / "slipstream-home"
    monkeypatch.setenv("SLIPSTREAM_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def models() -> Models:
    """Model files by name, made on demand in a cache outside the tree: `models.path("smol-q4")`."""
    return Models(cache_folder())


@pytest.fixture(scope="session")
def _leak_watch() -> Iterator[leaks.LeakWatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield leaks.LeakWatch(patch)


@pytest.fixture(autouse=True)
def _leaves_nothing_running(request: pytest.FixtureRequest, _leak_watch: leaks.LeakWatch) -> Iterator[None]:
    before = _leak_watch.running()  # what belongs to fixtures of a wider scope
    yield
    if request.node.stash.get(_failed, False):
        return  # the traceback holds on to everything the test had
    left = _leak_watch.left_behind(before)
    for leak in left:
        leaks.stop(leak)
    if left:
        pytest.fail("left running: " + "; ".join(leaks.describe(leak) for leak in left), pytrace=False)
