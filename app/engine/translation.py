"""A draft model with another vocabulary than the target's: it drafts text, which is tokenised again for the target.

Exact for the reason that a lookup is: what is proposed depends on nothing but the text so far, and each token is
proposed as certain. Under the rejection rule such a token stands with the target's probability of it, and otherwise
the target draws among the others, in their proportions; under comparison every token is the target's own draw. So a
text that the two vocabularies cut differently can cost speed and nothing else.

The idea is that of universal assisted decoding (Timor et al. 2025, arXiv 2502.05202, there in the variant that
compares text instead of tokens).
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.engine.acceptance import confidence_of
from app.engine.memory import TokenMemory, evaluate
from app.engine.pacing import Pace
from app.engine.protocol import SamplingParams
from app.engine.rounds import DrafterKind
from app.engine.sampling import Distribution, Ids, Sampler
from app.engine.verify import Draft
from app.errors import CancelledError, SlipstreamError

_LONGEST_OPEN = 64  # target tokens; only text without spaces and newlines comes near it


class TextVocabulary(Protocol):
    """What translating needs of a vocabulary. See `app.engine.vocabulary.Vocabulary`."""

    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def special_texts(self) -> Mapping[str, int]: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...
    def piece(self, token: int, *, special: bool = False) -> bytes: ...
    def text_of(self, token: int) -> str: ...
    def is_end(self, token: int) -> bool: ...


class TranslatedDrafter:
    """A small model of another vocabulary runs ahead.

    The text is kept as draft tokens. What is settled of it never changes again; the open end, a word or two, is
    tokenised anew for both vocabularies as it grows. The draft's most probable token is proposed: since the target
    takes a proposal as certain, that is the best guess at any temperature. `sampler` works on the draft's ids (see
    `draft_sampler`).
    """

    kind = DrafterKind.model
    translates = True

    def __init__(
        self,
        context: TokenMemory,
        sampler: Sampler,
        *,
        target_vocabulary: TextVocabulary,
        draft_vocabulary: TextVocabulary,
    ) -> None:
        self.paused: str | None = None
        self._context = context
        self._sampler = sampler
        self._target, self._draft = target_vocabulary, draft_vocabulary
        self._tokenize_for_target = _Tokenizer(target_vocabulary)
        self._tokenize_for_draft = _Tokenizer(draft_vocabulary)
        self._ids: list[int] = []  # the text in draft tokens
        self._settled = 0  # how many of them nothing that follows can change
        self._open = b""  # the bytes behind those
        self._open_ids: list[int] = []  # the same bytes as the target's tokens
        self._half = b""  # the end of the open bytes that is no whole character; not among the draft tokens

    def begin(self, tokens: Sequence[int]) -> None:
        self.paused = None
        self._ids, self._settled, self._open, self._open_ids = [], 0, b"", []
        if self._draft.add_bos and self._draft.bos is not None:
            self._ids, self._settled = [self._draft.bos], 1
        if self._target.add_bos and tokens and tokens[0] == self._target.bos:
            tokens = tokens[1:]
        self._read(tokens)
        self._rewind(0)

    def draft(self, pace: Pace) -> Draft:
        draft = Draft(self.kind)
        context, ids = self._context, self._ids
        if len(ids) > context.size:
            self.paused = f"Paused: the draft's context of {context.size} tokens is full."
        if self.paused or not ids:
            return draft
        written = _Written()
        try:
            # The last draft token is proposed, not evaluated: it needs no room in the draft's context.
            while len(draft) < pace.limit and len(ids) + len(written.ids) <= context.size:
                if not pace.goes_on(self.kind, len(ids) + len(written.ids) - len(context.tokens)):
                    break
                pending = [*ids[len(context.tokens) :], *written.ids[-1:]]
                before = context.busy_s
                evaluate(context, pending, outputs=1)
                draft.steps.append((len(pending), context.busy_s - before))
                logits = context.logits(0)
                probs = self._sampler.distribution(logits, ids, written.ids)
                confidence = confidence_of(probs, logits) if pace.needs_confidence else 1.0
                if not pace.takes(self.kind, confidence):
                    break
                token = int(probs.ids[probs.weights.argmax()])
                piece = self._draft.piece(token)
                if not piece:
                    self._propose_control(token, confidence, written, draft)
                    break
                written.add(token, piece, confidence)
                if not _agree(written.text, self._half):
                    break  # another character than the one that the text has begun
                self._propose(written, draft, pace.limit)
        except CancelledError:
            raise
        except SlipstreamError as error:
            # A draft that fails costs speed, never the answer.
            context.clear()
            self.paused = f"Paused: the draft failed. {error}"
            return Draft(self.kind)
        draft.probs = [Distribution.certain(token) for token in draft.tokens]
        return draft

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        settled = self._settled
        self._read(tokens)
        self._rewind(settled)

    @property
    def pending(self) -> int:
        """How many tokens must be evaluated for the first draft token."""
        return len(self._ids) - len(self._context.tokens)

    # -- the text so far, for the draft ---------------------------------------------------------------------------

    def _read(self, tokens: Sequence[int]) -> None:
        """Append target tokens to the text. Only what is behind the last safe place is tokenised again later."""
        cut = 0  # in the open bytes
        first = 0  # of the open target tokens, behind the cut
        for token in tokens:
            piece = self._target.piece(token)
            if not piece:
                self._settle(len(self._open), len(self._open_ids))
                cut = first = 0
                self._ids += self._control_for_draft(token)
                self._settled = len(self._ids)
                continue
            if _starts_apart(self._open[-1:], piece):
                cut, first = len(self._open), len(self._open_ids)
            self._open += piece
            self._open_ids.append(token)
        self._settle(cut, first)
        text, self._half = _whole_characters(self._open)
        if len(self._open_ids) > _LONGEST_OPEN and not self._half:
            self._settle(len(self._open), len(self._open_ids))
            text = ""
        del self._ids[self._settled :]
        self._ids += self._tokenize_for_draft(text)

    def _settle(self, cut: int, first: int) -> None:
        """Close the open bytes before `cut`, which are the target tokens before `first`."""
        if cut == 0:
            return
        del self._ids[self._settled :]
        self._ids += self._tokenize_for_draft(self._open[:cut].decode(errors="replace"))
        self._settled = len(self._ids)
        self._open, self._open_ids = self._open[cut:], self._open_ids[first:]

    def _control_for_draft(self, token: int) -> list[int]:
        """A turn marker: the draft's own of the same text, else its visible text, which the draft may have seen."""
        text = self._target.text_of(token)
        same = self._draft.special_texts.get(text)
        return self._tokenize_for_draft(text) if same is None else [same]

    def _rewind(self, known: int) -> None:
        """Drop what the draft's memory holds of another text; its first `known` tokens are of this one.

        The last token of the text is always left to evaluate, for its logits.
        """
        held, ids = self._context.tokens, self._ids
        most = max(0, min(len(held), len(ids) - 1))
        same = min(known, most)
        while same < most and held[same] == ids[same]:
            same += 1
        self._context.rewind(same)

    # -- the draft, for the target --------------------------------------------------------------------------------

    def _propose(self, written: _Written, draft: Draft, limit: int) -> None:
        """Fill `draft` with the target's tokens of what is written.

        The last one may be the beginning of a longer token, which the next draft token would show. It is proposed all
        the same: on real pairs it was accepted as often as any other, and to drop it would waste a draft decode every
        round.
        """
        begun = len(self._half)
        draft.tokens, draft.confidences = [], []
        at = begun
        for token in self._target_tokens(written.text[begun:])[:limit]:
            piece = self._target.piece(token)
            if not piece or not written.text.startswith(piece, at):
                return  # a vocabulary that cannot say this text
            start, at = at, at + len(piece)
            draft.tokens.append(token)
            draft.confidences.append(written.confidence(start if len(draft.tokens) > 1 else 0, at))

    def _target_tokens(self, added: bytes) -> list[int]:
        """The target's tokens of `added` behind the open text, without an incomplete character at the end.

        Where the text so far ends inside a token that the target's tokenizer would make (the target wrote " ca", the
        draft adds "t"), the target's own tokens stand, and what is added is tokenised alone.
        """
        ids = self._tokenize_for_target(_whole_characters(self._open + added)[0])
        n = len(self._open_ids)
        return ids[n:] if ids[:n] == self._open_ids else self._tokenize_for_target(_whole_characters(added)[0])

    def _propose_control(self, token: int, confidence: float, written: _Written, draft: Draft) -> None:
        """A control token of the draft is the target's of the same text; any end of a turn is an end of the turn."""
        is_translated = sum(map(len, map(self._target.piece, draft.tokens))) == len(written.text) - len(self._half)
        same = self._target.special_texts.get(self._draft.text_of(token))
        if same is None and self._draft.is_end(token):
            same = self._target.eos
        if same is not None and is_translated:
            draft.tokens.append(same)
            draft.confidences.append(confidence)


def draft_sampler(params: SamplingParams, suppressed: Ids | None = None) -> Sampler:
    """What of the target's sampling makes sense in another vocabulary; `suppressed` are ids of the draft's.

    Biases name ids of the target's, mirostat follows the target's surprise, and XTC hides the most probable token.
    """
    return Sampler(
        SamplingParams(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            repeat_penalty=params.repeat_penalty,
            repeat_last_n=params.repeat_last_n,
        ),
        suppressed,
    )


@dataclass
class _Written:
    """What the draft model has written in this round."""

    ids: list[int] = field(default_factory=list)
    text: bytes = b""
    _starts: list[int] = field(default_factory=list)  # of each draft token, in `text`
    _confidences: list[float] = field(default_factory=list)

    def add(self, token: int, piece: bytes, confidence: float) -> None:
        self.ids.append(token)
        self._starts.append(len(self.text))
        self._confidences.append(confidence)
        self.text += piece

    def confidence(self, start: int, end: int) -> float:
        """How sure the draft was of the bytes from `start` to `end`, those before them given.

        Every draft token counts once, where it begins: the product over a draft is that of its draft tokens.
        """
        product = 1.0
        for at, confidence in zip(self._starts, self._confidences, strict=True):
            if start <= at < end:
                product *= confidence
        return product


class _Tokenizer:
    """Text from the middle of a text, in the tokens that a vocabulary would give it there."""

    _BEFORE = "\n"  # joins with nothing that follows it, but another newline
    _BEHIND = "x"  # joins with no newline before it

    def __init__(self, vocabulary: TextVocabulary) -> None:
        self._vocabulary = vocabulary
        # SentencePiece puts a space before what it takes for a beginning: give it one that can be cut off again.
        letter = self._tokens("a")
        prefixes_space = b"".join(map(vocabulary.piece, letter)) == b" a"
        self._prefix = self._tokens(self._BEFORE) if prefixes_space else []

    def __call__(self, text: str) -> list[int]:
        if not text:
            return []
        # GPT-2's pattern cuts a run of newlines by what follows, which is something visible sooner or later.
        behind = self._BEHIND if text.endswith("\n") else ""
        tokens = self._behind_a_prefix(text + behind)
        if behind and tokens:
            is_apart = self._vocabulary.piece(tokens[-1]) == behind.encode()
            return tokens[:-1] if is_apart else self._behind_a_prefix(text)
        return tokens

    def _behind_a_prefix(self, text: str) -> list[int]:
        n = len(self._prefix)
        if n:
            tokens = self._tokens(self._BEFORE + text)
            if tokens[:n] == self._prefix:
                return tokens[n:]
        return self._tokens(text)

    def _tokens(self, text: str) -> list[int]:
        return self._vocabulary.tokenize(text, add_special=False, parse_special=False)


def _starts_apart(before: bytes, piece: bytes) -> bool:
    """Whether no usual tokenizer joins `piece` with the byte before it, whatever follows.

    A space behind anything visible begins a word, and so does anything visible behind a newline: the patterns of
    GPT-2, Llama 3, Qwen and their kin all cut there, and SentencePiece has no tokens across.
    """
    if not before:
        return False
    if piece.startswith(b" "):
        return not before.isspace()
    return before == b"\n" and not piece[:1].isspace()


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """The text, and the bytes at its end that only begin a character. Bytes that are no text become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]


def _agree(one: bytes, other: bytes) -> bool:
    """Whether one begins with the other."""
    return one.startswith(other) or other.startswith(one)
