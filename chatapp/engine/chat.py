"""A loaded model and the caches of its conversations: what each request about them does."""

from __future__ import annotations

import mlx.core as mx
import msgspec

from chatapp.engine import loading
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.generation import Generation
from chatapp.engine.loading import LoadedModel
from chatapp.engine.reply import Reply
from chatapp.engine.template import Rendered, Template
from chatapp.errors import ChatappError
from chatapp.protocol import Forecast, Forecasted, Generate, Load, Loaded, Sampling
from chatapp.settings import load_settings

#: Tokens read between two looks at whether a request was cancelled. Fixed, so that the same prompt is always
#: read in the same steps and gives the same bits.
_CPU_CHUNK, _GPU_CHUNK = 128, 512


class Chat:
    """The engine's state while a model is loaded."""

    def __init__(self, loaded: LoadedModel, limits: CacheLimits) -> None:
        self._loaded = loaded
        self._limits = limits
        self._template = Template(loaded.tokenizer, loaded.spec.template)
        self._caches: dict[str, SessionCache] = {}
        self._chunk = _CPU_CHUNK if mx.default_device().type == mx.DeviceType.cpu else _GPU_CHUNK

    @classmethod
    def load(cls, request: Load, reply: Reply) -> Chat:
        """Loads the model, reporting progress and at last `Loaded`.

        Raises:
            ChatappError: It cannot be loaded; the sentence says why.
        """
        loaded = loading.load(request, reply.progress)
        cache = load_settings().cache
        limits = CacheLimits(
            max_kv_size=request.max_kv_size or loaded.spec.max_kv_size or loaded.context,
            keep=request.keep,
            kv_bits=request.kv_bits,
            checkpoint_bytes=cache.checkpoint_bytes,
        )
        chat = cls(loaded, limits)
        reply.send(chat._facts(request))
        return chat

    def generate(self, request: Generate, reply: Reply) -> None:
        """Answers `Generate`."""
        rendered = self._template.render(request.turns, request.continue_last, request.thinking)
        self._check_length(rendered, request)
        Generation(
            loaded=self._loaded,
            cache=self._cache(request.conversation),
            rendered=rendered,
            request=request,
            sampling=self._sampling(request.sampling),
            room=self._loaded.context - len(rendered.ids),
            chunk=self._chunk,
        ).run(reply)

    def forecast(self, request: Forecast, reply: Reply) -> None:
        """Answers `Forecast`."""
        rendered = self._template.render(request.turns, request.continue_last, request.thinking)
        plan = self._cache(request.conversation).forecast(rendered.ids, rendered.system_end)
        reply.send(Forecasted(request.request, len(rendered.ids), plan.reused, plan.prefilled, plan.method))

    def _facts(self, request: Load) -> Loaded:
        loaded, tokenizer = self._loaded, self._loaded.tokenizer
        return Loaded(
            request.request,
            model=request.model,
            title=loaded.spec.title or request.model,
            fingerprint=loaded.fingerprint,
            max_kv_size=self._limits.max_kv_size,
            context=loaded.context,
            vocab_size=loaded.vocab_size,
            bytes=loaded.bytes,
            kv_bytes_per_token=0,
            dtype=loaded.dtype,
            thinking=bool(self._template.thinking_key),
            think_open=tokenizer.think_start or "",
            think_close=tokenizer.think_end or "",
            sampling=self._sampling(Sampling()),
            note=loaded.note,
        )

    def _cache(self, conversation: str) -> SessionCache:
        if not conversation:
            return SessionCache(self._loaded.model, self._limits)
        if conversation not in self._caches:
            self._caches[conversation] = SessionCache(self._loaded.model, self._limits)
        return self._caches[conversation]

    def _sampling(self, asked: Sampling) -> Sampling:
        """The options asked for over the model's defaults, with the stop strings of model and template added."""
        sampling = asked.over(self._loaded.spec.sampling)
        stops = (*(sampling.stop or ()), *self._loaded.spec.stop, *self._template.stops)
        return msgspec.structs.replace(sampling, stop=tuple(dict.fromkeys(stops)))

    def _check_length(self, rendered: Rendered, request: Generate) -> None:
        """Refuses what cannot be answered sensibly.

        Raises:
            ChatappError: The prompt is longer than the model was trained on, or one message does not fit the cache.
        """
        context = self._loaded.context
        if len(rendered.ids) >= context:
            raise ChatappError(
                f"The conversation has {len(rendered.ids)} tokens, and this model was trained on {context} at most: "
                "shorten or delete messages, or begin a new conversation.",
                "too_long",
            )
        capacity = self._limits.max_kv_size
        window = capacity - self._limits.kept(rendered.system_end)
        for turn, (first, end) in zip(request.turns, rendered.spans, strict=True):
            newest = turn is request.turns[-1] and turn.role == "user"
            room = capacity // 2 if turn.role == "system" else window
            if (newest or turn.role == "system") and end - first > room:
                raise ChatappError(
                    f"The {'system message' if turn.role == 'system' else 'message'} has {end - first} tokens, and the "
                    f"cache of {capacity} has room for {room} of them: shorten it, or choose a larger max-kv-size.",
                    "too_long",
                )
