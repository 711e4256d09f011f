"""Where to change what: questions of people who have not read the code."""

from __future__ import annotations

from dataclasses import dataclass

from tools.map.code import ROOT, MapError, definition


@dataclass(frozen=True)
class Place:
    """Where one thing is changed.

    Attributes:
        what: a noun that names it.
        files: (path from the repository's root, name in it), the first one to open first. The name
            is a definition of a Python file, a text of any other; empty: the whole file.
    """

    what: str
    files: tuple[tuple[str, str], ...]


PLACES = (
    Place("the rule that bounds a batch in time (`timely`)",
          (("timely_llm/policies/timely.py", "WorstCase.allows"),)),
    Place("the rule that bounds a batch in time (`deadline`)",
          (("timely_llm/policies/deadline/wave.py", "wave_size"),)),
    Place("the rule that bounds a batch in memory",
          (("timely_llm/policies/packing.py", "Memory.has_room"),)),
    Place("which request goes first", (("timely_llm/policies/timely.py", "Timely.priority"),)),
    Place("what an answer is worth over time",
          (("timely_llm/core/time_utility.py", "TimeUtility"),)),
    Place("the default policy", (("timely_llm/policies/registry.py", "DEFAULT_POLICY"),)),
    Place("the sentence for a full queue",
          (("timely_llm/serving/limits.py", "RequestGate._find_place"),)),
    Place("the sentence of another refusal",
          (("timely_llm/serving/limits.py", "RequestGate._problem"),)),
    Place("how long robots and people are waited for",
          (("timely_llm/serving/limits.py", "Timeouts"),)),
    Place("what happens when a robot fails a segment",
          (("timely_llm/serving/reports.py", "Reports._replan"),)),
    Place("where a segment ends", (("timely_llm/skills/minispec/checker.py", "MiniSpecChecker"),)),
    Place("what a model reads before its task",
          (("timely_llm/skills/skill_set.py", "SkillSet.prompt_text"),)),
    Place("a field of `Segment`",
          (("timely_llm/core/segment.py", "Segment"), ("msg/Segment.msg", ""),
           ("timely_llm/serving/delivery.py", "PlanDelivery._deliver"))),
    Place("the number that clients check, after a message changed",
          (("timely_llm/ros/interface_number.py", "INTERFACE"),)),
    Place("an error code",
          (("timely_llm/core/request.py", "ErrorCode"), ("action/Plan.action", "QUEUE_FULL"),
           ("README.md", "`QUEUE_FULL`"))),
    Place("how long a step takes on some hardware",
          (("timely_llm/engines/simulated.py", "PROFILES"),)),
    Place("when KV is evicted", (("timely_llm/engines/ledger_engine.py", "KvLedger.admit"),)),
    Place("a parameter of the server",
          (("timely_llm/ros/server/setup.py", "CONFIGURED"), ("docs/parameters.md", ""))),
    Place("what a recovery journal has of a request",
          (("timely_llm/serving/journal/saved.py", "SavedRequest"),)),
    Place("which of several servers gets a request",
          (("timely_llm/dispatch/assign/rules.py", "MostWorth"),)),
    Place("which requests get the help of a cloud",
          (("timely_llm/progressive/choice.py", "AutoHelp.refusal"),)),
    Place("what a cloud is asked", (("timely_llm/cloud/prompts.py", "answer_sketch"),)),
    Place("a topic's quality of service", (("timely_llm/ros/qos.py", ""),)),
    Place("how a client executes a plan",
          (("timely_llm/ros/client/plan.py", "PlanClient.execute"),)),
    Place("a column of an experiment's table",
          (("timely_llm/experiments/results/metrics.py", "DEFINITIONS"),)),
    Place("a kind of event in event logs",
          (("timely_llm/core/events/schema.py", "RUN_EVENTS"),
           ("timely_llm/core/events/document.py", "SHARED"), ("docs/event_log.md", ""))),
    Place("the colour of urgent bars",
          (("timely_llm/report/palette.py", "_TONES"),
           ("timely_llm/report/palette.py", "TERMINAL"))),
    Place("a command or its place in `--help`", (("timely_llm/cli/main.py", "GROUPS"),)),
)  # fmt: skip


def table() -> str:
    """Return the places as rows.

    Raises:
        MapError: a file or a name in it is not there.
    """
    rows = ["| to change | open | look for |", "|---|---|---|"]
    for place in PLACES:
        for number, (path, name) in enumerate(place.files):
            _check(path, name)
            shown = "" if number else place.what
            look_for = f"`{name.strip('`')}`" if name else ""
            rows.append(f"| {shown} | [{path}](../{path}) | {look_for} |")
    return "\n".join(rows)


def _check(path: str, name: str) -> None:
    file = ROOT / path
    if not file.is_file():
        raise MapError(f"there is no {path}")
    if not name:
        return
    if file.suffix == ".py":
        definition(file, name)
    elif name not in file.read_text(encoding="utf-8"):
        raise MapError(f"{path} has no {name}")
