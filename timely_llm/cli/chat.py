"""`timely-llm chat`: a conversation with a running server, in the terminal or through a pipe."""

from __future__ import annotations

import contextlib
import io
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.console import Console

from timely_llm.cli.options import SEED, need_ros
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import MAX_TOKENS, ErrorCode
from timely_llm.core.stream import StreamResult

if TYPE_CHECKING:
    from timely_llm.ros.dialogue import Dialogue
    from timely_llm.ros.talk_client import TalkClient

SECONDS = click.FloatRange(0.1, 86_400)
NEW, QUIT = "/new", "/quit"
HELP = f"Ctrl-C stops an answer, {NEW} begins anew, {QUIT} or Ctrl-D ends"


@click.command()
@click.option("--server", default="plan_server", help="Name of the plan server's node.")
@click.option(
    "--slo-class", default="text", help="Service level: text, voice, or the server's own."
)
@click.option("--system", default="", help="What the model is told first.")
@click.option(
    "--max-tokens", type=click.IntRange(0, MAX_TOKENS), default=0,
    help="Most tokens of an answer; 0: the server's default.",
)  # fmt: skip
@click.option("--temperature", type=click.FloatRange(0.0, 2.0), default=0.0, help="0: no chance.")
@click.option("--seed", type=SEED, default=0, help="Of the chance.")
@click.option("--agent", default="", help="Your name; one is made if not given.")
@click.option("--timeout", "timeout_s", type=SECONDS, default=60.0, help="Seconds for each piece.")
@click.option(
    "--wait", "wait_s", type=SECONDS, default=10.0, help="Seconds until a server is there."
)
@click.option("--namespace", default="", show_default=False, help="Of the server.")
@click.option("--domain", type=click.IntRange(0, 232), help="Default: ROS_DOMAIN_ID.")
def chat(
    server: str, slo_class: str, system: str, max_tokens: int, temperature: float, seed: int,
    agent: str, timeout_s: float, wait_s: float, namespace: str, domain: int | None,
) -> None:  # fmt: skip
    """Talk with the model of a running server. Without a terminal: a question a line."""
    need_ros()
    from timely_llm.ros.dialogue import Dialogue
    from timely_llm.ros.talk_client import TalkClient

    # A name of its own: signs of life of one chat shall not keep another, dead one alive.
    name = agent or f"chat-{uuid.uuid4().hex[:8]}"
    with TalkClient(name, server, namespace, domain=domain) as client:
        client.wait_for_server(wait_s)
        ask = partial(
            client.converse, slo_class=slo_class, max_tokens=max_tokens, temperature=temperature,
            seed=seed,
        )  # fmt: skip
        Chat(client, Dialogue(ask, system), timeout_s, wait_s).run()


class Chat:
    """Reads what a person says, and shows what the model answers.

    Args:
        client: talks to the server.
        dialogue: what was said.
        timeout_s: how long to wait for each piece of an answer.
        wait_s: how long to wait for the server.
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
        """Answer until there is nothing more to say.

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
        """Yield what is said, a line each."""
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
            # It was meant for the answer, which had just ended.
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
    """Return text without the marks that would command a terminal."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def summary(result: StreamResult) -> str:
    """Return in one line how an answer came."""
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
    return ", ".join(words)
