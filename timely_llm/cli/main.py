"""The entry of `timely-llm`: its commands, and how errors reach the user."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from timely_llm import __version__
from timely_llm.cli.help import Group
from timely_llm.core.errors import Interrupted, TimelyError
from timely_llm.core.requirements import explained
from timely_llm.core.text import echoed
from timely_llm.processes import signals

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Serve": {
        "demo": (
            "demo",
            "Run a server with robots and people who ask it, and show what they get, and when.",
        ),
        "serve": ("nodes", "Run the plan server until Ctrl-C."),
        "dispatch": (
            "nodes",
            "Run a dispatcher until Ctrl-C: several plan servers behind one server's interface.",
        ),
        "fleet": ("nodes", "Run simulated robots against a plan server."),
        "talkers": ("nodes", "Run simulated people who talk with a plan server."),
        "cloud-stand-in": (
            "cloud.stand_in",
            "Run a cloud of this machine until Ctrl-C: an engine with OpenAI's HTTP interface.",
        ),
    },
    "Ask a running server": {
        "ask": (
            "ask",
            "Ask a running server for a plan and show its segments as they come; nothing is"
            " executed.",
        ),
        "chat": (
            "chat",
            "Talk with the model of a running server; without a terminal each line is a question.",
        ),
    },
    "Robots": {
        "skills": ("skills", "Skill sets: what robots can do."),
        "keys": (
            "identity.keys",
            "Keys of agents: by them, a server knows which agent sent a message.",
        ),
        "profile": (
            "profile",
            "Fit the durations of skills to the executions in FILE, or measure an engine's steps.",
        ),
    },
    "Workloads": {
        "trace": ("trace", "Workloads: requests, their times, and how long robots take."),
    },
    "Measure": {
        "experiment": (
            "experiment",
            "Run the experiment NAME and print its tables beside the paper's.",
        ),
        "report": (
            "report",
            "Make one page of runs: tables, plots, timelines and the commands that made them.",
        ),
        "benchmark": ("benchmark", "Measure the package itself, and print rows of numbers."),
    },
    "Extend": {
        "conformance": (
            "conformance",
            "Check a policy or an engine of your own against the contract that ours keep.",
        ),
        "simulate": (
            "histories.simulate",
            "Run servers, robots and people in virtual time with faults, and check what must always"
            " hold.",
        ),
    },
}
"""By purpose: each command, the module here that has a function of its name, and its help's first
sentence. The sentence stands here so that the list needs no module."""
COMMANDS = {name: module for group in GROUPS.values() for name, (module, _) in group.items()}
"""Each command and its module."""


class Commands(Group):
    """The commands, listed by purpose."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names in the order of `GROUPS`."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups."""
        widest = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                rows = [(name.ljust(widest), words) for name, (_, words) in commands.items()]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with; an unknown one's error names the others."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}: choose one of {', '.join(COMMANDS)}")
        found = super().resolve_command(ctx, args)
        signals.handle(signals.ENDING, _ending)  # what begins now may have to be undone
        return found


@click.group(
    cls=Commands,
    places={name: f"{module}:{name.replace('-', '_')}" for name, module in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="timely-llm")
def cli() -> None:
    """Serve language-model plans to robots in time.

    An existing output file is replaced only if it is empty or of the same kind (JSON, HTML, YAML,
    MCAP, a picture), and only when the new one is complete.
    """


MOST = 4000
"""Characters of an error: a table of what is allowed fits, a file that was read does not."""


class Terminated(BaseException):
    """A signal asked the command to end; no `except Exception` can catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class _TerminationHandler:
    """Ends the command by an exception; no signal is lost in callbacks that cannot raise."""

    AGAIN_S = 0.05

    def __init__(self) -> None:
        self.signum = 0

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.signum = signum
        raise KeyboardInterrupt if signum == signal.SIGINT else Terminated(signum)

    def unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """Send the signal again if its exception was lost in a callback of the interpreter."""
        if not issubclass(lost.exc_type, (KeyboardInterrupt, Terminated)):
            sys.__unraisablehook__(lost)
            return
        again = threading.Timer(self.AGAIN_S, os.kill, (os.getpid(), self.signum))
        again.daemon = True
        again.start()


_ending = _TerminationHandler()


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
    except (Interrupted, Terminated) as error:
        words, status = f"ended by {error}; nothing is left running", 128 + error.signum
    except (click.Abort, KeyboardInterrupt):
        words, status = "ended by SIGINT; nothing is left running", 130
    except Exception as error:
        if _ending.signum:
            # An import may turn the signal's exception into another one.
            name = signal.Signals(_ending.signum).name
            words, status = f"ended by {name}; nothing is left running", 128 + _ending.signum
        elif (known := explained(error)) is not None:
            words, status = str(known), 1
        else:
            raise
    else:
        sys.exit(0)
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"timely-llm: {echoed(' '.join(words.split()), MOST)}", file=sys.stderr)
    sys.exit(status)


def main() -> NoReturn:
    """Run the command line."""
    before, sys.unraisablehook = sys.unraisablehook, _ending.unraisable
    try:
        exit_with(lambda: cli.main(prog_name="timely-llm", standalone_mode=False))
    finally:
        sys.unraisablehook = before


if __name__ == "__main__":
    main()
