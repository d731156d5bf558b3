"""The picker says at once whether a pair fits, drops verdicts about something else, and loads only what can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDropEvent
from pytestqt.qtbot import QtBot

from app.chat import ModelPair
from app.engine.protocol import ModelInfo, PairChecked
from app.ui.chats import PairChoice
from app.ui.library.file_field import FileField
from app.ui.library.picker import DraftWay, Picker
from app.ui.library.verdict import Verdict
from app.ui.theme import Appearance

STARTER = Path("/models/starter.gguf")
TARGET, DRAFT = Path("/models/target.gguf"), Path("/models/draft.gguf")
INFO = ModelInfo("target.gguf", "llama 8B Q4_K", 32, 0, 0, 8192, 49152, 4_900_000_000)
OTHER_WORDS = "This draft speaks another vocabulary: token 5 is “a” for the target and “b” for the draft."
DIFFERENCE = 'The draft does not fit: token 198 is "\\n" in the target and "<0x0A>" in the draft.'


class Asked:
    """A picker, what it asked to be checked, and what it handed over."""

    def __init__(self, qtbot: QtBot, choice: PairChoice | None, recent: tuple[str, ...] = ()) -> None:
        self.picker = Picker(Appearance(), starter=STARTER, recent=recent, choice=choice)
        qtbot.addWidget(self.picker)
        self.pairs: list[ModelPair] = []
        self.choices: list[PairChoice] = []
        self.picker.check_requested.connect(self.pairs.append)
        self.picker.chosen.connect(self.choices.append)
        self.picker.show()
        self.picker.begin()

    def answer(
        self,
        *,
        fits: bool,
        reason: str = "",
        can_read: bool = True,
        pair: ModelPair | None = None,
        translates: bool = False,
    ) -> None:
        pair = pair or self.pairs[-1]
        target, draft = str(pair.target), str(pair.draft) if pair.draft else None
        info = INFO if can_read else None
        self.picker.show_verdict(PairChecked(target, draft, fits, reason, info, translates=translates))


@pytest.fixture
def with_draft(qtbot: QtBot) -> Asked:
    return Asked(qtbot, PairChoice(TARGET, DRAFT, "model", 8192))


def test_a_first_start_offers_the_starter_model_with_lookup(qtbot: QtBot) -> None:
    asked = Asked(qtbot, None)
    assert asked.pairs == [ModelPair(STARTER)]
    assert asked.picker.way is DraftWay.auto
    assert asked.picker.verdict.verdict is Verdict.checking
    assert not asked.picker.load_button.isEnabled()
    asked.answer(fits=True, reason="The model can be read.")
    assert asked.picker.verdict.sentence.text() == "The model can be read."
    assert asked.picker.target_facts.text() == "llama 8B Q4_K · 4.9 GB · 32 layers · context 8,192"
    asked.picker.load_button.click()
    assert asked.choices == [PairChoice(STARTER, None, "auto", 4096)]


def test_the_pair_in_force_is_shown(with_draft: Asked) -> None:
    picker = with_draft.picker
    assert (picker.target.file(), picker.draft.file()) == (TARGET, DRAFT)
    assert (picker.way, picker.context.value()) == (DraftWay.model, 8192)
    with_draft.answer(fits=True)
    picker.load_button.click()
    assert with_draft.choices == [PairChoice(TARGET, DRAFT, "model", 8192)]


def test_a_draft_that_does_not_fit_offers_to_load_without_it(with_draft: Asked) -> None:
    picker = with_draft.picker
    assert not picker.without_button.isVisible()
    with_draft.answer(fits=False, reason=DIFFERENCE)
    assert (picker.verdict.verdict, picker.verdict.sentence.text()) == (Verdict.unfit, DIFFERENCE)
    assert not picker.load_button.isEnabled()
    assert picker.without_button.isVisible()
    picker.without_button.click()
    assert with_draft.choices == [PairChoice(TARGET, None, "lookup", 8192)]


def test_a_target_that_cannot_be_read_cannot_be_loaded_at_all(with_draft: Asked) -> None:
    with_draft.answer(fits=False, reason="target.gguf is not a GGUF file.", can_read=False)
    assert not with_draft.picker.load_button.isEnabled()
    assert not with_draft.picker.without_button.isVisible()


def test_a_verdict_about_other_files_is_dropped(qtbot: QtBot, with_draft: Asked) -> None:
    picker = with_draft.picker
    first = with_draft.pairs[-1]
    picker.draft.set_file(Path("/models/other.gguf"))
    with_draft.answer(fits=True, pair=first)  # before the new question
    assert picker.verdict.verdict is Verdict.checking
    qtbot.waitUntil(lambda: len(with_draft.pairs) == 2)
    with_draft.answer(fits=True, pair=first)  # after it
    assert picker.verdict.verdict is Verdict.checking
    assert not picker.load_button.isEnabled()
    with_draft.answer(fits=False, reason=DIFFERENCE)
    assert picker.verdict.verdict is Verdict.unfit


def test_typing_asks_once_when_it_pauses(qtbot: QtBot, with_draft: Asked) -> None:
    with_draft.picker.target.edit.clear()
    qtbot.keyClicks(with_draft.picker.target.edit, "/models/big.gguf")
    qtbot.waitUntil(lambda: len(with_draft.pairs) > 1)
    qtbot.wait(50)
    assert with_draft.pairs[1:] == [ModelPair(Path("/models/big.gguf"), DRAFT)]


def test_nothing_is_asked_while_a_file_is_missing(qtbot: QtBot) -> None:
    asked = Asked(qtbot, None)
    asked.picker.ways[DraftWay.model].click()
    qtbot.waitUntil(lambda: asked.picker.verdict.verdict is Verdict.open)
    assert asked.picker.verdict.sentence.text() == "Choose a draft file."
    assert len(asked.pairs) == 1
    assert not asked.picker.load_button.isEnabled()


def test_naming_a_draft_chooses_to_draft_with_it(qtbot: QtBot) -> None:
    asked = Asked(qtbot, None)
    asked.picker.draft.set_file(DRAFT)
    assert asked.picker.way is DraftWay.auto
    qtbot.waitUntil(lambda: asked.pairs[-1] == ModelPair(STARTER, DRAFT))
    for way, stays in ((DraftWay.model, True), (DraftWay.lookup, False), (DraftWay.none, False)):
        asked.picker.ways[way].click()
        asked.picker.draft.set_file(DRAFT.with_name(f"{way}.gguf"))
        assert asked.picker.way is (way if stays else DraftWay.auto)


@pytest.mark.parametrize("way", list(DraftWay))
def test_each_way_to_draft_takes_the_draft_file_or_leaves_it(qtbot: QtBot, way: DraftWay) -> None:
    asked = Asked(qtbot, PairChoice(TARGET, DRAFT, "auto", 4096))
    asked.picker.ways[way].click()
    with_model = way in (DraftWay.auto, DraftWay.model)
    pair = ModelPair(TARGET, DRAFT if with_model else None)
    assert asked.picker.pair() == pair
    if len(asked.pairs) == 1:
        qtbot.waitUntil(lambda: len(asked.pairs) > 1)
    asked.answer(fits=True)
    asked.picker.load_button.click()
    assert asked.choices == [PairChoice(TARGET, pair.draft, way.value, 4096)]
    assert asked.choices[0].pair == pair


def test_another_vocabulary_fits_and_says_calmly_what_it_means(with_draft: Asked) -> None:
    picker = with_draft.picker
    with_draft.answer(fits=True, reason=OTHER_WORDS, translates=True)
    assert picker.verdict.verdict is Verdict.translates
    assert picker.verdict.sentence.text() == "Fits, other vocabulary."
    assert (picker.verdict.detail.text(), picker.verdict.detail.isVisible()) == (OTHER_WORDS, True)
    assert picker.verdict.accessibleName() == f"Fits, other vocabulary. {OTHER_WORDS}"
    assert picker.load_button.isEnabled()
    assert not picker.without_button.isVisible()
    with_draft.answer(fits=True, reason="They fit.")
    assert not picker.verdict.detail.isVisible()


def test_the_dialog_makes_room_for_a_long_verdict(qtbot: QtBot, with_draft: Asked) -> None:
    picker = with_draft.picker
    before = picker.height()
    with_draft.answer(fits=True, reason=f"{OTHER_WORDS} " * 6, translates=True)
    qtbot.wait(20)
    assert picker.height() > before
    for label in (picker.verdict.sentence, picker.verdict.detail):
        assert label.height() >= label.heightForWidth(label.width())
    for button in picker.ways.values():
        assert button.height() >= button.sizeHint().height()


def test_recent_files_and_the_starter_are_one_click_away(qtbot: QtBot) -> None:
    asked = Asked(qtbot, PairChoice(TARGET, None, "none", 4096), recent=(str(DRAFT), str(STARTER)))
    actions = [a for a in asked.picker.target.recent_button.menu().actions() if not a.isSeparator()]
    assert [action.text() for action in actions] == ["Starter model (starter)", "draft"]
    actions[0].trigger()
    assert asked.picker.target.file() == STARTER


@pytest.mark.parametrize(
    ("url", "taken"),
    [("file:///models/x.GGUF", True), ("file:///models/x.txt", False), ("https://example.org/x.gguf", False)],
)
def test_gguf_files_can_be_dropped(qtbot: QtBot, url: str, taken: bool) -> None:
    field = FileField(Appearance(), "Target file", starter=None, recent=())
    qtbot.addWidget(field)
    mime = QMimeData()
    mime.setUrls([QUrl(url)])
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    field.dropEvent(QDropEvent(QPoint(1, 1), Qt.DropAction.CopyAction, mime, buttons, keys))
    assert field.file() == (Path("/models/x.GGUF") if taken else None)
