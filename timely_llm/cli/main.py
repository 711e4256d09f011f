"""The command's entry: which commands there are, and how errors reach the user."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from timely_llm import __version__
from timely_llm.core import signals
from timely_llm.core.echo import echoed
from timely_llm.core.errors import Interrupted, TimelyError

COMMANDS = {
    "demo": "demo",
    "serve": "nodes",
    "fleet": "nodes",
    "talkers": "nodes",
    "ask": "ask",
    "chat": "chat",
    "benchmark": "benchmark",
    "skills": "skills",
    "profile": "profile",
    "trace": "trace",
    "experiment": "experiment",
    "report": "report",
}
"""Each command and the module here that has a function of its name."""


class Commands(click.Group):
    """Commands whose modules are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"timely_llm.cli.{COMMANDS[cmd_name]}"), cmd_name
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with; an unknown one's error names the others."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}: choose one of {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="timely-llm")
def cli() -> None:
    """Serve language-model plans to robots in time.

    An output file that is there is replaced when the new one is complete, if it is empty or of the
    same kind (JSON, HTML, YAML, MCAP, a picture). A file of another kind is never touched.
    """


MOST = 4000
"""Characters of an error: a table of what is allowed fits, a file that was read does not."""


class Ended(BaseException):
    """A signal asks the command to end: no `except Exception` on the way may keep it from that."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def _end(signum: int, frame: FrameType | None) -> None:
    raise Ended(signum)


def exit_with(work: Callable[[], object]) -> NoReturn:
    """Do the work and exit; every error is one line that says what to do."""
    try:
        work()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        words, status = error.format_message(), error.exit_code
    except (TimelyError, OSError) as error:
        words, status = str(error), 1
    except (Interrupted, Ended) as error:
        words, status = f"ended by {error}; nothing is left running", 128 + error.signum
    except (click.Abort, KeyboardInterrupt):
        words, status = "ended by SIGINT; nothing is left running", 130
    else:
        sys.exit(0)
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"timely-llm: {echoed(' '.join(words.split()), MOST)}", file=sys.stderr)
    sys.exit(status)


def main() -> NoReturn:
    """Run the command line."""
    signals.handle((signal.SIGTERM, signal.SIGHUP), _end)
    exit_with(lambda: cli.main(prog_name="timely-llm", standalone_mode=False))


if __name__ == "__main__":
    main()
