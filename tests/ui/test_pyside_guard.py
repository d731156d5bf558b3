"""PySide6 6.12.0 on Python 3.10 and 3.11 loses a reference to None in every void call, and aborts at zero.

Since Python 3.12 None is immortal and its count says nothing.
"""

from __future__ import annotations

import sys

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

CALLS = 1_000
NOISE = 200  # references that come and go by themselves meanwhile

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="None and True are immortal since Python 3.12")


class Emitter(QObject):
    fired = Signal(str)


def test_void_calls_keep_their_reference_to_none(qtbot: QtBot) -> None:
    label = QLabel()
    qtbot.addWidget(label)
    before = sys.getrefcount(None)
    for i in range(CALLS):
        label.setText(str(i))
        label.resize(i % 50, 10)
    assert sys.getrefcount(None) > before - NOISE


def test_emits_keep_their_reference_to_true(qapp: object) -> None:
    emitter = Emitter()
    emitter.fired.connect(len)
    before = sys.getrefcount(True)
    for _ in range(CALLS):
        emitter.fired.emit("x")
    assert sys.getrefcount(True) > before - NOISE
