"""The door to Ray: trials on Ray Tune, as many at once as fit, on this machine or a cluster.

Ray is a replaceable executor here. It starts workers, restarts those that die, and passes evaluations to the driver;
what is complete is read from the records alone, since Tune also calls a trial terminated that Ctrl-C cut off.
"""

from __future__ import annotations

import os

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",  # Ray's ports listen on all interfaces: nobody gets in without the token
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0 the only way to silence Tune's tables
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours asks Tune to stop, and remembers that it was asked
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
for _name, _value in _ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

from orchestrator.schedule.execute import run_on_ray  # noqa: E402  (Ray reads the environment above when it loads)

__all__ = ["run_on_ray"]
