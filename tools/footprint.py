"""What an installation costs a robot: seconds, megabytes on the disk and in memory, import time.

    python -m tools.footprint dist/timely_llm-0.2.0-cp311-cp311-linux_x86_64.whl [EXTRA...]

The wheel, of this Python's version, is installed into a fresh environment, once without an extra
and once with each EXTRA (`server`, or several: `server,bags`). Figures are in docs/installing.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

REPEATS = 5
CLIENT = "from timely_llm import PlanClient"
MEASURE = """
import json, sys, time
began, began_cpu = time.perf_counter(), time.process_time()
{code}
seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
lines = open("/proc/self/status").read().splitlines()
[memory] = [line.split()[1] for line in lines if line.startswith("VmRSS")]
print(json.dumps([seconds, cpu, int(memory) / 1024, len(sys.modules)]))
"""
CASES = {
    "import PlanClient": CLIENT,
    "PlanClient, its node made": f"{CLIENT}\nclient = PlanClient('robot', skill_set='drone')",
}
"""What is measured, and the code of it."""


def main() -> int:
    """Measure, print and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extras", nargs="*")
    chosen = parser.parse_args()
    if not chosen.wheel.is_file():
        print(f"footprint: there is no file {chosen.wheel}: make wheels", file=sys.stderr)
        return 2
    for extra in ("", *chosen.extras):
        with tempfile.TemporaryDirectory() as folder:
            measure(chosen.wheel.resolve(), extra, Path(folder))
    return 0


def measure(wheel: Path, extra: str, folder: Path) -> None:
    """Install a wheel into a new environment in a folder, and print what it takes."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    before = megabytes(folder)
    began_s = time.monotonic()
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    subprocess.run([python, "-m", "pip", "install", "--quiet", what], check=True)
    taken_s = time.monotonic() - began_s
    print(f"\ntimely_llm{f'[{extra}]' if extra else ''}")
    print(f"  the wheel alone              {wheel.stat().st_size / 1e6:8.1f} MB")
    print(f"  installed, all dependencies  {megabytes(folder) - before:8.1f} MB")
    print(f"  pip install                  {taken_s:8.1f} s, with the cache of pip as it is")
    for name, code in CASES.items():
        runs = [child(python, code, folder) for _ in range(REPEATS)]
        seconds, cpu, memory, modules = map(statistics.median, zip(*runs, strict=True))
        print(
            f"  {name:28s} {seconds:8.2f} s ({cpu:.2f} s of a core), {memory:.0f} MB of memory,"
            f" {modules:.0f} modules"
        )


def child(python: Path, code: str, folder: Path) -> list[float]:
    """Return seconds, those of a core, megabytes and modules of a process that runs some code."""
    done = subprocess.run(
        [python, "-c", MEASURE.format(code=code)],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder; of a hard link only once."""
    sizes = {
        (found.st_dev, found.st_ino): found.st_size
        for path in folder.rglob("*")
        if not path.is_symlink() and path.is_file() and (found := path.stat())
    }
    return sum(sizes.values()) / 1e6


if __name__ == "__main__":
    sys.exit(main())
