"""Tokens, secrets, names that would leave their folders or forge a terminal's lines, files that would hang a reader."""

from __future__ import annotations

import ast
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.errors import command_line, redacted
from orchestrator.execute import ray
from orchestrator.execute.ray import ray_environment, session_folder
from orchestrator.execute.ray.session import compared
from orchestrator.sweep import SweepError, read_sweep
from orchestrator.words import escape

ROOT = Path(__file__).parents[2]
SMALL = """name: small
question: Which?
base:
  corpus: {name: pydoc}
  optimizer: {kind: sgd, learning_rate: 1.0}
  epochs: 1
seeds: [1]
"""


def problems(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "sweep.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    began = time.process_time()
    with pytest.raises(SweepError) as error:
        read_sweep(file)
    assert time.process_time() - began < 10.0
    return str(error.value)


def test_ray_asks_for_a_token_whatever_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "1")
    assert ray_environment()["RAY_AUTH_MODE"] == "token"
    assert ray_environment()["RAY_CHDIR_TO_TRIAL_DIR"] == "1"


# In a process of its own: Ray reads its environment once, when it loads.
JOIN = """
from pathlib import Path
from orchestrator.execute.ray import Order
from orchestrator.execute.ray.session import start_ray
from orchestrator.execute.run_trial import Allotment
start_ray(Order(Allotment(Path(), 1.0, 0.0, 600.0), address="127.0.0.1:1"))
"""


def test_a_cluster_is_not_joined_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ended = subprocess.run(
        [sys.executable, "-c", JOIN], env=ray_environment(), cwd=tmp_path, check=False, capture_output=True, text=True
    )
    refusal = "CannotStartError: --address 127.0.0.1:1: Token authentication is enabled but no authentication token was"
    assert refusal in ended.stderr and "RAY_AUTH_TOKEN" in ended.stderr
    assert not (tmp_path / ".ray").exists()


def test_a_sessions_folder_is_private_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray, "MOST_PATH_BYTES", 1000)  # a test's folder may lie too deep for sockets
    with session_folder() as first, session_folder() as second:
        assert first.is_dir() and second.is_dir() and first != second
        assert stat.S_IMODE(first.stat().st_mode) == 0o700
        (first / "file").touch()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"torch": "2.12"}, "torch is 2.12, on the driver 2.13"),
        ({"code": "other"}, "code is other, on the driver same"),
        ({"/runs": "another folder"}, "/runs is another folder, on the driver shared"),
    ],
)
def test_a_node_that_differs_is_told_with_both_sides(changed: dict[str, str], said: str | None) -> None:
    here = {"code": "same", "torch": "2.13", "corpus ptb": "123", "/runs": "shared"}
    assert compared(here, here | changed) == said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://lab:hunter2@db:5432/mlflow", "postgresql://***@db:5432/mlflow"),
        ("at https://hunter2@host/api?x=1 failed", "at https://***@host/api?x=1 failed"),
        ("http://host/?access_token=hunter2&page=2", "http://host/?access_token=***&page=2"),
        ("password=hunter2 host=db", "password=*** host=db"),
        ("s3://b/x?secret_key=hunter2", "s3://b/x?secret_key=***"),
        ("AWS_SECRET_ACCESS_KEY=hunter2 is set", "AWS_SECRET_ACCESS_KEY=*** is set"),
        ("password1=hunter2, client_secret_value=hunter2", "password1=*** client_secret_value=***"),
        ("token 4 of monkey=1, user@host", "token 4 of monkey=1, user@host"),
        ("max(shared, key=shared.__getitem__)", "max(shared, key=shared.__getitem__)"),
        ("base.corpus.train_tokens=200", "base.corpus.train_tokens=200"),
    ],
)
def test_secrets_are_starred_and_nothing_else(text: str, kept: str) -> None:
    assert redacted(text) == kept


def test_a_command_line_keeps_its_settings_and_no_secret() -> None:
    words = [
        "sweep",
        "a.yaml",
        "--set",
        "base.corpus.train_tokens=200",
        "--notify",
        "curl https://ann:hunter2@host/?key=1",
    ]
    kept = "sweep a.yaml --set base.corpus.train_tokens=200 --notify 'curl https://***@host/?key=***'"
    assert command_line(words) == kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL + "#" * 10_000_000, "larger than 1 MiB"),
        ("a: " + "[" * 400_000, "nested more than 30 levels deep"),
        ("\n".join("  " * depth + "a:" for depth in range(400)), "nested more than 30 levels deep"),
        ("a: [" + "1," * 400_000 + "]", "more than 20,000 values"),
        (SMALL + "baseline: " + "'" + "x" * 900_000 + "'", "baseline"),
        (b"name: \xff", "not UTF-8"),
    ],
    ids=["large", "deep flow", "deep block", "many", "long", "bytes"],
)
def test_a_file_beyond_all_bounds_is_told_at_once(tmp_path: Path, text: str | bytes, said: str) -> None:
    answer = problems(tmp_path, text)
    assert said in answer and len(answer) < 1000


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(SweepError, match="larger than 1 MiB"):
        read_sweep(Path("/dev/zero"))


@pytest.mark.parametrize("bad", ["../up", "/etc", "a/b", "..", "", "a" * 65, "a b", "-x", "con.", "a\\u0000b"])
@pytest.mark.parametrize("place", ["name: {}\n", "scales: {{{}: {{seeds: [2]}}}}\n"])
def test_names_that_become_folders_cannot_leave_theirs(tmp_path: Path, bad: str, place: str) -> None:
    text = SMALL.replace("name: small\n", "") if place.startswith("name") else SMALL
    assert "sweep.yaml" in problems(tmp_path, text + place.format(f'"{bad}"'))


@pytest.mark.parametrize("escaped", ["\\e[31mred", "a\\x07", "a\\u202eb", "a\\u2028b", "a\\x9b2Jb", "two\\nlines"])
@pytest.mark.parametrize(
    "place",
    ['variants: {{"{}": {{epochs: 2}}}}\n', 'components: {{"{}": {{off: {{epochs: 2}}}}}}\n', 'baseline: "{}"\n'],
)
def test_no_name_obeys_or_forges_a_terminal(tmp_path: Path, escaped: str, place: str) -> None:
    answer = problems(tmp_path, SMALL + place.format(escaped))
    assert all(line.isprintable() for line in answer.splitlines()), repr(answer)
    assert len(answer.splitlines()) <= 4


def test_neither_a_question_nor_a_path_carries_escapes(tmp_path: Path) -> None:
    for wrong in (SMALL.replace("Which?", '"\\e]0;owned\\a"'), SMALL.replace("pydoc", '"\\e[2Jpydoc"')):
        assert "U+001B is not allowed" in problems(tmp_path, wrong)


def test_variants_may_hold_slashes_blanks_and_markup(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SMALL + 'variants: {"../../AR / [TAR](x) | <b>": {epochs: 2}}\n')
    sweep = read_sweep(tmp_path / "sweep.yaml").at("paper")
    assert sweep.variants[1].name == "../../AR / [TAR](x) | <b>"
    assert escape(sweep.variants[1].name) == r"../../AR / \[TAR\](x) \| &lt;b&gt;"


def test_a_published_reference_cannot_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "outside.yaml").write_text("[]")
    for outside in ("../outside", tmp_path / "outside"):
        assert "no file" in problems(tmp_path, SMALL + f"published: {outside}.table1\n")


def _calls() -> list[tuple[Path, ast.Call]]:
    files = [path for package in ("lm", "orchestrator") for path in (ROOT / package).rglob("*.py")]
    return [
        (path, node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def test_nothing_is_unpickled() -> None:
    """torch loads weights only, numpy no objects, YAML by the safe loaders; pickle is for processes of its own."""
    pickled = ("pickle.", "cloudpickle.", "dill.", "joblib.", "marshal.", "shelve.")
    pipe = {ROOT / "orchestrator/execute/ray/__init__.py"}
    allowed_yaml = {"yaml.safe_load", "yaml.load(path.read_text(encoding='utf-8'), _Loader)"}
    loads = 0
    for path, call in _calls():
        name, text = ast.unparse(call.func), ast.unparse(call)
        loads += name == "torch.load"
        assert name != "torch.load" or "weights_only=True" in text, f"{path}: {text}"
        assert "allow_pickle=True" not in text, f"{path}: {text}"
        assert path in pipe or not name.startswith(pickled), path
        assert not name.startswith("yaml.") or "load" not in name or {name, text} & allowed_yaml, f"{path}: {text}"
    assert loads
