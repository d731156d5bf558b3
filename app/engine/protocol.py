"""The messages between a front end and the engine's process: one JSON object a line, in both directions.

Commands are imperative, events are in the past. All of them are frozen dataclasses of plain values, so that each
side can be tested, recorded and replayed without the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

import msgspec

from app.chat import Message
from app.engine.rounds import DrafterKind, Round, Span, StopReason
from app.errors import SlipstreamError

PROTOCOL_VERSION = 1
MAX_DRAFT_LENGTH = 16  # limits the rows of logits a context reserves
DEFAULT_DRAFT_LENGTH = 3


# -- parameters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadOptions:
    """How a pair is put into memory. `gpu_layers` None means automatic, -1 all; `threads` None means measured cores."""

    context: int = 4096  # tokens
    gpu_layers: int | None = None
    threads: int | None = None
    use_extra_bufts: bool = True  # repacked CPU weights; off after an illegal instruction


@dataclass(frozen=True)
class SamplingParams:
    """The target's sampling. Neutral values switch a filter off: top_k 0, top_p 1, min_p 0, repeat_penalty 1."""

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64  # tokens the penalty looks back on
    seed: int | None = None  # None: a fresh one, reported with the answer


class VerifyRule(StrEnum):
    """How drafts are verified (see `app.engine.verify`). Coupled: the answer depends on the seed alone."""

    rejection = "rejection"
    coupled = "coupled"


@dataclass(frozen=True)
class SpeculationParams:
    """`drafter` "auto" means the draft model if one is loaded, else lookup. `draft_length` None means automatic."""

    drafter: Literal["auto", "model", "lookup", "none"] = "auto"
    draft_length: int | None = None
    verify: VerifyRule = VerifyRule.rejection


# -- commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadPair:
    target: str
    draft: str | None = None
    options: LoadOptions = field(default_factory=LoadOptions)


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
    """The verdict on two files. `reason` is a sentence in either case."""

    target: str
    draft: str | None
    fits: bool
    reason: str
    target_info: ModelInfo | None = None
    draft_info: ModelInfo | None = None


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
class RoundFinished:
    """One round and the text it released. `drafting_paused` says in words why drafting stopped, when it did."""

    request_id: int
    round: Round
    spans: tuple[Span, ...]
    context_used: int  # tokens in the target's context
    drafting_paused: str | None = None


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

Command = LoadPair | CheckPair | Generate | Cancel | ListDevices | Shutdown
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
