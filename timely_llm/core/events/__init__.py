"""Events: what happened in a run, as typed values, as JSON lines, and as one history."""
