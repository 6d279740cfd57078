"""What chatapp relies on inside mlx and mlx-lm's caches. When one of these fails after an update of either, the module
``chatapp/engine/cache/layers.py`` (or ``rotating.py``) has to be looked at before anything else.
"""

from __future__ import annotations

import inspect
import pkgutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
import pytest
from mlx_lm.models import base
from mlx_lm.models import cache as stock
from mlx_lm.models.base import create_attention_mask, scaled_dot_product_attention

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.rotating import RotatingLayer
from tests import tiny


def test_a_slice_assignment_changes_an_array_under_every_holder_of_its_object_but_not_a_full_slice_of_it() -> None:
    array = mx.zeros((4,))
    same, other = array, array[...]
    array[1:2] = 7
    assert same.tolist() == [0, 7, 0, 0]
    assert other.tolist() == [0, 0, 0, 0]


def test_a_full_slice_copies_no_bytes_until_the_next_update() -> None:
    array = mx.zeros((1 << 20,))
    mx.eval(array)
    before = mx.get_active_memory()
    other = array[...]
    mx.eval(other)
    assert mx.get_active_memory() - before < 1 << 16
    array[0:1] = 1
    mx.eval(array)
    assert mx.get_active_memory() - before >= array.nbytes


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_caches_whole_state_is_in_its_attributes(family: str) -> None:
    """`layers.save` copies attributes: arrays, numbers, strings, None, and lists, tuples or caches of those."""
    model = tiny.make(family)
    layers = stock.make_prompt_cache(model)
    model(mx.array([[3, 4, 5]]), cache=layers)

    def check(value: Any) -> None:
        if isinstance(value, (list, tuple)):
            for item in value:
                check(item)
        elif isinstance(value, stock._BaseCache):
            for item in vars(value).values():
                check(item)
        else:
            assert isinstance(value, (mx.array, int, float, str, type(None)))

    check(layers)
    assert not any("__slots__" in vars(kind) for kind in {type(layer) for layer in layers})


def test_make_prompt_cache_gives_the_models_own_list() -> None:
    layers = stock.make_prompt_cache(tiny.make("gemma3_text"), max_kv_size=8)
    assert [type(layer) for layer in layers] == [stock.RotatingKVCache, stock.KVCache]


def test_models_ask_a_cache_for_its_mask_with_these_arguments() -> None:
    asked: list[dict[str, Any]] = []

    class Spy:
        def make_mask(self, n: int, **options: Any) -> None:
            asked.append({"n": n, **options})

    create_attention_mask(mx.zeros((1, 3, 8)), Spy(), window_size=5, return_array=True)
    assert asked == [{"n": 3, "window_size": 5, "return_array": True}]
    assert list(inspect.signature(RotatingLayer.make_mask).parameters)[1:] == ["n", "window_size", "return_array"]


def test_attention_is_quantized_where_the_cache_has_bits() -> None:
    source = inspect.getsource(scaled_dot_product_attention)
    assert 'hasattr(cache, "bits")' in source
    assert "cache.group_size" in source


def test_attention_takes_a_boolean_mask_with_sinks_and_grouped_heads() -> None:
    """The fused kernel honours a mask over any set of columns; the expected value is written out in NumPy."""
    import numpy as np

    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(1, heads, n, 16)).astype(np.float32) for heads, n in ((4, 5), (2, 9), (2, 9)))
    mask = rng.random((5, 9)) < 0.6
    mask[:, 0] = True
    sinks = rng.normal(size=4).astype(np.float32)
    got = scaled_dot_product_attention(
        *(mx.array(x) for x in (q, k, v)), None, scale=0.25, mask=mx.array(mask), sinks=mx.array(sinks)
    )
    for head in range(4):
        scores = q[0, head].astype(np.float64) @ k[0, head // 2].T.astype(np.float64) * 0.25
        weights = np.where(mask, np.exp(scores), 0)
        weights /= weights.sum(-1, keepdims=True) + np.exp(sinks[head])
        assert np.abs(np.array(got[0, head]) - weights @ v[0, head // 2]).max() < 1e-5


def test_a_sliding_window_cache_can_be_trimmed_only_while_it_is_not_full() -> None:
    layer = stock.RotatingKVCache(max_size=8)
    layer.update_and_fetch(mx.zeros((1, 1, 7, 4)), mx.zeros((1, 1, 7, 4)))
    assert layer.is_trimmable()
    assert layer.trim(3) == 3
    assert layer.offset == 4
    layer.update_and_fetch(mx.zeros((1, 1, 4, 4)), mx.zeros((1, 1, 4, 4)))
    assert not layer.is_trimmable()


def test_recurrent_caches_never_trim_and_count_nothing() -> None:
    layer = stock.ArraysCache(2)
    assert not layer.is_trimmable()
    assert not hasattr(layer, "offset")


def test_the_inside_of_mlx_lms_caches_is_used_in_one_place() -> None:
    package = Path(inspect.getfile(kv)).parents[1]
    users = {
        path.name
        for path in package.rglob("*.py")
        if any(name in path.read_text() for name in ("mlx_lm.models.cache", "mlx_lm.models import cache"))
    }
    # disk.py calls mlx-lm's two public functions for saving and loading.
    assert users <= {"layers.py", "disk.py"}


def test_every_kind_of_cache_that_mlx_lm_has_is_known() -> None:
    """A new kind has to be sorted: taken the place of, left alone, or not for one conversation at all."""
    replaced = {"KVCache", "ConcatenateKVCache"}
    left_alone = {"RotatingKVCache", "ArraysCache", "ChunkedKVCache", "CacheList"}
    not_made_by_models = {"QuantizedKVCache", "BatchKVCache", "BatchRotatingKVCache", "_BaseCache"}
    kinds = {
        name for name, kind in vars(stock).items() if isinstance(kind, type) and issubclass(kind, stock._BaseCache)
    }
    assert kinds == replaced | left_alone | not_made_by_models


def test_models_with_a_cache_class_of_their_own_are_few() -> None:
    """They are saved aside by their attributes; one that appears is worth a look."""
    folder = Path(mlx_lm.models.__path__[0])
    own = {
        module.name
        for module in pkgutil.iter_modules([str(folder)])
        if module.name not in ("cache", "base")
        and any(
            "Cache" in line
            for line in (folder / f"{module.name}.py").read_text().splitlines()
            if line.startswith("class ")
        )
    }
    assert own == {"deepseek_v41"}
    assert base.create_ssm_mask is not None
