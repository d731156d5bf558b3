"""Brings the window up around an engine that somebody else made: first the window, then the load."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication

from app.storage.experiences import ExperienceStore
from app.storage.settings import Settings, SettingsStore
from app.ui.chats import PairChoice, ProblemKind
from app.ui.session import Session
from app.ui.style import stylesheet
from app.ui.theme import Appearance, ThemeMode
from app.ui.window import MainWindow

if TYPE_CHECKING:
    from app.engine.client import ChatEngine

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], None]

log = logging.getLogger(__name__)

_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}
BUG_SENTENCE = "Something went wrong inside Slipstream. Your text is still here; the log has the details."


def run(
    engine: ChatEngine, store: SettingsStore, starter: Path | None, experiences: ExperienceStore | None = None
) -> int:
    """Show the window and stay until it is closed. `store` is loaded already; the caller closes the engine."""
    qInstallMessageHandler(_log_qt_message)
    app = make_application()
    appearance = Appearance(ThemeMode(store.settings.theme), store.settings.zoom)
    appearance.changed.connect(lambda: apply_look(app, appearance))
    apply_look(app, appearance)
    session = Session(engine, store.settings, experiences)
    window = MainWindow(session, store, appearance, starter)
    previous_hook = sys.excepthook
    sys.excepthook = _excepthook(window)
    window.show()
    window.composer.take_focus()
    keep_startup_out_of_collections()
    QTimer.singleShot(0, lambda: load_first_pair(session, window, store.settings, starter))
    try:
        return app.exec()
    finally:
        session.close()
        sys.excepthook = previous_hook
        qInstallMessageHandler(None)


def make_application() -> QApplication:
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        app = QApplication(sys.argv[:1])
    app.setApplicationName("slipstream")
    app.setApplicationDisplayName("Slipstream")
    app.setDesktopFileName("slipstream")
    app.setStyle("Fusion")
    return app


def apply_look(app: QApplication, appearance: Appearance) -> None:
    app.setPalette(appearance.palette())
    app.setFont(appearance.font())
    app.setStyleSheet(stylesheet(appearance))


def keep_startup_out_of_collections() -> None:
    """What the start built stays to the end; walking it in every full collection would stop the window for 50 ms."""
    gc.freeze()


def load_first_pair(session: Session, window: MainWindow, settings: Settings, starter: Path | None) -> None:
    """The pair chosen last; at the first start, or if its target is gone, the starter model with lookup."""
    target = Path(settings.target) if settings.target else None
    if target is not None and not target.is_file():
        window.show_problem(ProblemKind.warning, f"The target chosen last is not there any more: {target}.")
        target = None
    draft = Path(settings.draft) if settings.draft and target is not None else None
    target = target or starter
    if target is not None:
        # There is no draft model without its file.
        drafter = "auto" if settings.drafter == "model" and draft is None else settings.drafter
        session.choose(PairChoice(target, draft, drafter, settings.context))


def _excepthook(window: MainWindow) -> ExceptHook:
    def on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.error("unexpected error", exc_info=(kind, error, trace))
        if not issubclass(kind, KeyboardInterrupt):
            window.show_problem(ProblemKind.error, BUG_SENTENCE)

    return on_exception


def _log_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    log.log(_LEVELS.get(kind, logging.WARNING), "Qt: %s", message)
