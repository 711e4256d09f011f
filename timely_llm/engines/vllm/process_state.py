"""vLLM state shared by all engines of a process."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import torch
from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import ray_utils
from vllm.v1.executor.uniproc_executor import UniProcExecutor

_OPEN: list[EngineCore] = []
"""Open engines of this process."""


def enter_core(core: EngineCore) -> None:
    """Record an open engine; `close_core` closes it."""
    _OPEN.append(core)


def close_core(core: EngineCore) -> None:
    """Close an engine and free its memory; the last one also frees the shared state."""
    if core not in _OPEN:
        return
    _OPEN.remove(core)
    if not current_platform.is_cpu() and isinstance(core.model_executor, UniProcExecutor):
        core.model_executor.collective_rpc("free_weights")
    if _OPEN:
        core.model_executor.shutdown()
        if not current_platform.is_cpu():
            torch.accelerator.empty_cache()
    else:
        core.shutdown()
    _free_place(core)


def _free_place(core: EngineCore) -> None:
    """Return what Ray has reserved for the workers, so that the next engine finds it free."""
    place = core.vllm_config.parallel_config.placement_group
    if place is not None:
        with suppress(Exception):  # the cluster may have ended
            ray_utils.ray.util.remove_placement_group(place)


@cache
def replace_kernels() -> None:
    """Let vLLM 0.31 and newer replace its kernels that need Triton, once in a process.

    vLLM would do so for every engine, and search all loaded modules. llvmlite, which numba loads
    for speculative decoding, breaks under that search: a second engine would not start.
    """
    replace = getattr(current_platform, "register_triton_kernel_overrides", None)
    if replace is not None:
        replace()
        current_platform.register_triton_kernel_overrides = lambda: None
