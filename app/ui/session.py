"""The state machine between window and engine: which pair is loaded, which chat is shown, what is being written.

It is the only place that sends requests, and it knows nothing of widgets. Events of an answer belong to the chat that
asked, whichever chat is shown by then; events of an earlier answer are dropped by their request_id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.chat import Message, ModelPair, Role
from app.engine.protocol import (
    EngineDied,
    GenerationFinished,
    GenerationStarted,
    LoadFailed,
    LoadOptions,
    LoadProgressed,
    PacingReport,
    PairChecked,
    PairLoaded,
    PromptProgressed,
    RoundFinished,
    SpeculationParams,
)
from app.engine.rounds import DrafterKind, Span, StopReason
from app.errors import CancelledError, EngineDiedError, PromptError
from app.storage.experiences import ExperienceStore
from app.storage.settings import Settings
from app.ui import wording
from app.ui.chat.messages import ShownMessage
from app.ui.chats import Chat, OpenAnswer, PairChoice, Problem, ProblemKind, SessionState, request_of
from app.ui.engine_bridge import EngineBridge

if TYPE_CHECKING:
    from app.engine.client import ChatEngine

DRAIN_MS = 33  # one frame of text; a signal per token would cost more than the token


class Session(QObject):
    state_changed = Signal()  # state, pair, progress, drafting
    chats_changed = Signal()  # titles, order
    current_changed = Signal()  # another chat is shown
    context_changed = Signal()
    user_added = Signal(str)  # these four: in the chat that is shown
    answer_begun = Signal()
    spans_arrived = Signal(list)
    answer_finished = Signal(str, str)  # footer, notice
    drafting_begun = Signal(object)  # DrafterKind; these four: whichever chat is shown
    rounds_arrived = Signal(list)
    pacing_reported = Signal(object)  # PacingReport
    answer_measured = Signal(object)  # Timing | None
    problem_raised = Signal(object)  # Problem
    problems_solved = Signal()
    pair_checked = Signal(object)  # PairChecked

    def __init__(
        self,
        engine: ChatEngine,
        settings: Settings,
        experiences: ExperienceStore | None = None,
        parent: QObject | None = None,
    ) -> None:
        """`experiences` keeps what the engine learns of a pair; without it every run learns anew."""
        super().__init__(parent)
        self._engine = engine
        self._settings = settings
        self._experiences = experiences
        self._load_options = LoadOptions()  # of the last load
        self._bridge = EngineBridge(engine, self)
        self._answer: OpenAnswer | None = None
        self._load_after: PairChoice | None = None  # chosen while the engine was busy
        self._before: tuple[PairChoice, PairLoaded] | None = None  # what a refused load leaves in place
        self._timer = QTimer(self, interval=DRAIN_MS)
        self._timer.timeout.connect(self._drain)

        self.state = SessionState.no_model
        self.choice: PairChoice | None = None
        self.loaded: PairLoaded | None = None
        self.progress: LoadProgressed | None = None
        self.prompt_progress: PromptProgressed | None = None
        self.drafter = DrafterKind.none
        self.drafter_reason = ""
        self.pacing: PacingReport | None = None  # the last one of this pair and this way to draft
        self.plain_tokens_per_s: float | None = None  # of this pair, measured
        self._speculation: SpeculationParams | None = None  # of the last request
        self._drafter_pause: str | None = None
        self.current = Chat()
        self.chats = [self.current]  # newest first

        queued = Qt.ConnectionType.QueuedConnection
        for signal, slot in (
            (self._bridge.load_progressed, self._on_load_progressed),
            (self._bridge.pair_loaded, self._on_pair_loaded),
            (self._bridge.load_failed, self._on_load_failed),
            (self._bridge.pair_checked, self._on_pair_checked),
            (self._bridge.generation_started, self._on_generation_started),
            (self._bridge.prompt_progressed, self._on_prompt_progressed),
            (self._bridge.generation_finished, self._on_generation_finished),
            (self._bridge.engine_died, self._on_engine_died),
        ):
            signal.connect(slot, queued)

    # -- what the window asks for -------------------------------------------------------------------------------------

    @property
    def is_answering(self) -> bool:
        return self._answer is not None

    @property
    def can_send(self) -> bool:
        """An engine that died starts again with the next message."""
        return self.state is SessionState.idle or (self.state is SessionState.dead and self.choice is not None)

    @property
    def context(self) -> int:
        """Tokens the context of the loaded target holds; 0 if there is none."""
        return self.loaded.target.context if self.loaded else 0

    @property
    def suggested(self) -> dict[str, float]:
        """The sampling that the loaded target suggests."""
        return self.loaded.target.suggested if self.loaded else {}

    @property
    def draft_length(self) -> int | None:
        """As the user fixed it; None while it is learned."""
        return self._settings.draft_length

    @property
    def drafting_paused(self) -> str | None:
        """Why nothing is drafted at this moment of an answer, in a sentence."""
        if self._drafter_pause is None and self.pacing is not None and self.pacing.state == "paused":
            return self.pacing.sentence
        return self._drafter_pause

    @property
    def open_answer(self) -> OpenAnswer | None:
        """The answer being written into the shown chat, if there is one."""
        return self._answer if self._answer is not None and self._answer.chat is self.current else None

    def choose(self, choice: PairChoice) -> None:
        """Load this pair. An answer or a load under way is stopped first; what it wrote stays."""
        reuses_models = (
            self.state is SessionState.idle
            and self.loaded is not None
            and self.loaded.draft_problem is None
            and self.choice is not None
            and (self.choice.pair, self.choice.context) == (choice.pair, choice.context)
        )
        if reuses_models:
            self.choice = choice
            self.state_changed.emit()
        elif self._answer is not None or self.state is SessionState.loading:
            self._load_after = choice
            self.stop()
        else:
            self._load(choice)

    def restart(self) -> None:
        if self.choice is not None and self.state in (SessionState.dead, SessionState.no_model):
            self._load(self.choice)

    def send(self, text: str) -> bool:
        """Add the user's message and ask for an answer. False if that is not possible now."""
        if not text.strip() or not self.can_send or self.choice is None:
            return False
        chat = self.current
        chat.conversation.messages.append(Message.of(Role.user, text))
        chat.shown.append(ShownMessage(Role.user, text))
        if not chat.conversation.title:
            chat.conversation.title = wording.title_of(text)
        answer = OpenAnswer(chat)
        self._answer = answer
        self.user_added.emit(text)
        self.answer_begun.emit()
        self.chats_changed.emit()
        self.problems_solved.emit()
        self._drafter_pause = None
        self.drafter_reason = ""
        self.prompt_progress = None
        request = request_of(chat.conversation, self.choice, self._settings, self.loaded)
        if request.speculation != self._speculation:
            self._speculation, self.pacing = request.speculation, None
        self._set_state(SessionState.answering)
        self._timer.start()
        answer.request_id = self._engine.request_generation(request)
        return True

    def stop(self) -> None:
        """Stop the answer or the load under way."""
        if self.state is SessionState.answering:
            self._set_state(SessionState.stopping)
            self._engine.cancel()
        elif self.state is SessionState.loading:
            self._engine.cancel()

    def check(self, pair: ModelPair) -> None:
        self._engine.request_check(pair)

    def new_chat(self) -> None:
        """Show an empty chat: the one there is, or a new one."""
        empty = next((chat for chat in self.chats if not chat.shown), None)
        if empty is None:
            empty = Chat()
            self.chats.insert(0, empty)
            self.chats_changed.emit()
        self.show_chat(empty.id)

    def show_chat(self, chat_id: int) -> None:
        chat = next(chat for chat in self.chats if chat.id == chat_id)
        if chat is not self.current:
            self._drain()  # what has arrived belongs to the transcript that is still there
            self.current = chat
            self.current_changed.emit()
            self.context_changed.emit()

    def close(self) -> None:
        """Stop listening. The engine itself belongs to whoever made it."""
        self._timer.stop()
        self._bridge.close()

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _load(self, choice: PairChoice) -> None:
        self._before = (self.choice, self.loaded) if self.choice and self.loaded else None
        self.choice = choice
        self.loaded = None
        self.progress = None
        self.pacing = None
        self.plain_tokens_per_s = None
        self._drafter_pause = None
        self._load_after = None
        self._load_options = LoadOptions(context=choice.context)
        self.problems_solved.emit()
        self._set_state(SessionState.loading)
        known = self._experiences.load(choice.pair, self._load_options) if self._experiences else None
        self._engine.request_load(choice.pair, self._load_options, known)

    def _set_state(self, state: SessionState) -> None:
        self.state = state
        self.state_changed.emit()

    # -- events: loading ----------------------------------------------------------------------------------------------

    def _on_load_progressed(self, event: LoadProgressed) -> None:
        before, self.progress = self.progress, event
        # Hundreds of these come in a second; a percent is all that anybody sees.
        if before is None or (before.part, int(before.fraction * 100)) != (event.part, int(event.fraction * 100)):
            self.state_changed.emit()

    def _on_pair_loaded(self, event: PairLoaded) -> None:
        self.loaded = event
        self.progress = None
        self.context_changed.emit()
        if event.draft_problem:
            self.problem_raised.emit(Problem(ProblemKind.warning, event.draft_problem))
        if self._answer is not None:  # the load was the start of an engine that had died
            self.state_changed.emit()
        else:
            self._settle()

    def _on_load_failed(self, event: LoadFailed) -> None:
        self.progress = None
        if event.kept and self._before is not None:
            self.choice, self.loaded = self._before
            self.context_changed.emit()
            self.problem_raised.emit(Problem(ProblemKind.error, f"{event.error.sentence} {wording.KEPT}"))
            self._settle()
            return
        self.loaded = None
        if self._answer is not None or event.error.kind == EngineDiedError.__name__:
            self.state_changed.emit()  # GenerationFinished or EngineDied follows and says how it goes on
            return
        self._settle()
        if self.state is SessionState.no_model:  # no other pair was chosen meanwhile
            kind = ProblemKind.info if event.error.kind == CancelledError.__name__ else ProblemKind.error
            self.problem_raised.emit(Problem(kind, event.error.sentence, can_restart=True))

    def _settle(self) -> None:
        """Nothing is under way any more: load what was chosen meanwhile, or rest."""
        if self._load_after is not None:
            self._load(self._load_after)
        else:
            self._set_state(SessionState.idle if self.loaded is not None else SessionState.no_model)

    def _on_pair_checked(self, event: PairChecked) -> None:
        self.pair_checked.emit(event)

    def _on_engine_died(self, event: EngineDied) -> None:
        self.progress = None
        self.loaded = None
        if self._answer is not None and not event.restarting:
            self._end_answer("", wording.notice_of(StopReason.failed, event.sentence))
            self.answer_measured.emit(None)
        if self._load_after is not None and not event.restarting:
            self._load(self._load_after)
            return
        if self._answer is None:
            self._set_state(SessionState.loading if event.restarting else SessionState.dead)
        else:
            self.state_changed.emit()  # a message that had not been read goes to the next worker
        if event.restarting:
            self.problem_raised.emit(Problem(ProblemKind.warning, f"{event.sentence} {wording.RESTARTING}"))
        else:
            self.problem_raised.emit(Problem(ProblemKind.error, event.sentence, can_restart=True))

    # -- events: answering --------------------------------------------------------------------------------------------

    def _on_generation_started(self, event: GenerationStarted) -> None:
        answer = self._answer_of(event.request_id)
        if answer is None:
            return
        answer.is_started = True
        answer.notes = event.notes
        self.drafter = event.drafter
        self.drafter_reason = event.drafter_reason
        self.drafting_begun.emit(event.drafter)
        self.state_changed.emit()

    def _on_prompt_progressed(self, event: PromptProgressed) -> None:
        if self._answer_of(event.request_id) is not None:
            self.prompt_progress = event
            self.state_changed.emit()

    def _drain(self) -> None:
        """Take in the rounds that came. They wait for GenerationStarted, which travels as a signal."""
        answer = self._answer
        if answer is None or not answer.is_started:
            return
        events = [event for event in self._bridge.take_rounds() if event.request_id == answer.request_id]
        if not events:
            return
        paused = self.drafting_paused
        for event in events:
            answer.stats.observe(event.round)
            self._note_pause(event)
        self._take_report(next((event.pacing for event in reversed(events) if event.pacing), None))
        if paused != self.drafting_paused:
            self.state_changed.emit()
        answer.chat.context_used = events[-1].context_used
        self._append(answer, [span for event in events for span in event.spans])
        self.rounds_arrived.emit([event.round for event in events])
        if answer.chat is self.current:
            self.context_changed.emit()
        if self.prompt_progress is not None:
            self.prompt_progress = None
            self.state_changed.emit()

    def _note_pause(self, event: RoundFinished) -> None:
        """A drafter says once why it pauses, and drafts again without a word."""
        if event.drafting_paused is not None:
            self._drafter_pause = event.drafting_paused
        elif event.round.drafted:
            self._drafter_pause = None

    def _take_report(self, report: PacingReport | None) -> None:
        if report is not None and report != self.pacing:
            self.pacing = report
            self.plain_tokens_per_s = report.plain_tokens_per_s or self.plain_tokens_per_s
            self.pacing_reported.emit(report)

    def _on_generation_finished(self, event: GenerationFinished) -> None:
        answer = self._answer_of(event.request_id)
        if answer is None:
            return
        answer.is_started = True  # an answer that failed early has no start; its rounds, if any, are complete now
        self._drain()
        self._append(answer, list(event.spans))
        self._take_report(event.pacing)
        if event.experience is not None and self._experiences is not None and self.choice is not None:
            self._experiences.save(self.choice.pair, self._load_options, event.experience)
        error = event.error.to_error() if event.error else None
        has_died = isinstance(error, EngineDiedError)
        if isinstance(error, PromptError) and not answer.spans:
            # This message can never be sent, so the next one must not carry it along.
            answer.chat.conversation.messages.pop()
        was_stopped = self.state is SessionState.stopping and not has_died
        reason = StopReason.cancelled if was_stopped and error else event.stop_reason
        self._end_answer(wording.footer_of(event, answer.stats), wording.notice_of(reason, str(error) if error else ""))
        self.answer_measured.emit(event.timing)
        if has_died:
            self._set_state(SessionState.loading)  # EngineDied follows and says how it goes on
        else:
            self._settle()

    def _answer_of(self, request_id: int) -> OpenAnswer | None:
        """The answer under way, if it is the one that event is about."""
        return self._answer if self._answer is not None and self._answer.request_id == request_id else None

    def _append(self, answer: OpenAnswer, spans: list[Span]) -> None:
        answer.append(spans)
        if spans and answer.chat is self.current:
            self.spans_arrived.emit(spans)

    def _end_answer(self, footer: str, notice: str) -> None:
        """Keep what was written, however the answer ended."""
        answer = self._answer
        assert answer is not None
        self._answer = None
        self._timer.stop()
        self._bridge.take_rounds()  # rounds of an answer that is over
        self.prompt_progress = None
        notice = "\n".join((*answer.notes, *([notice] if notice else [])))
        shown = answer.shown(footer, notice)
        if shown.text or shown.reasoning:
            answer.chat.conversation.messages.append(Message.of(Role.assistant, shown.text, shown.reasoning))
        answer.chat.shown.append(shown)
        if answer.chat is self.current:
            self.answer_finished.emit(footer, notice)
