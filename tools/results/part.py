"""Rows of some policies in a document that stands: one more policy does not need a whole run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from tools.results.page import Command, ResultsError, deciding

OPTION = "--policies"


def policies_of(command: Command) -> tuple[str, ...]:
    """Return the policies of a command, in the order of its rows; none if it has no such option."""
    words = shlex.split(command.line)
    if OPTION in words:
        return tuple(words[words.index(OPTION) + 1].split(","))
    return tuple(getattr(experiment(command.experiment).defaults, "policies", ()))


def without_policies(words: Sequence[str]) -> list[str]:
    """Return the words of a command without the option that names policies."""
    if OPTION not in words:
        return list(words)
    at = words.index(OPTION)
    return [*words[:at], *words[at + 2 :]]


def with_rows(
    whole: RunDocument, part: RunDocument, order: Sequence[str], command: Sequence[str]
) -> RunDocument:
    """Return a document with the rows of another one, which has other policies or newer rows.

    Rows of the same policies are left out. The new rows of a setting stand after those of the
    policy before theirs. Notes and definitions are those of both.

    Args:
        whole: the document.
        part: what the same command made of some policies.
        order: all policies, in the order of their rows.
        command: words of the command of the result.

    Raises:
        ResultsError: the documents are not of one command, or the new rows lack columns, as gains
            over a policy that is not among them.
    """
    if without_policies(deciding(whole.command)) != without_policies(command):
        raise ResultsError(f"the document was made by another command: {whole.command}")
    if whole.keys != part.keys or "policy" not in part.keys:
        raise ResultsError("the document has other keys: run the whole command")
    lost = {name for row in whole.rows for name in row} - {n for row in part.rows for n in row}
    if lost:
        columns = ", ".join(sorted(lost))
        raise ResultsError(f"rows of these policies alone have no {columns}: run the whole command")
    fresh = {row["policy"] for row in part.rows}
    rows = [row for row in whole.rows if row["policy"] not in fresh]
    for row in part.rows:
        rows.insert(_place(rows, row, part.keys, order), row)
    changes = {
        "rows": tuple(rows),
        "command": shlex.join(command),
        "definitions": whole.definitions | part.definitions,
        "notes": tuple(dict.fromkeys((*whole.notes, *part.notes))),
    }
    return part.model_copy(update=changes)


def _place(rows: Sequence[Row], row: Row, keys: Sequence[str], order: Sequence[str]) -> int:
    """Return where a row belongs: after the last row of its setting and of no later policy.

    What is no policy of the command, such as a reference, comes first.
    """

    def rank(policy: RowValue) -> int:
        return order.index(str(policy)) if policy in order else -1

    def setting(one: Row) -> list[RowValue]:
        return [one.get(key) for key in keys if key != "policy"]

    wanted, most = setting(row), rank(row["policy"])
    same = [at for at, one in enumerate(rows) if setting(one) == wanted]
    before = [at for at in same if rank(rows[at]["policy"]) <= most]
    if before:
        return before[-1] + 1
    return same[0] if same else len(rows)
