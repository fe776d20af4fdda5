"""The process that speaks to Ray: `python -m orchestrator.execute.ray SOCKET`, as the driver starts it.

Only the driver answers signals. When one of Ray's own processes dies, or the driver, this process ends at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from multiprocessing.connection import Connection

import ray

from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute.interrupt import leave_to_driver
from orchestrator.execute.ray import DriverConnection
from orchestrator.execute.ray.bridge import Queue, fit, train_in_worker
from orchestrator.execute.ray.session import check_nodes, dead_process, fitting, shipped, slots, start_ray

_LOOK_SECONDS = 0.5
_DEAD_SECONDS = 3.0


def main() -> None:
    """Do what the driver orders."""
    driver, ended = os.getppid(), threading.Event()
    leave_to_driver()
    line = DriverConnection(Connection(int(sys.argv[1])))
    order = line.order
    line.forward_logs()
    threading.Thread(target=_watch, args=(line, driver, ended), daemon=True).start()
    try:
        if order.address is None:
            start_ray(order)
        else:
            with shipped(order) as code_and_texts:
                start_ray(order, code_and_texts)
            check_nodes(order, [node for node, _ in slots(order.allotment)])
        leave_to_driver()  # Ray has made SIGTERM an exit
        queue = Queue(line.source, order.allotment, line.listener)
        fit(queue, train_in_worker, session=order.session, at_once=fitting(order))
    except RayLostError as error:
        line.tell("lost", str(error))
        return
    except Exception as error:
        if not isinstance(error, CannotStartError) and (dead := _dead_soon()) is not None:
            line.tell("lost", dead)
        else:
            line.fail(error)
        return
    finally:
        ended.set()
    line.tell("ended")
    ray.shutdown()


def _watch(line: DriverConnection, driver: int, ended: threading.Event) -> None:
    """End this process, which a call into Ray may block for ever, as soon as Ray or the driver is gone."""
    while not ended.wait(_LOOK_SECONDS):
        if os.getppid() != driver:
            os._exit(1)
        if (dead := dead_process()) is not None:
            line.tell("lost", dead)
            os._exit(1)


def _dead_soon() -> str | None:
    """What of Ray has died, if that may be why a call into it raised: the call may notice first."""
    until = time.monotonic() + _DEAD_SECONDS
    while (dead := dead_process()) is None and time.monotonic() < until:
        time.sleep(0.1)
    return dead


if __name__ == "__main__":
    main()
