"""The window: chats on the left, the transcript and the composer in the middle, the speculation panel on the right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QRect, Qt, QTimer, QUrl
from PySide6.QtGui import QCloseEvent, QDesktopServices, QGuiApplication, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.engine.protocol import PairChecked, Timing
from app.engine.rounds import DrafterKind, Round
from app.storage.settings import SettingsStore
from app.ui import status
from app.ui.chat.composer import Composer
from app.ui.chat.transcript import TranscriptView
from app.ui.chats import PairChoice, Problem, ProblemKind, SessionState
from app.ui.header import Header
from app.ui.library.picker import Picker
from app.ui.session import Session
from app.ui.settings.dialog import SettingsDialog
from app.ui.sidebar import Sidebar
from app.ui.speculation.panel import SpeculationPanel
from app.ui.theme import Appearance, ThemeMode
from app.ui.widgets.banner import Banner, BannerStack
from app.ui.widgets.columns import Columns
from app.ui.widgets.labels import Hairline

MINIMUM, USUAL = (640, 480), (1360, 860)
SAVE_MS = 400
ZOOM_STEP = 0.1


class MainWindow(QWidget):
    def __init__(self, session: Session, store: SettingsStore, appearance: Appearance, starter: Path | None) -> None:
        super().__init__()
        self._session = session
        self._store = store
        self._settings = store.settings
        self._appearance = appearance
        self._starter = starter
        self._picker: Picker | None = None
        self._settings_dialog: SettingsDialog | None = None
        self._picked: PairChoice | None = None  # not in the settings yet
        self._engine_banners: list[Banner] = []
        self._save_timer = QTimer(self, singleShot=True, interval=SAVE_MS)
        self._save_timer.timeout.connect(self._save)
        self.setWindowTitle("Slipstream")
        self.setMinimumSize(*MINIMUM)

        self.sidebar = Sidebar(appearance)
        self.header = Header(appearance)
        self.banners = BannerStack(appearance)
        self.transcript = TranscriptView(appearance)
        self.composer = Composer(appearance)
        self.panel = SpeculationPanel(appearance)
        self.columns = Columns(appearance, self.sidebar, self._middle(), self.panel, drawer_over=self.transcript)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.columns)

        self._connect()
        self._add_shortcuts()
        self._restore()
        self._refresh()
        self._show_current()
        if store.problem:
            self.banners.add(ProblemKind.warning, store.problem)

    def _middle(self) -> QWidget:
        middle = QWidget()
        layout = QVBoxLayout(middle)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addWidget(Hairline(self._appearance))
        layout.addWidget(self.transcript, 1)
        layout.addWidget(self.banners)
        layout.addWidget(self.composer)
        return middle

    def _connect(self) -> None:
        session = self._session
        session.state_changed.connect(self._refresh)
        session.chats_changed.connect(self._show_chats)
        session.current_changed.connect(self._show_current)
        session.context_changed.connect(lambda: self.composer.set_count(status.context_count(session)))
        session.user_added.connect(self.transcript.add_user)
        session.answer_begun.connect(self.transcript.begin_answer)
        session.spans_arrived.connect(self.transcript.append)
        session.answer_finished.connect(self.transcript.finish_answer)
        session.drafting_begun.connect(self._on_drafting_begun)
        session.rounds_arrived.connect(self._on_rounds_arrived)
        session.pacing_reported.connect(self._show_pacing)
        session.answer_measured.connect(self._on_answer_measured)
        session.problem_raised.connect(self._on_problem_raised)
        session.problems_solved.connect(self._on_problems_solved)
        session.pair_checked.connect(self._on_pair_checked)

        self.composer.submitted.connect(session.send)
        self.composer.stop_requested.connect(session.stop)
        self.transcript.link_activated.connect(_open_link)
        self.transcript.empty_action_triggered.connect(self.open_picker)
        self.sidebar.new_chat_requested.connect(self.new_chat)
        self.sidebar.chat_chosen.connect(self._on_chat_chosen)
        self.sidebar.models_requested.connect(self.open_picker)
        self.sidebar.settings_requested.connect(self.open_settings)
        self.sidebar.collapse_requested.connect(self.toggle_sidebar)
        self.header.picker_requested.connect(self.open_picker)
        self.header.sidebar_requested.connect(self.toggle_sidebar)
        self.header.sources_requested.connect(self.toggle_sources)
        self.header.panel_requested.connect(self.toggle_panel)
        self.columns.arranged.connect(self._on_arranged)
        self._appearance.changed.connect(self.update)

    def _add_shortcuts(self) -> None:
        shortcuts: tuple[tuple[str | QKeySequence.StandardKey, Callable[[], object]], ...] = (
            ("Ctrl+N", self.new_chat),
            ("Ctrl+B", self.toggle_sidebar),
            ("Ctrl+O", self.open_picker),
            ("Ctrl+,", self.open_settings),
            ("Ctrl+Shift+C", self.toggle_sources),
            ("Ctrl+Shift+P", self.toggle_panel),
            ("Esc", self._session.stop),
            ("Ctrl++", lambda: self.zoom_by(ZOOM_STEP)),
            ("Ctrl+=", lambda: self.zoom_by(ZOOM_STEP)),
            ("Ctrl+-", lambda: self.zoom_by(-ZOOM_STEP)),
            ("Ctrl+0", lambda: self.zoom_by(1 - self._settings.zoom)),
            (QKeySequence.StandardKey.Quit, self.close),
        )
        for keys, slot in shortcuts:
            QShortcut(QKeySequence(keys), self).activated.connect(slot)

    # -- what the user can do -----------------------------------------------------------------------------------------

    def new_chat(self) -> None:
        self._session.new_chat()
        self.columns.close_left_drawer()
        self.composer.take_focus()

    def toggle_sidebar(self) -> None:
        self.columns.toggle_left()
        self._save_timer.start()

    def toggle_panel(self) -> None:
        self.columns.toggle_right()
        self._save_timer.start()

    def toggle_sources(self) -> None:
        self._settings.show_sources = not self._settings.show_sources
        self._show_sources()
        self._save_timer.start()

    def zoom_by(self, step: float) -> None:
        self._appearance.set_zoom(round(self._settings.zoom + step, 2))
        self._settings.zoom = self._appearance.zoom
        self._save_timer.start()

    def open_picker(self) -> None:
        if self._picker is not None:
            self._picker.raise_()
            return
        picker = Picker(
            self._appearance,
            starter=self._starter,
            recent=self._settings.recent_files,
            choice=self._session.choice,
            parent=self,
        )
        picker.check_requested.connect(self._session.check)
        picker.chosen.connect(self._on_chosen)
        picker.finished.connect(self._on_picker_finished)
        self._picker = picker
        picker.open()  # window-modal; the event loop goes on
        picker.begin()

    def open_settings(self) -> None:
        if self._settings_dialog is not None:
            self._settings_dialog.raise_()
            return
        dialog = SettingsDialog(self._appearance, self._settings, self._session.suggested, self)
        dialog.changed.connect(self._on_settings_changed)
        dialog.finished.connect(self._on_settings_closed)
        self._settings_dialog = dialog
        dialog.open()

    def show_problem(self, kind: ProblemKind, sentence: str) -> None:
        self.banners.add(kind, sentence)

    # -- what the session says ----------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        session = self._session
        self.header.chip.set_summary(status.pair_summary(session))
        state, sentence = status.panel_state(session)
        self.panel.set_state(state, sentence, session.draft_length)
        self._show_pacing()
        self.composer.set_busy(session.is_answering)
        self.composer.set_enabled_reason(None if session.is_answering else status.send_hindrance(session))
        self.composer.set_hint(status.composer_hint(session))
        self.composer.set_count(status.context_count(session))
        self.transcript.set_empty_state(*status.empty_state(session, self._starter))
        if self._settings_dialog is not None:
            self._settings_dialog.set_suggested(session.suggested)
        self._remember_pair()

    def _show_pacing(self) -> None:
        session = self._session
        self.panel.set_plain_speed(session.plain_tokens_per_s)
        self.panel.set_typical_length(session.pacing.typical_length if session.pacing else None)
        self.panel.set_pacing_sentence(status.pacing_sentence(session), status.pacing_costs(session.pacing))

    def _show_chats(self) -> None:
        self.sidebar.show_chats(self._session.chats, self._session.current.id)
        self.header.title.setText(self._session.current.title)

    def _show_current(self) -> None:
        """Show the session's chat, with the part of its answer that is there if one is being written."""
        self._show_chats()
        answer = self._session.open_answer
        written = [answer.shown()] if answer is not None else []
        self.transcript.load([*self._session.current.shown, *written], answering=answer is not None)

    def _on_drafting_begun(self, drafter: DrafterKind) -> None:
        self.panel.begin_answer(drafter)

    def _on_rounds_arrived(self, rounds: list[Round]) -> None:
        for r in rounds:
            self.panel.observe(r)

    def _on_answer_measured(self, timing: Timing | None) -> None:
        self.panel.finish_answer(timing)

    def _on_problem_raised(self, problem: Problem) -> None:
        word = "Start the engine again" if self._session.state is SessionState.dead else "Load again"
        action = (word, self._session.restart) if problem.can_restart else ()
        self._engine_banners.append(self.banners.add(problem.kind, problem.sentence, *action))

    def _on_problems_solved(self) -> None:
        """What was said about the engine and the last pair holds no longer; other messages stay."""
        for banner in self._engine_banners:
            self.banners.remove(banner)
        self._engine_banners.clear()

    def _on_pair_checked(self, event: PairChecked) -> None:
        if self._picker is not None:
            self._picker.show_verdict(event)

    # -- what the widgets say -----------------------------------------------------------------------------------------

    def _on_chat_chosen(self, chat_id: int) -> None:
        self._session.show_chat(chat_id)
        self.columns.close_left_drawer()

    def _on_chosen(self, choice: PairChoice) -> None:
        self._picked = choice
        self._session.choose(choice)

    def _remember_pair(self) -> None:
        """What was picked and could be loaded comes back at the next start; what was refused does not."""
        choice = self._picked
        if choice is None or self._session.loaded is None or self._session.choice != choice:
            return
        self._picked = None
        s = self._settings
        s.target = None if choice.target == self._starter else str(choice.target)
        s.draft = None if choice.draft is None else str(choice.draft)
        s.drafter, s.context = choice.drafter, choice.context
        for file in filter(None, (choice.draft, choice.target)):
            s.remember_file(str(file))
        self._save_timer.start()

    def _on_picker_finished(self) -> None:
        if self._picker is not None:
            self._picker.deleteLater()
            self._picker = None
        self.composer.take_focus()

    def _on_settings_changed(self) -> None:
        self._appearance.set_mode(ThemeMode(self._settings.theme))
        self._appearance.set_zoom(self._settings.zoom)
        self._refresh()
        self._save_timer.start()

    def _on_settings_closed(self) -> None:
        if self._settings_dialog is not None:
            self._settings_dialog.deleteLater()
            self._settings_dialog = None

    def _on_arranged(self) -> None:
        columns = self.columns
        self.header.show_columns(is_sidebar_shown=columns.is_left_shown, is_panel_shown=columns.is_right_shown)

    # -- look and memory ----------------------------------------------------------------------------------------------

    def _show_sources(self) -> None:
        self.transcript.set_show_sources(self._settings.show_sources)
        self.header.sources_button.setChecked(self._settings.show_sources)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), self._appearance.theme.color("ground"))

    def _restore(self) -> None:
        self.columns.wants_left = self._settings.sidebar_visible
        self.columns.wants_right = self._settings.panel_visible
        self._show_sources()
        self.resize(*USUAL)
        if len(self._settings.window) == 4:
            place = QRect(*self._settings.window)
            screens = QGuiApplication.screens()
            if any(screen.availableGeometry().intersects(place) for screen in screens):  # a screen may be gone
                self.setGeometry(place)
        if self._settings.is_maximized:
            self.setWindowState(Qt.WindowState.WindowMaximized)

    def _save(self) -> None:
        place = self.normalGeometry() if self.isMaximized() else self.geometry()
        self._settings.window = [place.x(), place.y(), place.width(), place.height()]
        self._settings.is_maximized = self.isMaximized()
        self._settings.sidebar_visible = self.columns.wants_left
        self._settings.panel_visible = self.columns.wants_right
        if not self._store.save() and self._store.problem:
            self.banners.add(ProblemKind.warning, self._store.problem)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._session.state in (SessionState.answering, SessionState.loading):
            self._session.stop()
        self._save_timer.stop()
        self._save()
        super().closeEvent(event)


def _open_link(url: QUrl) -> None:
    QDesktopServices.openUrl(url)
