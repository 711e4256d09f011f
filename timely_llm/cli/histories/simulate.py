"""`timely-llm simulate`: many histories of servers, robots, people and faults, one of each seed."""

from __future__ import annotations

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from timely_llm.cli.options import SEED

if TYPE_CHECKING:
    from timely_llm.histories.faults import InjectedFault
    from timely_llm.histories.history import HistoryOutcome

BROKEN = 1
"""Exit status if an invariant is broken, or a kind of fault never fired."""
ENOUGH = 50
"""Seeds from which on every kind of fault must have fired."""
MOST_NUMBER = 10_000
"""No history has more faults."""
SHRINK_S = 60.0
"""With --minutes: time after which no more faults of a broken history are left out, seconds."""

_Part = tuple[int, tuple[str, ...], frozenset[int], float]
"""The seed of a history, the kinds of its faults, the faults that are left out, and the time after
which it may end, seconds."""


class Numbers(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """Numbers of faults and ranges of them, separated by commas."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Return the numbers."""
        if isinstance(value, frozenset):
            return value
        numbers: set[int] = set()
        for word in filter(str.strip, str(value).split(",")):
            found = re.fullmatch(r"(\d+)(?:-(\d+))?", word.strip())
            if found is None:
                self.fail(f"{value!r} must be numbers of faults, such as 3,7-9", param, ctx)
            first, last = found[1], found[2] or found[1]
            numbers.update(range(int(first), min(int(last), MOST_NUMBER) + 1))
        return frozenset(numbers)


class Kinds(click.ParamType):  # type: ignore[type-arg] # older clicks have none
    """Kinds of faults, separated by commas."""

    name = "kinds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the kinds."""
        from timely_llm.histories.faults import KINDS

        if isinstance(value, tuple):
            return value
        names = tuple(word.strip() for word in str(value).split(","))
        for name in names:
            if name not in KINDS:
                self.fail(f"unknown kind {name!r}: choose of {', '.join(KINDS)}", param, ctx)
        return names


@click.command()
@click.option("--seeds", type=click.IntRange(1, 10**9), default=100,
              help="Number of histories.")  # fmt: skip
@click.option("--first-seed", type=SEED, default=0, help="Seed of the first history.")
@click.option("--minutes", type=click.FloatRange(0.01, 10_000),
              help="As many histories as fit into this time, instead of --seeds.")  # fmt: skip
@click.option("--kinds", type=Kinds(),
              help="Kinds of faults, separated by commas; all if not given.")  # fmt: skip
@click.option("--without", type=Numbers(), default="", metavar="NUMBERS", show_default=False,
              help="Leave out these faults of each history, such as 3,7-9.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(10.0, 3600.0), default=120.0,
              help="Virtual time after which a history may end, seconds.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), default=1, help="Processes that run at once.")
def simulate(
    seeds: int, first_seed: int, minutes: float | None, kinds: tuple[str, ...] | None,
    without: frozenset[int], seconds: float, jobs: int,
) -> None:  # fmt: skip
    """Run servers, robots and people in virtual time with faults, and check what must always hold.

    A seed is one history: the same faults at the same moments each time. A history with a broken
    invariant is shown with the command that replays it, and with fewest faults. Exit status: 0 if
    all invariants hold, 1 if one is broken or a kind of fault never fired.
    """
    from timely_llm.experiments.parallel import run_each
    from timely_llm.histories import faults

    chosen = kinds or tuple(faults.KINDS)
    began_s = time.monotonic()

    def parts() -> Iterator[_Part]:
        number = 0
        while number < seeds if minutes is None else time.monotonic() < began_s + 60.0 * minutes:
            yield first_seed + number, chosen, without, seconds
            number += 1

    fired: Counter[str] = Counter()
    events = requests = done = broken = alone = 0
    for _, outcome in run_each(_history, parts(), jobs if minutes else min(jobs, seeds)):
        done += 1
        events += outcome.events
        requests += outcome.requests
        alone += outcome.alone
        fired += outcome.fired
        if outcome.broken:
            broken += 1
            most_s = math.inf if minutes is None else SHRINK_S
            _show(outcome, (outcome.seed, chosen, without, seconds), most_s)
    took_s = max(time.monotonic() - began_s, 1e-9)
    for kind in chosen:
        click.echo(f"{fired[kind]:8d}  {kind}: {faults.KINDS[kind]}")
    click.echo(f"{alone:8d}  histories of one server with a recovery journal, without a dispatcher")
    click.echo(
        f"{done} histories from seed {first_seed} with {requests} requests and {events} events,"
        f" {events / took_s:.0f} events a second: {broken} with a broken invariant"
    )
    never = [kind for kind in chosen if not fired[kind]]
    if never and done >= ENOUGH:
        click.echo(f"These kinds of faults never fired: {', '.join(never)}.")
    if broken or (never and done >= ENOUGH):
        sys.exit(BROKEN)


def _history(part: _Part) -> HistoryOutcome:
    """Return what came of a history."""
    from timely_llm.histories import history

    seed, _, _, lasts_s = part
    return history.simulate(seed, _faults(part), lasts_s)


def _faults(part: _Part) -> list[InjectedFault]:
    """Return the faults of a history."""
    from timely_llm.histories import faults

    seed, kinds, without, lasts_s = part
    drawn = faults.draw(seed, kinds, lasts_s)
    return [fault for fault in drawn if fault.number not in without]


def _show(outcome: HistoryOutcome, part: _Part, most_s: float) -> None:
    """Print a broken invariant, how to replay it, and how with fewest faults.

    Args:
        outcome: the history.
        part: what was asked for.
        most_s: time after which no more faults are left out, seconds.
    """
    from timely_llm.histories import faults
    from timely_llm.histories.shrinking import shrink

    seed, kinds, without, lasts_s = part
    replay = f"timely-llm simulate --first-seed {seed} --seeds 1"
    if lasts_s != faults.LASTS_S:
        replay += f" --seconds {lasts_s:g}"
    if len(kinds) < len(faults.KINDS):
        replay += f" --kinds {','.join(kinds)!r}"
    asked = f" --without {_listed(without)}" if without else ""
    click.echo(
        f"Seed {outcome.seed} breaks at {outcome.at_s:.2f} s: {outcome.broken}: {outcome.detail}"
    )
    click.echo(f"  replay: {replay}{asked}")
    given = _faults(part)
    end_s = time.monotonic() + most_s
    kept = shrink(outcome, given, lambda: time.monotonic() < end_s, lasts_s)
    numbers = {one.number for one in kept}
    left_out = without | {one.number for one in given if one.number not in numbers}
    if left_out != without:
        fewest = "fewest faults" if time.monotonic() < end_s else "fewer faults"
        click.echo(f"  {fewest}: {replay} --without {_listed(left_out)}")
    for fault in kept:
        click.echo(f"  fault {fault.number} at {fault.at_s:.2f} s: {fault.kind}")


def _listed(numbers: frozenset[int]) -> str:
    """Return numbers as `--without` takes them: 0-3,5."""
    firsts = sorted(number for number in numbers if number - 1 not in numbers)
    lasts = sorted(number for number in numbers if number + 1 not in numbers)
    pairs = zip(firsts, lasts, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
