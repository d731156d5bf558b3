from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QUrl
from PySide6.QtGui import QColor, QImage, QTextCursor, QTextDocument, QTextFormat, QTextTable
from pytestqt.qtbot import QtBot

from app.chat import Role
from app.engine.rounds import DrafterKind, Span, TokenSource
from app.ui.chat.alignment import Alignment, plain_positions
from app.ui.chat.fences import SPLIT_AT, Segment, SegmentScanner
from app.ui.chat.highlight import Highlighter
from app.ui.chat.markdown import MarkdownSurface, settled_length
from app.ui.chat.messages import Answer, ShownMessage, SourceRun
from app.ui.theme import Appearance, ThemeMode

FOREGROUND = QTextFormat.Property.ForegroundBrush.value
ANSWER = """# Title

Some **bold** text with `code` and ~~old~~ words 🎉.

```python
def f(x):
    return "```" + x

```

~~~~text
~~~
still code ``` here
~~~~
- item one
- item two

  ```sh
  ls -l
    deeper
  ```

| a | b |
|---|--:|
| 1 | 2 |

````
```
nested
```
````
last words and an open one:

```rust
fn main() {}
"""


def segments_of(text: str, *chunks: int) -> list[Segment]:
    """The segments after `text` arrived in pieces that end at `chunks`, looked at after each."""
    scanner = SegmentScanner()
    for end in chunks:
        scanner.scan(text[:end])
    scanner.finish(text)
    return scanner.segments


# -- the fence scanner ------------------------------------------------------------------------------------------------


def test_segments_are_text_and_code_in_turn() -> None:
    found = [(s.is_code, s.language, s.content(ANSWER)) for s in segments_of(ANSWER)]
    assert found == [
        (False, "", "# Title\n\nSome **bold** text with `code` and ~~old~~ words 🎉."),
        (True, "python", 'def f(x):\n    return "```" + x\n'),
        (True, "text", "~~~\nstill code ``` here"),
        (False, "", "- item one\n- item two"),
        (True, "sh", "ls -l\n  deeper"),
        (False, "", "| a | b |\n|---|--:|\n| 1 | 2 |"),
        (True, "", "```\nnested\n```"),
        (False, "", "last words and an open one:"),
        (True, "rust", "fn main() {}"),
    ]


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_chunks_of_any_size_give_the_same_segments(step: int) -> None:
    assert segments_of(ANSWER, *range(0, len(ANSWER), step)) == segments_of(ANSWER)


def test_every_cut_gives_the_same_segments() -> None:
    whole = segments_of(ANSWER)
    assert all(segments_of(ANSWER, cut) == whole for cut in range(len(ANSWER)))


@given(text=st.text(alphabet="`~ab \n>-", max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
@settings(deadline=None, max_examples=300)
def test_any_text_in_any_chunks(text: str, cuts: list[int]) -> None:
    found = segments_of(text, *sorted(min(cut, len(text)) for cut in cuts))
    assert found == segments_of(text)
    ends = [0] + [s.end for s in found]
    assert all(s.start >= end for s, end in zip(found, ends, strict=False)), "segments overlap"


def test_what_may_become_a_fence_is_held_back() -> None:
    scanner = SegmentScanner()
    scanner.scan("text\n``")
    assert [s.content("text\n``") for s in scanner.segments] == ["text"]
    scanner.scan("text\n``x``")
    assert [s.content("text\n``x``") for s in scanner.segments] == ["text\n``x``"]


def test_an_open_fence_shows_its_code_at_once() -> None:
    raw = "```py\nprint(1"
    scanner = SegmentScanner()
    scanner.scan(raw)
    (code,) = scanner.segments
    assert (code.is_code, code.is_closed, code.content(raw)) == (True, False, "print(1")


def test_backticks_after_backticks_open_nothing() -> None:
    assert [s.is_code for s in segments_of("```a``` is inline\n")] == [False]


def test_long_text_is_split_at_blank_lines_only() -> None:
    paragraph = "word " * 60 + "\n\n"
    text = paragraph * 40
    found = segments_of(text)
    assert len(found) > 1
    assert all(not s.is_code and s.end - s.start <= SPLIT_AT + len(paragraph) for s in found)
    assert "\n\n".join(s.content(text) for s in found) == text.rstrip("\n")


def test_a_list_is_not_torn_apart() -> None:
    text = "intro " * (SPLIT_AT // 6) + "\n\n" + "1. one\n\n1. two\n\n1. three\n\nThe end."
    found = segments_of(text)
    assert [s.content(text)[-8:] for s in found] == ["1. three", "The end."]


# -- alignment --------------------------------------------------------------------------------------------------------


@pytest.fixture
def appearance(qapp: object) -> Appearance:
    return Appearance(ThemeMode.light)


@pytest.fixture
def surface(appearance: Appearance, qtbot: QtBot) -> MarkdownSurface:
    made = MarkdownSurface(appearance)
    qtbot.addWidget(made)
    made.resize(600, 800)
    return made


def text_at(document: QTextDocument, start: int, end: int) -> str:
    """By positions of the document, without the marks that end blocks and cells: they have no ink."""
    units = document.toRawText().encode("utf-16-le")
    return units[2 * start : 2 * end].decode("utf-16-le").strip("\u2029\ufdd0\ufdd1")


@pytest.fixture
def rendered(surface: MarkdownSurface) -> Callable[[str, str], str]:
    """What the document shows where `part` stands in the Markdown source."""

    def find(markdown: str, part: str) -> str:
        at = markdown.index(part)
        run = SourceRun(at, at + len(part), TokenSource.draft, DrafterKind.model)
        surface.set_markdown(markdown, [run])
        (tint,) = surface.tints
        return text_at(surface.document(), tint.start, tint.end)

    return find


@pytest.mark.parametrize(
    ("markdown", "part", "shown"),
    [
        ("plain words here", "words", "words"),
        ("some **bold** and *it* here", "bold", "bold"),
        ("some **bold** and *it* here", " *it*", " it"),
        ("some **bold** and *it* here", "here", "here"),
        ("emoji 🎉🚀 then words", "words", "words"),
        ("emoji 🎉🚀 then words", "🚀", "🚀"),
        ("# Head *line*\n\nnext para", "line", "line"),
        ("# Head *line*\n\nnext para", "next", "next"),
        ("a `co_de*` b", "co_de*", "co_de*"),
        ("a `co_de*` b", " b", " b"),
        ("- one\n- **two** x\n  - three\n\n1. four", "two", "two"),
        ("- one\n- **two** x\n  - three\n\n1. four", "three", "three"),
        ("- one\n- **two** x\n  - three\n\n1. four", "four", "four"),
        ("- [ ] todo\n- [x] done", "done", "done"),
        ("| a | b |\n|---|--:|\n| 🎉 | two |\n\nafter", "two", "two"),
        ("| a | b |\n|---|--:|\n| 🎉 | two |\n\nafter", "after", "after"),
        ("> quoted\n> text\n\n| n | v |\n|---|---|\n| x | y |\n\nend", "text", "text"),
        ("> quoted\n> text\n\n| n | v |\n|---|---|\n| x | y |\n\nend", "y", "y"),
        ("see [the docs](https://a.b/the_docs). Then", "docs", "docs"),
        ("see [the docs](https://a.b/the_docs). Then", "Then", "Then"),
        ("a &amp; b &lt;c&gt; d", "d", "d"),
        ("a \\*star\\* b", "star", "star"),
        ("2 * 3 * 4 and 5_000_000 end", "5_000_000", "5_000_000"),
        ("![alt words](http://x.y/p.png) after", "after", "after"),
        ("soft\nbreak and  \nhard", "hard", "hard"),
        ("one\n\n---\n\ntwo", "two", "two"),
        ("Title\n=====\n\nbody", "body", "body"),
        ("ünïcode 中文 **粗体** 完", "完", "完"),
        ("text <b>html</b> end", "<b>html", "<b>html"),
    ],
)
def test_source_lands_on_what_is_shown(
    rendered: Callable[[str, str], str], markdown: str, part: str, shown: str
) -> None:
    assert rendered(markdown, part) == shown


def test_a_token_of_nothing_but_syntax_covers_nothing(rendered: Callable[[str, str], str]) -> None:
    assert rendered("a **b** c", "**") == ""


def test_streaming_aligns_like_one_shot(surface: MarkdownSurface) -> None:
    markdown = (
        ANSWER.split("```python", maxsplit=1)[0] + "> quote\n\n| a | b |\n|---|---|\n| 1 | 🎉 |\n\n- x\n- y\n\nend"
    )
    grown = Alignment()
    for end in range(1, len(markdown) + 1):
        surface.set_markdown(markdown[:end])
        grown.update(markdown[:end], surface.document().toRawText())
    fresh = Alignment()
    fresh.update(markdown, surface.document().toRawText())
    assert grown.positions == fresh.positions


def test_plain_positions_count_utf16_and_the_margin() -> None:
    assert plain_positions("a🎉b") == [0, 1, 3, 4]
    assert plain_positions("  a\n   b", indent=2) == [0, 0, 0, 1, 2, 2, 2, 3, 4]


# -- rendering --------------------------------------------------------------------------------------------------------


def test_html_is_shown_and_not_rendered(surface: MarkdownSurface) -> None:
    surface.set_markdown("<b>bold</b> <script>alert(1)</script>\n\n<img src='file:///x.png'>")
    assert "<b>bold</b> <script>alert(1)</script>" in surface.toPlainText()
    assert "<img src=" in surface.toPlainText()


def test_pictures_become_words_and_load_nothing(surface: MarkdownSurface, tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    image = QImage(40, 40, QImage.Format.Format_RGB32)
    image.fill(QColor("#ff0000"))
    image.save(str(path))
    url = QUrl.fromLocalFile(str(path)).toString()
    surface.set_markdown(f"before ![a red square]({url}) after")
    surface.height_for(600)
    assert surface.toPlainText() == "before a red square after"
    loaded = surface.document().resource(QTextDocument.ResourceType.ImageResource.value, QUrl(url))
    assert (loaded.width(), loaded.height()) == (1, 1), "not the picture, but the blank that stands for nothing"
    shot = surface.grab().toImage()
    reds = sum(shot.pixelColor(x, y) == QColor("#ff0000") for x in range(0, 300, 3) for y in range(0, 60, 3))
    assert reds == 0


@pytest.mark.parametrize(
    ("href", "is_link"),
    [
        ("https://example.org", True),
        ("mailto:a@b.c", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
    ],
)
def test_only_safe_addresses_are_links(surface: MarkdownSurface, href: str, is_link: bool) -> None:
    surface.set_markdown(f"go [there]({href})")
    cursor = QTextCursor(surface.document())
    cursor.setPosition(5)
    assert cursor.charFormat().isAnchor() is is_link


def test_links_do_not_open_other_schemes(surface: MarkdownSurface) -> None:
    opened: list[QUrl] = []
    surface.link_activated.connect(opened.append)
    surface.anchorClicked.emit(QUrl("file:///etc/passwd"))
    assert opened == []
    surface.anchorClicked.emit(QUrl("https://example.org"))
    assert opened == [QUrl("https://example.org")]


def test_the_first_cell_behind_a_quotation_is_like_the_others(surface: MarkdownSurface) -> None:
    surface.set_markdown("> q\n\n| name | v |\n|---|---|\n| 1 | 2 |")
    (table,) = [frame for frame in surface.document().rootFrame().childFrames() if isinstance(frame, QTextTable)]
    cell = table.cellAt(0, 0)
    assert text_at(surface.document(), cell.firstPosition(), cell.lastPosition()) == "name"
    weights = [table.cellAt(0, column).lastCursorPosition().charFormat().fontWeight() for column in (0, 1)]
    assert weights[0] == weights[1] > 400


def test_a_selection_survives_what_comes_after(surface: MarkdownSurface) -> None:
    surface.set_markdown("Hello **dear** reader")
    cursor = surface.textCursor()
    cursor.setPosition(6)
    cursor.setPosition(10, QTextCursor.MoveMode.KeepAnchor)
    surface.setTextCursor(cursor)
    surface.set_markdown("Hello **dear** reader, and more\n\n- of it")
    assert surface.textCursor().selectedText() == "dear"


def test_lines_have_the_height_of_the_look(surface: MarkdownSurface) -> None:
    surface.set_markdown("one line")
    one = surface.height_for(600)
    surface.set_markdown("one line  \nand another  \nand a third")
    assert one == 24
    assert surface.height_for(600) > 2 * one


def test_tints_are_painted_behind_their_words(surface: MarkdownSurface, appearance: Appearance) -> None:
    surface.set_markdown("aaaa **bbbb** cccc", [SourceRun(7, 11, TokenSource.recovered, DrafterKind.model)])
    surface.resize(600, surface.height_for(600))
    shot = surface.grab().toImage()
    underline = appearance.theme.color("recovered")
    columns = {x for x in range(shot.width()) for y in range(shot.height()) if shot.pixelColor(x, y) == underline}
    layout = surface.document().begin().layout().lineAt(0)
    left, right = layout.cursorToX(5)[0], layout.cursorToX(9)[0]
    assert columns
    assert abs(min(columns) - left) <= 2
    assert abs(max(columns) - right) <= 2


# -- code -------------------------------------------------------------------------------------------------------------


def test_code_is_coloured_without_changing_it(qtbot: QtBot, appearance: Appearance) -> None:
    code = 'def f():\n    """🎉 doc\n    more"""\n    return 42  # note'
    document = QTextDocument(code)
    highlighter = Highlighter(document, "python", appearance, document)
    highlighter.start(code)
    qtbot.waitUntil(lambda: not highlighter.is_working)

    def colour(word: str) -> str:
        at = len(code[: code.index(word)].encode("utf-16-le")) // 2
        block = document.findBlock(at)
        column = at - block.position()
        (found,) = [r for r in block.layout().formats() if r.start <= column < r.start + r.length]
        return found.format.foreground().color().name() if found.format.hasProperty(FOREGROUND) else ""

    assert document.toPlainText() == code
    assert colour("def") == colour("return") != ""
    assert colour("doc") == colour("more") != colour("def")
    assert colour("42") not in ("", colour("def"), colour("note"))


def test_an_unknown_language_stays_plain(qtbot: QtBot, appearance: Appearance) -> None:
    document = QTextDocument("x = 1")
    highlighter = Highlighter(document, "no-such-language", appearance, document)
    highlighter.start("x = 1")
    assert not highlighter.is_working
    assert document.begin().layout().formats() == []


# -- the answer's state -----------------------------------------------------------------------------------------------


def span(text: str, source: TokenSource = TokenSource.draft, *, is_reasoning: bool = False) -> Span:
    return Span(text, source, DrafterKind.model, is_reasoning)


def test_runs_join_neighbours_and_are_cut_to_a_segment() -> None:
    answer = Answer()
    answer.append([span("ab"), span("cd"), span("ef", TokenSource.bonus), span("gh")])
    runs = answer.text_runs.between(1, 7)
    assert [(r.start, r.end, r.source) for r in runs] == [
        (0, 3, TokenSource.draft),
        (3, 5, TokenSource.bonus),
        (5, 6, TokenSource.draft),
    ]


def test_reasoning_is_timed_until_the_answer_begins() -> None:
    now = [10.0]
    answer = Answer(clock=lambda: now[0])
    answer.append([span("hm", is_reasoning=True)])
    assert answer.is_thinking
    assert not answer.is_folded
    now[0] = 13.25
    answer.append([span("Yes.")])
    assert not answer.is_thinking
    assert answer.is_folded
    assert answer.reasoning_s == 3.25
    answer.finish("footer", "Stopped")
    shown = answer.shown()
    assert (shown.text, shown.reasoning, shown.footer, shown.notice) == ("Yes.", "hm", "footer", "Stopped")
    assert Answer(shown).shown() == shown


def test_a_reopened_answer_goes_on_where_it_was() -> None:
    shown = ShownMessage(Role.assistant, "```py\nx = 1", spans=(span("```py\nx = 1"),))
    answer = Answer(shown)
    answer.reopen()
    answer.append([span("\ny = 2\n```\nDone.")])
    answer.finish("", "")
    assert [s.content(answer.text) for s in answer.segments] == ["x = 1\ny = 2", "Done."]
    assert answer.shown() == replace(shown, text=answer.text, spans=(*shown.spans, span("\ny = 2\n```\nDone.")))


@pytest.mark.parametrize("mark", ["-", "*", "1", "1.", "12)", "#", "##", "---", "===", ">", "|", "  - "])
def test_a_mark_without_words_changes_nothing_before_it(mark: str) -> None:
    """While it is written, a list or an underline must not turn the paragraph before it into something else."""
    text = f"A paragraph before it.\n{mark}"
    assert settled_length(text) == len("A paragraph before it.\n")
    assert settled_length(f"{text} words") == len(f"{text} words")


@pytest.mark.parametrize("text", ["", "1", "- ", "Words", "Words\n", "Words - more", "A\n\nB"])
def test_other_texts_are_shown_as_far_as_they_go(text: str) -> None:
    assert settled_length(text) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "This is how it can be used, in a few words:\n\n1. The first\n2. The second",
        "A paragraph that may be a heading\n- and is none",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\nAfter it",
        "> quoted words\n\nplain words **and bold** ones",
    ],
)
def test_tints_painted_before_the_end_do_not_outlive_what_they_were_painted_for(qtbot: QtBot, text: str) -> None:
    """A paragraph may have been a list item for a frame; its tints must not stay where that had its words."""

    def shapes(*prefixes: str) -> list[list[object]]:
        surface = MarkdownSurface(Appearance(ThemeMode.light))
        qtbot.addWidget(surface)
        for prefix in prefixes:
            run = SourceRun(4, len(prefix), TokenSource.recovered, DrafterKind.model)
            surface.set_markdown(prefix, [run])
            surface.resize(400, surface.height_for(400))
            surface.grab()
        found: list[list[object]] = []
        block = surface.document().begin()
        while block.isValid():
            rect = surface.document().documentLayout().blockBoundingRect(block)
            rect.setHeight(block.layout().boundingRect().bottom())
            found.append([rects for rects, _ in surface._shapes_of(block, rect) if isinstance(rects, list)])
            block = block.next()
        return found

    for cut in range(5, len(text)):
        assert shapes(text[:cut], text) == shapes(text), text[:cut]
