"""The README stays true: its tree names every file, its pictures are there, its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TREE = README.partition("## The tree")[2]


@pytest.mark.parametrize(
    "path",
    [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "app").rglob("*.py")) if p.name != "__init__.py"],
)
def test_the_tree_has_a_sentence_for_every_file(path: str) -> None:
    assert re.search(rf"^ *{re.escape(Path(path).name)} +\S+ ", TREE, re.MULTILINE), (
        f"{path} is not in the README's tree"
    )


def test_the_tree_names_no_file_that_is_gone() -> None:
    there = {p.name for folder in ("app", "tests") for p in (ROOT / folder).rglob("*.py")}
    named = set(re.findall(r"^ +(\w+\.py) ", TREE, re.MULTILINE))
    assert named <= there


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).is_file()


def test_the_benchmarks_it_names_exist() -> None:
    for name in re.findall(r"python -m tests\.benchmarks\.(\w+)", README):
        assert (ROOT / "tests" / "benchmarks" / f"{name}.py").is_file()
