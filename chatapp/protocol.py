"""Messages between the UI (or a one-shot command) and the engine, and how they are framed.

The client listens on a Unix socket in a folder private to the user; the engine connects to it, says `Hello`, answers
every request with events that carry the request's number, and ends when the socket does. A frame is a four-byte
big-endian length and a msgpack body.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chatapp.tokens import Finish, Token

#: Raised whenever a message changes its meaning: both sides come from one installation, so a difference is a defect.
VERSION = 1

#: Largest frame that either side accepts, in bytes.
MAX_FRAME = 256 * 1024 * 1024

Method = Literal["cold", "trim", "checkpoint", "disk"]

Role = Literal["system", "user", "assistant", "tool"]


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a prompt.

    Attributes:
        role: Who speaks.
        content: The text.
        tokens: For a reply sampled by the loaded model, the ids that were sampled, without the end-of-turn token;
            they are spliced into the rendered template instead of tokenizing ``content`` again. Empty: tokenize.
    """

    role: Role
    content: str
    tokens: tuple[int, ...] = ()


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to draw tokens. Zero, one or empty means "off" as usual for each option; None means the model's default.

    Attributes:
        sampler: Name of a registered sampler: ``standard``, ``adaptive`` or one from an entry point.
        temperature: 0 is greedy.
        stop: Strings that end the reply; they are not part of it.
        options: Settings of the named sampler that have no field here (thresholds of ``adaptive``, for example).
    """

    sampler: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    max_tokens: int | None = None
    options: dict[str, bool | int | float | str] = {}

    def over(self, base: Sampling) -> Sampling:
        """This one, with ``base`` wherever it says nothing; options of another sampler are not taken over."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        if self.sampler in (None, base.sampler):
            given["options"] = {**base.options, **self.options}
        return msgspec.structs.replace(base, **given)


class Request(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Anything the client asks. ``request`` is the client's number for it, unique in a session, from 1."""

    request: int


class Load(Request, frozen=True, tag=True):
    """Load a model; the one loaded before is dropped. Answered by `Progress`…, then `Loaded` or `Failed`.

    Attributes:
        model: Registry name, ``owner/repo``, ``path:…``, ``gguf:…``, ``pypi:…`` or a folder or .gguf path.
        max_kv_size: C, the cache's capacity in tokens; None takes the registry's or the model's context.
        keep: K, the number of first tokens that are always kept; None covers the system message.
        kv_bits: Quantize keys and values to so many bits.
        adapter: Folder of a LoRA adapter.
        draft: Model for speculative decoding, named as ``model`` is; ``lookup`` for prompt lookup.
        trust_remote_code: The user said that this model's own Python code may run.
    """

    model: str
    max_kv_size: int | None = None
    keep: int | None = None
    kv_bits: int | None = None
    adapter: str | None = None
    draft: str | None = None
    trust_remote_code: bool = False


class Fetch(Request, frozen=True, tag=True):
    """Download (and convert) a model without loading it. Answered by `Progress`…, then `Fetched` or `Failed`."""

    model: str


class Generate(Request, frozen=True, tag=True):
    """Generate a reply. Answered by `Prefill`…, `Started`, `Tokens`…, `Ended` for each candidate; or `Failed`.

    Attributes:
        conversation: Which cache to use; the same id keeps its cache from turn to turn. Empty: none is kept.
        turns: The messages of the shown branch, oldest first, the system message included.
        sampling: How to draw.
        continue_last: The last turn is a reply that goes on from its end, instead of a new reply being opened.
        candidates: Replies decoded at once as one batch; above 1 the cache waits for `Choose`.
        alternatives: How many of the likeliest tokens to report at each position.
        attention: Report attention statistics for each token.
        pause_above: Stop with ``finish="paused"`` before a token whose entropy is above this, in nats.
        score_prompt: Also report metrics of the tokens that are prefilled (`Scored`).
        cache_file: Where this conversation's saved prompt cache lies, if one was saved.
        thinking: Chat-template switch for reasoning; None leaves the template's default.
    """

    conversation: str
    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    continue_last: bool = False
    candidates: int = 1
    alternatives: int = 10
    attention: bool = False
    pause_above: float | None = None
    score_prompt: bool = False
    cache_file: str | None = None
    thinking: bool | None = None


class Forecast(Request, frozen=True, tag=True):
    """What `Generate` with the same arguments would read. Answered by `Forecasted`, or `Failed` as that would be."""

    conversation: str
    turns: tuple[Turn, ...]
    continue_last: bool = False
    cache_file: str | None = None
    thinking: bool | None = None


class Choose(Request, frozen=True, tag=True):
    """Make one candidate of an ended `Generate` the conversation's cache. Answered by `Done`."""

    generation: int
    candidate: int


class Score(Request, frozen=True, tag=True):
    """Metrics of given text under the loaded model. Answered by `Scored`…, then `ScoreEnded` or `Failed`."""

    text: str
    alternatives: int = 0


class Leave(Request, frozen=True, tag=True):
    """The conversation is not shown any more; write its cache to ``cache_file`` if given. Answered by `Done`.

    Attributes:
        removed: The conversation went to the trash: remove the file instead.
    """

    conversation: str
    cache_file: str | None = None
    removed: bool = False


class Cancel(Request, frozen=True, tag=True):
    """Stop another request within one token or one prefill chunk; that request ends as usual. Not answered."""

    target: int


class Shutdown(Request, frozen=True, tag=True):
    """End the engine. Not answered: the socket closes."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Anything the engine says. ``request`` is what it answers; 0 for none."""

    request: int


class Hello(Event, frozen=True, tag=True):
    """First message of an engine.

    Attributes:
        blas: Which matrix library serves the CPU (``mkl``, ``openblas``, ``stock``, ``accelerate``).
        device: ``gpu`` or ``cpu`` and its name.
    """

    version: int
    pid: int
    mlx: str
    mlx_lm: str
    device: str
    blas: str


class Progress(Event, frozen=True, tag=True):
    """A long task advances. ``stage`` is one of "resolve", "download", "verify", "convert", "load".

    Attributes:
        total: 0 while unknown.
        unit: "bytes", "files" or "steps".
        file: The file at hand, if there is one.
    """

    stage: str
    done: int
    total: int
    unit: str = "bytes"
    file: str = ""


class Fetched(Event, frozen=True, tag=True):
    model: str
    path: str
    bytes: int


class Loaded(Event, frozen=True, tag=True):
    """A model is ready.

    Attributes:
        model: The name asked for.
        title: The name to show.
        max_kv_size: C in force, in tokens.
        context: The model's trained context in tokens.
        thinking: The template has a reasoning switch.
        think_open, think_close: Strings around a reasoning part; empty if none.
        parallel: "" on one rank, else for example "tensor ×3".
        note: Something the person should know, as a sentence.
    """

    model: str
    title: str
    max_kv_size: int
    context: int
    thinking: bool = False
    think_open: str = ""
    think_close: str = ""
    parallel: str = ""
    sampling: Sampling = Sampling()
    note: str = ""


class Prefill(Event, frozen=True, tag=True):
    """``done`` of ``total`` prompt tokens were read in this turn."""

    done: int
    total: int


class Started(Event, frozen=True, tag=True):
    """The prompt is in the cache and decoding begins.

    Attributes:
        prompt_tokens: Length of the whole prompt; ``reused`` + ``prefilled``.
        method: How the reused part was kept.
        spans: For each turn given, the first and one-past-last position of its content in the token sequence.
        keep: K in force for this conversation, in tokens.
        seed: That the first candidate is drawn with; each further one has the next number.
    """

    prompt_tokens: int
    reused: int
    prefilled: int
    method: Method
    keep: int
    spans: tuple[tuple[int, int], ...] = ()
    seed: int | None = None


class Tokens(Event, frozen=True, tag=True):
    """Records of tokens that were decoded since the last such event, in order."""

    tokens: tuple[Token, ...]
    candidate: int = 0


class Scored(Event, frozen=True, tag=True):
    """Metrics of given tokens (not sampled ones). ``turn`` is the index of the turn they belong to; -1: none.

    The first token of a text has no prediction: its entropy, varentropy and surprisal are 0.
    """

    tokens: tuple[Token, ...]
    turn: int = -1


class ScoreEnded(Event, frozen=True, tag=True):
    """``perplexity`` is exp of the mean surprisal over the ``tokens`` - 1 predicted tokens."""

    tokens: int
    perplexity: float
    mean_entropy: float
    mean_varentropy: float
    finish: Finish = "stop"


class Ended(Event, frozen=True, tag=True):
    """A reply ended.

    Attributes:
        tokens: How many ids were kept (an end-of-turn id is not counted).
        text: The whole reply (for a continued one: only what was added).
        seed: The seed that was used, so that the reply can be drawn again.
        cached: Tokens in the conversation's cache now (its offset).
        pending: For ``paused``, the token that would have come.
        drafted, accepted: Speculative decoding: tokens proposed and taken.
        message: For ``error``, one sentence.
    """

    finish: Finish
    tokens: int
    text: str
    prompt_tps: float
    generation_tps: float
    mean_entropy: float
    seed: int
    cached: int
    candidate: int = 0
    pending: Token | None = None
    drafted: int = 0
    accepted: int = 0
    message: str = ""


class Forecasted(Event, frozen=True, tag=True):
    prompt_tokens: int
    reused: int
    prefilled: int
    method: Method


class Done(Event, frozen=True, tag=True):
    """A request that has nothing to tell was carried out."""


class Failed(Event, frozen=True, tag=True):
    """A request could not be carried out.

    Attributes:
        kind: "usage", "model", "network", "space", "memory", "too_long", "template", "cancelled" or "internal".
        message: One sentence that says what to do next.
        kept: Of a `Load`: the model that was loaded before is still in use.
    """

    kind: str
    message: str
    kept: bool = False


class Note(Event, frozen=True, tag=True):
    """Something the person should know that changes nothing (a saved cache was ignored, for example)."""

    message: str


AnyRequest = Load | Fetch | Generate | Forecast | Choose | Score | Leave | Cancel | Shutdown
AnyEvent = (
    Hello
    | Progress
    | Fetched
    | Loaded
    | Prefill
    | Started
    | Tokens
    | Scored
    | ScoreEnded
    | Ended
    | Forecasted
    | Done
    | Failed
    | Note
)

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(AnyRequest)
_events = msgspec.msgpack.Decoder(AnyEvent)


def frame(message: Request | Event) -> bytes:
    """Encodes a message with its length in front."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


def body_length(header: bytes) -> int:
    """Reads a frame's four-byte header.

    Raises:
        ValueError: The length is beyond `MAX_FRAME`.
    """
    length = int.from_bytes(header, "big")
    if length > MAX_FRAME:
        raise ValueError(f"frame of {length} bytes is too large")
    return length


def decode_request(body: bytes) -> AnyRequest:
    """Decodes a frame's body on the engine's side.

    Raises:
        msgspec.DecodeError: It is not a request of this version.
    """
    return _requests.decode(body)


def decode_event(body: bytes) -> AnyEvent:
    """Decodes a frame's body on the client's side.

    Raises:
        msgspec.DecodeError: It is not an event of this version.
    """
    return _events.decode(body)
