"""vLLM's platform for CPUs with a name for Ray, which vLLM's own has not.

vLLM places a worker where Ray has a unit of a resource, and asks Ray for the unit's number. Ray
numbers only resources that it knows, such as NPU; a cluster of the tests says how many a node has.
"""

from vllm.platforms.cpu import CpuPlatform

RESOURCE = "NPU"


class CpuInRay(CpuPlatform):  # type: ignore[misc] # of a library that is not always there
    """A CPU of a Ray cluster."""

    ray_device_key = RESOURCE


def platform() -> str:
    """Return the name of the platform's class, for vLLM."""
    return f"{__name__}.CpuInRay"
