"""What was learned of a pair comes back for this pair, loaded this way, and for nothing else."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.chat import ModelPair
from app.storage import experiences
from app.storage.experiences import ExperienceStore

LEARNED: dict[str, Any] = {"version": 1, "target": {"unit_s": 0.026}, "acceptance": {"model rejection 0.7": [1, 2]}}


@dataclass(frozen=True)
class Setup:
    threads: int | None = None
    gpu_layers: int | None = None


@pytest.fixture
def pair(tmp_path: Path) -> ModelPair:
    files = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    for file in files:
        file.write_bytes(b"GGUF")
    return ModelPair(*files)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "experience"


@pytest.fixture
def store(folder: Path) -> ExperienceStore:
    return ExperienceStore(folder)


def test_nothing_is_known_at_first_and_what_is_saved_comes_back(
    store: ExperienceStore, folder: Path, pair: ModelPair
) -> None:
    assert store.load(pair, Setup()) is None
    assert not folder.exists()
    store.save(pair, Setup(), LEARNED)
    store.save(pair, Setup(), LEARNED | {"probing": 0.01})
    assert ExperienceStore(folder).load(pair, Setup()) == LEARNED | {"probing": 0.01}
    assert len(list(folder.iterdir())) == 1, "one file a pair, and no temporary one"


def test_it_belongs_to_the_pair_and_to_how_it_is_loaded(store: ExperienceStore, pair: ModelPair) -> None:
    store.save(pair, Setup(), LEARNED)
    assert store.load(ModelPair(pair.target), Setup()) is None
    assert store.load(ModelPair(pair.draft or Path(), pair.target), Setup()) is None
    assert store.load(pair, Setup(threads=4)) is None
    assert store.load(pair, Setup(gpu_layers=10)) is None
    assert store.load(pair, Setup()) == LEARNED


def test_a_file_that_was_replaced_is_another_model(store: ExperienceStore, pair: ModelPair) -> None:
    store.save(pair, Setup(), LEARNED)
    pair.target.write_bytes(b"GGUF, but longer")
    assert store.load(pair, Setup()) is None
    store.save(pair, Setup(), LEARNED)
    facts = pair.target.stat()
    os.utime(pair.target, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1_000_000_000))
    assert store.load(pair, Setup()) is None


def test_a_model_that_is_gone_is_neither_known_nor_kept(store: ExperienceStore, folder: Path, pair: ModelPair) -> None:
    pair.target.unlink()
    store.save(pair, Setup(), LEARNED)
    assert store.load(pair, Setup()) is None
    assert not folder.exists()


@pytest.mark.parametrize(
    "content", [b"", b'{"pair": ', b"[1]", b"\xff\xfe", b"{}", b'{"pair": null, "experience": {}}', b"[" * 100_000]
)
def test_a_damaged_or_foreign_file_is_ignored_and_replaced(
    store: ExperienceStore, folder: Path, pair: ModelPair, content: bytes
) -> None:
    store.save(pair, Setup(), LEARNED)
    (file,) = folder.iterdir()
    file.write_bytes(content)
    assert store.load(pair, Setup()) is None
    store.save(pair, Setup(), LEARNED)
    assert store.load(pair, Setup()) == LEARNED


def test_an_experience_that_is_no_object_is_ignored(store: ExperienceStore, folder: Path, pair: ModelPair) -> None:
    store.save(pair, Setup(), LEARNED)
    (file,) = folder.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"experience": [1, 2]}))
    assert store.load(pair, Setup()) is None


def test_a_full_disk_costs_only_the_experience(
    store: ExperienceStore, folder: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(pair, Setup(), LEARNED)

    def fail(_source: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    store.save(pair, Setup(), {"version": 2})
    assert store.load(pair, Setup()) == LEARNED
    assert len(list(folder.iterdir())) == 1


def test_only_the_newest_are_kept(
    store: ExperienceStore, folder: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiences, "MOST_KEPT", 3)
    for threads in range(1, 7):
        store.save(pair, Setup(threads), LEARNED | {"threads": threads})
        newest = max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, ns=(threads * 10**9, threads * 10**9))  # file systems with coarse clocks
    store.save(pair, Setup(9), LEARNED)
    kept = [threads for threads in (*range(1, 7), 9) if store.load(pair, Setup(threads))]
    assert kept == [5, 6, 9]
