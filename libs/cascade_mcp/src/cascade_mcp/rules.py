"""How an agent works with an app. The tools enforce what they can; the agent prompt prints the same rules.

spec: agents, Rules.
"""

from typing import Final

from cascade_client.launching import MOST_UNASKED_SIMS

RULES: Final = (
    "The token is a secret. Never print, echo or repeat it; name it only as $CASCADE_TOKEN.",
    (
        "Launch a run only when the user asked for one, and launch it once: after a lost answer look at the newest "
        "runs before trying again."
    ),
    (
        f"A run of more than {MOST_UNASKED_SIMS} sims needs the user's yes to its entries first. Each sim costs "
        "machine time, and on a cloud money."
    ),
    "Cancel a run only when the user asks. Cancelling twice does no harm.",
    (
        "Say where numbers come from before giving any. The stand-in simulator replays a recorded log whatever the "
        "trace: its numbers do not describe the trace, and configs cannot be compared from them. Estimates come from "
        "an analytical model; no simulator ran. Samples were reconstructed from published statistics."
    ),
    (
        "Call times by the sims' engine: simulated, estimated or replayed. Take every number from an answer of the "
        "app, and say so where a value is missing."
    ),
    "Configs within 1 % of each other tie: name no winner.",
    "A trace runs only on GPU configs of its own architecture, and only when it is `ready`. Samples cannot run.",
    (
        "Heartbeats, log chunks, step timelines and output files come from simulators. Never send any: a heartbeat "
        "changes a sim's state."
    ),
    "A wrong token is the user's to correct. Do not try others.",
)

INSTRUCTIONS: Final = (
    "These tools work one Cascade app. Cascade takes a trace of a GPU workload, captured once on a real GPU, and "
    "simulates it on other GPU configs, many sims at once. A trace is one capture; a run is a trace and entries, each "
    "a GPU config with a number of replicas; a sim is one replica.\n\n"
    "Usual order: list_traces, list_gpu_configs for the trace, launch_run, wait_for_run until the run is not active, "
    "get_report. Traces are captured outside this app, by the profiler.\n\nRules:\n"
    + "\n".join(f"- {rule}" for rule in RULES)
)
