"""What policies are worth beside each other, on a composed workload that comes with the package."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

from timely_llm.core.documents.read import load_document
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.results.lanes import talk_columns
from timely_llm.experiments.results.metrics import MeasuredRow, row
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.resources import resource
from timely_llm.traces.files import read_jsonl
from timely_llm.traces.model import TraceError

TRACE = resource("config/traces/floors.jsonl")
MAX_BYTES = 200_000


class Setting(BaseModel):
    """A profile, a load, and the margins between two policies there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: str
    load: Annotated[int, Field(ge=1)]
    conversations: bool = True
    margins: tuple[tuple[str, str, str, float], ...]

    def __str__(self) -> str:
        return f"{self.profile}, load {self.load}"


class Floors(BaseModel):
    """All settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    settings: tuple[Setting, ...]


FLOORS = load_document(resource("config/traces/floors.yaml"), Floors, "floors", TraceError).settings

QUICK_FIRST = [
    pytest.param(one, id=str(one), marks=() if one.load == 1 else pytest.mark.extended)
    for one in FLOORS
]
"""All settings; those with one request for each job are tested by default."""


@cache
def measured(trace: Path, setting: Setting, policy: str) -> MeasuredRow:
    """Return the columns of a policy: those of plans, and those of conversations."""
    workload = read_jsonl(trace)
    if not setting.conversations:
        workload = replace(workload, conversations=())
    settings = SimulationSettings(load=setting.load, profile=PROFILES[setting.profile])
    run = simulate(workload, parse(policy).make(), settings)
    return row(run) | (talk_columns(run.conversations) if setting.conversations else {})


def too_small(trace: Path, setting: Setting) -> dict[str, float]:
    """Return each difference that is below its margin."""
    found = {}
    for more, than, measure, margin in setting.margins:
        values = (measured(trace, setting, policy)[measure] for policy in (more, than))
        difference = float(next(values) or 0.0) - float(next(values) or 0.0)
        if not difference >= margin:
            found[f"{measure} of {more} over {than}: at least {margin:g}"] = difference
    return found


@pytest.mark.parametrize("setting", QUICK_FIRST)
def test_policies_keep_their_order_on_the_shipped_workload(setting: Setting) -> None:
    assert too_small(TRACE, setting) == {}


@pytest.mark.parametrize("setting", QUICK_FIRST)
def test_each_policy_serves_the_whole_shipped_workload(setting: Setting) -> None:
    policies = {policy for more, than, *_ in setting.margins for policy in (more, than)}
    shares = {policy: measured(TRACE, setting, policy)["share_served"] for policy in policies}
    assert shares == dict.fromkeys(policies, 1.0)


def test_a_policy_that_loses_its_worth_is_found() -> None:
    weak = ("fcfs", "timely", "utility", 0.05)
    assert weak[1:] in {margin[1:] for margin in FLOORS[0].margins}
    assert too_small(TRACE, FLOORS[0].model_copy(update={"margins": (weak,)}))


def test_the_shipped_workload_is_small_and_says_how_it_was_composed() -> None:
    assert TRACE.stat().st_size < MAX_BYTES
    trace = read_jsonl(TRACE)
    assert 200 < len(trace.jobs) < 400 and trace.conversations
    assert trace.source.startswith("timely-llm trace compose floors.jsonl --preset wid2 ")
