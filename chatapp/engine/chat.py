"""A loaded model and the caches of its conversations: what each request about them does."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import mlx.core as mx
import msgspec

from chatapp import settings
from chatapp.engine import loading, sharding
from chatapp.engine.cache import parts
from chatapp.engine.cache.pool import CachePool, default_pool_bytes
from chatapp.engine.cache.session import CacheLimits, Plan, SessionCache, default_checkpoint_bytes
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.generation import Generation
from chatapp.engine.loading import LoadedModel
from chatapp.engine.ranks import Ranks
from chatapp.engine.reply import Reply
from chatapp.engine.scored import score_text
from chatapp.engine.sharding import Share
from chatapp.engine.template import Rendered, Template
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Choose, Forecast, Forecasted, Generate, Leave, Load, Loaded, Method, Note, Sampling, Score

#: Tokens read between two looks at whether a request was cancelled. Fixed, so that the same prompt is always
#: read in the same steps and gives the same bits.
_CPU_CHUNK, _GPU_CHUNK = 128, 512

#: Bytes of weights times tokens that the slowest machine worth using reads of a prompt in a second.
_CPU_PACE, _GPU_PACE = 20e9, 500e9

#: Bytes of weights that the slowest disk worth using reads in a second.
_DISK_PACE = 20e6

#: Of the ranks' methods the last in this order is what happens to the model as a whole.
_METHODS: tuple[Method, ...] = get_args(Method)


class Chat:
    """The engine's state while a model is loaded."""

    def __init__(self, loaded: LoadedModel, request: Load, budgets: settings.Cache, ranks: Ranks) -> None:
        self._loaded = loaded
        self._budgets = budgets
        self._ranks = ranks
        self._limits = CacheLimits(loaded.max_kv_size, request.keep, request.kv_bits, budgets.checkpoint_bytes)
        draft = loaded.draft.model if isinstance(loaded.draft, LoadedModel) else None
        least = ranks.least if loaded.parallel == "pipeline" else int  # else all ranks have the same kinds of layers
        self._pool = CachePool(loaded.model, self._limits, budgets.pool_bytes, draft, least)
        self._probe = sharding.probe(loaded.model, loaded.parallel, ranks)
        self._template = Template(loaded.tokenizer, loaded.spec.template)
        #: By generation, until one is chosen or the conversation goes on: its id, and what its candidates left.
        self._undecided: dict[int, tuple[str, CandidateGenerator[Any, Any]]] = {}
        on_cpu = mx.default_device().type == mx.DeviceType.cpu
        self._chunk = ranks.least(_CPU_CHUNK if on_cpu else _GPU_CHUNK)
        ranks.expect(self._chunk * loaded.bytes / (_CPU_PACE if on_cpu else _GPU_PACE))

    @staticmethod
    def check(request: Load, reply: Reply) -> None:
        """Refuses what cannot be had of any model, before anything is fetched or given up for it.

        Raises:
            UsageError: A number is out of range, the adapter is not there, or the model's own code is to be run.
        """
        if request.trust_remote_code:
            raise UsageError(
                "chatapp never runs code that comes with a model: choose a model of a type that mlx-lm knows."
            )
        reply.ranks.together(lambda report: loading.adapter_folder(request.adapter), reply.progress)
        CacheLimits(request.max_kv_size or sys.maxsize, request.keep, request.kv_bits)

    @classmethod
    def load(cls, request: Load, reply: Reply) -> Chat:
        """Loads the model, reporting progress and at last `Loaded`.

        Raises:
            ChatappError: It cannot be loaded; the sentence says why.
        """
        ranks = reply.ranks
        share = Share.of(request.model, ranks, reply.progress)
        if share:
            ranks.expect(share.largest_file / _DISK_PACE)  # weights are read one by one, and none is larger than that
        loaded = ranks.together(lambda report: loading.load(request, report, share), reply.progress)
        chat = cls(loaded, request, _budgets(loaded, ranks), ranks)
        reply.send(chat._facts(request))
        return chat

    def generate(self, request: Generate, reply: Reply) -> None:
        """Answers `Generate`."""
        rendered = self._template.render(request.turns, request.continue_last, request.thinking)
        self._check_length(rendered, request)
        self._forget_candidates(request.conversation)
        cache = self._cache(request, reply)
        candidates = Generation(
            loaded=self._loaded,
            cache=cache,
            plan=self._plan(cache, rendered),
            draft_cache=self._pool.draft(request.conversation),
            probe=self._probe,
            rendered=rendered,
            request=request,
            sampling=self._sampling(request.sampling),
            room=self._loaded.context - len(rendered.ids),
            chunk=self._chunk,
        ).run(reply)
        if candidates is not None:
            self._undecided[request.request] = (request.conversation, candidates)
        self._pool.settle()

    def choose(self, request: Choose) -> None:
        """Carries out `Choose`.

        Raises:
            UsageError: There is nothing to choose from any more.
        """
        _, candidates = self._undecided.pop(request.generation, ("", None))
        if candidates is None:
            raise UsageError("These candidates are gone: the conversation went on, or one was chosen before.")
        try:
            candidates.choose(request.candidate)
        except (ValueError, IndexError) as error:
            raise UsageError(f"Candidate {request.candidate + 1} cannot be chosen: {error}.") from error
        self._pool.settle()

    def forecast(self, request: Forecast, reply: Reply) -> None:
        """Answers `Forecast`.

        Raises:
            ChatappError: `generate` would refuse it; for the same reason.
        """
        rendered = self._template.render(request.turns, request.continue_last, request.thinking)
        self._check_length(rendered, request)
        plan = self._plan(self._cache(request, reply), rendered)
        reply.send(Forecasted(request.request, len(rendered.ids), plan.reused, plan.prefilled, plan.method))

    def score(self, request: Score, reply: Reply) -> None:
        """Answers `Score`."""
        score_text(request, self._loaded, self._template, reply)

    def leave(self, request: Leave, reply: Reply) -> None:
        """Carries out `Leave`: writes the conversation's cache to its file, if saving is on, or removes that."""
        self._forget_candidates(request.conversation)
        if request.removed and request.cache_file:
            parts.remove(Path(request.cache_file), self._ranks)
            return
        if not request.cache_file or not self._budgets.disk or request.conversation not in self._pool:
            return
        cache = self._pool.get(request.conversation)
        path = Path(request.cache_file)
        reason = parts.save(cache, path, self._loaded.fingerprint, self._budgets.disk_bytes, self._ranks)
        if reason:
            reply.send(Note(request.request, reason))

    def _facts(self, request: Load) -> Loaded:
        loaded, tokenizer = self._loaded, self._loaded.tokenizer
        return Loaded(
            request.request,
            model=request.model,
            title=loaded.spec.title or request.model,
            max_kv_size=self._limits.max_kv_size,
            context=loaded.context,
            thinking=bool(self._template.thinking_key),
            think_open=tokenizer.think_start or "",
            think_close=tokenizer.think_end or "",
            parallel=f"{loaded.parallel} ×{self._ranks.size}" if loaded.parallel else "",
            sampling=self._sampling(Sampling()),
            note=loaded.note,
        )

    def _cache(self, request: Generate | Forecast, reply: Reply) -> SessionCache:
        """The conversation's cache, of which all ranks have their part; the first time, as it was saved."""
        known = self._ranks.least(request.conversation in self._pool)
        if not known:
            self._pool.drop(request.conversation)
        cache = self._pool.get(request.conversation)
        if request.cache_file and not known and self._budgets.disk:
            reason = parts.load(cache, Path(request.cache_file), self._loaded.fingerprint, self._ranks)
            self._pool.settle()
            if reason:
                reply.send(Note(request.request, reason))
        return cache

    def _plan(self, cache: SessionCache, rendered: Rendered) -> Plan:
        """How the prompt comes into the cache on all ranks alike.

        They can have layers of unlike kinds, of which some can be trimmed and others only go back to a checkpoint, and
        of unlike size, so that one gave up a checkpoint under its budget that another has.
        """
        most = len(rendered.ids)
        while True:
            plan = cache.forecast(rendered.ids, rendered.system_end, most)
            rows = self._ranks.each([plan.reused, _METHODS.index(plan.method)])
            most = min(reused for reused, _ in rows)
            if all(reused == most for reused, _ in rows):
                return replace(plan, method=_METHODS[max(method for _, method in rows)])

    def _forget_candidates(self, conversation: str) -> None:
        """Frees what the candidates left that nobody can choose any more."""
        self._undecided = {n: left for n, left in self._undecided.items() if left[0] != conversation}

    def _sampling(self, asked: Sampling) -> Sampling:
        """The options asked for over the model's own: defaults, thresholds and ask-yourself token, stop strings."""
        spec = self._loaded.spec
        sampling = asked.over(spec.sampling)
        stops = (*(sampling.stop or ()), *spec.stop, *self._template.stops)
        options = sampling.options
        if sampling.sampler == "adaptive":
            options = {**spec.adaptive, **({"ask": spec.ask} if spec.ask else {}), **options}
        return msgspec.structs.replace(sampling, stop=tuple(dict.fromkeys(stops)), options=options)

    def _check_length(self, rendered: Rendered, request: Generate | Forecast) -> None:
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


def _budgets(loaded: LoadedModel, ranks: Ranks) -> settings.Cache:
    """Rank 0's settings, in proportion to what this rank has of the model: so all ranks free the same things.

    What the settings leave open is a share of the memory, with several ranks that of the rank that has least.
    """
    own = msgspec.json.encode(settings.load_settings().cache)
    shared = msgspec.json.decode(ranks.share(own), type=settings.Cache)
    going_back, pool = ranks.least(default_checkpoint_bytes()), ranks.least(default_pool_bytes())
    going_back = going_back if shared.checkpoint_bytes is None else shared.checkpoint_bytes
    pool = pool if shared.pool_bytes is None else shared.pool_bytes
    part, whole = sharding.own_part(loaded.model, ranks) if loaded.parallel == "pipeline" else (1, 1)
    return msgspec.structs.replace(shared, checkpoint_bytes=going_back * part // whole, pool_bytes=pool * part // whole)
