"""The token that Ray asks of everyone who connects: its ports listen on all interfaces, whatever it is told."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from orchestrator.errors import CannotStartError

_HOW = "set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token to the cluster's own (there: ray get-auth-token)"


def token_for_this_machine() -> None:
    """Make sure that there is a token, which only its owner can read; CannotStartError if Ray is to ask for none."""
    _refuse_open_ports()
    path = _token_file()
    if os.environ.get("RAY_AUTH_TOKEN") or path.exists():
        return
    try:  # Ray would make one itself, for everyone to read
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        if not path.exists():  # a home that cannot be written: a token for this process and those it starts
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        return  # or another sweep was faster
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))


def token_for_cluster(address: str) -> None:
    """CannotStartError, with how to set it, unless there is a token to show to a cluster."""
    _refuse_open_ports()
    path = _token_file()
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise CannotStartError(f"--address {address}: no token ({path} is not there); {_HOW}") from None
    except OSError as error:
        raise CannotStartError(f"--address {address}: {path}: {error.strerror}; {_HOW}") from error
    if not found:
        raise CannotStartError(f"--address {address}: {path} is empty; {_HOW}")


def _token_file() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()


def _refuse_open_ports() -> None:
    if os.environ.get("RAY_AUTH_MODE", "token").lower() == "disabled":
        raise CannotStartError("RAY_AUTH_MODE=disabled lets anyone in who reaches Ray's ports: unset it")
