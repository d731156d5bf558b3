"""The pair in memory: two models, their contexts, and what an answer needs of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from app.engine import pair
from app.engine.context import Context
from app.engine.devices import default_threads
from app.engine.drafters import ChainedDrafter, Drafter, ModelDrafter, NoDrafter
from app.engine.experience import Experience, setting_of
from app.engine.llama import CancelFlag, Library
from app.engine.lookup import LookupDrafter
from app.engine.model import Model
from app.engine.pacing import FixedPacing, LearningPacing, Pacing
from app.engine.prompt import PromptBuilder
from app.engine.protocol import (
    LoadOptions,
    LoadPair,
    ModelInfo,
    SamplingParams,
    SpeculationParams,
)
from app.engine.rewinding import SNAPSHOTS
from app.engine.sampling import Sampler
from app.engine.translation import TranslatedDrafter, draft_sampler
from app.engine.verify import Rule
from app.errors import CancelledError, OutOfMemoryError, PairError, SlipstreamError, UsageError

Progress = Callable[[Literal["target", "draft"], float], None]


@dataclass
class _Open:
    """A model with its context, and what it was opened from."""

    model: Model
    context: Context
    recipe: tuple[object, ...]

    def close(self) -> None:
        self.context.close()
        self.model.close()

    def info(self) -> ModelInfo:
        return self.model.info(self.context.size)


class LoadedPair:
    """Holds at most one target and one draft. Loading keeps what is already open as it is wanted."""

    def __init__(self, library: Library, cancel: CancelFlag) -> None:
        self._library = library
        self._cancel = cancel
        self._target: _Open | None = None
        self._draft: _Open | None = None
        self._prompts: PromptBuilder | None = None
        self._translates = False  # the draft's vocabulary is another one
        self.draft_problem: str | None = None  # why a wanted draft is off
        self.lookup = LookupDrafter()  # of the target's tokens; keeps its index from answer to answer
        self.experience = Experience()  # of this pair on this machine
        self._experienced: tuple[object, ...] = ()  # the pair it is of

    def load(self, wanted: LoadPair, on_progress: Progress) -> None:
        """Open the pair. A draft that cannot serve is left out and named in `draft_problem`.

        Raises ModelFileError, OutOfMemoryError or CancelledError for the target; then nothing is loaded, unless the
        header alone was enough to refuse the file.
        """
        recipe = _recipe(wanted.target, wanted.options)
        if self._target is None or self._target.recipe != recipe:
            if self._target:
                # A file that can be known for unusable must not cost the model that is there.
                Model(self._library, Path(wanted.target), vocab_only=True).close()
            self.close()
            self._target = self._open("target", wanted.target, wanted.options, recipe, on_progress)
            model, context = self._target.model, self._target.context
            model.vocabulary.read_ahead()
            self._prompts = PromptBuilder(
                model.vocabulary, model.chat_template, model.architecture, context=context.size
            )
            self.lookup = LookupDrafter()
        self._load_draft(wanted, on_progress)
        both = (self._target.recipe, self._draft.recipe if self._draft else None)
        if both != self._experienced:
            self.experience, self._experienced = Experience.from_plain(wanted.experience), both

    def _load_draft(self, wanted: LoadPair, on_progress: Progress) -> None:
        self.draft_problem = None
        recipe = _recipe(wanted.draft, wanted.options) if wanted.draft else None
        if self._draft and self._draft.recipe != recipe:
            self._close_draft()
        if wanted.draft is None or recipe is None:
            return
        try:
            self._draft = self._draft or self._open("draft", wanted.draft, wanted.options, recipe, on_progress)
            self._refuse_unfit_draft()
            if self._translates:
                self._draft.model.vocabulary.read_ahead()
        except CancelledError:
            self.close()
            raise
        except SlipstreamError as error:
            self._close_draft()
            self.draft_problem = str(error)

    def _open(
        self,
        part: Literal["target", "draft"],
        path: str,
        options: LoadOptions,
        recipe: tuple[object, ...],
        on_progress: Progress,
    ) -> _Open:
        if part == "draft":
            # The vocabulary alone tells whether the pair fits; do not read gigabytes to find out.
            with contextlib.closing(Model(self._library, Path(path), vocab_only=True)) as peek:
                self._check_against_target(peek)
        model = Model(
            self._library,
            Path(path),
            gpu_layers=options.gpu_layers,
            use_extra_bufts=options.use_extra_bufts,
            cancel=self._cancel,
            on_progress=lambda fraction: on_progress(part, fraction),
        )
        try:
            threads = options.threads or default_threads()
            size = min(options.context, model.info().trained_context or options.context)
            if part == "draft":
                size = self.target.size  # a shorter one would end drafting in the middle of an answer
            # A draft is evaluated token by token, where snapshots, which are of one batch, do not help.
            make = partial(
                Context,
                model,
                size=size,
                threads=threads,
                cancel=self._cancel,
                snapshots=SNAPSHOTS if part == "target" else 0,
            )
            try:
                context = make()
            except OutOfMemoryError:
                if not model.has_windows:
                    raise
                context = make(whole_windows=False)
        except BaseException:
            model.close()
            raise
        return _Open(model, context, recipe)

    def _check_against_target(self, draft: Model) -> None:
        assert self._target is not None
        verdict = pair.check(self._target.model.vocabulary, draft.vocabulary)
        if not verdict.fits:
            raise PairError(verdict.reason)
        self._translates = verdict.translates

    def _refuse_unfit_draft(self) -> None:
        assert self._target is not None
        assert self._draft is not None
        self._check_against_target(self._draft.model)
        for role, held in (("target", self._target), ("draft", self._draft)):
            if not held.context.can_rewind:
                raise PairError(
                    f"Drafting is off: the memory of the {role} ({held.model.architecture}) cannot be rewound "
                    "after a rejected draft."
                )

    @property
    def is_loaded(self) -> bool:
        return self._target is not None

    @property
    def target(self) -> Context:
        if self._target is None:
            raise UsageError("No model is loaded. Choose a target first.")
        return self._target.context

    @property
    def model(self) -> Model:
        return self.target.model

    @property
    def prompts(self) -> PromptBuilder:
        assert self._prompts is not None
        return self._prompts

    def target_info(self) -> ModelInfo:
        assert self._target is not None
        return self._target.info()

    def draft_info(self) -> ModelInfo | None:
        return self._draft.info() if self._draft else None

    def drafter(
        self, speculation: SpeculationParams, sampling: SamplingParams, sampler: Sampler, rule: Rule
    ) -> tuple[Drafter, str]:
        """The drafter for an answer, and why it is that one or none, in words."""
        choice = speculation.drafter
        if choice == "none" or speculation.draft_length == 0:
            return NoDrafter(), "Off: no draft was wanted."
        if not self.target.can_rewind:
            return NoDrafter(), "Off: this target's memory cannot be rewound after a rejected draft."
        if choice == "lookup" or (choice == "auto" and self._draft is None):
            why = f" ({self.draft_problem})" if self.draft_problem else ""
            return self.lookup, f"On: drafts are looked up in the text so far.{why}"
        if self._draft is None:
            return NoDrafter(), f"Off: {self.draft_problem or 'no draft model is loaded.'}"
        model = self._model_drafter(self._draft, sampling, sampler, rule)
        name = self._draft.model.path.stem
        how = "; it speaks another vocabulary, so its text is tokenised again" if self._translates else ""
        if choice == "auto":
            return ChainedDrafter(
                self.lookup, model
            ), f"On: {name} runs ahead, or the text so far where it repeats{how}."
        return model, f"On: {name} runs ahead{how}."

    def _model_drafter(
        self, draft: _Open, sampling: SamplingParams, sampler: Sampler, rule: Rule
    ) -> ModelDrafter | TranslatedDrafter:
        ours, theirs = self.model.vocabulary, draft.model.vocabulary
        if self._translates:
            return TranslatedDrafter(
                draft.context,
                draft_sampler(sampling, theirs.suppressed),
                target_vocabulary=ours,
                draft_vocabulary=theirs,
            )
        return ModelDrafter(draft.context, sampler, rule, vocabulary_size=ours.n_tokens, ends=ours.ends)

    def pacing(self, speculation: SpeculationParams, sampling: SamplingParams) -> Pacing:
        """A fixed draft length where one is wanted, else one that learns."""
        if speculation.draft_length is not None:
            return FixedPacing(speculation.draft_length)
        sizes = [held.info().size if held else 0 for held in (self._draft, self._target)]
        return LearningPacing(
            self.experience,
            setting_of(sampling, speculation.verify),
            first_draft_cost=sizes[0] / sizes[1] if all(sizes) else 1.0,
        )

    def close(self) -> None:
        self._close_draft()
        if self._target:
            self._target.close()
            self._target = None

    def _close_draft(self) -> None:
        if self._draft:
            self._draft.close()
            self._draft = None


def _recipe(path: str, options: LoadOptions) -> tuple[object, ...]:
    """What makes two loads the same: the options and the file as it is now."""
    try:
        facts = Path(path).stat()
    except OSError:
        return (path, options)
    return (path, options, facts.st_mtime_ns, facts.st_size)
