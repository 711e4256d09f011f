"""What vLLM has but once in a process, whatever number of its engines there are."""

from __future__ import annotations

from functools import cache

from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore

_OPEN: list[EngineCore] = []
"""The engines of this process that are not closed."""


def enter_core(core: EngineCore) -> None:
    """Take note of an engine of this process, which `close_core` will free."""
    _OPEN.append(core)


def close_core(core: EngineCore) -> None:
    """Free an engine; what vLLM has but once in a process goes with the last one."""
    if core not in _OPEN:
        return
    _OPEN.remove(core)
    if _OPEN:
        core.model_executor.shutdown()
    else:
        core.shutdown()


@cache
def replace_kernels() -> None:
    """Let vLLM 0.31 and newer put others in the place of its kernels that need Triton, if so, once.

    It does so for every engine, and looks through all modules for them, which llvmlite's do not
    stand: a second engine would not start once one has guessed tokens, which needs numba.
    """
    replace = getattr(current_platform, "register_triton_kernel_overrides", None)
    if replace is not None:
        replace()
        current_platform.register_triton_kernel_overrides = lambda: None
