"""The door to Ray: trials on Ray Tune, as many at once as fit, on this machine or a cluster.

Ray starts workers and passes evaluations on. What is complete is read from the records alone, because Tune also calls
a trial terminated that Ctrl-C cut off. Ray runs in a process of its own (`__main__`), which talks to the driver
(`supervise`) over a socket: when a process of Ray's dies, calls into Ray block for ever or end the whole process.
"""

from orchestrator.execute.ray.supervise import Order, run_on_ray

__all__ = ["Order", "run_on_ray"]
