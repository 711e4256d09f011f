"""The contract for engines as checks; its words stand in timely_llm/engines/contract.py.

A new promise becomes a function with `@check` in the module that has its subject.
"""

from timely_llm.conformance.engines import answers, limits
from timely_llm.conformance.engines.bench import ENGINE_CHECKS, EngineBench, MakeEngine

PARTS = (answers, limits)
"""The modules with the functions of `ENGINE_CHECKS`."""

__all__ = ["ENGINE_CHECKS", "PARTS", "EngineBench", "MakeEngine"]
