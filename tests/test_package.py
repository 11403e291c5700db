import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard._imports import require_extra
from regard.errors import MissingDependencyError


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout


def test_importing_regard_does_not_import_torch():
    assert python("import regard, sys; print('torch' in sys.modules)") == "False\n"


def test_every_public_name_can_be_imported():
    for name in regard.__all__:
        assert getattr(regard, name) is getattr(regard, name)
        assert name in dir(regard)
    assert regard.attend is regard.attention.attend
    assert regard.Attention is regard.attention.Attention


def test_star_import_and_unknown_names():
    assert python("from regard import *; print(attend.__name__)") == "attend\n"
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'nonsense'"):
        regard.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        from regard import nonsense  # noqa: F401


def test_the_package_is_marked_as_typed():
    assert (Path(regard.__file__).parent / "py.typed").exists()


def test_the_version_of_the_metadata():
    try:
        installed = importlib.metadata.version("regard")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("regard is not installed in this environment")
    assert installed == regard.__version__


def test_an_extra_that_is_there():
    assert require_extra("os.path", extra="draw").__name__ in {"posixpath", "ntpath"}


def test_an_extra_that_is_missing_is_named():
    with pytest.raises(MissingDependencyError) as caught:
        require_extra("no_such_module.part", extra="draw")
    assert str(caught.value) == ('no_such_module is not installed; run: pip install "regard[draw]"')
    assert isinstance(caught.value, ImportError)


def test_a_broken_extra_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("import what_it_needs_itself\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs_itself"):
        require_extra("broken_module", extra="draw")


@pytest.mark.bare
def test_shape_checks_cost_nothing_outside_the_tests():
    assert not hasattr(regard.attend, "__wrapped__")


def test_shapes_are_checked_inside_the_tests():
    assert hasattr(regard.attend, "__wrapped__")
