"""`timely-llm chat`: a conversation with a running server, in the terminal or through a pipe."""

from __future__ import annotations

import contextlib
import io
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from timely_llm.cli.options import (
    DRAWN,
    KEY,
    MODE,
    TEMPERATURE,
    UNSIGNED,
    WAIT,
    at_server,
    need_ros,
)
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import MAX_TOKENS, ErrorCode, StreamResult

if TYPE_CHECKING:
    from timely_llm.ros.client.talk import Dialogue, TalkClient

SECONDS = click.FloatRange(0.1, 86_400)
NEW, QUIT = "/new", "/quit"
HELP = f"Ctrl-C stops an answer, {NEW} begins anew, {QUIT} or Ctrl-D ends"


@click.command()
@at_server
@click.option(
    "--slo-class", default="text", help="Service level: text, voice, or one of the server's own."
)
@click.option("--system", default="", help="System message: what the model reads first.")
@click.option(
    "--max-tokens", type=click.IntRange(0, MAX_TOKENS), default=0,
    help="Most tokens of an answer; 0: the server's default.",
)  # fmt: skip
@TEMPERATURE
@DRAWN
@MODE
@click.option("--agent", default="", help="Your name; one is made if not given.")
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=60.0,
    help="How many seconds to wait for each piece of an answer.",
)
@WAIT
@KEY
@UNSIGNED
def chat(
    server: str, slo_class: str, system: str, max_tokens: int, temperature: float, seed: int,
    mode: str, agent: str, timeout_s: float, wait_s: float, key_file: Path | None,
    accept_unsigned: bool, namespace: str, domain: int | None,
) -> None:  # fmt: skip
    """Talk with the model of a running server; without a terminal each line is a question."""
    need_ros()
    from timely_llm.ros.client.talk import Dialogue, TalkClient

    # A name of its own: a living chat must not keep the requests of a dead one alive.
    name = agent or f"chat-{uuid.uuid4().hex[:8]}"
    with TalkClient(
        name, server, namespace, domain=domain, key_file=key_file, accept_unsigned=accept_unsigned
    ) as client:
        client.wait_for_server(wait_s)
        ask = partial(
            client.converse, slo_class=slo_class, max_tokens=max_tokens, temperature=temperature,
            seed=seed, mode=mode,
        )  # fmt: skip
        Chat(client, Dialogue(ask, system), timeout_s, wait_s).run()


class Chat:
    """Reads a person's questions and shows the model's answers.

    Args:
        client: talks to the server.
        dialogue: the conversation.
        timeout_s: longest wait for each piece of an answer, seconds.
        wait_s: longest wait for the server, seconds.
    """

    def __init__(
        self, client: TalkClient, dialogue: Dialogue, timeout_s: float, wait_s: float
    ) -> None:
        self._client = client
        self._dialogue = dialogue
        self._timeout_s, self._wait_s = timeout_s, wait_s
        self._live = sys.stdin.isatty() and sys.stdout.isatty()
        self._aside = Console(stderr=True, highlight=False, soft_wrap=True)

    def run(self) -> None:
        """Answer until the input ends.

        Raises:
            TimelyError: the server is gone, or without a terminal: an answer failed.
        """
        if self._live:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # arrow keys and a history for `input`
            self._note(HELP)
        for words in self._lines():
            if words == QUIT:
                return
            if words == NEW:
                self._dialogue.begin_anew()
                self._note("a new conversation")
            elif words:
                self._answer(words)

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the input."""
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        while True:
            try:
                line = input("> ") if self._live else input()
            except EOFError:
                return
            except KeyboardInterrupt:
                click.echo()
                return
            yield line.strip()

    def _answer(self, words: str) -> None:
        """Show an answer, and after it how it came."""
        self._client.wait_for_server(self._wait_s)
        stopped = False
        try:
            stopped = self._show(words)
            self._note(summary(self._dialogue.finish()))
        except KeyboardInterrupt:
            if stopped:
                raise
            # Ctrl-C was meant for the answer, which had just ended.
        except TimelyError as error:
            if not self._live:
                raise
            self._aside.print(str(error), style="red", markup=False)

    def _show(self, words: str) -> bool:
        """Show an answer as it comes, and return whether it was stopped.

        Ctrl-C ends only that; once more, and the program ends.
        """
        came = stopped = False
        try:
            for text in self._dialogue.say(words, self._timeout_s):
                came = True
                click.echo(printable(text), nl=False)
        except KeyboardInterrupt:
            came = stopped = True  # the terminal shows ^C
        finally:
            if came:
                click.echo()
        return stopped

    def _note(self, words: str) -> None:
        self._aside.print(words, style="dim", markup=False)


def printable(text: str) -> str:
    """Return text without control characters, which a terminal would obey."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def summary(result: StreamResult) -> str:
    """Return one line about the times and the end of an answer."""
    if result.ttft_s < 0:
        return "canceled before the first token"
    words = [f"first token {result.ttft_s:.2f} s"]
    if result.tpot_s:
        words.append(f"{1 / result.tpot_s:.1f} tokens/s")
        words.append(f"largest gap {result.largest_gap_s:.2f} s")
    if result.error_code is ErrorCode.CANCELED:
        words.append("canceled")
    else:
        words.append("SLO met" if result.slo_met else "SLO missed")
    if result.cut:
        words.append(f"cut after {result.generated_tokens} tokens")
    if result.help_words:
        words.append(result.help_words)
    return ", ".join(words)
