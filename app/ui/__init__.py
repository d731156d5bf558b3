"""Shows. The only package that imports PySide6."""
