"""A database that no command can write to before someone mends it, and what that someone can do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from orchestrator.errors import redacted

OUT_OF_DATE = "out-of-date database schema"
"""How MLflow begins what it says of a schema that is not its own, whether older or newer."""

_NEWER = "Can't locate revision"
_DAMAGED = re.compile(r"\(sqlite3\.\w+\) ([^\n]*(?:not a database|malformed|no such table|no such column)[^\n]*)")


class UpgradeError(Exception):
    """MLflow could not bring a database to its own schema; the text is the last line of what it said."""


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite database; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def what_to_do(error: Exception, uri: str) -> str | None:
    """Why the database cannot be used, and what to do; None for an error that may pass, or that a server answers."""
    if uri.startswith(("http://", "https://")):
        return None
    file = sqlite_file(uri)
    if file is not None and file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    name = redacted(uri) if file is None else str(file)
    away = "" if file is None else ", or move the file away: the next command makes a new one from the records"
    text = str(error)
    if isinstance(error, UpgradeError) and _NEWER in text:
        return f"{name} has the schema of a newer MLflow ({text}): install that version{away}"
    if isinstance(error, UpgradeError) or OUT_OF_DATE in text:
        upgrade = f"mlflow db upgrade {redacted(uri) if file is None else shlex.quote(f'sqlite:///{file}')}"
        why = f" and was not upgraded ({text})" if isinstance(error, UpgradeError) else ""
        return f"{name} has the schema of an older MLflow{why}: keep a copy and run `{upgrade}`{away}"
    if file is not None and (damage := _DAMAGED.search(text)) is not None:
        return f"{name} is damaged ({damage[1]}): move it away; the next command makes a new one from the records"
    return None
