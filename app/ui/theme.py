"""The one place that names a colour or a size. Widgets ask `Appearance` and repaint when it says it changed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontMetricsF, QGuiApplication, QPalette

from app.engine.rounds import DrafterKind, TokenSource


@dataclass(frozen=True)
class Theme:
    """Colours as #RRGGBB. The contrasts are checked by a test."""

    is_dark: bool
    ground: str  # transcript
    side: str  # sidebar, panel
    surface: str  # cards, fields, code
    line: str  # hairlines
    text: str
    soft: str  # labels
    faint: str  # hints, footers
    accent: str  # primary action, now
    on_accent: str  # text on the accent
    accent_ground: str  # selection, state chip
    own_message: str
    warning: str
    error: str
    draft: str
    lookup: str
    recovered: str
    bonus: str
    plain: str

    def color(self, token: str, alpha: float = 1.0) -> QColor:
        """A token as a QColor; `alpha` from 0 to 1."""
        color = QColor(getattr(self, token))
        color.setAlphaF(alpha)
        return color

    def source_token(self, source: TokenSource, drafter: DrafterKind) -> str:
        """The name of the token that colours a source; an accepted lookup token is apart from a model's."""
        if source is TokenSource.draft and drafter is DrafterKind.lookup:
            return "lookup"
        return source.value

    def source_tint(self, source: TokenSource, drafter: DrafterKind) -> QColor:
        """The colour behind a token of the transcript."""
        return self.color(self.source_token(source, drafter), 0.18 if self.is_dark else 0.13)


LIGHT = Theme(
    is_dark=False,
    ground="#FBFAF7",
    side="#F2F1EC",
    surface="#FFFFFF",
    line="#E3E1D9",
    text="#1D1E20",
    soft="#5C6066",
    faint="#666B72",
    accent="#0A726D",
    on_accent="#FFFFFF",
    accent_ground="#DFF1EE",
    own_message="#EEF0EC",
    warning="#A84B07",
    error="#B3261E",
    draft="#1A9772",
    lookup="#3B82C4",
    recovered="#CF6C0A",
    bonus="#B565A7",
    plain="#82888F",
)

DARK = Theme(
    is_dark=True,
    ground="#17191C",
    side="#121416",
    surface="#1F2226",
    line="#2D3137",
    text="#E9EAEC",
    soft="#A5ABB2",
    faint="#8D949C",
    accent="#49C5B6",
    on_accent="#121416",
    accent_ground="#173330",
    own_message="#262A2F",
    warning="#F0B35B",
    error="#F2837B",
    draft="#3CC79B",
    lookup="#6AAFEA",
    recovered="#F0934A",
    bonus="#D48BC7",
    plain="#7B828A",
)

COLOR_TOKENS = tuple(f.name for f in fields(Theme) if f.name != "is_dark")


class ThemeMode(StrEnum):
    system = "system"
    light = "light"
    dark = "dark"


HINT, LABEL, CONTROL, TEXT, BIG = 11, 12, 13, 15, 38  # pixels at zoom 1


class Appearance(QObject):
    """The theme and the zoom in force. Follows the system's light or dark while the mode is `system`."""

    changed = Signal()

    def __init__(self, mode: ThemeMode = ThemeMode.system, zoom: float = 1.0, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._mode = mode
        self._zoom = zoom
        self._theme = self._resolve()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_system_changed)

    @property
    def theme(self) -> Theme:
        return self._theme

    @property
    def mode(self) -> ThemeMode:
        return self._mode

    @property
    def zoom(self) -> float:
        return self._zoom

    def set_mode(self, mode: ThemeMode) -> None:
        self._mode = mode
        self._apply()

    def set_zoom(self, zoom: float) -> None:
        self._zoom = min(2.0, max(0.75, zoom))
        self._apply()

    def px(self, size: float) -> int:
        """A length at the current zoom, in pixels."""
        return round(size * self._zoom)

    def font(self, size: int = CONTROL, *, bold: bool = False, fixed: bool = False, tabular: bool = False) -> QFont:
        """The system's interface (or fixed) font at `size` pixels, zoomed. `tabular` keeps figures in place."""
        kind = QFontDatabase.SystemFont.FixedFont if fixed else QFontDatabase.SystemFont.GeneralFont
        font = QFontDatabase.systemFont(kind)
        font.setPixelSize(self.px(size))
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        if tabular:
            font.setFeature(QFont.Tag("tnum"), 1)
        return font

    def metrics(self, size: int = CONTROL, *, bold: bool = False) -> QFontMetricsF:
        return QFontMetricsF(self.font(size, bold=bold))

    def palette(self) -> QPalette:
        """The theme as a QPalette, for what Qt draws by itself."""
        t, role = self._theme, QPalette.ColorRole
        palette = QPalette()
        for roles, token in (
            ((role.Window,), "ground"),
            ((role.Base, role.AlternateBase, role.Button, role.ToolTipBase), "surface"),
            ((role.WindowText, role.Text, role.ButtonText, role.ToolTipText), "text"),
            ((role.PlaceholderText,), "faint"),
            ((role.Highlight,), "accent"),
            ((role.HighlightedText,), "on_accent"),
            ((role.Link, role.LinkVisited), "accent"),
            ((role.Mid, role.Midlight, role.Dark), "line"),
        ):
            for r in roles:
                palette.setColor(r, t.color(token))
        for r in (role.WindowText, role.Text, role.ButtonText):
            palette.setColor(QPalette.ColorGroup.Disabled, r, t.color("faint"))
        return palette

    def _resolve(self) -> Theme:
        if self._mode is ThemeMode.system:
            dark = QGuiApplication.styleHints().colorScheme() is Qt.ColorScheme.Dark
        else:
            dark = self._mode is ThemeMode.dark
        return DARK if dark else LIGHT

    def _apply(self) -> None:
        self._theme = self._resolve()
        self.changed.emit()

    def _on_system_changed(self) -> None:
        if self._mode is ThemeMode.system:
            self._apply()
