"""The engine's loop: takes one request after another on the main thread and answers each with its events.

What a request does is in the module that is named after it; here is only which request goes where, and how whatever
goes wrong inside one becomes a `Failed` with a sentence while the loop goes on.
"""

from __future__ import annotations

import gc
import logging
import os
from importlib import metadata

import mlx.core as mx

from chatapp import protocol
from chatapp.engine.chat import Chat
from chatapp.engine.fetching import Fetched as Ready
from chatapp.engine.fetching import fetch
from chatapp.engine.ranks import Ranks
from chatapp.engine.reply import Reply
from chatapp.engine.transport import Client
from chatapp.errors import ChatappError, UsageError
from chatapp.models.progress import Report
from chatapp.protocol import (
    AnyRequest,
    Choose,
    Done,
    Failed,
    Fetch,
    Fetched,
    Forecast,
    Generate,
    Hello,
    Leave,
    Load,
    Score,
    Shutdown,
)

log = logging.getLogger(__name__)


class Server:
    """Owns the client's end, and the model that is loaded with everything that hangs on it (`Chat`)."""

    def __init__(self, client: Client, blas: str, ranks: Ranks) -> None:
        self._client = client
        self._blas = blas
        self._ranks = ranks
        self._chat: Chat | None = None

    def serve(self) -> None:
        """Answers requests until the client says `Shutdown` or goes away.

        Raises:
            Exception: With several ranks, whatever went wrong on this one alone; its process has to end.
        """
        self._client.send(self._hello())
        while body := self._ranks.next_request(self._client.receive):
            request = protocol.decode_request(body)
            if isinstance(request, Shutdown):
                return
            self._answer(request)

    def _hello(self) -> Hello:
        device = mx.default_device()
        kind = "gpu" if device.type == mx.DeviceType.gpu else "cpu"
        name = mx.device_info().get("device_name", "") if kind == "gpu" else ""
        return Hello(
            request=0,
            version=protocol.VERSION,
            pid=os.getpid(),
            mlx=metadata.version("mlx"),
            mlx_lm=metadata.version("mlx-lm"),
            device=f"{kind} {name}".strip(),
            blas=self._blas,
        )

    def _answer(self, request: AnyRequest) -> None:
        reply = Reply(request.request, self._client, self._ranks)
        log.info("begins %s", type(request).__name__)  # what a process was at when it was lost
        try:
            self._carry_out(request, reply)
        except ChatappError as error:
            kept = isinstance(request, Load) and self._chat is not None
            reply.send(Failed(request.request, error.kind, str(error), kept))
        except Exception as error:  # the process's border: the person hears of it, the log has the rest
            if self._ranks.size > 1:
                raise  # the other ranks wait in the middle of this request: see `chatapp.engine.distributed`
            log.exception("request %s failed", type(request).__name__)
            reply.send(_failure(request.request, error))

    def _carry_out(self, request: AnyRequest, reply: Reply) -> None:
        match request:
            case Load():
                Chat.check(request, reply)
                if self._chat is not None:  # a model that cannot be had does not cost the one that is loaded
                    self._fetch(request.model, reply)
                self._chat = None  # before loading, so that two models are never in memory together
                gc.collect()
                mx.clear_cache()
                self._chat = Chat.load(request, reply)
            case Fetch():
                ready = self._fetch(request.model, reply)
                reply.send(Fetched(request.request, request.model, str(ready.folder), ready.bytes))
            case Generate():
                self._loaded().generate(request, reply)
            case Forecast():
                self._loaded().forecast(request, reply)
            case Choose():
                self._loaded().choose(request)
                reply.send(Done(request.request))
            case Score():
                self._loaded().score(request, reply)
            case Leave():
                self._loaded().leave(request, reply)
                reply.send(Done(request.request))
            case _:
                raise UsageError(f"The engine does not answer {type(request).__name__} here.")

    def _fetch(self, model: str, reply: Reply) -> Ready:
        ranks = self._ranks

        def fetch_part(report: Report) -> Ready:
            return fetch(model, report, rank=ranks.rank, ranks=ranks.size)

        return ranks.together(fetch_part, reply.progress)

    def _loaded(self) -> Chat:
        if self._chat is None:
            raise UsageError("No model is loaded: load one first.")
        return self._chat


_OUT_OF_MEMORY = (
    "The memory does not suffice for this: close other programs, or take a smaller --max-kv-size or a smaller model."
)


def _failure(request: int, error: Exception) -> Failed:
    """A sentence for an error that no code expected; MLX says "out of memory" only in words."""
    words = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if isinstance(error, MemoryError) or any(
        mark in words.lower() for mark in ("out of memory", "unable to allocate", "attempting to allocate", "bad_alloc")
    ):
        return Failed(request, "memory", _OUT_OF_MEMORY)
    return Failed(request, "internal", f"The engine failed at this request ({words}); its log says where.")
