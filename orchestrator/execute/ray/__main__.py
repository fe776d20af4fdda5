"""The process that speaks to Ray: `python -m orchestrator.execute.ray SOCKET`, as the driver starts it.

Only the driver answers signals; SIGUSR1 is how it asks this process to stop. When one of Ray's own processes dies, or
the driver, this process ends at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from types import FrameType

import ray

from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute.ray.bridge import Queue
from orchestrator.execute.ray.execute import fit, train_in_worker
from orchestrator.execute.ray.nodes import check_nodes, shipped
from orchestrator.execute.ray.session import dead_process, fitting, slots, start_ray
from orchestrator.execute.ray.talk import Line, Order, RemoteCourse, RemoteListener

_LOOK_SECONDS = 0.5
_DEAD_SECONDS = 3.0


def main() -> None:
    """Do what the driver orders."""
    driver, ended = os.getppid(), threading.Event()
    _ignore_signals()
    line = Line(Connection(int(sys.argv[1])))
    line.forward_logs()
    order = line.order()
    threading.Thread(target=_watch, args=(line, driver, ended), daemon=True).start()
    try:
        _start(order)
        _ignore_signals()  # Ray has made SIGTERM an exit
        queue = Queue(RemoteCourse(line), order.allotment, RemoteListener(line))
        fit(queue, train_in_worker, session=order.session, at_once=fitting(order.allotment, order.jobs))
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


def _start(order: Order) -> None:
    if order.address is None:
        start_ray(order.session, None, order.verbose)
        return
    with shipped(order.corpora, order.session) as code_and_texts:
        start_ray(order.session, order.address, order.verbose, code_and_texts)
    check_nodes(order.allotment, order.corpora, [node for node, _ in slots(order.allotment)])


def _watch(line: Line, driver: int, ended: threading.Event) -> None:
    """End this process, which may be blocked in Ray for ever, as soon as Ray or the driver is gone."""
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


def _ignore_signals() -> None:
    # By a function, because Ray's processes would inherit SIG_IGN, and Ray ends them with SIGTERM.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_to_driver)


def _leave_to_driver(number: int, frame: FrameType | None) -> None:
    """The driver gets the same signal, or another."""


if __name__ == "__main__":
    main()
