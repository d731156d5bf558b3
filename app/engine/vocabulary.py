"""The tokens of a model: texts, attributes, tokenising and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.engine.llama import L
from app.engine.penalties import spellings

_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED = 1, 8, 16


class Vocabulary:
    """The tokens of a model. Valid while its model is open; ids are checked, since llama.cpp would end the process."""

    def __init__(self, model_handle: int) -> None:
        self._handle = L.llama_model_get_vocab(model_handle)
        self.n_tokens: int = L.llama_vocab_n_tokens(self._handle)
        self.type: int = L.llama_vocab_type(self._handle)
        self.bos = self._special(L.llama_vocab_bos)
        self.eos = self._special(L.llama_vocab_eos)
        self.add_bos = bool(L.llama_vocab_get_add_bos(self._handle))
        self.add_eos = bool(L.llama_vocab_get_add_eos(self._handle))
        self._buffer = ctypes.create_string_buffer(256)
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self._spellings: dict[str, list[tuple[int, ...]]] = {}

    def _special(self, get: Callable[[int], int]) -> int | None:
        token = get(self._handle)
        return token if 0 <= token < self.n_tokens else None

    def read_ahead(self) -> None:
        """Read now what every answer asks for, so that the first one does not wait for it."""
        _ = self.ends, self.suppressed, self.special_texts, self.user_defined_texts

    @cached_property
    def texts(self) -> list[bytes]:
        """The raw text of every token, by id."""
        get, handle = L.llama_vocab_get_text, self._handle
        return [get(handle, token) for token in range(self.n_tokens)]

    @cached_property
    def _attributes(self) -> list[int]:
        get, handle = L.llama_vocab_get_attr, self._handle
        return [get(handle, token) for token in range(self.n_tokens)]

    @cached_property
    def special_texts(self) -> Mapping[str, int]:
        """Texts that llama.cpp may read as one token of control: id by text."""
        wanted = _ATTR_UNKNOWN | _ATTR_CONTROL | _ATTR_USER_DEFINED
        return {self.text_of(t): t for t, attribute in enumerate(self._attributes) if attribute & wanted}

    @cached_property
    def user_defined_texts(self) -> frozenset[str]:
        """Those that are matched even where special tokens are switched off."""
        return frozenset(self.text_of(t) for t, a in enumerate(self._attributes) if a & _ATTR_USER_DEFINED)

    @cached_property
    def suppressed(self) -> npt.NDArray[np.int64]:
        """Ids the model's file wants never sampled."""
        count = ctypes.c_int32(0)
        ids = L.llama_vocab_get_suppress_tokens(self._handle, ctypes.byref(count))
        return np.array([ids[i] for i in range(count.value)] if ids else [], dtype=np.int64)

    def text_of(self, token: int) -> str:
        return str(L.llama_vocab_get_text(self._handle, self._checked(token)).decode(errors="replace"))

    def is_end(self, token: int) -> bool:
        """Whether the token ends a turn, by the whole set llama.cpp knows, not by one id."""
        return bool(L.llama_vocab_is_eog(self._handle, token))

    @cached_property
    def ends(self) -> frozenset[int]:
        """All tokens that end a turn."""
        return frozenset(token for token in range(self.n_tokens) if self.is_end(token))

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token adds to the text; b"" for control tokens unless `special`."""
        found = self._pieces.get((token, special))
        if found is None:
            found = self._pieces[token, special] = self._read_piece(token, special)
        return found

    def _read_piece(self, token: int, special: bool) -> bytes:
        self._checked(token)
        n = L.llama_token_to_piece(self._handle, token, self._buffer, len(self._buffer), 0, special)
        if n < 0:
            self._buffer = ctypes.create_string_buffer(-n)
            n = L.llama_token_to_piece(self._handle, token, self._buffer, -n, 0, special)
        return ctypes.string_at(self._buffer, n)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode("utf-8", "replace")
        size = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * size)()
            n = L.llama_tokenize(self._handle, data, len(data), ids, size, add_special, parse_special)
            if n >= 0:
                return list(ids[:n])
            size = -n

    def spellings(self, text: str) -> list[tuple[int, ...]]:
        """All token sequences that may begin to spell `text`. The whole vocabulary is searched, once for each text."""
        found = self._spellings.get(text)
        if found is None:
            pieces = [self.piece(token, special=True) for token in range(self.n_tokens)]
            found = spellings(text, pieces, lambda rest: self.tokenize(rest, add_special=False, parse_special=False))
            self._spellings[text] = found
        return found

    def _checked(self, token: int) -> int:
        if not 0 <= token < self.n_tokens:
            raise IndexError(f"token {token} of a vocabulary of {self.n_tokens}")
        return token
