"""Options of vLLM with which it runs exactly the steps that it is given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from math import inf
from typing import Any

from vllm import envs
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext

from timely_llm.core.errors import EngineSettingError
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.vllm.connectors import check_connector, transfer_config
from timely_llm.engines.vllm.loading import LOAD_FORMATS, check_loading
from timely_llm.engines.vllm.runner import (
    MOST_SUSPENDED,
    SLOW_LINK,
    WORKER_EXTENSION,
    ModelRunner,
    choose_runner,
)
from timely_llm.engines.vllm.scheduler import SCHEDULERS

log = logging.getLogger(__name__)

OURS = {
    # Parameters of the engine itself.
    "model",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_gpu_blocks_override",
    # The scheduler and the engine's accounting depend on these.
    "scheduler_cls",
    "scheduling_policy",
    "scheduler_reserve_full_isl",
    "enable_chunked_prefill",
    "disable_hybrid_kv_cache_manager",
    "skip_tokenizer_init",
    "logits_processors",
    "worker_extension_cls",
    # Not supported: other drafters, other schedulers.
    "spec_method",
    "spec_model",
    "spec_tokens",
    "data_parallel_size",
    "max_num_active_seqs",
}
"""Options of vLLM that users cannot set."""

ENGINE_OPTIONS = ("model_runner", "max_suspended", "slow_link_for_tests")
"""Options of this engine that vLLM does not have."""

EXCLUDE_AHEAD = (
    "speculative_config",
    "enable_prefix_caching",
    "kv_transfer_config",
    "kv_offloading_size",
)
"""Options of vLLM that exclude a second step in flight."""

QUEUED_STEPS = 5
"""Steps that vLLM's queue to its worker processes holds: 10 messages, 2 a step (0.26 to 0.32)."""

GRAPH_TOKENS = 1024
"""Most tokens of a step that is a CUDA graph."""


def engine_config(
    model: str, dtype: str, limits: EngineLimits, block_tokens: int, engine_args: Mapping[str, Any]
) -> Any:
    """Return vLLM's configuration.

    Args:
        model: folder, or id on the Hugging Face hub.
        dtype: number type of weights and KV.
        limits: limits of the engine; the model supports their `max_model_len`.
        block_tokens: tokens of a KV block.
        engine_args: options of vLLM, in addition to the ones set here or instead of them.

    Raises:
        ModelError: the model has no weights in safetensors.
        EngineError: an option is one of `OURS` or loads code, speculative decoding has another
            drafter than n-grams, the model runner cannot start here, or the model keeps other
            state than KV.
    """
    for name in sorted(OURS & engine_args.keys()):
        raise EngineSettingError(f"engine_args cannot set {name!r}: the step plan depends on it")
    check_loading(model, engine_args)
    speculative_tokens = _speculative_tokens(engine_args)
    stages = engine_args.get("pipeline_parallel_size", 1)
    ahead = _plans_ahead(engine_args, stages)
    _check_in_flight(speculative_tokens, ahead, stages)
    if engine_args.get("distributed_executor_backend") == "ray":
        _check_ray()
    finds = engine_args.get("enable_prefix_caching", False)
    if not isinstance(finds, bool):
        raise EngineSettingError(
            f"engine_args: enable_prefix_caching must be true or false, not {finds!r}"
        )
    most_suspended = engine_args.get("max_suspended", MOST_SUSPENDED)
    if type(most_suspended) is not int or most_suspended < 0:
        raise EngineSettingError(
            f"engine_args: max_suspended must be a whole number from 0, not {most_suspended!r}"
        )
    slow_link = _slow_link(engine_args.get("slow_link_for_tests", 0), stages)
    runner = choose_runner(engine_args.get("model_runner", "auto"), needs_v2=ahead and stages > 1)
    rows = min(limits.max_rows, limits.max_step_tokens)
    blocks = _blocks(limits, rows, block_tokens)
    # A live request has a block of its own. One more slot is for a prefix in the making.
    most_live = min(rows * (stages + ahead) + most_suspended, blocks) + 1
    args: dict[str, Any] = {
        "model": model,
        "dtype": dtype,
        "max_model_len": limits.max_model_len,
        "block_size": block_tokens,
        "num_gpu_blocks_override": blocks,
        "enable_chunked_prefill": True,
        # Layers with a window keep all KV too: blocks are held and lent as a whole.
        "disable_hybrid_kv_cache_manager": True,
        "scheduler_reserve_full_isl": False,
        "worker_extension_cls": WORKER_EXTENSION,
        "async_scheduling": ahead,
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "trust_remote_code": False,
        "load_format": LOAD_FORMATS[0],
        "enforce_eager": current_platform.is_cpu(),
        "max_cudagraph_capture_size": _graph_tokens(limits, engine_args),
        **runner.options(rows, most_live, limits.max_step_tokens, speculative_tokens),
        **{name: given for name, given in engine_args.items() if name not in ENGINE_OPTIONS},
        "enable_prefix_caching": True,  # needed to hold blocks; the option decides about hits
    }
    args["kv_transfer_config"] = transfer_config(engine_args.get("kv_transfer_config"))
    with runner.chosen():
        config = EngineArgs(**args).create_engine_config(UsageContext.LLM_CLASS)
    runner.record(config)
    if slow_link:
        config.additional_config[SLOW_LINK] = slow_link
    check_connector(config)
    _check_finds(finds, config)
    scheduler = config.scheduler_config
    scheduler.scheduler_cls = SCHEDULERS[scheduler.async_scheduling]
    if engine_args.get("async_scheduling") and not scheduler.async_scheduling:
        log.warning("vLLM has no asynchronous scheduling on this platform: it is off")
    if config.model_config.has_inner_state or config.model_config.is_encoder_decoder:
        raise EngineSettingError(
            f"the model {model!r} keeps more than the KV of its tokens, which cannot be suspended"
        )
    if config.cache_config.kv_cache_memory_bytes is None:
        # On a CPU vLLM would otherwise ask for nearly all memory of the machine. On a GPU it would
        # measure memory, which deletes the CUDA graphs of all other engines of the process.
        config.cache_config.kv_cache_memory_bytes = _kv_bytes(config)
    return config


def steps_in_flight(micro_batches: int, runner: ModelRunner, config: Any) -> int:
    """Return the most steps in flight of an engine.

    Args:
        micro_batches: as asked for; 0: as many as vLLM has by itself.
        runner: its model runner.
        config: vLLM's configuration.

    Raises:
        EngineError: the number is not possible.
    """
    own: int = config.max_concurrent_batches
    stages = config.parallel_config.pipeline_parallel_size
    if micro_batches and stages == 1:
        raise EngineSettingError(
            f"micro_batches={micro_batches}: the engine vllm has one stage, so only 0 is allowed"
        )
    if micro_batches in (0, own):
        return own
    if micro_batches < own:
        raise EngineSettingError(f"micro_batches must be 0 or at least {own}, not {micro_batches}")
    if runner.name == "v2" or not current_platform.is_cpu():
        # V2 allocates buffers for `own` steps. V1 writes the next step's input into host memory
        # that the GPU may not have copied yet.
        where = "Model Runner V2" if runner.name == "v2" else "Model Runner V1 on a GPU"
        raise EngineSettingError(
            f"micro_batches={micro_batches}: vLLM's {where} has buffers for {own} steps in flight,"
            f" so only 0 and {own} are allowed"
        )
    if micro_batches > QUEUED_STEPS:
        raise EngineSettingError(
            f"micro_batches={micro_batches}: vLLM's queue to its workers holds {QUEUED_STEPS}"
            f" steps, so at most {max(QUEUED_STEPS, own)} are allowed"
        )
    return micro_batches


def _slow_link(given: object, stages: int) -> float:
    """Return the rate to which the links are slowed, bytes/s; 0: they are not.

    Raises:
        EngineError: it is no number from 0, or there are no links that can be slowed.
    """
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < inf:
        raise EngineSettingError(
            f"engine_args: slow_link_for_tests must be bytes a second, 0 or more, not {given!r}"
        )
    if given and (stages < 2 or not current_platform.is_cpu()):
        raise EngineSettingError("engine_args: slow_link_for_tests is for pipeline stages on a CPU")
    return float(given)


def _graph_tokens(limits: EngineLimits, engine_args: Mapping[str, Any]) -> int | None:
    """Return the tokens up to which a step runs as a CUDA graph; None: as vLLM decides.

    vLLM decides on twice `max_num_seqs`, 512 at most. Steps with more tokens start each kernel by
    itself, which takes longer than all kernels of 500 tokens of Llama 3 8B on an H100.
    """
    if current_platform.is_cpu() or engine_args.keys() & {
        "compilation_config", "cudagraph_capture_sizes"
    }:  # fmt: skip
        return None
    return min(limits.max_step_tokens, GRAPH_TOKENS)


def _plans_ahead(engine_args: Mapping[str, Any], stages: object) -> Any:
    """Return the option `async_scheduling`; by default it is on where it gains and was tested.

    It gains on a GPU, which runs a step while the next one is planned. It excludes the options of
    `EXCLUDE_AHEAD`; with stages it was not run on GPUs.
    """
    if "async_scheduling" in engine_args:
        return engine_args["async_scheduling"]
    excluded = any(engine_args.get(name) for name in EXCLUDE_AHEAD)
    return not (current_platform.is_cpu() or stages != 1 or excluded)


def _check_in_flight(speculative_tokens: int, ahead: object, stages: object) -> None:
    """Check the options for several steps in flight.

    Raises:
        EngineError: an option has a wrong type, or excludes speculative decoding.
    """
    if not isinstance(ahead, bool):
        raise EngineSettingError(
            f"engine_args: async_scheduling must be true or false, not {ahead!r}"
        )
    if type(stages) is not int or stages < 1:
        raise EngineSettingError(
            f"engine_args: pipeline_parallel_size must be 1 or more, not {stages!r}"
        )
    if speculative_tokens and (ahead or stages > 1):
        other = "asynchronous scheduling" if ahead else "pipeline stages"
        raise EngineSettingError(
            f"engine_args: speculative decoding and {other} exclude each other: speculative tokens"
            " depend on the step before"
        )


def _check_ray() -> None:
    """Check that vLLM can start workers in a Ray cluster, before it starts Ray.

    Raises:
        EngineError: it cannot, on this platform, in this version, or without Ray.
    """
    if not current_platform.ray_device_key:
        reason = (
            f"vLLM has no Ray on the platform {current_platform.device_name}: only mp is allowed"
        )
    elif not getattr(envs, "VLLM_USE_RAY_V2_EXECUTOR_BACKEND", False):
        # The older executor does not notice that a worker has ended.
        reason = (
            "it needs vLLM's RayExecutorV2: vllm 0.32, without VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0"
        )
    elif find_spec("ray") is None:
        reason = "it needs the package ray on each machine: pip install 'timely_llm[ray]'"
    else:
        return
    raise EngineSettingError(
        f"engine_args: distributed_executor_backend=ray is not possible: {reason}"
    )


def _check_finds(finds: bool, config: Any) -> None:
    """Check the option for vLLM's prefix cache.

    Raises:
        EngineError: the cache is on, and several steps are in flight or there is a KV connector.
    """
    if not finds:
        return
    if config.max_concurrent_batches > 1:
        raise EngineSettingError(
            "engine_args: prefix caching and several steps in flight (async_scheduling, pipeline"
            " stages) exclude each other: a step is planned before it is known what another found"
        )
    if config.kv_transfer_config is not None:
        raise EngineSettingError(
            "engine_args: prefix caching and a KV connector exclude each other: leave one out"
        )


def _speculative_tokens(engine_args: Mapping[str, Any]) -> int:
    """Return the speculative tokens of a sequence in a step; 0: no speculative decoding.

    Raises:
        EngineError: the drafter is not n-grams, or a package for it is missing.
    """
    given = engine_args.get("speculative_config")
    if given is None:
        return 0
    tokens = given.get("num_speculative_tokens") if isinstance(given, Mapping) else None
    if type(tokens) is not int or tokens < 1 or given.get("method") != "ngram":
        raise EngineSettingError(
            'engine_args: speculative_config must be as {"method": "ngram",'
            f' "num_speculative_tokens": 3, "prompt_lookup_max": 4}}, not {given!r}'
        )
    if find_spec("numba") is None:
        raise EngineSettingError("speculative decoding needs the package numba: pip install numba")
    return tokens


def _blocks(limits: EngineLimits, rows: int, block_tokens: int) -> int:
    """Return the number of KV blocks that vLLM needs.

    One block is vLLM's own. Each row of a step may begin a block that the accounting does not
    count. vLLM also asks for room for the longest sequence, even if `kv_tokens` has none.
    """
    tokens = max(limits.kv_tokens + rows * block_tokens, limits.max_model_len)
    return -(-tokens // block_tokens) + 1


def _kv_bytes(config: Any) -> int:
    """Return the bytes of all KV blocks, keys and values of every layer."""
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    values = 2 * model.get_num_layers(parallel) * model.get_num_kv_heads(parallel)
    values *= model.get_head_size() * cache.block_size * cache.num_gpu_blocks_override
    return int(values * model.dtype.itemsize)
