"""What an engine that keeps a pace remembers of sequences."""

from dataclasses import replace

from test.sizes import sizes
from timely_llm.core.clock import VirtualClock
from timely_llm.engines.contract import StepResult
from timely_llm.engines.paced import PacedEngine
from timely_llm.engines.profiles import PROFILES, Profile
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.policies.contract import StepPlan

FREE = Profile("free", "made up", 0.0, 0.0, 0.0)


class TellsLate(SimulatedEngine):
    """Tells of evictions and loads of a sequence that was removed since."""

    def collect(self) -> StepResult:
        return replace(super().collect(), evicted=("gone",), loaded={"gone": 5})


def paced(engine: type[SimulatedEngine]) -> PacedEngine:
    made = engine(PROFILES["millisecond"], lambda key, prompt: "tp();", VirtualClock(), Limits())
    return PacedEngine(made, FREE)


def test_what_is_told_of_a_sequence_that_was_removed_since_is_left_out() -> None:
    engine = paced(TellsLate)
    engine.add("gone", [1, 2, 3])
    engine.remove("gone")
    engine.add("here", [1, 2, 3])
    engine.submit(StepPlan((("here", 3),)))
    assert engine.collect().computed == {"here": 3}
    assert sizes(engine)["PacedEngine._context"] == 1


def test_it_remembers_nothing_of_those_that_were_removed() -> None:
    engine = paced(SimulatedEngine)
    for number in range(300):
        key = f"s{number}"
        engine.add(key, [1, 2, 3])
        engine.submit(StepPlan(((key, 3),)))
        engine.collect()
        engine.remove(key)
    assert not sizes(engine)["PacedEngine._context"]
    assert not sizes(engine)["PacedEngine._shared"]
