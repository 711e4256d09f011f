"""The classes of vLLM's objects in `timely_llm/engines/vllm/`.

Names, calls and overrides are found in the modules themselves. A change that uses another object of
vLLM's adds its class here: `test/tools/test_vllm_coupling.py` names any object that lacks.
"""

from __future__ import annotations

from tools.vllm_coupling.facts import Facts

_SCHED, _SLOTS = "vllm.v1.core.sched", "vllm.v1.worker.gpu"

CLASSES = {
    "AsyncScheduler": f"{_SCHED}.async_scheduler:AsyncScheduler",
    "BlockPool": "vllm.v1.core.block_pool:BlockPool",
    "CacheConfig": "vllm.config:CacheConfig",
    "CachedRequestData": f"{_SCHED}.output:CachedRequestData",
    "CompletionOutput": "vllm.outputs:CompletionOutput",
    "EngineArgs": "vllm.engine.arg_utils:EngineArgs",
    "EngineCore": "vllm.v1.engine.core:EngineCore",
    "EngineCoreOutput": "vllm.v1.engine:EngineCoreOutput",
    "EngineCoreOutputs": "vllm.v1.engine:EngineCoreOutputs",
    "EngineCoreRequest": "vllm.v1.engine:EngineCoreRequest",
    "Executor": "vllm.v1.executor:Executor",
    "GroupCoordinator": "vllm.distributed.parallel_state:GroupCoordinator",
    "GPUModelRunner": "vllm.v1.worker.gpu_model_runner:GPUModelRunner",
    "GPUModelRunnerV2": "vllm.v1.worker.gpu.model_runner:GPUModelRunner",
    "InprocClient": "vllm.v1.engine.core_client:InprocClient",
    "InputBatch": "vllm.v1.worker.gpu_input_batch:InputBatch",
    "KVCacheBlock": "vllm.v1.core.kv_cache_utils:KVCacheBlock",
    "KVCacheBlocks": "vllm.v1.core.kv_cache_manager:KVCacheBlocks",
    "KVCacheManager": "vllm.v1.core.kv_cache_manager:KVCacheManager",
    "KVConnectorBase_V1": "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorBase_V1",
    "KVTransferConfig": "vllm.config:KVTransferConfig",
    "LLMEngine": "vllm.v1.engine.llm_engine:LLMEngine",
    "LogitsProcessor": "vllm.v1.sample.logits_processor:LogitsProcessor",
    "LogitsContext": f"{_SLOTS}.sample.logits_processor.interface:LogitsContext",
    "LogitsProcessorV2": f"{_SLOTS}.sample.logits_processor.interface:LogitsProcessor",
    "LogitsProcessors": "vllm.v1.sample.logits_processor:LogitsProcessors",
    "LogprobsLists": "vllm.v1.outputs:LogprobsLists",
    "ModelConfig": "vllm.config:ModelConfig",
    "MultiprocExecutor": "vllm.v1.executor.multiproc_executor:MultiprocExecutor",
    "PPHandler": f"{_SLOTS}.pp_utils:PPHandler",
    "ParallelConfig": "vllm.config:ParallelConfig",
    "PendingRecv": f"{_SLOTS}.pp_utils:PendingRecv",
    "Platform": "vllm.platforms.interface:Platform",
    "Request": "vllm.v1.request:Request",
    "RequestOutput": "vllm.outputs:RequestOutput",
    "RequestOutputKind": "vllm.sampling_params:RequestOutputKind",
    "RequestQueue": f"{_SCHED}.request_queue:RequestQueue",
    "RequestState": f"{_SLOTS}.states:RequestState",
    "RequestStatus": "vllm.v1.request:RequestStatus",
    "SamplingParams": "vllm.sampling_params:SamplingParams",
    "Scheduler": f"{_SCHED}.scheduler:Scheduler",
    "SchedulerConfig": "vllm.config:SchedulerConfig",
    "SchedulerOutput": f"{_SCHED}.output:SchedulerOutput",
    "StructuredOutputBackend":
        "vllm.v1.structured_output.backend_types:StructuredOutputBackend",
    "StructuredOutputGrammar":
        "vllm.v1.structured_output.backend_types:StructuredOutputGrammar",
    "StructuredOutputManager": "vllm.v1.structured_output:StructuredOutputManager",
    "StructuredOutputRequest": "vllm.v1.structured_output.request:StructuredOutputRequest",
    "StructuredOutputsParams": "vllm.sampling_params:StructuredOutputsParams",
    "UsageContext": "vllm.usage.usage_lib:UsageContext",
    "VllmConfig": "vllm.config:VllmConfig",
}  # fmt: skip

MEMBERS: dict[str, dict[str, str]] = {
    "BlockPool": {"blocks": "KVCacheBlock[]"},
    "CompletionOutput": {"token_ids": ""},
    "EngineArgs": {"create_engine_config()": "VllmConfig"},
    "EngineCore": {
        "batch_queue": "", "model_executor": "Executor", "scheduler": "Scheduler",
        "structured_output_manager": "StructuredOutputManager", "request_block_hasher": "",
        "vllm_config": "VllmConfig",
    },
    "EngineCoreOutput": {"new_logprobs": "LogprobsLists", "request_id": ""},
    "EngineCoreOutputs": {"outputs": "EngineCoreOutput[]"},
    "GPUModelRunner": {
        "get_model()": "", "input_batch": "InputBatch", "vllm_config": "VllmConfig",
    },
    "GPUModelRunnerV2": {"pp_handler": "PPHandler", "req_states": "RequestState"},
    "InprocClient": {"_finalizer": "", "engine_core": "EngineCore"},
    "InputBatch": {"logitsprocs": "LogitsProcessors"},
    "KVCacheManager": {
        "block_pool": "BlockPool", "empty_kv_cache_blocks": "KVCacheBlocks",
        "get_blocks()": "KVCacheBlocks",
    },
    "LLMEngine": {"engine_core": "InprocClient"},
    "LogitsProcessors": {"non_argmax_invariant": ""},
    "LogitsContext": {"expanded_idx_mapping": "", "idx_mapping_np": "", "pos": ""},
    "LogprobsLists": {"logprobs": ""},
    "ModelConfig": {"dtype": ""},
    "ParallelConfig": {"placement_group": ""},
    "PendingRecv": {"idx_mapping_np": ""},
    "Request": {
        "request_id": "",
        "sampling_params": "SamplingParams",
        "structured_output_request": "StructuredOutputRequest",
    },
    "RequestOutput": {"outputs": "CompletionOutput[]"},
    "Scheduler": {
        "connector": "KVConnectorBase_V1", "kv_cache_manager": "KVCacheManager",
        "requests": "Request[]", "offers": "",
    },
    "SchedulerOutput": {
        "num_scheduled_tokens": "", "scheduled_cached_reqs": "CachedRequestData",
    },
    "VllmConfig": {
        "additional_config": "", "cache_config": "CacheConfig",
        "kv_transfer_config": "KVTransferConfig",
        "model_config": "ModelConfig", "parallel_config": "ParallelConfig",
        "scheduler_config": "SchedulerConfig",
    },
}  # fmt: skip
"""What an object has that is again vLLM's, or that we use further."""

ROOTS: dict[str, dict[str, str]] = {
    "": {
        "config": "VllmConfig", "core": "EngineCore", "current_platform": "Platform",
        "request": "Request", "self._core": "EngineCore", "self._scheduler": "Scheduler",
    },
    "engines.vllm.runner": {
        "executor": "Executor", "group": "GroupCoordinator", "runner": "GPUModelRunner",
        "self.model_runner": "GPUModelRunner", "self.vllm_config": "VllmConfig",
    },
    "engines.vllm.runner_v1": {"runner": "GPUModelRunner"},
    "engines.vllm.runner_v2": {
        "ctx": "LogitsContext", "handler": "PPHandler", "pending": "PendingRecv",
        "runner": "GPUModelRunnerV2", "scheduler_output": "SchedulerOutput",
    },
    "engines.vllm.sampling": {"params": "SamplingParams"},
    "engines.vllm.connectors": {"queue": "RequestQueue", "scheduler": "Scheduler"},
    "engines.vllm.core": {
        "output": "EngineCoreOutput", "outputs": "EngineCoreOutputs[]", "requests": "Request[]",
        "scheduler_output": "SchedulerOutput", "self._request(key)": "Request",
    },
    "engines.vllm.options": {
        "cache": "CacheConfig", "model": "ModelConfig", "scheduler": "SchedulerConfig",
    },
    "engines.vllm.scheduler": {
        "block": "KVCacheBlock", "found": "KVCacheBlocks", "held": "KVCacheBlocks",
        "lent": "KVCacheBlocks", "output": "SchedulerOutput", "pool": "BlockPool",
        "self._scheduler": "",
    },
    "engines.vllm.stock": {
        "client": "InprocClient", "self._engine": "LLMEngine",
        "outputs": "RequestOutput[]", "made": "EngineCoreOutputs[]",
        "output": "RequestOutput", "said": "EngineCoreOutput",
        "o": "EngineCoreOutput", "core_outputs": "EngineCoreOutputs[]",
        "scheduled": "SchedulerOutput", "self.output": "SchedulerOutput",
        "step.output": "SchedulerOutput",
    },
}  # fmt: skip
"""Variables and attributes of ours that hold an object of vLLM's."""

OWN: dict[str, frozenset[str]] = {
    "": frozenset(("_OPEN", "decoding", "engine_args", "given", "limits", "log", "part", "tokens")),
    "engines.vllm.runner": frozenset((
        "model", "name", "path", "recorder", "runner_of(self.vllm_config)", "storage", "weights",
        "{'0': 'v1', '1': 'v2'}",
    )),
    "engines.vllm.runner_v1": frozenset(("self._rows",)),
    "engines.vllm.runner_v2": frozenset(("self._slots", "slots")),
    "engines.vllm.sampling": frozenset(("bitmask", "drawn", "of_rows", "self._matcher")),
    "engines.vllm.connectors": frozenset(("resting", "self._taken")),
    "engines.vllm.core": frozenset((
        "keys", "made", "of", "output.new_logprobs.logprobs[:, 0]", "runner", "self._held",
        "self._ids", "self._driver", "self._outputs",
        "path", "self._numbers", "self._records", "self._timeline",
    )),
    "engines.vllm.options": frozenset(("runner",)),
    "engines.vllm.process_state": frozenset(("ray_utils.ray", "ray_utils.ray.util")),
    "engines.vllm.scheduler": frozenset(("resting", "self._lent", "self.offers")),
    "engines.vllm.stock": frozenset((
        "before", "one", "plan", "prefix", "result", "self._begun", "self._grammars",
        "self._in_flight", "self._limits", "self._progress", "self._records", "self._scheduled",
        "self._timeline", "self._waiting", "self.collect()", "self.priorities", "self.tokenizer",
        "step", "times",
    )),
}  # fmt: skip
"""Objects that are not vLLM's."""

OWN_ATTRIBUTES = {
    "PlannedScheduler": frozenset((
        "_find", "_lent", "offers", "order", "scheduled", "step_number",
    )),
    "Scheduler": frozenset((
        "failed", "forget_cached", "hold", "lend", "lend_prefix_hit", "offers", "order",
        "prefix_hit", "release", "scheduled", "shorten", "step_number",
    )),
    "PlannedAsyncScheduler": frozenset(("decode_stagger",)),
    "RowDrawProcessor": frozenset(("_rows",)),
    "SlotDrawProcessor": frozenset(("_slots",)),
    "SchedulerOutput": frozenset(("step_number",)),
    "SharedGrammar": frozenset(("_matcher",)),
}  # fmt: skip
"""What our classes have beside what they inherit; `Scheduler`: our own, as other modules see it."""

NEEDED = {
    "Scheduler": frozenset((
        "__init__", "schedule", "has_requests", "finish_requests", "_mamba_block_aligned_split",
    )),
    "LogitsProcessor": frozenset(("__init__", "is_argmax_invariant", "update_state", "apply")),
    "LogitsProcessorV2": frozenset(("__init__", "add_request", "apply")),
    "StructuredOutputGrammar": frozenset((
        "accept_tokens", "fill_bitmask", "is_terminated", "validate_tokens", "rollback", "reset",
    )),
    "StructuredOutputBackend": frozenset((
        "compile_grammar", "allocate_token_bitmask", "destroy",
    )),
}  # fmt: skip
"""Methods that stand in the place of vLLM's: if vLLM calls them otherwise, nothing calls ours."""

RETURNS = {
    ("EngineCore", "step"): "tuple[dict[int, EngineCoreOutputs], bool]",
    ("EngineCore", "step_with_batch_queue"): "tuple[dict[int, EngineCoreOutputs] | None, bool]",
    ("KVCacheManager", "get_blocks"): "KVCacheBlocks",
    ("KVCacheManager", "get_computed_blocks"): "tuple[KVCacheBlocks, int, int]",
    ("KVConnectorBase_V1", "get_num_new_matched_tokens"): "tuple[int | None, bool]",
    ("LLMEngine", "step"): "list[RequestOutput | PoolingRequestOutput]",
    ("Scheduler", "finish_requests"): "list[Request]",
    ("Scheduler", "schedule"): "SchedulerOutput",
    ("Scheduler", "_mamba_block_aligned_split"): "int",
}
"""What we take apart, or hand back in vLLM's place."""

RECEIVERS = {
    "KVCacheManager": frozenset(("kv_cache_manager",)),
    "KVConnectorBase_V1": frozenset(("connector",)),
    "LogitsProcessor": frozenset(("processor", "logitproc", "logitsproc", "proc")),
    "LogitsProcessorV2": frozenset(("processor",)),
    "Platform": frozenset(("current_platform",)),
    "Scheduler": frozenset(("scheduler",)),
    "StructuredOutputBackend": frozenset(("backend",)),
    "StructuredOutputGrammar": frozenset(("grammar",)),
}
"""Names under which vLLM's own modules call what we put in the place of its methods."""

CALLERS = {
    "LogitsProcessor": "vllm/v1/(?!worker/gpu/)",
    "LogitsProcessorV2": "vllm/v1/worker/gpu/",
}
"""Modules of one model runner, which have the same names for other things."""

VLLM = Facts(
    classes=CLASSES,
    members=MEMBERS,
    roots=ROOTS,
    own=OWN,
    own_attributes=OWN_ATTRIBUTES,
    needed=NEEDED,
    returns=RETURNS,
    receivers=RECEIVERS,
    callers=CALLERS,
    renamed={("engines.vllm.runner_v2", "LogitsProcessor"): "LogitsProcessorV2"},
    one_of={"Scheduler": (frozenset(("skipped_waiting", "kv_holding_waiting")),)},
    spelled=frozenset(
        (
            ("AsyncScheduler", "decode_stagger"),
            ("GPUModelRunnerV2", "get_model"),
            ("MultiprocExecutor", "is_failed"),
            ("Scheduler", "waiting"),
        )
    ),
    guarded=frozenset(
        (
            ("InprocClient", "_finalizer"),  # since 0.31
            ("Platform", "register_triton_kernel_overrides"),  # since 0.31
        )
    ),
    calls={
        "engines.vllm.core:SharedGrammars": ("StructuredOutputBackend", ""),
        "engines.vllm.stock:SharedGrammars": ("StructuredOutputBackend", ""),
        "engines.vllm.connectors:self._ask": ("KVConnectorBase_V1", "get_num_new_matched_tokens"),
        "engines.vllm.runner_v2:execute_model": ("GPUModelRunnerV2", "execute_model"),
        "engines.vllm.scheduler:self._find": ("KVCacheManager", "get_computed_blocks"),
        "engines.vllm.stock:self._schedule": ("Scheduler", "schedule"),
    },
    options={"engines.vllm.options": "EngineArgs", "engines.vllm.runner": "EngineArgs"},
    option_marks=frozenset(("enforce_eager", "logits_processors")),
)

WITHOUT = frozenset((
    "engines.vllm.engine", "engines.vllm.kv_loads", "engines.vllm.loading",
    "engines.vllm.stage_times", "engines.vllm.version",
))  # fmt: skip
"""Modules that know vLLM only through the others: they import nothing of it."""
