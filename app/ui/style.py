"""The look of Qt's ordinary controls, as a stylesheet built from the theme and the zoom."""

from __future__ import annotations

from app.ui.theme import HINT, LABEL, Appearance


def stylesheet(appearance: Appearance) -> str:
    t, px = appearance.theme, appearance.px
    radius = f"border-radius: {px(8)}px;"
    hover = t.color("text", 0.05).name(t.color("text").NameFormat.HexArgb)
    handle = t.color("text", 0.22).name(t.color("text").NameFormat.HexArgb)
    handle_hover = t.color("text", 0.4).name(t.color("text").NameFormat.HexArgb)
    return f"""
QPushButton[weight] {{ {radius} padding: {px(6)}px {px(14)}px; border: 1px solid {t.line};
    background: {t.surface}; color: {t.text}; }}
QPushButton[weight]:hover {{ border-color: {t.faint}; }}
QPushButton[weight]:focus {{ border-color: {t.accent}; }}
QPushButton[weight]:disabled {{ color: {t.faint}; background: {t.side}; border-color: {t.line}; }}
QPushButton[weight="primary"] {{ background: {t.accent}; color: {t.on_accent}; border-color: {t.accent};
    font-weight: 600; }}
QPushButton[weight="primary"]:hover, QPushButton[weight="primary"]:focus {{ border-color: {t.text}; }}
QPushButton[weight="primary"]:disabled {{ background: {t.side}; color: {t.faint}; border-color: {t.line}; }}
QPushButton[weight="link"] {{ background: transparent; border-color: transparent; color: {t.accent};
    padding: {px(4)}px {px(6)}px; }}
QPushButton[weight="link"]:hover {{ background: {hover}; }}
QPushButton[weight="link"]:focus {{ border-color: {t.accent}; }}
QPushButton[weight="link"]::menu-indicator {{ width: 0; }}

QLineEdit, QSpinBox, QDoubleSpinBox, QPlainTextEdit[field="true"] {{ {radius} border: 1px solid {t.line};
    background: {t.surface}; color: {t.text}; padding: {px(5)}px {px(9)}px;
    selection-background-color: {t.accent}; selection-color: {t.on_accent}; }}
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QPlainTextEdit[field="true"]:focus
    {{ border-color: {t.accent}; }}
QAbstractSpinBox {{ padding-left: 0; padding-right: 0; }}
QAbstractSpinBox QLineEdit {{ border: none; padding: 0; background: transparent; }}
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ width: 0; border: none; }}
QLineEdit:disabled, QSpinBox:disabled {{ color: {t.faint}; background: {t.side}; }}

QListWidget[field="true"] {{ {radius} border: 1px solid {t.line}; background: {t.surface}; color: {t.text};
    padding: {px(4)}px; outline: none; }}
QListWidget[field="true"]:focus {{ border-color: {t.accent}; }}
QListWidget[field="true"]::item {{ padding: {px(4)}px {px(6)}px; border-radius: {px(6)}px; }}
QListWidget[field="true"]::item:selected {{ background: {t.accent_ground}; color: {t.text}; }}

QRadioButton {{ spacing: {px(8)}px; color: {t.text}; background: transparent; }}
QRadioButton:disabled {{ color: {t.faint}; }}
QRadioButton::indicator {{ width: {px(14)}px; height: {px(14)}px; border-radius: {px(8)}px;
    border: 1px solid {t.faint}; background: {t.surface}; }}
QRadioButton::indicator:checked {{ width: {px(6)}px; height: {px(6)}px; border: {px(5)}px solid {t.accent};
    background: {t.on_accent}; }}
QRadioButton:focus {{ text-decoration: underline; }}

QToolTip {{ font-size: {px(LABEL)}px; color: {t.text}; background: {t.surface}; border: 1px solid {t.line};
    padding: {px(4)}px {px(6)}px; }}
QMenu {{ background: {t.surface}; color: {t.text}; border: 1px solid {t.line}; padding: {px(4)}px; }}
QMenu::item {{ padding: {px(6)}px {px(16)}px; border-radius: {px(6)}px; }}
QMenu::item:selected {{ background: {t.accent_ground}; color: {t.text}; }}
QMenu::item:disabled {{ color: {t.faint}; font-size: {px(HINT)}px; }}

QScrollBar {{ background: transparent; border: none; }}
QScrollBar:vertical {{ width: {px(10)}px; }}
QScrollBar:horizontal {{ height: {px(10)}px; }}
QScrollBar::handle {{ background: {handle}; border-radius: {px(3)}px; margin: {px(2)}px; }}
QScrollBar::handle:vertical {{ min-height: {px(32)}px; }}
QScrollBar::handle:horizontal {{ min-width: {px(32)}px; }}
QScrollBar::handle:hover {{ background: {handle_hover}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""
