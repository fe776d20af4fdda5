"""How the property tests run: without a deadline, since machines are shared; the same examples each time in CI."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")
