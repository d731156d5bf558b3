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
from app.engine.protocol import DEFAULT_DRAFT_LENGTH, MAX_DRAFT_LENGTH, LoadOptions, SamplingParams, VerifyRule
from app.errors import SlipstreamError

_log = logging.getLogger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Carry out one command and return its exit code."""
    options = _parser().parse_args(arguments)  # bad usage ends here, with 2
    log.start("terminal")
    try:
        if options.command == "ask":
            from app.cli.ask import ask as command  # noqa: PLC0415 (a usage error needs none of it)
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
    doctor = commands.add_parser(
        "doctor",
        help="say what this machine has and what is wrong",
        description="Say what this machine has, what is wrong, and the cure.",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_ask(ask: argparse.ArgumentParser) -> None:
    load, sampling = LoadOptions(), SamplingParams()
    ask.add_argument("prompt", nargs="?", metavar="PROMPT", help="the question; without it, standard input is read")
    models = ask.add_argument_group("models")
    models.add_argument(
        "--target", metavar="FILE", help="the model that answers (the pair chosen last, or the starter model)"
    )
    models.add_argument("--draft", metavar="FILE|lookup|none", help="what runs ahead (lookup: the text so far)")
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
    answer.add_argument(
        "--temperature", type=float, default=sampling.temperature, metavar="T", help="0 is greedy (%(default)s)"
    )
    answer.add_argument("--top-k", type=_whole(0), default=sampling.top_k, metavar="K", help="0 is off (%(default)s)")
    answer.add_argument("--top-p", type=float, default=sampling.top_p, metavar="P", help="1 is off (%(default)s)")
    answer.add_argument("--min-p", type=float, default=sampling.min_p, metavar="P", help="0 is off (%(default)s)")
    answer.add_argument(
        "--repeat-penalty", type=float, default=sampling.repeat_penalty, metavar="R", help="1 is off (%(default)s)"
    )
    answer.add_argument("--seed", type=_whole(0), metavar="S", help="a fresh one unless given")
    speculation = ask.add_argument_group("speculation")
    speculation.add_argument(
        "--draft-length",
        type=_draft_length,
        default="auto",
        metavar="auto|N",
        help=f"draft tokens a round, at most {MAX_DRAFT_LENGTH} (auto: {DEFAULT_DRAFT_LENGTH})",
    )
    speculation.add_argument(
        "--verify",
        type=VerifyRule,
        choices=list(VerifyRule),
        default=VerifyRule.rejection,
        help="the rule that accepts draft tokens (%(default)s)",
    )
    ask.add_argument("--json", action="store_true", help="print one JSON object instead of text")


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
