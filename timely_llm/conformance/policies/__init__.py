"""The contract for policies as checks; its words stand in timely_llm/policies/contract.py.

A new promise becomes a function with `@check` in the module that has its subject.
"""

from timely_llm.conformance.policies import decisions, service
from timely_llm.conformance.policies.bench import POLICY_CHECKS, MakePolicy, PolicyBench

PARTS = (decisions, service)
"""The modules with the functions of `POLICY_CHECKS`."""

__all__ = ["PARTS", "POLICY_CHECKS", "MakePolicy", "PolicyBench"]
