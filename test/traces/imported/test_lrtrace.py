from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.published import TRACE, needs_published
from test.traces.lrtrace_files import ARM_CALLS, arm_job, arms, compact, drone_job, drones, write
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.resources import resource as data_file
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.traces.imported.lrtrace import MAX_FILE_BYTES, read_lrtrace
from timely_llm.traces.model import SkillTime, TraceError
from timely_llm.traces.summary import bursts, summary

DRONE, ARM = (load_skill_set(data_file(f"config/skill_sets/{n}.yaml")) for n in ("drone", "arm"))


def test_the_published_list_of_drones_is_read(tmp_path: Path) -> None:
    trace = read_lrtrace(write(tmp_path, drones()))
    first, second, third = trace.jobs
    assert (trace.name, trace.source) == ("lr", "LRTrace, imported from lr.json")
    assert (first.id, first.arrival_s, first.agent, first.task) == ("0", 30.0, "drone_0", "0")
    assert first.skill_times == (SkillTime("s", 3.7), SkillTime("g", 2.4))
    assert first.text == "Scene: [] Task: [A] Find the dog."
    assert [job.skill_set for job in trace.jobs] == ["drone"] * 3
    assert (first.time_utility, second.time_utility, third.time_utility) == (NORMAL, NORMAL, URGENT)
    assert (first.segment_tokens, third.segment_tokens) == ((7, 4, 2), (4, 1))


def test_the_published_list_of_arms_becomes_arms(tmp_path: Path) -> None:
    trace = read_lrtrace(write(tmp_path, arms()))
    assert {job.skill_set for job in trace.jobs} == {"arm"}
    assert [job.agent for job in trace.jobs] == ["arm_0", "arm_1", "arm_2"]
    job = trace.jobs[0]
    names = ["move_to", "pick", "move_to", "place"] * 2  # as the skill set says take and drop
    assert [time.skill for time in job.skill_times] == names
    assert [time.seconds for time in job.skill_times] == [s for _, s in ARM_CALLS * 2]
    assert len(job.segment_tokens) == len(names) + 1
    assert sum(job.segment_tokens) == 2 * (14 + 5 + 14 + 5) + 2
    assert trace.source.endswith("the segments' tokens of 3 jobs are estimates")
    assert summary(trace)["robots"] == {"arm": 3}


def test_arms_are_found_by_their_skills_where_no_type_is_given(tmp_path: Path) -> None:
    entries = arms()
    for entry in entries:
        del entry["robot_type"], entry["robot_system"]
    assert {job.skill_set for job in read_lrtrace(write(tmp_path, entries)).jobs} == {"arm"}


def test_both_robots_may_be_in_one_file(tmp_path: Path) -> None:
    entries = [drone_job(0, 1.0, 0, 0), arm_job(1, 2.0, 0)]
    assert [job.agent for job in read_lrtrace(write(tmp_path, entries)).jobs] == [
        "drone_0", "arm_0",
    ]  # fmt: skip


@pytest.mark.parametrize("entries", [drones(7), arms(7), [*drones(3), arm_job(9, 99.0, 1)]])
def test_both_forms_are_the_same_workload(tmp_path: Path, entries: list[dict[str, Any]]) -> None:
    listed = read_lrtrace(write(tmp_path, entries, "list.json"))
    made = read_lrtrace(write(tmp_path, compact(entries), "compact.json"))
    assert listed.jobs == made.jobs
    assert made.source.startswith("them")


@needs_published
def test_the_drones_of_the_paper_have_their_counts_in_both_forms(tmp_path: Path) -> None:
    trace = read_lrtrace(TRACE)
    events = bursts(trace.jobs)
    assert (len(trace.jobs), len(trace.agents), len(events)) == (532, 42, 63)
    assert (min(map(len, events)), max(map(len, events))) == (1, 16)
    assert (trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s) == pytest.approx(
        (33.945, 302.948), abs=1e-3
    )
    assert sum(job.urgent for job in trace.jobs) == 211
    assert all(job.segment_tokens and job.skill_times for job in trace.jobs)
    assert "estimates" not in trace.source
    known = json.loads(TRACE.read_text())
    tasks = {task["trace_id"]: task for task in known["tasks"]}
    entries = [
        {"trigger time" if name == "trigger_time" else name: value for name, value in job.items()}
        | {"task_input": tasks[job["trace_id"]]["task_input"], "task_exe_time": 1.0}
        for job in known["jobs"]
    ]
    assert read_lrtrace(write(tmp_path, entries)).jobs == trace.jobs


def crane(*skills: str, name: str = "crane") -> SkillSet:
    any_skill = DRONE.skills["tp"]
    return SkillSet(name=name, prompt="Lift.", skills=dict.fromkeys(skills, any_skill))


def test_a_skill_set_of_ones_own_keeps_the_words_of_the_trace(tmp_path: Path) -> None:
    trace = read_lrtrace(write(tmp_path, arms()), [crane("move_to", "take", "drop")])
    job = trace.jobs[0]
    assert (job.skill_set, job.agent) == ("crane", "crane_0")
    assert [time.skill for time in job.skill_times[:2]] == ["move_to", "take"]


def test_each_job_finds_its_own_among_several_given_skill_sets(tmp_path: Path) -> None:
    trace = read_lrtrace(
        write(tmp_path, [drone_job(0, 1.0, 0, 0), arm_job(1, 2.0, 0)]),
        [crane("s", "g", name="scout"), crane("move_to", "take", "drop")],
    )
    assert [job.skill_set for job in trace.jobs] == ["scout", "crane"]


def dog(**change: Any) -> dict[str, Any]:
    return {**drone_job(0, 1.0, 0, 0), "robot_type": "robotdog", **change}


@pytest.mark.parametrize(
    ("entry", "skill_sets", "complaint"),
    [
        (arm_job(0, 1.0, 0), [DRONE],
         "job 0: it executes move_to, take, drop, and the skill set 'drone' has only mf, mb"),
        (drone_job(0, 1.0, 0, 0), [ARM], "job 0: it executes s, g, and the skill set 'arm' has"),
        (dog(), [], "job 0: its robot_type is 'robotdog', and the skill sets here are arm, drone"),
        (dog(robot_type="robotarm"), [],
         "job 0: it executes s, g, and the skill set 'arm' has only pick"),
        (dog(robot_type="", exe_time_detail=[["fly", 1], ["g(", 1]]), [],
         "it executes fly, g, and none of the skill sets arm, drone has all of them"),
        (arm_job(0, 1.0, 0), [DRONE, crane("s")], "none of the skill sets drone, crane has all"),
        (drone_job(0, 1.0, 0, 0), [crane("s", "g", name="a"), crane("s", "g", name="b")],
         "the skill sets a, b all have its skills s, g: choose one with --skill-set"),
    ],
)  # fmt: skip
def test_a_robot_is_never_taken_for_another(
    tmp_path: Path, entry: dict[str, Any], skill_sets: list[SkillSet], complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint) as error:
        read_lrtrace(write(tmp_path, [entry]), skill_sets)
    assert "\n" not in str(error.value)


def test_a_dog_may_be_given_a_drones_skills(tmp_path: Path) -> None:
    assert read_lrtrace(write(tmp_path, [dog()]), [DRONE]).jobs[0].skill_set == "drone"


def test_jobs_that_stand_behind_later_ones_are_asked_at_their_times(tmp_path: Path) -> None:
    entries = drones(6)
    trace = read_lrtrace(write(tmp_path, [*entries[3:], *entries[:3]]))
    ordered = read_lrtrace(write(tmp_path, entries))
    assert trace.jobs == ordered.jobs
    assert trace.source.endswith("; 3 jobs were not in order of arrival")


def test_fields_that_are_not_known_are_named(tmp_path: Path) -> None:
    entries = [{**entry, "mood": 1, "output_len": 9} for entry in drones()]
    source = read_lrtrace(write(tmp_path, entries)).source
    assert source.endswith("; unknown fields were left out: mood")


def test_tokens_of_tasks_that_were_not_measured_are_estimates(tmp_path: Path) -> None:
    entry = {**drone_job(0, 1.0, 0, 0), "exe_time_detail": [["g(", 2.0], ["tp", 0.1]]}
    trace = read_lrtrace(write(tmp_path, [entry]))
    assert trace.jobs[0].segment_tokens == (5, 5, 2)
    assert "the segments' tokens of 1 jobs are estimates" in trace.source


@pytest.mark.parametrize("form", [lambda entries: entries, compact])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"trigger time": -1}, r"job 0: trigger.time: must be at least 0"),
        ({"trigger time": float("nan")}, r"job 0: trigger.time: must be .*, not nan$"),
        ({"trigger time": float("inf")}, r"job 0: trigger.time: must be .*, not inf$"),
        ({"trigger time": "soon"}, r"job 0: trigger.time: must be a number, not 'soon'$"),
        ({"trigger time": True}, r"job 0: trigger.time: must be a number, not True"),
        ({"agent_id": None}, "job 0: agent_id: must be a whole number, not nothing"),
        ({"job_id": 1.5}, "job number 1: job_id: must be a whole number, not 1.5"),
        ({"job_id": 10**4000}, r"job number 1: job_id: must be .*, not 10000"),
        ({"trace_id": -3}, "trace_id: must be at least 0, not -3"),
        ({"tuf": [1, 1, 1]}, r"job 0: time utility: zero time 1.* must come after ert 1"),
        ({"tuf": [float("nan"), 1, 2]}, "job 0: time utility: beta must be a finite number"),
        ({"tuf": [1, float("nan"), 2]}, "job 0: time utility: zero time 2.* must come after ert"),
        ({"exe_time_detail": []}, "job 0: exe_time_detail: must not be empty"),
        ({"exe_time_detail": [["s(", -1]]}, "job 0: s: seconds must be 0 to 86400, not -1"),
        ({"exe_time_detail": [["s(", float("nan")]]}, "job 0: s: seconds must be 0 to 86400"),
        ({"exe_time_detail": [["s(", "1"]]}, "job 0: exe_time_detail.0.1: must be a number, not"),
        ({"exe_time_detail": [["s("]]}, "job 0 lacks exe_time_detail.0.1"),
        ({"exe_time_detail": [["(", 1]]}, "job 0: exe_time_detail has a skill without a name"),
        ({"exe_time_detail": [["s(", 1]] * 1001}, "job 0: exe_time_detail: must have at most"),
        ({"exe_time_detail": "s(g("}, "job 0: exe_time_detail: must be a list, not"),
        ({"robot_type": 3}, "job 0: robot_type: must be a text, not 3"),
    ],
)  # fmt: skip
def test_what_is_no_such_job_gets_one_sentence(
    tmp_path: Path, form: Callable[[Any], Any], change: dict[str, Any], complaint: str
) -> None:
    path = write(tmp_path, form([{**drone_job(0, 1.0, 0, 0), **change}]))
    with pytest.raises(TraceError, match=complaint) as error:
        read_lrtrace(path)
    assert str(error.value).startswith(f"{path}")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500 + len(str(path))


@pytest.mark.parametrize("name", ["job_id", "agent_id", "trace_id", "exe_time_detail", "tuf"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    entry = drone_job(0, 1.0, 0, 0)
    del entry[name]
    with pytest.raises(TraceError, match=f"job (0|number 1):? (it )?lacks {name}$"):
        read_lrtrace(write(tmp_path, [entry]))


def test_a_time_or_a_text_that_is_missing_is_named(tmp_path: Path) -> None:
    entry = drone_job(0, 1.0, 0, 0)
    without = {name: value for name, value in entry.items() if name != "trigger time"}
    with pytest.raises(TraceError, match="job 0 lacks trigger time"):
        read_lrtrace(write(tmp_path, [without]))
    without = {name: value for name, value in entry.items() if name != "task_input"}
    with pytest.raises(TraceError, match="job 0: it lacks task_input"):
        read_lrtrace(write(tmp_path, [without]))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], r"has 0 jobs: a trace has 1 to 200000"),
        ({}, "must be a list of jobs as LRTrace publishes it, or an object with `tasks` and"),
        ({"tasks": []}, "must be a list of jobs as LRTrace publishes it, or an object"),
        ({"tasks": [], "jobs": []}, "tasks is empty"),
        ({"tasks": {}, "jobs": []}, "tasks must be a list, not {}"),
        ({"num_agents": 42, "task_arrivals": [1.0]}, "must be a list of jobs"),
        (7, "must be a list of jobs"),
        ([7], "job number 1 must be an object, not 7"),
        ([[]], r"job number 1 must be an object, not \[\]"),
        ({**compact(drones()), "jobs": []}, "has 0 jobs"),
        ({**compact(drones()), "source": 3}, "source must be a text, not 3"),
        ({**compact(drones()), "tasks": compact(drones())["tasks"] * 2},
         "two tasks have the trace_id 0"),
        ({**compact(drones()), "tasks": compact(drones())["tasks"][1:]},
         "job 0: its trace_id is 0, and no task has that"),
        ({**compact(drones()), "tasks": [{"trace_id": 0}]}, "task number 1 lacks task_input"),
        ([*drones(2), drone_job(1, 9.0, 0, 0)],
         "jobs number 2 and 3 both have the job_id 1: each must have its own"),
    ],
)  # fmt: skip
def test_what_is_no_such_file_gets_one_sentence(
    tmp_path: Path, content: Any, complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint) as error:
        read_lrtrace(write(tmp_path, content))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'{"jobs": [', "is no LRTrace: Expecting value"),
        (b"", "is no LRTrace: Expecting value"),
        (b"[" * 200_000, "is no LRTrace: it is nested too deeply"),
        (b'{"a":' * 200_000, "is no LRTrace: it is nested too deeply"),
        (b'[{"job_id": 1, "job_id": 2}]', "an object has the field 'job_id' twice"),
        (b"[" + b"9" * 10_000 + b"]", "is no LRTrace: Exceeds the limit"),
        (b'["\xff\xfe"]', "is no LRTrace: it is no text in UTF-8"),
    ],
)
def test_what_is_no_json_gets_one_sentence(tmp_path: Path, text: bytes, complaint: str) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(TraceError, match=complaint) as error:
        read_lrtrace(tmp_path / "a.json")
    assert "\n" not in str(error.value)
    with pytest.raises(TraceError, match="No such file"):
        read_lrtrace(tmp_path / "b.json")


def test_600_megabytes_are_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(600_000_000)
    with pytest.raises(TraceError, match=f"has 600000000 bytes: .* at most {MAX_FILE_BYTES}"):
        read_lrtrace(tmp_path / "a.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["[" + "1," * 8_000_000 + "1]", "[" + "{}," * 5_500_000 + "1]"],
    ids=["numbers", "objects"],  # an id is also a variable of the environment
)
def test_memory_is_bounded_whatever_a_file_holds(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    code = (
        "import sys; from pathlib import Path\n"
        "from timely_llm.traces.imported.lrtrace import read_lrtrace\n"
        "try: read_lrtrace(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.json")],
        capture_output=True, text=True, timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)),
    )  # fmt: skip
    assert done.stdout.startswith("TraceError"), done.stderr
    assert "jobs: a trace has 1 to 200000" in done.stdout


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.data())
def test_whatever_a_field_holds_is_a_trace_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    entry = data.draw(st.sampled_from([drone_job(0, 1.0, 0, 0), arm_job(0, 1.0, 0)]))
    name = data.draw(st.sampled_from([*entry, "robot_type", "mood"]))
    content: Any = [{**entry, name: data.draw(_VALUES)}]
    if data.draw(st.booleans()):
        content = data.draw(_VALUES)
    path = write(tmp_path_factory.mktemp("any"), content)
    try:
        trace = read_lrtrace(path)
    except TraceError as error:
        assert "\n" not in str(error)
        return
    assert trace.jobs and replace(trace) == trace
