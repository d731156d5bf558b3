"""The messages between a front end and the engine's process: one JSON object a line, in both directions.

Commands are imperative, events are in the past. All of them are frozen dataclasses of plain values, so that each
side can be tested, recorded and replayed without the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from app.chat import Message
from app.engine.rounds import DrafterKind, Round, Span, StopReason
from app.errors import SlipstreamError

PROTOCOL_VERSION = 1
MAX_DRAFT_LENGTH = 16  # limits the rows of logits a context reserves


# -- parameters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadOptions:
    """How a pair is put into memory. `gpu_layers` None means automatic, -1 all; `threads` None means measured cores."""

    context: int = 4096  # tokens
    gpu_layers: int | None = None
    threads: int | None = None
    use_extra_bufts: bool = True  # repacked CPU weights; off after an illegal instruction


SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc", "temperature")


@dataclass(frozen=True)
class SamplingParams:
    """The target's sampling, by llama.cpp's definitions. What the comments call off leaves a sampler out altogether.

    `app.engine.limits` has the ranges. At a temperature of 0 the best token behind bias, penalties and DRY is taken.
    """

    temperature: float = 0.7
    top_k: int = 40  # 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.05  # 0: off
    repeat_penalty: float = 1.0  # 1: off
    repeat_last_n: int = 64  # tokens that the three penalties look back on, of prompt and answer
    seed: int | None = None  # None: a fresh one, reported with the answer
    frequency_penalty: float = 0.0  # for each time a token occurred; 0: off
    presence_penalty: float = 0.0  # if it occurred at all; 0: off
    typical_p: float = 1.0  # 1: off
    top_n_sigma: float = 0.0  # 0: off
    dynatemp_range: float = 0.0  # the temperature follows the entropy by this much up and down; 0: off
    dynatemp_exponent: float = 1.0
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2  # tokens a repetition may have for nothing
    dry_last_n: int = 1024  # tokens that DRY looks back on
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")  # texts that no repetition reaches back over
    xtc_probability: float = 0.0  # 0: off
    xtc_threshold: float = 0.1  # above 0.5: off
    mirostat: Literal[0, 1, 2] = 0  # 1 or 2 stand in for all samplers that truncate
    mirostat_tau: float = 5.0  # bits of surprise to keep to
    mirostat_eta: float = 0.1  # how fast it is kept to
    logit_bias: tuple[tuple[int, float], ...] = ()  # token id and what is added to its logit, before all samplers
    order: tuple[str, ...] = SAMPLERS  # one that is not named is off


DrafterChoice = Literal["auto", "model", "lookup", "none"]


class VerifyRule(StrEnum):
    """How drafts are verified (see `app.engine.verify`). Coupled: the answer depends on the seed alone."""

    rejection = "rejection"
    coupled = "coupled"


@dataclass(frozen=True)
class SpeculationParams:
    """`drafter` "auto" means lookup, with the draft model behind it if one is loaded. `draft_length` None: paced."""

    drafter: DrafterChoice = "auto"
    draft_length: int | None = None
    verify: VerifyRule = VerifyRule.rejection


# -- commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadPair:
    """`experience`: what an earlier run learned of this pair (`app.engine.experience`), as it was sent then."""

    target: str
    draft: str | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    experience: dict[str, Any] | None = None


@dataclass(frozen=True)
class CheckPair:
    """Read both vocabularies and say whether the draft may serve the target. No weights are read."""

    target: str
    draft: str | None = None


@dataclass(frozen=True)
class GenerationRequest:
    messages: tuple[Message, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculation: SpeculationParams = field(default_factory=SpeculationParams)
    max_tokens: int | None = None  # None: as many as the context holds
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generate:
    request_id: int
    request: GenerationRequest


@dataclass(frozen=True)
class ScoreNext:
    """What does the target think of the token behind `answer_tokens` of its answer? Answered by NextScored.

    `max_tokens` as in the request that gave the answer, so that the prompt is built the same way.
    """

    request_id: int
    messages: tuple[Message, ...]
    answer_tokens: tuple[int, ...]
    max_tokens: int | None = None


@dataclass(frozen=True)
class Cancel:
    """Stop the load or the answer under way; nothing happens when there is none."""


@dataclass(frozen=True)
class ListDevices:
    pass


@dataclass(frozen=True)
class Shutdown:
    pass


# -- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerStarted:
    """The first message of a worker."""

    protocol: int
    llama_cpp: str
    pid: int


@dataclass(frozen=True)
class LoadProgressed:
    part: Literal["target", "draft"]
    fraction: float  # 0 to 1


@dataclass(frozen=True)
class ModelInfo:
    file: str
    description: str  # e.g. "llama 135M Q4_1"
    layers: int
    gpu_layers: int
    context: int  # tokens; 0 if no context was made
    trained_context: int
    n_vocab: int
    size: int  # bytes of weights
    suggested: dict[str, float] = field(default_factory=dict)  # sampling the file suggests, by SamplingParams' names


@dataclass(frozen=True)
class PairLoaded:
    """`draft_problem` says in a sentence why a wanted draft is off; the target is usable all the same."""

    target: ModelInfo
    draft: ModelInfo | None
    draft_problem: str | None
    seconds: float


@dataclass(frozen=True)
class LoadFailed:
    """`kept`: the file was refused before anything was closed, so what was loaded before still is."""

    error: Fault
    kept: bool = False


@dataclass(frozen=True)
class PairChecked:
    """The verdict on two files. `reason` is a sentence in either case.

    `translates`: the draft fits, but with another vocabulary: its text is tokenised again.
    """

    target: str
    draft: str | None
    fits: bool
    reason: str
    target_info: ModelInfo | None = None
    draft_info: ModelInfo | None = None
    translates: bool = False


@dataclass(frozen=True)
class GenerationStarted:
    """`notes` are sentences about how the prompt was built, if anything had to be changed for this model."""

    request_id: int
    prompt_tokens: int
    reused_tokens: int
    drafter: DrafterKind
    drafter_reason: str  # why drafting is on, or why it is off, in words
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PromptProgressed:
    request_id: int
    done: int  # tokens
    total: int


@dataclass(frozen=True)
class PacingReport:
    """What pacing does and why. Costs in milliseconds: the target's by batch size, as far as seen, a draft token's."""

    state: Literal["on", "paused", "off"]
    sentence: str
    typical_length: float = 0.0  # draft tokens of a round with a draft, lately
    plain_tokens_per_s: float | None = None  # measured, never derived from acceptance
    target_ms: dict[int, float] = field(default_factory=dict)
    draft_ms: float | None = None


@dataclass(frozen=True)
class RoundFinished:
    """One round and the text it released. `drafting_paused` says in words why drafting stopped, when it did."""

    request_id: int
    round: Round
    spans: tuple[Span, ...]
    context_used: int  # tokens in the target's context
    drafting_paused: str | None = None
    pacing: PacingReport | None = None  # when it changed


@dataclass(frozen=True)
class Timing:
    """Seconds, but `tokens_per_s`, which is answer tokens after the first over the time since the first."""

    load_s: float
    prefill_s: float
    first_token_s: float | None
    decode_s: float
    draft_s: float
    verify_s: float
    sample_s: float
    tokens_per_s: float | None


@dataclass(frozen=True)
class GenerationFinished:
    """The end of an answer. `spans` holds text that was held back for a stop string and turned out not to be one."""

    request_id: int
    stop_reason: StopReason
    seed: int
    prompt_tokens: int
    reused_tokens: int
    answer_tokens: int
    timing: Timing
    spans: tuple[Span, ...] = ()
    error: Fault | None = None
    pacing: PacingReport | None = None
    experience: dict[str, Any] | None = None  # what is known of this pair by now, to be given back when it is loaded


class TokenScore(NamedTuple):
    id: int
    logit: float
    text: str


@dataclass(frozen=True)
class NextScored:
    """The target's two best tokens, the best first, from a pass over one token. Empty if there is an `error`."""

    request_id: int
    best: tuple[TokenScore, ...] = ()
    error: Fault | None = None


@dataclass(frozen=True)
class Device:
    """A device llama.cpp can compute on. Memory in bytes; 0/0 when the device does not say."""

    name: str
    description: str
    type: Literal["cpu", "gpu", "igpu", "accelerator"]
    memory_free: int
    memory_total: int


@dataclass(frozen=True)
class DevicesListed:
    devices: tuple[Device, ...]
    llama_cpp: str
    system_info: str
    supports_gpu_offload: bool
    supports_rpc: bool


@dataclass(frozen=True)
class WorkerAborted:
    """llama.cpp's last words before it ends the process."""

    text: str


# -- events of the client, never on the wire ----------------------------------------------------------------------


@dataclass(frozen=True)
class EngineDied:
    """The worker ended by itself. `sentence` names the cause; `restarting` says whether a new one is on its way."""

    sentence: str
    restarting: bool
    exit_status: int | None


# -- faults -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """An error on the wire: the name of a class in `app.errors` and its sentence."""

    kind: str
    sentence: str

    @classmethod
    def of(cls, error: SlipstreamError) -> Fault:
        return cls(type(error).__name__, str(error))

    def to_error(self) -> SlipstreamError:
        """The exception that was sent; an unknown kind becomes the base class."""
        kinds = {cls.__name__: cls for cls in _subclasses(SlipstreamError)}
        return kinds.get(self.kind, SlipstreamError)(self.sentence)


def _subclasses(cls: type[SlipstreamError]) -> list[type[SlipstreamError]]:
    return [cls, *(deep for sub in cls.__subclasses__() for deep in _subclasses(sub))]


# -- the wire -----------------------------------------------------------------------------------------------------

Command = LoadPair | CheckPair | Generate | ScoreNext | Cancel | ListDevices | Shutdown
WorkerEvent = (
    WorkerStarted
    | LoadProgressed
    | PairLoaded
    | LoadFailed
    | PairChecked
    | GenerationStarted
    | PromptProgressed
    | RoundFinished
    | GenerationFinished
    | NextScored
    | DevicesListed
    | WorkerAborted
)
Event = WorkerEvent | EngineDied

_TYPES: dict[str, type] = {cls.__name__: cls for cls in (*get_args(Command), *get_args(WorkerEvent))}
_encoder = msgspec.json.Encoder()


class _Envelope(msgspec.Struct):
    type: str
    body: msgspec.Raw


_envelope_decoder = msgspec.json.Decoder(_Envelope)
_decoders: dict[str, msgspec.json.Decoder[object]] = {}


class ProtocolError(Exception):
    """A line that is not a message of this version. It means the two sides are not the same build."""


def encode(message: Command | WorkerEvent) -> bytes:
    """One line, newline included."""
    return b'{"type":"%s","body":%s}\n' % (type(message).__name__.encode(), _encoder.encode(message))


def decode(line: bytes) -> Command | WorkerEvent:
    """The message of one line. Raises ProtocolError."""
    try:
        envelope = _envelope_decoder.decode(line)
        if envelope.type not in _decoders:
            _decoders[envelope.type] = msgspec.json.Decoder(_TYPES[envelope.type])
        return _decoders[envelope.type].decode(envelope.body)  # type: ignore[return-value]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ProtocolError(f"not a message of protocol {PROTOCOL_VERSION}: {line[:200]!r} ({error})") from error
