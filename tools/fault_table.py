"""Write the counted outcomes of the fault tests into docs/reliability.md: `make fault-table`."""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reliability.md"
TESTS = ROOT / "test/system"
HEAD = (
    "| fault | test | runs | answered | explained | lost | KV leaked | left |\n"
    "|---|---|---|---|---|---|---|---|\n"
)
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
MARKS = ("faults", "counted")


def main(words: Sequence[str] | None = None) -> int:
    """Write the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.fault_table", description=__doc__)
    parser.add_argument("file", type=Path, help="what `pytest --outcomes FILE` has written")
    given = parser.parse_args(words)
    try:
        rows = [json.loads(line) for line in given.file.read_text().splitlines()]
    except OSError as error:
        print(f"fault_table: cannot read {given.file}: {error.strerror}", file=sys.stderr)
        return 1
    page = PAGE.read_text()
    tests = set(fault_tests())
    PAGE.write_text(TABLE.sub(lambda _: table(rows, tests), page))
    missing = sorted(tests - {row["test"].partition("[")[0] for row in rows})
    for test in missing:
        print(f"fault_table: no outcomes of {test}", file=sys.stderr)
    return int(bool(missing))


def table(rows: Sequence[dict[str, str | int]], tests: Iterable[str]) -> str:
    """Return the table: a line for each test, with the sums of its runs.

    Args:
        rows: of each run, as `test.system.outcomes` writes them.
        tests: ids of the tests; one without a run has dashes.
    """
    runs: dict[str, list[dict[str, str | int]]] = {test: [] for test in tests}
    for row in rows:
        runs.setdefault(str(row["test"]).partition("[")[0], []).append(row)

    def total(test: str, name: str) -> int:
        return sum(int(row[name]) for row in runs[test])

    lines = []
    for test in sorted(runs):
        counts: list[str | int] = ["-"] * 5
        if runs[test]:
            counts = [total(test, name) for name in ("answered", "explained", "lost")]
            counts += [total(test, "leaked") if total(test, "servers") else "-"]
            counts += [max(int(row["left"]) for row in runs[test])]
        words = test.partition("::test_")[2].replace("_", " ")
        cells = (words, f"`{test}`", len(runs[test]), *counts)
        lines.append(f"| {' | '.join(map(str, cells))} |\n")
    return HEAD + "".join(lines)


def fault_tests() -> Iterator[str]:
    """Yield the ids of the tests that are marked as those of faults, without parameters."""
    for file in sorted(TESTS.glob("test_*.py")):
        tree = ast.parse(file.read_text())
        whole = any(
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "pytestmark"
            and _marks(node.value)
            for node in tree.body
        )
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            if whole or any(map(_marks, node.decorator_list)):
                yield f"{file.relative_to(ROOT)}::{node.name}"


def _marks(node: ast.expr) -> bool:
    return bool(re.search(rf"pytest\.mark\.({'|'.join(MARKS)})\b", ast.unparse(node)))


if __name__ == "__main__":
    sys.exit(main())
