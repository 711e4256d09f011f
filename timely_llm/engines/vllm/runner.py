"""vLLM's model runners: which one runs an engine, and all that depends on it.

V1 takes the requests of each step as rows, which come and go. V2 gives a request a slot for its
whole life, so a suspended request keeps one. When vLLM drops V1, `runner_v1.py` and the choice go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vllm import envs
from vllm.distributed.parallel_state import get_pp_group, get_tp_group
from vllm.platforms import current_platform
from vllm.triton_utils import HAS_TRITON

from timely_llm.core.errors import EngineSettingError
from timely_llm.engines.vllm.stage_times import StageRecorder, StageRecords
from timely_llm.engines.vllm.version import installed_version, release_of

WORKER_EXTENSION = f"{__name__}.WorkerExtension"
SWITCH = "VLLM_USE_V2_MODEL_RUNNER"
"""vLLM's own variable, which vLLM reads while an engine starts."""

SLOW_LINK = "timely_llm.slow_link_for_tests"
"""Name in vLLM's configuration of the rate to which sends between stages are slowed, bytes/s."""

MOST_SUSPENDED = 256
"""Suspended requests that keep a slot of V2, unless `max_suspended` says otherwise."""

_OLDEST_V2 = (0, 32)
_NOTE = "timely_llm.model_runner"


@dataclass(frozen=True)
class ModelRunner:
    """One of vLLM's model runners.

    Attributes:
        name: v1 or v2.
    """

    name: str

    @property
    def module(self) -> str:
        """Module of what this package does within the runner, with `prepare` for its workers."""
        return f"{__package__}.runner_{self.name}"

    def options(
        self, rows: int, most_live: int, step_tokens: int, speculative_tokens: int
    ) -> dict[str, Any]:
        """Return the options of vLLM that depend on the runner.

        Args:
            rows: most sequences in a step.
            most_live: requests that hold a slot at once, suspended ones included.
            step_tokens: most tokens that a plan gives to a step.
            speculative_tokens: speculative tokens of a sequence in a step.
        """
        # vLLM reserves room for each speculative token before it knows their number.
        tokens = step_tokens + speculative_tokens
        if self.name == "v1":
            # It takes no processor together with speculative decoding: `prepare` adds it.
            processors = [] if speculative_tokens else [f"{self.module}:RowDrawProcessor"]
            return {
                "max_num_seqs": rows,
                "max_num_batched_tokens": tokens,
                "logits_processors": processors,
            }
        return {
            "max_num_seqs": most_live,
            "max_num_active_seqs": rows,
            "max_num_batched_tokens": max(tokens, most_live),  # vLLM wants no less
            "logits_processors": [f"{self.module}:SlotDrawProcessor"],
        }

    def record(self, config: Any) -> None:
        """Record in a configuration that this runner runs; see `runner_of`."""
        config.additional_config[_NOTE] = self.name

    def slots(self, config: Any) -> int | None:
        """Return the requests that hold a slot at once, a prefix in the making left out.

        None: suspended requests hold no slot.
        """
        return config.scheduler_config.max_num_seqs - 1 if self.name == "v2" else None

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Make vLLM start this runner; workers inherit the variable."""
        before = os.environ.get(SWITCH)
        os.environ[SWITCH] = "1" if self.name == "v2" else "0"
        envs.disable_envs_cache()  # of an engine that started before
        try:
            yield
        finally:
            if before is None:
                del os.environ[SWITCH]
            else:
                os.environ[SWITCH] = before


def choose_runner(given: object, needs_v2: bool) -> ModelRunner:
    """Return the runner of an engine.

    Args:
        given: the option `model_runner`. With auto, vLLM's variable decides if it is set. Without
            it V2 runs on a GPU if it can start. On a CPU V1 runs, unless this vLLM has none or the
            other options need V2.
        needs_v2: whether V1 does not take the other options.

    Raises:
        EngineError: there is no such runner, or it cannot start here.
    """
    if given not in ("auto", "v1", "v2"):
        raise EngineSettingError(f"engine_args: model_runner must be auto, v1 or v2, not {given!r}")
    name = str(given)
    if name == "auto":
        name = {"0": "v1", "1": "v2"}.get(os.environ.get(SWITCH, ""), "")
    if not name:
        wanted = needs_v2 or not current_platform.is_cpu()
        v2 = why_not("v1") is not None or (wanted and why_not("v2") is None)
        name = "v2" if v2 else "v1"
    reason = why_not(name)
    if reason is not None:
        raise EngineSettingError(f"vLLM's Model Runner {name.upper()} cannot start here: {reason}")
    return ModelRunner(name)


def why_not(name: str) -> str | None:
    """Return why a runner cannot start on this machine; None: it can."""
    if name == "v1":
        gone = find_spec("vllm.v1.worker.gpu_model_runner") is None
        return "this version of vLLM has V2 only" if gone else None
    version = installed_version() or ""
    if release_of(version) < _OLDEST_V2:
        oldest = ".".join(map(str, _OLDEST_V2))
        return f"this engine needs vllm {oldest} or newer for it, {version} is installed"
    if not HAS_TRITON:
        return "vLLM needs Triton for it, with a backend for this machine's processor"
    return None


def runner_of(config: Any) -> ModelRunner:
    """Return the runner that was recorded in a configuration."""
    return ModelRunner(config.additional_config[_NOTE])


def prepare_workers(executor: Any, stages: int) -> StageRecords | None:
    """Prepare the workers of an engine; return the times that its stages record.

    None: there is one stage, or this platform measures no times.
    """
    if stages < 2 or not current_platform.is_cpu():
        executor.collective_rpc("prepare_worker")
        return None
    path, records = StageRecords.create(stages)
    try:
        executor.collective_rpc("prepare_worker", args=(str(path),))
    finally:
        path.unlink()
    return records


class WorkerExtension:
    """Methods for vLLM's workers."""

    model_runner: Any
    vllm_config: Any

    def prepare_worker(self, records: str = "") -> None:
        """Do what the runner needs before the first step.

        Args:
            records: file for the times of the stages; empty: they are not measured. A worker on
                another machine does not find it and measures none.
        """
        import_module(runner_of(self.vllm_config).module).prepare(self.model_runner)
        if records and Path(records).exists() and get_tp_group().rank_in_group == 0:
            self._record_stage(Path(records))

    def _record_stage(self, path: Path) -> None:
        group, runner = get_pp_group(), self.model_runner
        recorder = StageRecorder(
            StageRecords(path, group.world_size),
            group.rank_in_group,
            group.is_last_rank,
            self.vllm_config.additional_config.get(SLOW_LINK, 0.0),
        )
        runner.execute_model = recorder.execute(runner.execute_model)
        runner.sample_tokens = recorder.sample(runner.sample_tokens)
        group.isend_tensor_dict = recorder.send(group.isend_tensor_dict)

    def free_weights(self) -> None:
        """Free the model's weights.

        What vLLM compiled for a GPU refers to them until the process ends.
        """
        model = self.model_runner.get_model()
        for weights in model.parameters():
            storage = weights.untyped_storage()
            storage.resize_(0)
