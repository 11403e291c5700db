"""Fixtures that several folders of tests share; what regards every test is in the conftest.py above."""

import pytest


@pytest.fixture
def used_paths(monkeypatch):
    """The paths that served a call, the innermost first."""
    from regard.attention import equation  # not before the shape checks are installed

    names = []
    paths = {
        "gathered_attention": "gathered",
        "banded_attention": "banded",
        "mean_pooling": "mean",
        "fused_attention": "fused",
        "blocked_attention": "blocked",
    }
    for function, name in paths.items():

        def spy(*args, _path=getattr(equation, function), _name=name):
            context = _path(*args)
            if context is not None:
                names.append(_name)
            return context

        monkeypatch.setattr(equation, function, spy)
    return names


@pytest.fixture(scope="module")
def small_vocabulary():
    """Letters are known after some hundred strings."""
    from regard.tasks.translation import data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "VOCAB_SAMPLE_SIZE", 500)
        yield
