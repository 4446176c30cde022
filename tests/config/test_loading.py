"""Files load from any folder, and errors name the file and the line."""

import sys
from pathlib import Path

import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.loading import load_module, load_object, reference_to


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A file two packages deep that imports its neighbour by its full and its relative name."""
    (tmp_path / "away").mkdir()
    for folder in ("grids_of_mine", "grids_of_mine/inner"):
        write(tmp_path / folder / "__init__.py", "")
    write(tmp_path / "grids_of_mine/inner/recipe.py", "SIZE = 3\n")
    text = "from grids_of_mine.inner.recipe import SIZE\nfrom .recipe import SIZE as ALSO\n"
    monkeypatch.chdir(tmp_path / "away")
    yield write(tmp_path / "grids_of_mine/inner/grid.py", text)
    for name in [name for name in sys.modules if name.startswith("grids_of_mine")]:
        del sys.modules[name]


def test_a_file_inside_packages_loads_from_any_folder(package):
    before = list(sys.path)
    module = load_module(package)
    assert (module.SIZE, module.ALSO) == (3, 3)
    assert sys.path == before


def test_a_file_outside_packages_imports_its_neighbours(tmp_path):
    write(tmp_path / "neighbour_of_mine.py", "SIZE = 4\n")
    file = write(tmp_path / "alone.py", "from neighbour_of_mine import SIZE\n")
    assert load_module(file).SIZE == 4


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x = 1\ny = (\n", 2, ""),
        ("x = 1\n\nraise KeyError('z')\n", 3, "KeyError"),
        ("import no_such_module_here\n", 1, "no_such_module_here"),
        ("x = 1\nint('three')\n", 2, "three"),
    ],
)
def test_an_error_names_file_and_line(tmp_path, text, line, what):
    file = write(tmp_path / "broken.py", text)
    with pytest.raises(ConfigError) as refused:
        load_module(file)
    assert f"broken.py, line {line}" in str(refused.value)
    assert what in str(refused.value)


def test_a_wrong_setting_names_its_line_and_field(tmp_path):
    declared = (
        "from dataclasses import dataclass\nfrom simuljax.config.fields import check, setting\n"
        "@dataclass\nclass A:\n    x: int = setting(1, help='', low=1)\n"
        "    def __post_init__(self):\n        check(self)\n"
    )
    write(tmp_path / "declared_here.py", declared)
    text = "from declared_here import A\nA(x=0)\n"
    with pytest.raises(ConfigError, match=r"mine\.py, line 2.*A\.x is 0; it must be at least 1"):
        load_module(write(tmp_path / "mine.py", text))


def test_an_object_is_found_by_its_reference(tmp_path):
    file = write(tmp_path / "mine.py", "class Patient:\n    pass\n")
    found = load_object(f"{file}:Patient")
    assert found.__name__ == "Patient"
    again = load_object(reference_to(found))
    assert again.__qualname__ == "Patient"
    with pytest.raises(ConfigError, match="Patient"):
        load_object(f"{file}:Patinet")


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.py"):
        load_module(tmp_path / "none.py")
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"a\0b")
    with pytest.raises(ConfigError, match=r"binary\.py"):
        load_module(binary)
