"""`make check-vllm`: whether a release of vLLM still has all that this package couples to.

    python -m tools.vllm_coupling                    # the newest published one
    python -m tools.vllm_coupling --version 0.32.0
    python -m tools.vllm_coupling --wheel vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl

It imports nothing of vLLM, and installs nothing. Its exit status is 0 if everything fits, 1 if
something changed, and 2 if no release could be read.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from zipfile import BadZipFile

from tools.package_index import PackageIndexError, index_url
from tools.vllm_coupling.check import compare
from tools.vllm_coupling.ours import our_modules
from tools.vllm_coupling.vllm import VLLM
from tools.vllm_coupling.wheel import cache_folder, local, published

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Compare, print a line for each change, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.vllm_coupling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", default="", help="a published release; default: the newest")
    which.add_argument("--wheel", type=Path, help="a wheel, or a folder that vllm lies in")
    parser.add_argument("--index", default="", help="package index; default: pip's own")
    parser.add_argument("--cache", type=Path, default=cache_folder(),
                        help="folder for a wheel that cannot be read by ranges")  # fmt: skip
    given = parser.parse_args(arguments)
    if given.version and not re.fullmatch(r"\d+(\.\d+)*(\.?(post|rc)\d+)?", given.version):
        parser.error(f"--version must be as 0.33.0, not {given.version!r}")
    begun_s = time.monotonic()
    try:
        opened = (
            local(given.wheel)
            if given.wheel is not None
            else published(given.version, given.index or index_url(), given.cache)
        )
        with opened as (version, files, how):
            compared = compare(our_modules(ROOT), VLLM, files)
    except (PackageIndexError, OSError, SyntaxError, ValueError, BadZipFile) as error:
        print(f"no release of vLLM could be read: {error}", file=sys.stderr)
        return 2
    for problem in compared.problems:
        print(f"vllm {version}: {problem}")
    counts = f"{compared.names} names, {compared.signatures} calls and signatures"
    if compared.problems:
        print(f"vllm {version}: {len(compared.problems)} changes in {counts}")
    else:
        print(f"vllm {version}: nothing that we couple to changed ({counts})")
    seconds = time.monotonic() - begun_s
    print(f"read {how} in {seconds:.0f} s", file=sys.stderr)
    return int(bool(compared.problems))


if __name__ == "__main__":
    sys.exit(main())
