"""The door to Ray: trials on Ray Tune, as many at once as fit, on this machine or a cluster.

Ray is a replaceable executor here. It starts workers, restarts those that die, and passes evaluations on; what is
complete is read from the records alone, because Tune also calls a trial terminated that Ctrl-C cut off.

Ray runs in a process of its own (`__main__`), which talks to the driver (`supervise`) over a socket. When a process
of Ray's dies, calls into Ray block for ever or end the whole process, whatever Python does; a process can be replaced.
It also gets the environment that Ray reads when it loads, whatever the driver has imported before.
"""

from __future__ import annotations

from orchestrator.execute.ray.supervise import run_on_ray

__all__ = ["run_on_ray"]
