"""Settings survive restarts, other versions, damage and full disks."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from app.storage.settings import MAX_RECENT_FILES, Settings, SettingsStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.json"


def test_a_first_start_has_the_usual_settings_and_no_problem(file: Path) -> None:
    store = SettingsStore(file)
    assert store.load() == Settings()
    assert store.problem is None
    assert not file.exists()


def test_what_is_saved_is_loaded(file: Path) -> None:
    store = SettingsStore(file)
    store.settings = Settings(
        target="/models/größer.gguf",
        drafter="model",
        draft="/d.gguf",
        draft_length=4,
        temperature=0.0,
        seed=7,
        verify="coupled",
        order=["top_k", "temperature"],
        logit_bias=[(198, -5.0), (2, 1.5)],
        theme="dark",
        window=[-20, 10, 1360, 860],
        recent_files=["/d.gguf"],
        system_prompt="Answer\nbriefly.",
    )
    assert store.save()
    assert SettingsStore(file).load() == store.settings
    assert [path.name for path in file.parent.iterdir()] == [file.name], "no temporary file is left"


def test_keys_of_another_version_are_kept(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps({"zoom": 1.5, "from_the_future": {"a": [1]}}))
    store = SettingsStore(file)
    assert store.load().zoom == 1.5
    store.settings.zoom = 2.0
    store.save()
    assert json.loads(file.read_text()) | {"zoom": 2.0, "from_the_future": {"a": [1]}} == json.loads(file.read_text())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"zoom": 1.',
        b"[1, 2]",
        b'"text"',
        b"\xff\xfe{}",
        b'{"zoom": "large"}',
        b'{"zoom": 9}',
        b'{"theme": "pink"}',
        b'{"draft_length": 17}',
        b'{"window": [1, "2"]}',
        b'{"panel_visible": 1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_set_aside(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    store = SettingsStore(file)
    assert store.load() == Settings()
    assert store.problem is not None
    assert "settings.json.damaged" in store.problem
    assert file.with_name("settings.json.damaged").read_bytes() == content
    assert store.save()
    assert SettingsStore(file).load() == Settings()


def test_a_failed_save_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SettingsStore(file)
    store.save()
    before = file.read_bytes()

    def fail(_source: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    store.settings.zoom = 1.25
    assert not store.save()
    assert store.problem is not None
    assert "No space left" in store.problem
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_folder_in_the_place_of_the_file_does_not_stop_the_start(file: Path) -> None:
    file.mkdir(parents=True)
    store = SettingsStore(file)
    assert store.load() == Settings()
    assert store.problem is not None


def test_recent_files_are_newest_first_without_repetition() -> None:
    settings = Settings()
    for number in range(MAX_RECENT_FILES + 3):
        settings.remember_file(f"/m{number}.gguf")
    settings.remember_file("/m9.gguf")
    assert settings.recent_files[:2] == ["/m9.gguf", f"/m{MAX_RECENT_FILES + 2}.gguf"]
    assert len(settings.recent_files) == len(set(settings.recent_files)) == MAX_RECENT_FILES


def test_every_default_is_inside_its_own_table(file: Path) -> None:
    store = SettingsStore(file)
    store.save()
    assert set(json.loads(file.read_text())) == {"version", *(field.name for field in fields(Settings))}
    assert SettingsStore(file).load() == Settings()


FIRST_VERSION = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}


def test_a_file_of_the_first_version_keeps_what_was_chosen_and_only_that(file: Path) -> None:
    file.parent.mkdir()
    chosen = {"temperature": 0.2, "drafter": "model", "draft": "/d.gguf", "draft_length": 3, "seed": 11, "zoom": 1.25}
    file.write_text(json.dumps(FIRST_VERSION | chosen))
    store = SettingsStore(file)
    settings = store.load()
    assert settings == Settings(temperature=0.2, drafter="model", draft="/d.gguf", draft_length=3, seed=11, zoom=1.25)
    assert store.problem is None
    assert (settings.top_k, settings.top_p) == (None, None), "never chosen: the model may suggest them"


def test_a_usual_value_that_was_chosen_stays_chosen(file: Path) -> None:
    store = SettingsStore(file)
    store.settings = Settings(temperature=0.7, top_k=40)
    store.save()
    settings = SettingsStore(file).load()
    assert (settings.temperature, settings.top_k, settings.top_p) == (0.7, 40, None)


def test_an_old_file_with_a_value_outside_the_table_is_still_damaged(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps(FIRST_VERSION | {"temperature": 50}))
    store = SettingsStore(file)
    assert store.load() == Settings()
    assert store.problem is not None
