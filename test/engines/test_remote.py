"""Engines in a process of their own: how they end, and what is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from test.alive import runs
from test.engines.conftest import remote_letters
from timely_llm.core.errors import EngineError, EngineLost, ModelError
from timely_llm.core.step import StepPlan
from timely_llm.engines import remote
from timely_llm.engines.registry import make_engine
from timely_llm.engines.remote import RemoteEngine

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver


@pytest.fixture
def engine() -> Iterator[RemoteEngine]:
    engine = remote_letters()
    yield engine
    engine.close()


def pid(engine: RemoteEngine) -> int:
    return engine._child.pid


def gone(number: int, timeout_s: float = 10.0) -> bool:
    """Return whether a process ends within a time; a zombie has ended too."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if not runs(number):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(("in_flight", "stages"), [(1, 1), (2, 2)])
def test_stages_are_one_stage_while_one_step_is_in_flight(in_flight: int, stages: int) -> None:
    engine = remote_letters(in_flight=in_flight, stages=2)
    engine.add("a", [5, 6])
    assert engine.in_flight == in_flight
    assert (engine.capacity.stages, engine.capacity.micro_batches) == (stages, stages)
    engine.close()


def test_close_ends_the_process(engine: RemoteEngine) -> None:
    assert not gone(pid(engine), 0.1)
    engine.close()
    assert gone(pid(engine))
    engine.close()
    with pytest.raises(EngineLost, match="has ended with status 0"):
        engine.add("a", [5])


@pytest.mark.parametrize("when", ["between steps", "in a step"])
def test_a_process_that_is_killed_is_an_error_in_a_sentence(
    engine: RemoteEngine, when: str
) -> None:
    engine.add("a", engine.tokenizer.encode("find the apple"))
    if when == "in a step":
        os.kill(pid(engine), signal.SIGSTOP)
        engine.submit(StepPlan((("a", 99),)))
    os.kill(pid(engine), signal.SIGKILL)
    with pytest.raises(
        EngineLost, match=r"^the process of the engine letters has ended by SIGKILL$"
    ):
        if when == "in a step":
            engine.collect()
        else:
            engine.submit(StepPlan((("a", 99),)))
            engine.collect()
    with pytest.raises(EngineLost, match="SIGKILL"):
        engine.add("b", [5])
    with pytest.raises(EngineLost, match="SIGKILL"):
        print(engine.capacity)
    engine.remove("a")
    engine.close()


PARENT = """
import os, signal, subprocess
import letters_child
from timely_llm.engines import remote
remote.CHILD = "letters_child"
engine = remote.RemoteEngine(letters_child.Letters(), {"name": "letters"})
print(engine._child.pid, flush=True)
{hang}
os.kill(os.getpid(), signal.SIGKILL)
"""


def run_parent(hang: str) -> subprocess.CompletedProcess[str]:
    """Run a process that makes an engine, does something to it, and is killed."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    parent = subprocess.run(
        [sys.executable, "-c", PARENT.replace("{hang}", hang)], stdout=subprocess.PIPE, text=True,
        check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert parent.returncode == -signal.SIGKILL
    return parent


def sleepers(number: int) -> list[int]:
    """Return the processes called sleep that a process has started."""
    words = ["ps", "--ppid", str(number), "-o", "pid=,comm="]
    lines = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if line.split()[1] == "sleep"]


@pytest.mark.parametrize("hang", ["", "os.kill(engine._child.pid, signal.SIGSTOP)"])
def test_no_process_is_left_when_its_parent_is_killed(hang: str) -> None:
    assert gone(int(run_parent(hang).stdout))


def test_a_process_that_hangs_is_killed_with_all_that_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "CLOSE_S", 0.1)
    engine = remote_letters()
    engine.add("start another", [5])
    engine.submit(StepPlan((("start another", 1),)))
    engine.collect()
    (grandchild,) = sleepers(pid(engine))
    os.kill(pid(engine), signal.SIGSTOP)
    engine.close()
    assert gone(pid(engine))
    assert gone(grandchild)


def test_what_an_engine_has_started_ends_with_its_parent() -> None:
    hang = (
        'engine.add("start another", [5]);'
        'engine.submit(remote.StepPlan((("start another", 1),))); engine.collect();'
        'ps = subprocess.run(["ps", "--ppid", str(engine._child.pid), "-o", "pid=,comm="],'
        "stdout=subprocess.PIPE, text=True).stdout.splitlines();"
        'print(*(line.split()[0] for line in ps if "sleep" in line), flush=True)'
    )
    parent = run_parent(hang)
    child, grandchild = map(int, parent.stdout.split())
    assert gone(child)
    assert gone(grandchild)


def test_what_breaks_down_there_is_an_error_here(engine: RemoteEngine, drive: type[Driver]) -> None:
    driver = drive(engine)
    driver.add("a", "find the apple")
    driver.add("break down", "find the cup")
    engine.submit(StepPlan((("break down", 5), ("a", 3))))
    with pytest.raises(EngineError, match="ZeroDivisionError: in the"):
        engine.collect()
    driver.answer("a", 5)
    engine.submit(StepPlan((("a", 1),)))
    for call in (lambda: engine.remove("a"), lambda: engine.add("b", [5])):
        with pytest.raises(EngineError, match="collect the submitted step"):
            call()
    engine.collect()


def test_a_step_that_breaks_down_there_leaves_the_others(drive: type[Driver]) -> None:
    engine = remote_letters(in_flight=2, ahead=True)
    driver = drive(engine)
    driver.add("a", "find the apple")
    driver.add("break down", "find the cup")
    engine.submit(StepPlan((("a", 3),)))
    with pytest.raises(EngineError, match="ZeroDivisionError: in the"):
        engine.submit(StepPlan((("break down", 5),)))
    engine.add("b", [5])  # a step is in flight
    assert engine.collect().computed == {"a": 3}
    with pytest.raises(EngineError, match="there is no step to collect"):
        engine.collect()
    engine.close()


def test_more_steps_are_in_flight_there(drive: type[Driver]) -> None:
    engine = remote_letters(in_flight=2, ahead=True)
    assert (engine.in_flight, engine.async_scheduling) == (2, True)
    engine.add("a", [5, 6, 7])
    planned = engine.submit(StepPlan((("a", 3),)))
    assert planned["a"].pending_tokens == 1
    assert engine.submit(StepPlan((("a", 1),)))["a"].pending_tokens == 2
    with pytest.raises(EngineError, match="collect the submitted step"):
        engine.submit(StepPlan((("a", 1),)))
    assert [len(engine.collect().tokens["a"]) for _ in range(2)] == [1, 1]
    engine.close()


def test_only_calls_of_an_engine_are_answered(engine: RemoteEngine) -> None:
    with pytest.raises(EngineError, match="'__class__'"):
        engine._call("__class__")
    with pytest.raises(EngineError, match="unknown call 'close_all'"):
        engine._call("close_all")
    engine.add("a", [5])


def test_the_embedded_engine_says_the_same_there(llama: Path, drive: type[Driver]) -> None:
    said = []
    for process in (False, True):
        engine = make_engine(
            "transformers", model=llama, device="cpu", process=process, pace="millisecond"
        )
        driver = drive(engine)
        driver.add("a", "Find the apple.")
        said.append(driver.answer("a", 12, chunk=5))
        engine.close()
    assert said[0] == said[1]


def test_what_cannot_be_made_there_is_an_error_of_one_sentence(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(ModelError):
        make_engine("transformers", model=tmp_path, process=True)
    with pytest.raises(EngineError, match="float3"):
        make_engine("transformers", model=llama, dtype="float3", process=True)
    with pytest.raises(EngineError, match="needs no process"):
        make_engine("simulated", process=True)
