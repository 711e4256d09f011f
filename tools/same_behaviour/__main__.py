"""The command: `python -m tools.same_behaviour BASE [HEAD]`."""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import tools.same_behaviour as package
from tools.same_behaviour.compare import Difference, Verdict, differences
from tools.same_behaviour.errors import ComparisonError
from tools.same_behaviour.record import KINDS, Record, read, record

SAME, FAULT, BROKEN, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses."""
HEADINGS: dict[Verdict, str] = {
    "value": "VALUES that changed (a fault)",
    "removed": "REMOVED (a fault)",
    "added": "added",
    "wording": "wording only",
}


def main(words: Sequence[str] | None = None) -> int:
    """Compare, print and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.same_behaviour", description=package.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("base", metavar="BASE", help="a commit, or the file of a kept record")
    parser.add_argument(
        "head", metavar="HEAD", nargs="?", help="the same; the working tree if not given"
    )
    parser.add_argument(
        "--only", metavar="KIND,...", type=_kinds, default=tuple(KINDS), help=", ".join(KINDS)
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the differences to FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the records to FOLDER")
    chosen = parser.parse_args(words)
    # A signal undoes what was begun, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        base, head = (
            _record(name, chosen.only, chosen.keep) for name in (chosen.base, chosen.head)
        )
        found = differences(base, head)
        if chosen.json is not None:
            document = {"base": base.name, "head": head.name, "kinds": _both(base, head),
                        "differences": [one.document() for one in found]}  # fmt: skip
            chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except ComparisonError as error:
        print(f"same_behaviour: {error}", file=sys.stderr)
        return BROKEN
    except OSError as error:
        print(f"same_behaviour: {error.filename}: {error.strerror}", file=sys.stderr)
        return BROKEN
    except KeyboardInterrupt:
        print("same_behaviour: interrupted; nothing is left behind", file=sys.stderr)
        return INTERRUPTED
    show(base, head, found)
    return FAULT if any(one.is_fault for one in found) else SAME


def show(base: Record, head: Record, found: Sequence[Difference]) -> None:
    """Print what differs, the faults first."""
    print(f"{base.name} and {head.name}")
    for kind in _both(base, head):
        counts = Counter(one.verdict for one in found if one.kind == kind)
        said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in HEADINGS if counts[verdict])
        print(f"  {kind}: {len(head.kinds[kind])} compared, {said or 'no difference'}")
    for verdict, heading in HEADINGS.items():
        listed = [one for one in found if one.verdict == verdict]
        if listed:
            print(f"\n{heading}")
        for one in listed:
            print(f"- {one.kind}: {one.line()}")
            for line in one.example.splitlines():
                print(f"    {line}")


def _both(base: Record, head: Record) -> list[str]:
    return [kind for kind in base.kinds if kind in head.kinds]


def _record(name: str | None, kinds: tuple[str, ...], keep: Path | None) -> Record:
    """Return the record of a commit, of the working tree (None), or in a file."""
    if name is not None and Path(name).is_file():
        kept = read(Path(name))
        if missing := [kind for kind in kinds if kind not in kept.kinds]:
            raise ComparisonError(f"{name} has no {', '.join(missing)}: name others with --only")
        return Record(kept.name, {kind: kept.kinds[kind] for kind in kinds})
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    made = record(name, kinds)
    if keep is not None:
        made.write(keep / f"{re.sub(r'[^0-9a-z]+', '_', made.name)}.json")
    return made


def _kinds(text: str) -> tuple[str, ...]:
    names = [word.strip() for word in text.split(",") if word.strip()]
    if not names or (unknown := [name for name in names if name not in KINDS]):
        wrong = unknown[0] if names else text
        raise argparse.ArgumentTypeError(f"{wrong!r} is not one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


if __name__ == "__main__":
    sys.exit(main())
