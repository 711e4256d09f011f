"""A robot that may be killed while it goes: `restarted_robot.py CALLS LOG`.

It notes in the file CALLS what it has done, in `begun` beside it where it begins to go, and goes on
with the plan of its former life.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from timely_llm.ros.client.plan import CallLog, PlanClient

WAIT_S = 60.0


def main() -> None:
    calls, log = Path(sys.argv[1]), CallLog(sys.argv[2], again=True)

    def note(words: str, path: Path = calls) -> None:
        with path.open("a") as file:
            file.write(f"{words}\n")

    def go(distance: int) -> None:
        note(f"go {distance}", calls.with_name("begun"))
        time.sleep(0.3)  # what is killed here was not done
        note(f"go {distance}")

    def sees(name: str) -> bool:
        note(f"sees {name}")
        return True

    def scan() -> str:
        note("scan")
        return "a cat"

    with PlanClient("rover", "restarted", find_s=WAIT_S) as client:
        if log.request_id:
            task = client.resume(log.request_id)
        else:
            task = client.submit("Look.", request_id="tour")
        done = task.execute({"go": go, "sees": sees, "scan": scan}, log=log, timeout_s=WAIT_S)
    note(f"{done.value} after {len(done.calls)} calls: {done.plan}")


if __name__ == "__main__":
    main()
