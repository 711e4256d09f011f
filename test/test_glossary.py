"""The glossary names what is in the code, and the references name what is cited."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from timely_llm.resources import resource
from tools import words

ROOT = resource("package.xml").parent
GLOSSARY = (ROOT / "docs/glossary.md").read_text()
REFERENCES = (ROOT / "docs/references.md").read_text()
HEADS = re.findall(r"^\*\*([^*]+)\*\*", REFERENCES, re.M)
PAPERS = REFERENCES.partition("## The five papers")[2].partition("\n## ")[0]
NAME = r"[A-ZÁÉÍÓÚÖÜ][\w-]+"
YEAR = re.compile(r"(?:19|20)\d\d\b")
CITED = re.compile(rf"({NAME}(?: et al\.| and {NAME})?),? \(?((?:19|20)\d\d)\b")
"""An author, two, or the first of many, and a year."""


def rows() -> list[list[str]]:
    """Return the glossary's entries: word, meaning, code, the papers' word."""
    lines = re.findall(r"^\| (?!word \|)([^|]+)\|([^|]+)\|([^|]+)\|([^|]*)\|$", GLOSSARY, re.M)
    return [[cell.strip() for cell in line] for line in lines]


@cache
def known() -> dict[str, set[str]]:
    """Return the attributes of each class of the package, and its functions and constants."""
    own, bases = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for path in words.files([ROOT / "timely_llm"]):
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                own[node.name] |= set(_attributes(node))
                bases[node.name] |= {ast.unparse(base).partition("[")[0] for base in node.bases}
            elif isinstance(node, ast.FunctionDef):
                own[node.name] |= set()
            else:
                for name in _targets(node):
                    own[name] |= set()
    for name in [*own]:
        todo = [*bases[name]]
        while todo:
            base = todo.pop()
            own[name] |= own.get(base, set())
            todo += bases.get(base, set())
    return own


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef):
            yield inner.name
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr
    for statement in node.body:
        yield from _targets(statement)


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    else:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_each_word_stands_once_and_means_something() -> None:
    words_of = [word for word, *_ in rows()]
    assert len(words_of) > 50
    assert not [word for word, count in Counter(words_of).items() if count > 1]
    assert not [word for word, meaning, *_ in rows() if not meaning.endswith(".")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_the_glossary_names_is_in_the_code(row: list[str]) -> None:
    names = re.findall(r"`([^`]+)`", row[2])
    assert names, "no name in the code"
    for name in names:
        owner, _, attribute = name.partition(".")
        assert owner in known(), name
        assert not attribute or attribute in known()[owner], name


def test_a_name_that_is_not_in_the_code_is_found() -> None:
    assert "Policy" in known() and "plan" in known()["Policy"]
    assert "due_s" in known()["PlanGeneration"]  # its own
    assert "kv_tokens" in known()["PlanGeneration"]  # inherited
    assert "words_per_s" not in known()["PlanGeneration"] and "Scheduler" not in known()


@cache
def citations() -> dict[str, str]:
    """Return what is cited outside of the references, and one file that does."""
    found = {}
    for path in words.files([ROOT]):
        if path.name in ("references.md", "test_glossary.py"):
            continue
        if YEAR.search(path.read_text()):
            for _, text in words.prose(path):
                for authors, year in CITED.findall(" ".join(text.split())):
                    found[f"{authors} {year}"] = str(path.relative_to(ROOT))
    return found


def test_what_is_cited_has_a_reference() -> None:
    several = {source for source in citations() if " et al. " in source or " and " in source}
    assert {"Ling et al. 2024", "Zhou et al. 2025", "Wu et al. 2023"} <= several
    assert {source: citations()[source] for source in several - {*HEADS}} == {}


def test_what_has_a_reference_is_cited() -> None:
    of_the_papers = re.findall(r"^\*\*([^*]+)\*\*", PAPERS, re.M)
    assert len(of_the_papers) == 5
    assert not {*HEADS} - {*of_the_papers} - {*citations()}
