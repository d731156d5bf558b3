"""What the state of the session is called in each place of the window."""

from __future__ import annotations

from pathlib import Path

from app.engine.protocol import PacingReport
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
    draft = "" if choice.drafter == "none" else "lookup"
    if choice.pair.draft is not None:
        draft = wording.model_name(choice.pair.draft)
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
            if session.drafter is DrafterKind.none:
                return PanelState.off, session.drafter_reason
            if session.pacing is not None and session.pacing.state == "off":
                return PanelState.off, session.pacing.sentence
            return PanelState.on, session.drafter_reason
    if loaded is not None and loaded.draft_problem:
        return PanelState.idle, f"{loaded.draft_problem} Until then, drafts are looked up in the text so far."
    if choice is None or choice.drafter == "none":
        return PanelState.off, "Off: this pair was chosen without a draft."
    if choice.pair.draft is None:
        return PanelState.idle, "Drafts by looking up in the text so far."
    ahead = f"{wording.model_name(choice.pair.draft)} runs ahead of the target"
    if choice.drafter == "auto":
        return PanelState.idle, f"{ahead}, or the text so far where it repeats."
    return PanelState.idle, f"{ahead}."


def pacing_sentence(session: Session) -> str:
    """How long the drafts are, and who decides it."""
    if session.choice is None or session.choice.drafter == "none":
        return ""
    if session.draft_length is not None:
        return f"Fixed: {_draft_tokens(session.draft_length)} a round, as chosen in Settings."
    report = session.pacing
    if report is None:
        return "Automatic: learned from the rounds of an answer."
    if report.state == "paused":
        return "Automatic: tried again now and then."
    return report.sentence


def pacing_costs(report: PacingReport | None) -> str:
    """What pacing goes by: the measured times, in a sentence."""
    if report is None or not report.target_ms:
        return ""
    sizes = sorted(report.target_ms)
    tokens = _listed([str(size) for size in sizes]) + (" token" if sizes == [1] else " tokens")
    passes = f"a pass of the target over {tokens} takes {_listed([f'{report.target_ms[n]:.1f}' for n in sizes])} ms"
    draft = "" if report.draft_ms is None else f", a draft token {report.draft_ms:.1f} ms"
    return f"Measured here: {passes}{draft}."


def _draft_tokens(length: int) -> str:
    return f"{length} draft {'token' if length == 1 else 'tokens'}"


def _listed(words: list[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


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
