"""Which texts can be scored at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chatapp.engine.scored import score_text
from chatapp.errors import UsageError
from chatapp.protocol import Score


@pytest.mark.parametrize(("ids", "word"), [([], "empty"), ([7], "single token")])
def test_a_text_without_a_predicted_token_is_refused(ids: list[int], word: str):
    template = cast("Any", SimpleNamespace(encode_text=lambda text: ids))
    unused = cast("Any", None)
    with pytest.raises(UsageError, match=word):
        score_text(Score(1, "…"), unused, template, unused)
