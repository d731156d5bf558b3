"""The commands of `slipstream`, their options, and what they end with.

Exit codes: 0 done, 2 bad usage, 3 model or file unusable, 4 the engine died, 130 cancelled. Errors are one or two
sentences on standard error, never a traceback.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from app import __version__, log
from app.cli.sampling_options import add_sampling
from app.engine.benchmark import LEAST_TOKENS, MODE_NAMES, ModeName, Settings
from app.engine.protocol import MAX_DRAFT_LENGTH, LoadOptions, VerifyRule
from app.errors import SlipstreamError

_log = logging.getLogger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Carry out one command and return its exit code."""
    options = _parser().parse_args(arguments)  # bad usage ends here, with 2
    log.start("terminal")
    try:
        if options.command == "ask":
            from app.cli.ask import ask as command  # noqa: PLC0415 (a usage error needs none of it)
        elif options.command == "bench":
            from app.cli.bench import bench as command  # noqa: PLC0415
        else:
            from app.cli.doctor import doctor as command  # noqa: PLC0415
        return command(options)
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python must not complain about it when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 (logged, and a sentence instead of a traceback)
        _log.exception("the command failed")
        print(
            "slipstream: An error inside Slipstream. Its log file tells more; `slipstream doctor` says where.",
            file=sys.stderr,
        )
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slipstream",
        description="Chat with local models: a small draft model runs ahead, and the answer is exactly the target's. "
        "Without a command, the window opens.",
    )
    parser.add_argument("--version", action="version", version=f"slipstream {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_ask(commands.add_parser("ask", help="answer one question", description="Answer one question."))
    _add_bench(
        commands.add_parser(
            "bench",
            help="measure how fast a pair writes with a draft and without",
            description="Measure how fast a pair writes with a draft and without; the modes take turns.",
        )
    )
    doctor = commands.add_parser(
        "doctor",
        help="say what this machine has and what is wrong",
        description="Say what this machine has, what is wrong, and the cure.",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_ask(ask: argparse.ArgumentParser) -> None:
    load = LoadOptions()
    ask.add_argument("prompt", nargs="?", metavar="PROMPT", help="the question; without it, standard input is read")
    models = ask.add_argument_group("models")
    models.add_argument(
        "--target", metavar="FILE", help="the model that answers (the pair chosen last, or the starter model)"
    )
    models.add_argument(
        "--draft",
        metavar="FILE|lookup|none",
        help="what runs ahead: a draft model with lookup, or the text so far alone",
    )
    models.add_argument(
        "--context", type=_whole(16), default=load.context, metavar="N", help="context in tokens (%(default)s)"
    )
    models.add_argument("--threads", type=_whole(1), metavar="N", help="processor threads (measured)")
    models.add_argument(
        "--gpu-layers", type=_gpu_layers, default="auto", metavar="auto|all|N", help="layers on the GPU (auto)"
    )
    answer = ask.add_argument_group("answer")
    answer.add_argument("--system", metavar="TEXT", help="system prompt")
    answer.add_argument("--max-tokens", type=_whole(1), metavar="N", help="end the answer after N tokens")
    add_sampling(ask.add_argument_group("sampling"))
    speculation = ask.add_argument_group("speculation")
    speculation.add_argument(
        "--draft-length",
        type=_draft_length,
        default="auto",
        metavar="auto|N",
        help=f"draft tokens a round, at most {MAX_DRAFT_LENGTH} (auto: as many as pay, none if plain is faster)",
    )
    speculation.add_argument(
        "--verify",
        type=VerifyRule,
        choices=list(VerifyRule),
        default=VerifyRule.rejection,
        help="the rule that accepts draft tokens (%(default)s)",
    )
    ask.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _add_bench(bench: argparse.ArgumentParser) -> None:
    load, settings = LoadOptions(), Settings()
    models = bench.add_argument_group("models")
    models.add_argument("--target", metavar="FILE", required=True, help="the model that answers")
    models.add_argument("--draft", metavar="FILE", help="the draft model that runs ahead")
    models.add_argument(
        "--context", type=_whole(16), default=load.context, metavar="N", help="context in tokens (%(default)s)"
    )
    models.add_argument("--threads", type=_whole(1), metavar="N", help="processor threads (measured)")
    models.add_argument(
        "--gpu-layers", type=_gpu_layers, default="auto", metavar="auto|all|N", help="layers on the GPU (auto)"
    )
    what = bench.add_argument_group("what is measured")
    what.add_argument(
        "--prompts", metavar="FILE", help="a JSON list of prompts with name, class and text (eight of ours)"
    )
    what.add_argument(
        "--modes",
        type=_modes,
        metavar="LIST",
        help=f"some of {','.join(MODE_NAMES)} (all that the models given allow)",
    )
    what.add_argument(
        "--lengths",
        type=_lengths,
        metavar="1,2,3,…",
        help="also measure these fixed draft lengths; the ideal speed-up becomes more exact",
    )
    what.add_argument(
        "--temperature",
        type=float,
        default=settings.temperature,
        metavar="T",
        help="0 is greedy: every mode writes the same text (%(default)s)",
    )
    what.add_argument(
        "--max-tokens",
        type=_whole(LEAST_TOKENS),
        default=settings.max_tokens,
        metavar="N",
        help="length of an answer (%(default)s)",
    )
    what.add_argument(
        "--repeat", type=_whole(1), default=settings.repeat, metavar="R", help="turns over all prompts (%(default)s)"
    )
    what.add_argument(
        "--seed", type=_whole(0), default=settings.seed, metavar="S", help="of the first turn (%(default)s)"
    )
    what.add_argument(
        "--verify",
        type=VerifyRule,
        choices=list(VerifyRule),
        default=settings.verify,
        help="the rule that accepts draft tokens (%(default)s)",
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="measure nothing: compare greedy answers with and without a draft, token by token",
    )
    bench.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def _modes(text: str) -> list[ModeName]:
    names = dict.fromkeys(text.split(","))
    for name in names:
        if name not in MODE_NAMES:
            raise argparse.ArgumentTypeError(f"“{name}” is none of {', '.join(MODE_NAMES)}")
    return [name for name in MODE_NAMES if name in names]


def _lengths(text: str) -> list[int]:
    parse = _whole(1)
    lengths = sorted({parse(part) for part in text.split(",")})
    if lengths[-1] > MAX_DRAFT_LENGTH:
        raise argparse.ArgumentTypeError(f"{lengths[-1]} is more than {MAX_DRAFT_LENGTH}")
    return lengths


_lengths.__name__ = "list of whole numbers"


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    parse.__name__ = "whole number"
    return parse


def _gpu_layers(text: str) -> int | None:
    if text in ("auto", "all"):
        return None if text == "auto" else -1
    return _whole(0)(text)


def _draft_length(text: str) -> int | None:
    if text == "auto":
        return None
    value = _whole(0)(text)
    if value > MAX_DRAFT_LENGTH:
        raise argparse.ArgumentTypeError(f"{value} is more than {MAX_DRAFT_LENGTH}")
    return value
