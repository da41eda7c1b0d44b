"""The catalogue of images."""

from __future__ import annotations

import pytest

from images.catalog import LOCAL_IMAGES, Framework, Image, frameworks_in, titles


def test_the_local_backend_has_this_environment_alone() -> None:
    assert titles() == {"this-environment": "This environment"}
    assert [(name, image.name) for name, image in LOCAL_IMAGES.items()] == [("this-environment", "this-environment")]


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        LOCAL_IMAGES["evil"] = Image("evil", "Evil")  # type: ignore[index]


@pytest.mark.parametrize("name", ["", "PyTorch", "a b", "../x", "x" * 81, "-x", "a/b"])
def test_a_name_that_would_not_travel_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a name for an image"):
        Image(name, "Title")


def test_an_image_has_a_title() -> None:
    with pytest.raises(ValueError, match="no title"):
        Image("x", "  ")


def test_frameworks_are_found_among_what_is_installed() -> None:
    installed = {"Torch": "2.10.0", "scikit_learn": "1.6.1", "CuPy.CUDA12x": "13.3.0", "unheard-of": "1"}
    assert frameworks_in(installed) == (
        Framework("PyTorch", "torch", "2.10.0"),
        Framework("CuPy", "cupy-cuda12x", "13.3.0"),
        Framework("scikit-learn", "scikit-learn", "1.6.1"),
    )
    assert frameworks_in({}) == ()


def test_one_framework_in_two_distributions_is_named_once() -> None:
    assert frameworks_in({"tensorflow": "2.19.0", "tensorflow-cpu": "2.18.0"}) == (
        Framework("TensorFlow", "tensorflow", "2.19.0"),
    )
