"""What a user may run: the catalogue of environments ("images").

The local backend has one entry: the environment that Berth itself is installed in. Names are what a start sends
(`{"image": NAME}`), titles are for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: A name travels in URLs, labels and options, so it is plain ASCII without spaces.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")

#: Distributions worth telling a person about, with the name people know them by. One framework may come as several
#: distributions; the first that is present counts.
FRAMEWORKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("PyTorch", ("torch",)),
    ("TensorFlow", ("tensorflow", "tensorflow-cpu", "tf-nightly")),
    ("JAX", ("jax",)),
    ("CuPy", ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")),
    ("scikit-learn", ("scikit-learn",)),
    ("XGBoost", ("xgboost",)),
    ("LightGBM", ("lightgbm",)),
    ("Transformers", ("transformers",)),
)


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework found in an environment, such as ("PyTorch", "torch", "2.9.1")."""

    title: str
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class Image:
    """One entry of the catalogue.

    `name` is what a start asks for; raises `ValueError` when it is not lower-case ASCII letters, digits, ".", "_", "-".
    """

    name: str
    title: str
    description: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a name for an image: lower-case letters, digits, '.', '_' and '-'")
        if not self.title.strip():
            raise ValueError(f"the image {self.name!r} has no title")


#: The only image of the local backend: servers run in the environment that Berth runs in.
THIS_ENVIRONMENT = Image(
    name="this-environment",
    title="This environment",
    description="The Python environment that Berth itself runs in, with whatever is installed there.",
)

#: The catalogue of the local backend: name to image, in the order a person sees them.
LOCAL_IMAGES: Mapping[str, Image] = MappingProxyType({THIS_ENVIRONMENT.name: THIS_ENVIRONMENT})


def titles(images: Mapping[str, Image] = LOCAL_IMAGES) -> dict[str, str]:
    """Name to title, in the catalogue's order."""
    return {name: image.title for name, image in images.items()}


def frameworks_in(installed: Mapping[str, str]) -> tuple[Framework, ...]:
    """The known frameworks among installed distributions.

    `installed` maps distribution names to versions (as `importlib.metadata` has them; any case, "-", "_" and "."
    are the same, by PEP 503). The order is that of `FRAMEWORKS`.
    """
    normal = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in installed.items()}
    found = []
    for title, distributions in FRAMEWORKS:
        present = next((name for name in distributions if name in normal), None)
        if present is not None:
            found.append(Framework(title, present, normal[present]))
    return tuple(found)
