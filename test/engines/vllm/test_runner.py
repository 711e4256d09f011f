"""Both of vLLM's model runners: which one is chosen, the tokens they draw, the slots of V2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Decoding
from timely_llm.engines.sequences import EngineLimits

if TYPE_CHECKING:
    from timely_llm.conformance.engines.driver import Driver

pytest.importorskip("vllm", reason="vLLM is not installed: see `make test-vllm`")

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState

from test.engines.conftest import INTERPRETED
from test.engines.vllm_runner import need_runner
from timely_llm.engines.transformers.engine import TransformersEngine
from timely_llm.engines.vllm import runner, runner_v1, runner_v2
from timely_llm.engines.vllm.engine import BLOCK_TOKENS, VllmEngine
from timely_llm.engines.vllm.sampling import decoding_params

PLANNER = Path(__file__).parents[3] / "models/tiny_planner"
PROMPT = list(range(5, 105))  # three blocks and four tokens


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what this machine has: Triton, a GPU, a version of vLLM, a value of vLLM's variable."""

    def machine(
        triton: bool = True, gpu: bool = False, version: str = "0.32.0", switch: str = ""
    ) -> None:
        platform = SimpleNamespace(is_cpu=lambda: not gpu)
        monkeypatch.setattr(runner, "current_platform", platform)
        monkeypatch.setattr(runner, "HAS_TRITON", triton)
        monkeypatch.setattr(runner, "installed_version", lambda: version)
        monkeypatch.setenv(runner.SWITCH, switch)

    return machine


@pytest.mark.parametrize(
    ("given", "needs_v2", "has", "chosen"),
    [
        ("auto", False, {}, "v1"),
        ("auto", False, {"gpu": True}, "v2"),
        ("auto", False, {"gpu": True, "triton": False}, "v1"),
        ("auto", False, {"gpu": True, "version": "0.31.1"}, "v1"),
        ("auto", False, {"gpu": True, "switch": "0"}, "v1"),
        ("auto", True, {}, "v2"),
        ("auto", True, {"triton": False}, "v1"),
        ("auto", False, {"switch": "1"}, "v2"),
        ("auto", True, {"switch": "0"}, "v1"),
        ("v2", False, {"switch": "0"}, "v2"),
        ("v1", True, {"switch": "1"}, "v1"),
    ],
)
def test_which_runner_runs(
    machine: Callable[..., None], given: str, needs_v2: bool, has: Any, chosen: str
) -> None:
    machine(**has)
    assert runner.choose_runner(given, needs_v2).name == chosen


@pytest.mark.parametrize(
    ("given", "has", "reason"),
    [
        ("v3", {}, "model_runner must be auto, v1 or v2, not 'v3'"),
        ("v2", {"triton": False}, "Model Runner V2 cannot start here: vLLM needs Triton for it"),
        ("auto", {"triton": False, "switch": "1"}, "V2 cannot start here: vLLM needs Triton"),
        ("v2", {"version": "0.31.1"}, r"needs vllm 0\.32 or newer for it, 0\.31\.1 is installed"),
    ],
)
def test_a_runner_that_cannot_start(
    machine: Callable[..., None], given: str, has: Any, reason: str
) -> None:
    machine(**has)
    with pytest.raises(EngineError, match=reason):
        runner.choose_runner(given, needs_v2=False)


def test_a_version_without_v1(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    assert runner.choose_runner("auto", needs_v2=False).name == "v2"
    with pytest.raises(EngineError, match="V1 cannot start here: this version of vLLM has V2 only"):
        runner.choose_runner("v1", needs_v2=False)


def test_both_runners_draw_the_same_tokens() -> None:
    """Rows of V1, slots of V2: the same draws, beside rows without a temperature."""
    lengths = {"a": 7, "b": 3, "greedy": 5, "c": 12}
    decodings = {
        "a": Decoding(1.0, 4), "b": Decoding(0.7, 5), "greedy": Decoding(), "c": Decoding(1.3, 4),
    }  # fmt: skip
    params = {key: SamplingParams(extra_args=decoding_params(of)) for key, of in decodings.items()}
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))

    rows = runner_v1.RowDrawProcessor(None, torch.device("cpu"), False)
    added = [
        (row, params[key], [1] * (length - 1), [2])
        for row, (key, length) in enumerate(lengths.items())
    ]
    rows.update_state(BatchUpdate(4, [], added, []))
    in_rows = rows.apply(logits.clone())

    slots = {"a": 9, "b": 0, "greedy": 2, "c": 5}
    states = SimpleNamespace(spec=LogitsProcRequestState)
    processor = runner_v2.SlotDrawProcessor(None, states)
    assert processor.add_request(2, params["a"])  # of a request that has ended
    changed = {key: processor.add_request(slots[key], of) for key, of in params.items()}
    assert changed == {"a": True, "b": True, "greedy": False, "c": True}
    mapping = torch.tensor([slots[key] for key in lengths])
    context = LogitsContext(
        expanded_idx_mapping=mapping, idx_mapping=mapping, idx_mapping_np=mapping.numpy(),
        expanded_local_pos=torch.zeros(4), input_ids=torch.zeros(4),
        pos=torch.tensor([length - 1 for length in lengths.values()]),
        seq_lens_upper_bound_np=mapping.numpy(),
    )  # fmt: skip
    in_slots = processor.apply(logits.clone(), context)
    assert torch.equal(in_rows, in_slots)
    assert torch.equal(in_slots[2], logits[2])
    assert [int((row > -torch.inf).sum()) for row in in_slots] == [1, 1, 50, 1]


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_each_runner_says_what_the_embedded_engine_says(name: str, drive: type[Driver]) -> None:
    if INTERPRETED and name == "v1":
        pytest.skip("V1 needs no Triton: it is tested without")
    decodings = {
        "greedy": Decoding(),
        "drawn": Decoding(1.0, 4),
        "grammar": Decoding(1.3, 5, 'start: (/[a-z]{1,6}/ ";" | /[0-9]+/ "!")+'),
    }
    said = []
    for engine in (
        VllmEngine(PLANNER, engine_args={"model_runner": need_runner(name)}),
        TransformersEngine(PLANNER, device="cpu"),
    ):
        driver = drive(engine)
        for key, decoding in decodings.items():
            driver.add(key, f"Find the {key} apple.", decoding=decoding)
        while any(len(driver.said.get(key, ())) < 12 for key in decodings):
            driver.step(dict.fromkeys(decodings, 7))
        said.append({key: driver.said[key][:12] for key in decodings})
        engine.close()
    assert said[0] == said[1]


def test_two_runners_in_one_process(llama: Path, drive: type[Driver]) -> None:
    need_runner("v2")
    engines = [VllmEngine(llama, engine_args={"model_runner": name}) for name in ("v1", "v2", "v1")]
    drivers = [drive(engine) for engine in engines]
    for driver in drivers:
        driver.add_ids("a", PROMPT)
    answers = [driver.answer("a", 6) for driver in drivers]
    assert answers[0] == answers[1] == answers[2]
    for engine in engines:
        engine.close()


def test_a_suspended_sequence_without_a_slot_keeps_whole_blocks(
    llama: Path, drive: type[Driver]
) -> None:
    """Two rows and one suspended request have a slot: the one suspended first loses its own."""
    args = {"model_runner": need_runner("v2"), "max_suspended": 1}
    engine = VllmEngine(llama, limits=EngineLimits(max_rows=2), engine_args=args)
    driver = drive(engine)
    for key in "abc":
        driver.add_ids(key, PROMPT)
        driver.answer(key, 2)
    free = engine.capacity.free_tokens
    driver.add_ids("d", PROMPT)
    engine.submit(StepPlan((("d", 100),)))
    result = engine.collect()
    assert result.evicted == ()
    assert result.progress["a"].context_tokens == 3 * BLOCK_TOKENS
    assert result.progress["a"].to_compute == 102 - 3 * BLOCK_TOKENS
    assert engine.capacity.free_tokens == free - 4 * BLOCK_TOKENS + BLOCK_TOKENS
    assert set(result.progress) == {"a", "d"}
    engine.submit(StepPlan((("a", 6), ("d", 1))))
    result = engine.collect()
    assert result.recomputed == {"a": 5}
    assert set(result.progress) == {"a", "d", "b"}
    engine.close()


@pytest.mark.parametrize("given", [-1, 1.5, True, "many"])
def test_a_number_of_slots_that_cannot_be(llama: Path, given: object) -> None:
    with pytest.raises(EngineError, match="max_suspended must be a whole number from 0, not"):
        VllmEngine(llama, engine_args={"max_suspended": given})
