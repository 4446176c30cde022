"""Promises the project makes about itself."""

import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import simuljax
from simuljax.eval import average_token_delay

ROOT = Path(__file__).parents[1]
LOCK_TEXT = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = re.findall(r"^(\S.*?)((?: \\\n    --hash=sha256:\w{64})+)$", LOCK_TEXT, re.MULTILINE)
LOCK = [Requirement(pin) for pin, _ in LOCKED]


def test_the_version_is_declared_once_and_in_the_changelog():
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[{re.escape(simuljax.__version__)}\]", changelog, re.MULTILINE)


def test_the_lock_covers_what_the_project_asks_for():
    here = [pin for pin in LOCK if not pin.marker or pin.marker.evaluate()]
    pinned = {canonicalize_name(pin.name): pin.specifier for pin in here}
    asked = map(Requirement, PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    for need in asked:
        if need.name != "simuljax":
            (version,) = pinned[canonicalize_name(need.name)]
            assert need.specifier.contains(version.version), f"{need} is not {version}: `make lock`"


def test_every_line_of_the_lock_has_hashes_and_no_host():
    lines = [line for line in LOCK_TEXT.splitlines() if not line.lstrip().startswith("#")]
    assert len(LOCK) == len([line for line in lines if not line.startswith(" ")]) > 50
    assert "://" not in LOCK_TEXT and "--find-links" not in LOCK_TEXT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel as pip would; the build backend is in the lock."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = out.iterdir()
    return found


def test_the_wheel_is_small_and_has_the_packages_with_their_data(wheel):
    names = ZipFile(wheel).namelist()
    assert wheel.stat().st_size < 3e6
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {
        "simuljax",
        "data_pipelines",
    }
    listed = ["git", "ls-files", "simuljax", "data_pipelines"]
    kept = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    assert set(kept.stdout.split()) <= set(names)
    metadata = ZipFile(wheel).read(f"simuljax-{simuljax.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {simuljax.__version__}\n" in metadata


def test_tensorflow_is_not_a_dependency():
    names = {canonicalize_name(pin.name) for pin in LOCK}
    assert "tensorflow-datasets" in names
    flavours = re.compile(r"tensorflow(-cpu|-gpu|-intel|-macos)?|tf-nightly(-cpu)?")
    assert not [name for name in names if flavours.fullmatch(name)]


# Ends the process at the first attempt to import one of the packages named, even one inside a try.
TRAP = """
import sys
class Trap:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {forbidden}:
            sys.exit(f"{name} was imported")
sys.meta_path.insert(0, Trap())
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


def trapped(module: str, *forbidden: str) -> str:
    """Return what the trap said while modules were imported; empty if it stayed silent."""
    done = run_python(TRAP.replace("{forbidden}", repr(forbidden)) + f"import {module}")
    return done.stderr


def test_importing_never_reaches_for_tensorflow():
    parts = ("ops", "losses", "audio", "text")
    assert trapped(", ".join(f"simuljax.{part}" for part in parts), "tensorflow") == ""


def test_importing_the_bare_package_is_free():
    assert trapped("simuljax", "jax", "numpy", "flax", "tensorflow") == ""
    assert "numpy was imported" in trapped("jax", "numpy"), "the trap does not close"


def test_no_file_is_long():
    tops = ("simuljax", "data_pipelines", "experiments", "tests")
    lines = {f: len(f.read_text().splitlines()) for top in tops for f in (ROOT / top).rglob("*.py")}
    assert not {str(f.relative_to(ROOT)): n for f, n in lines.items() if n > 600}


def test_the_readme_prints_what_it_says():
    readme = (ROOT / "README.md").read_text()
    *_, code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (said,) = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == said


def test_token_delays_may_be_arrays_and_must_be_finite():
    given = [100.0, 200.0, 900.0]
    found = average_token_delay(np.array(given), 3000, 2)  # pyright: ignore[reportArgumentType]
    assert found == average_token_delay(given, 3000, 2)
    with pytest.raises(ValueError, match="finite"):
        average_token_delay([100.0, math.nan], 3000, 2)
