"""What the state of the session is called in each place of the window."""

from __future__ import annotations

from pathlib import Path

from app.engine.protocol import DEFAULT_DRAFT_LENGTH
from app.engine.rounds import DrafterKind
from app.ui import wording
from app.ui.chats import SessionState
from app.ui.session import Session
from app.ui.speculation.panel import PanelState
from app.ui.widgets.chip import Dot, PairSummary

READY_WITH_STARTER = (
    "Slipstream is ready, with a small starter model. Ask something, or get a better pair for this machine."
)


def pair_summary(session: Session) -> PairSummary:
    """The header's chip: the pair, and the one fact that matters now."""
    choice = session.choice
    if choice is None:
        return PairSummary(Dot.none, "No model", "", "choose one")
    draft = {
        "model": wording.model_name(choice.draft) if choice.draft else "",
        "lookup": "lookup",
        "none": "",
    }[choice.drafter]
    dot, fact = _fact(session)
    return PairSummary(dot, wording.model_name(choice.target), draft, fact)


def _fact(session: Session) -> tuple[Dot, str]:
    match session.state:
        case SessionState.no_model:
            return Dot.problem, "not loaded"
        case SessionState.dead:
            return Dot.problem, "engine stopped"
        case SessionState.loading:
            return Dot.working, _loading(session)
        case SessionState.answering if session.progress is not None:
            return Dot.working, _loading(session)  # the engine had died and starts again
        case SessionState.stopping:
            return Dot.working, "stopping"
        case _ if session.loaded is not None and session.loaded.draft_problem:
            return Dot.problem, "not compatible, lookup instead"
        case SessionState.answering if session.drafting_paused:
            return Dot.ready, "drafting paused"
        case SessionState.answering:
            return Dot.ready, "answering"
        case _:
            return Dot.ready, "ready"


def _loading(session: Session) -> str:
    progress = session.progress
    if progress is None:
        return "loading"
    return f"loading{' draft' if progress.part == 'draft' else ''} {int(progress.fraction * 100)} %"


def panel_state(session: Session) -> tuple[PanelState, str]:
    """The panel's state, and why in a sentence."""
    choice, loaded = session.choice, session.loaded
    match session.state:
        case SessionState.no_model:
            return PanelState.off, "No model is loaded."
        case SessionState.dead:
            return PanelState.failed, "The engine has stopped. The next message starts it again."
        case SessionState.loading:
            return PanelState.loading, f"{_loading(session).capitalize()}."
        case SessionState.answering | SessionState.stopping if session.drafter_reason:
            if session.drafting_paused:
                return PanelState.paused, session.drafting_paused
            is_off = session.drafter is DrafterKind.none
            return PanelState.off if is_off else PanelState.on, session.drafter_reason
    if loaded is not None and loaded.draft_problem:
        return PanelState.idle, f"{loaded.draft_problem} Until then, drafts are looked up in the text so far."
    if choice is None or choice.drafter == "none":
        return PanelState.off, "Off: this pair was chosen without a draft."
    if choice.drafter == "lookup":
        return PanelState.idle, "Drafts by looking up in the text so far."
    return PanelState.idle, f"{wording.model_name(choice.draft or Path())} runs ahead of the target."


def pacing_sentence(session: Session) -> str:
    if session.choice is None or session.choice.drafter == "none":
        return ""
    length = session.choice.draft_length
    if length is None:
        return f"Automatic: up to {_draft_tokens(DEFAULT_DRAFT_LENGTH)} a round."
    return f"Fixed: up to {_draft_tokens(length)} a round, as chosen with the pair."


def _draft_tokens(length: int) -> str:
    return f"{length} draft {'token' if length == 1 else 'tokens'}"


def send_hindrance(session: Session) -> str | None:
    """Why nothing can be sent now; None while it can, and while an answer is under way."""
    match session.state:
        case SessionState.no_model:
            return "Choose a model first (Ctrl+O)."
        case SessionState.loading:
            return f"{_loading(session).capitalize()}. What you type stays."
        case SessionState.dead if session.choice is None:
            return "Choose a model first (Ctrl+O)."
        case _:
            return None


def composer_hint(session: Session) -> str:
    match session.state:
        case SessionState.stopping:
            return "Stopping…"
        case SessionState.answering if session.prompt_progress is not None:
            progress = session.prompt_progress
            return f"Reading the prompt, {progress.done * 100 // max(progress.total, 1)} %"
        case SessionState.answering if session.progress is not None:
            return f"Starting the engine again: {_loading(session)}"
        case SessionState.answering:
            return "Esc stops"
        case _:
            return "Enter sends, Shift+Enter breaks the line"


def context_count(session: Session) -> str:
    if not session.context:
        return ""
    return f"{session.current.context_used:,} of {session.context:,} tokens"


def empty_state(session: Session, starter: Path | None) -> tuple[str, str]:
    """What the transcript teaches while nothing stands in it, and the button that leads on, "" for none."""
    choice = session.choice
    match session.state:
        case SessionState.loading if choice is not None:
            return f"Loading {wording.model_name(choice.target)}. You can write already.", ""
        case SessionState.no_model:
            return "No model is loaded. Choose a target, and a draft that runs ahead of it.", "Choose models"
        case SessionState.dead:
            return "The engine has stopped. The next message starts it again.", ""
    if choice is not None and choice.target == starter:
        return READY_WITH_STARTER, "Choose a better pair"
    return "Ask something. The draft runs ahead, the target decides, and the colours show who wrote what.", ""
