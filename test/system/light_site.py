"""What a Python of an installation without extras looks like: copied as `sitecustomize`."""

import os
import sys
from importlib import metadata

HIDDEN = set(os.environ["HIDDEN_PACKAGES"].split())


class _Hidden:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


_distribution = metadata.distribution


def _visible(distribution_name: str) -> metadata.Distribution:
    if distribution_name.lower() in HIDDEN:
        raise metadata.PackageNotFoundError(distribution_name)
    return _distribution(distribution_name)


sys.meta_path.insert(0, _Hidden())
metadata.distribution = _visible
