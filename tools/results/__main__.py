"""The command `python -m tools.results`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import tools.results as package
from timely_llm.core.errors import TimelyError
from tools.results.check import problems
from tools.results.index import write_index
from tools.results.page import ResultsError
from tools.results.pages import LANES, PAGES, chosen
from tools.results.part import policies_of
from tools.results.run import Runs, made_by_this_code, run_pages
from tools.results.write import write_page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/results"
DATA = Path("results")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command of the tool and return the exit status."""
    given = _parser().parse_args(words)
    try:
        status: int = given.act(given)
    except (ResultsError, TimelyError) as error:
        print(f"results: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"results: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("results: interrupted", file=sys.stderr)
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.results",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listed = commands.add_parser("list", help="print the pages and their commands")
    listed.set_defaults(act=_list)
    run = commands.add_parser("run", help="run the experiments with missing documents")
    run.add_argument("--seeds", type=_count, metavar="N", help="seeds, if not the page's number")
    run.add_argument(
        "--processes", type=_count, metavar="P", default=1, help="commands at once (1)"
    )
    run.add_argument(
        "--published",
        type=Path,
        metavar="FOLDER",
        help="folder of published traces, after `timely-llm trace import`",
    )
    run.add_argument(
        "--any-code", action="store_true", help="keep documents that other code has made"
    )
    run.add_argument(
        "--policies",
        type=_names,
        metavar="P,...",
        default=(),
        help="run only these; their rows join the documents, and others' rows stay as they are",
    )
    run.set_defaults(act=_run)
    write = commands.add_parser("write", help="write pictures and tables into docs/results")
    write.set_defaults(act=_write)
    for one in (run, write):
        one.add_argument("pages", nargs="*", metavar="PAGE", help="all pages if not given")
        one.add_argument(
            "--folder", type=Path, metavar="F", default=DATA, help=f"run documents ({DATA})"
        )
    check = commands.add_parser("check", help="print what pages lack")
    check.set_defaults(act=_check)
    return parser


def _count(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and 1 <= int(word[:9]) <= 1000):
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number of 1 to 1000")
    return int(word)


def _names(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in word.split(",") if name))


def _list(given: argparse.Namespace) -> int:
    for page in PAGES:
        print(f"{page.name}: {page.title}")
        for command in page.commands:
            print(f"    {command.shown}  # {command.minutes:g} min")
    print(f"all: {sum(command.minutes for page in PAGES for command in page.commands):.0f} min")
    return 0


def _run(given: argparse.Namespace) -> int:
    pages = chosen(given.pages)
    known = {one for page in pages for command in page.commands for one in policies_of(command)}
    if unknown := [policy for policy in given.policies if policy not in known]:
        raise ResultsError(f"no command of these pages has the policy {unknown[0]}")
    runs = Runs(given.folder, given.seeds, given.published, given.any_code, given.policies)
    return int(run_pages(pages, runs, given.processes) > 0)


def _write(given: argparse.Namespace) -> int:
    for page in chosen(given.pages):
        write_page(page, given.folder, FOLDER)
        print(f"Wrote {page.file(FOLDER)} and {page.picture_file(FOLDER)}")
        for command in page.commands:
            if not made_by_this_code(command, given.folder):
                print(f"{command.name}: other code than this made {command.document(given.folder)}")
    print(f"Wrote {write_index(LANES, FOLDER)}")
    return 0


def _check(given: argparse.Namespace) -> int:
    found = list(problems(LANES, FOLDER))
    for sentence in found:
        print(sentence, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
