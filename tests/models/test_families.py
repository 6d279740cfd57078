"""`models.families` reads mlx-lm's files and source; here it is held against mlx-lm itself."""

import importlib
import pkgutil

import mlx_lm.models
import pytest
from mlx_lm.utils import MODEL_REMAPPING

from chatapp.errors import ChatappError
from chatapp.models import families


def test_the_aliases_are_mlx_lms():
    assert families._aliases() == MODEL_REMAPPING
    for alias in MODEL_REMAPPING:
        assert families.is_known(alias) == (
            importlib.util.find_spec(f"mlx_lm.models.{MODEL_REMAPPING[alias]}") is not None
        )


def test_the_known_types_are_the_modules_that_have_a_model():
    for module in pkgutil.iter_modules(mlx_lm.models.__path__):
        try:
            loaded = importlib.import_module(f"mlx_lm.models.{module.name}")
        except SystemExit:  # it would end the engine
            with pytest.raises(ChatappError, match="needs the package"):
                families.check_config({"model_type": module.name}, "M")
            continue
        assert families.is_known(module.name) == (hasattr(loaded, "Model") and hasattr(loaded, "ModelArgs")), (
            module.name
        )


@pytest.mark.parametrize("kind", ["../cache", "", "llama.py", "nope", "a b"])
def test_nothing_else_is_known(kind):
    assert not families.is_known(kind)
    with pytest.raises(ChatappError):
        families.check_config({"model_type": kind}, "M")
