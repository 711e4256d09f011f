"""The other side of a remote engine, which starts fast: a simulated engine that knows letters."""

from __future__ import annotations

import re
import string
import subprocess
import sys
import zlib
from collections.abc import Mapping
from dataclasses import replace

from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan
from timely_llm.engines import registry
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.remote_worker import main
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import ScriptTokenizer, SimulatedEngine


def babble(key: str, prompt: str) -> str:
    """Answer with words that depend on every character of the prompt.

    A prompt that ends with the beginning of its own answer gets the rest, as from a model.
    """
    begun = re.search(r"(?:w\d+;)*(?:w\d*)?$", prompt)
    assert begun is not None, "an empty end is one too"
    answer = _words(prompt[: begun.start()])
    return answer[len(begun[0]) :] if answer.startswith(begun[0]) else _words(prompt)


def _words(prompt: str) -> str:
    seed = zlib.crc32(prompt.encode())
    return "".join(f"w{seed * (place + 1) % 997};" for place in range(80))


class Letters(ScriptTokenizer):
    """Each letter is a token, the same one in every process."""

    def __init__(self) -> None:
        super().__init__()
        self.ids(string.printable)

    def encode(self, text: str) -> list[int]:
        return self.ids(text)


class Breakable(SimulatedEngine):
    """Breaks down where a sequence is called so; says how many stages it has."""

    stages = 1

    @property
    def capacity(self) -> Capacity:
        return replace(super().capacity, stages=self.stages, micro_batches=self.stages)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        if "break down" in plan.keys:
            raise ZeroDivisionError("in the\nmiddle")
        if "start another" in plan.keys:
            subprocess.Popen(["sleep", "600"])
        return super().submit(plan)


def make_letters_engine(
    name: str, in_flight: int = 1, ahead: bool = False, stages: int = 1, **limits: int
) -> SimulatedEngine:
    profile = step_time_profile("millisecond")
    engine = Breakable(profile, babble, VirtualClock(), EngineLimits(**limits), in_flight, ahead)
    engine.stages = stages
    engine.tokenizer = Letters()
    return engine


if __name__ == "__main__":
    registry.make_engine = make_letters_engine  # type: ignore[assignment]
    main(int(sys.argv[1]), int(sys.argv[2]))
