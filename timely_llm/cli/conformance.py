"""`timely-llm conformance`: whether a policy or an engine of a user's own keeps its contract."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from timely_llm import __version__
from timely_llm.cli.options import SEED, OutputFile, OwnOr
from timely_llm.core.output_file import write_json
from timely_llm.core.requirements import need
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import ENGINES, make_engine, parse_engine_args
from timely_llm.engines.sequences import EngineLimits
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.resources import EMBEDDED_MODEL, resource

if TYPE_CHECKING:
    from timely_llm.conformance.check import Check, CheckOutcome

BROKEN = 1
"""Exit status if a promise is broken."""
ENDINGS = ("kept", "broken", "not applicable")
_COLOURS = {"kept": "green", "broken": "bold red", "not applicable": "dim"}
_PAGE = Console(highlight=False)


@click.command()
@click.option("--policy", type=OwnOr(list(POLICIES)), metavar="MODULE:NAME",
              help="Class of a policy, such as my_module:MyPolicy, or the name of one of ours."
              )  # fmt: skip
@click.option("--engine", type=OwnOr(ENGINES), metavar="MODULE:NAME",
              help="Class of an engine, or a function that makes one; it is called with its limits."
              )  # fmt: skip
@click.option("--model", default="", help="With an engine: its argument model; none if not given.")
@click.option("--engine-arg", "engine_args", multiple=True, metavar="NAME=VALUE",
              help="With an engine: a further argument; may be given several times."
              )  # fmt: skip
@click.option("--check", "names", multiple=True, metavar="NAME",
              help="Run only this check; may be given several times.")  # fmt: skip
@click.option("--seed", type=SEED, default=0, help="Seed of the random cases.")
@click.option("--timeout", "limit_s", type=click.FloatRange(0.1, 86_400), default=300.0,
              help="Seconds after which a check counts as broken.")  # fmt: skip
@click.option("--list", "listed", is_flag=True,
              help="List the checks, and run none.")  # fmt: skip
@click.option("--json", "json_file", type=OutputFile(), help="Write what was found to this file.")
def conformance(
    policy: str | None, engine: str | None, model: str, engine_args: tuple[str, ...],
    names: tuple[str, ...], seed: int, limit_s: float, listed: bool, json_file: Path | None,
) -> None:  # fmt: skip
    """Check a policy or an engine of your own against the contract that ours keep.

    The module is one that Python finds, or a file in the working directory. Each check is one
    promise; a broken promise is shown with the smallest case that breaks it. Exit status: 0 if all
    promises are kept, 1 if one is broken.
    """
    need("the command conformance", "conformance")
    if listed:
        _list(policy is not None or engine is None, engine is not None or policy is None)
        return
    if (policy is None) == (engine is None):
        raise click.UsageError("give one of --policy and --engine, such as --policy my_module:Mine")
    if policy is not None:
        subject, outcomes = f"the policy {policy}", _check_policy(policy, names, seed, limit_s)
    else:
        options = parse_engine_args(engine_args)
        subject = f"the engine {engine}"
        outcomes = _check_engine(str(engine), model, options, names, seed, limit_s)
    endings = Counter(outcome.ending.value for outcome in outcomes)
    counts = ", ".join(f"{endings[ending]} {ending}" for ending in ENDINGS if endings[ending])
    click.echo(f"{subject}: {counts}; seed {seed}")
    if json_file is not None:
        given = {"policy": policy, "engine": engine, "seed": seed, "version": __version__}
        checks = [asdict(one) | {"ending": one.ending.value} for one in outcomes]
        write_json(json_file, given | {"checks": checks})
        click.echo(f"Wrote {json_file}")
    if endings["broken"]:
        sys.exit(BROKEN)


def _check_policy(
    policy: str, names: Sequence[str], seed: int, limit_s: float
) -> list[CheckOutcome]:
    from timely_llm.conformance.check import run
    from timely_llm.conformance.policies import POLICY_CHECKS, PolicyBench

    make_policy(policy)  # what is no policy is an error of one sentence
    checks = _chosen([*POLICY_CHECKS], names)
    return run(checks, PolicyBench(partial(make_policy, policy), seed), limit_s, _show)


def _check_engine(
    engine: str, model: str, options: Mapping[str, Any], names: Sequence[str], seed: int,
    limit_s: float,
) -> list[CheckOutcome]:  # fmt: skip
    from timely_llm.conformance.check import run
    from timely_llm.conformance.engines import ENGINE_CHECKS, EngineBench

    if engine == "transformers" and not model:
        model = str(resource(EMBEDDED_MODEL))

    def make(limits: EngineLimits) -> Engine:
        return make_engine(engine, model=model, engine_args=options, **asdict(limits))

    checks = _chosen([*ENGINE_CHECKS], names)
    bench = EngineBench(make, seed)
    _ = bench.engine  # what is no engine is an error of one sentence
    try:
        return run(checks, bench, limit_s, _show)
    finally:
        bench.close()


def _chosen(checks: list[Check[Any]], names: Sequence[str]) -> list[Check[Any]]:
    known = [check.name for check in checks]
    for name in names:
        if name not in known:
            words = f"unknown check {name!r}: choose one of {', '.join(known)}"
            raise click.BadParameter(words, param_hint="--check")
    return [check for check in checks if not names or check.name in names]


def _list(policies: bool, engines: bool) -> None:
    from timely_llm.conformance.engines import ENGINE_CHECKS
    from timely_llm.conformance.policies import POLICY_CHECKS

    suites: list[tuple[bool, str, Iterable[Check[Any]]]] = [
        (policies, "policies", POLICY_CHECKS), (engines, "engines", ENGINE_CHECKS),
    ]  # fmt: skip
    for wanted, title, checks in suites:
        if wanted:
            click.echo(f"{title}:")
            for check in checks:
                click.echo(f"  {check.name}: {check.promise}")


def _show(outcome: CheckOutcome) -> None:
    """Print an outcome: a line, and what happened where a promise is broken."""
    ending = outcome.ending.value
    line = Text(f"{ending}  ", _COLOURS[ending])
    line.append(f"{outcome.name}: ", "bold").append(outcome.promise, "none")
    lines = [line]
    if ending == "broken":
        lines.append(Text(f"    what happened: {outcome.happened}"))
        if outcome.case:
            lines.append(Text("    the smallest case:"))
            lines += [Text(f"      {words}") for words in outcome.case]
    elif outcome.happened:
        line.append(f" ({outcome.happened})", "dim")
    for words in lines:
        _PAGE.print(words, soft_wrap=True)
