"""One `Generate` from prompt to `Ended`: read what the cache does not hold, decode, report."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import Plan, SessionCache
from chatapp.engine.decode import Limits, Outcome
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.decoders import guesses, make_decoder, outcomes, records
from chatapp.engine.loading import LoadedModel
from chatapp.engine.reply import Reply
from chatapp.engine.scored import PromptScores
from chatapp.engine.stream import TokenStream
from chatapp.engine.template import Rendered
from chatapp.errors import ChatappError
from chatapp.protocol import Ended, Generate, Note, Prefill, Sampling, Started


@dataclass(kw_only=True)
class Generation:
    """A reply to one prompt, or several candidates for one.

    Attributes:
        loaded: The model.
        cache: The conversation's cache.
        plan: How the prompt comes into it.
        draft_cache: The draft model's, if there is one.
        probe: Watches the model's attention.
        rendered: The prompt.
        request: What was asked.
        sampling: The request's options over the model's defaults.
        room: The most tokens that may be decoded, for want of trained context.
        chunk: Tokens read between two looks at whether the request was cancelled.
    """

    loaded: LoadedModel
    cache: SessionCache
    plan: Plan
    draft_cache: SessionCache | None
    probe: Probe
    rendered: Rendered
    request: Generate
    sampling: Sampling
    room: int
    chunk: int

    def run(self, reply: Reply) -> CandidateGenerator[Any, Any] | None:
        """Carries it out; the cache's record equals its offset afterwards, whatever happened.

        Returns:
            Of several candidates, what one of them can be chosen from.
        """
        seed = self._seed()
        seeds = tuple(seed + number for number in range(self.request.candidates))
        # Before anything is read: it checks the options.
        decoder = make_decoder(
            self.loaded,
            self.cache,
            self.draft_cache,
            self.sampling,
            self._limits(),
            self._continued(),
            seeds,
            self.probe,
            self.request.attention,
            reply,
        )
        if self.request.attention and self.probe.reason:
            reply.send(Note(reply.request, self.probe.reason))
        began = time.perf_counter()
        plan = self.plan
        self.cache.prepare(self.rendered.ids, self.rendered.system_end, plan.reused)
        if not self._read(plan, reply):
            self._end(reply, seeds, [Outcome(finish="cancelled") for _ in seeds])
            return None
        self.cache.checkpoint("start")
        reply.send(self._started(plan, seed))
        streams = [TokenStream(reply, number) for number in range(len(seeds))]
        prompt_seconds = 0.0
        message = ""
        try:
            for number, token in records(decoder, self.rendered.ids):
                prompt_seconds = prompt_seconds or time.perf_counter() - began
                streams[number].add(token)
            self.cache.checkpoint("end")
        except ChatappError as error:
            message = str(error)
        for stream in streams:
            stream.flush()
        rate = plan.prefilled / prompt_seconds if prompt_seconds else 0.0
        self._end(reply, seeds, outcomes(decoder), rate, guesses(decoder), message)
        return decoder if isinstance(decoder, CandidateGenerator) and not message else None

    def _read(self, plan: Plan, reply: Reply) -> bool:
        """Reads the prompt but for its last token, which the decode loop feeds; False if it was cancelled."""
        rest = self.rendered.ids[plan.reused : -1]
        reply.send(Prefill(reply.request, 0, plan.prefilled))
        scores = None
        if self.request.score_prompt:
            scores = PromptScores(self.loaded, self.rendered, plan.reused, self.request.alternatives, reply)
        for done in self.cache.prefill(rest, self.chunk, reply.cancelled, scores.scorer if scores else None):
            reply.send(Prefill(reply.request, done, plan.prefilled))
            if scores:
                scores.send()
        return len(self.cache.tokens) == len(self.rendered.ids) - 1 and not reply.cancelled()

    def _limits(self) -> Limits:
        asked = self.sampling.max_tokens
        return Limits(
            max_tokens=self.room if asked is None else min(asked, self.room),
            stop=self.sampling.stop or (),
            stop_ids=frozenset(self.loaded.tokenizer.eos_token_ids),
            pause_above=self.request.pause_above,
            alternatives=self.request.alternatives,
        )

    def _continued(self) -> Sequence[int]:
        """Ids of the reply that goes on, which are the prompt's last."""
        if not self.request.continue_last:
            return ()
        first, end = self.rendered.spans[-1]
        return self.rendered.ids[first:end]

    def _seed(self) -> int:
        """The seed asked for, or one that is drawn; rank 0's counts, whose drawn ids the other ranks take over."""
        return secrets.randbits(32) if self.sampling.seed is None else self.sampling.seed

    def _started(self, plan: Plan, seed: int) -> Started:
        return Started(
            self.request.request,
            prompt_tokens=len(self.rendered.ids),
            reused=plan.reused,
            prefilled=plan.prefilled,
            method=plan.method,
            keep=self.cache.keep,
            spans=self.rendered.spans,
            seed=seed,
        )

    def _end(
        self,
        reply: Reply,
        seeds: Sequence[int],
        ends: Sequence[Outcome],
        prompt_tps: float = 0.0,
        guessed: tuple[int, int] = (0, 0),
        message: str = "",
    ) -> None:
        for number, (seed, outcome) in enumerate(zip(seeds, ends, strict=True)):
            reply.send(
                Ended(
                    self.request.request,
                    finish="error" if message else outcome.finish,
                    tokens=outcome.tokens,
                    text=outcome.text,
                    prompt_tps=prompt_tps,
                    generation_tps=outcome.tokens_per_second,
                    mean_entropy=outcome.mean_entropy,
                    seed=seed,
                    cached=len(self.cache.tokens),
                    candidate=number,
                    pending=outcome.pending,
                    drafted=guessed[0],
                    accepted=guessed[1],
                    message=message,
                )
            )
