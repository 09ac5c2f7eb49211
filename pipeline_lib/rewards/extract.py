r"""Answer extraction, in one place: the last marker, the last box, the last answer line.

Each function returns None when its sign is nowhere in the text, and "" when the last sign is there but what
should follow is missing: the last sign decides, so an earlier one must not win over it.
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?:\s*(?P<brace>\{)|(?![A-Za-z])\s*)")
_END_OF_FORMULA = re.compile(r"\$|\\\)|\\\]|\n")
_ANSWER_LINE = re.compile(r"\banswer[*_`]*\s*[:\uff1a][*_`]*\s*", re.IGNORECASE)
_CLOSERS = {"$$": "$$", "\\[": "\\]"}
_ANSWER_TAG = re.compile(r"<answer>", re.IGNORECASE)
_ANSWER_TAGS = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)

_DRESS = re.compile(r"[*`{}$\\]")
_COLOUR = re.compile(r"\\(?:text)?color\s*\{[^{}]*\}")
_SHOWN = re.compile(
    r"\$\$((?:[^$\\]|\\.)*)\$\$|\$((?:[^$\\]|\\.)*)\$|\\\(((?:(?!\\[()]).)*)\\\)|\\\[((?:(?!\\[][]).)*)\\\]"
    r"|\\displaystyle(?![A-Za-z])(.*)"
    r"|\*{0,3}([^*]+)\*{2,3}\.?|\*([^*]+)\*\.?|`+([^`]+)`+\.?",
    re.DOTALL,
)
_GROUP = re.compile(r"(?:\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*)?\{")

MAX_LAYERS = 20
"""Of what shows an answer, one in another; more would cost time that grows with their square."""

# What follows a fence of ` names the language and holds no other `, else the line is code in a text.
_FENCE = re.compile(r"(`{3,}|~{3,})((?<=`)[^`]*|(?<=~).*)")
PYTHON_NAMES = {"python", "python3", "py"}


def fold(text: str) -> str:
    """`text` stripped, each run of white space made one space."""
    return " ".join(text.split())


def bare(text: str) -> str:
    r"""`text` without what only shows it: bold, code and colour marks, $ and \( and braces around all of it."""
    if _DRESS.search(text) is None:
        return text.strip()
    text = _COLOUR.sub("", text)
    for _ in range(MAX_LAYERS):
        inner = text.strip()
        if (len(inner) - len(inner.rstrip("\\"))) % 2:  # half of a LaTeX space
            inner = inner[:-1]
        if (shown := _SHOWN.fullmatch(inner)) is not None:
            inner = next(group for group in shown.groups() if group is not None)
        elif (group := _GROUP.match(inner)) and _closing_brace(inner, group.end()) == len(inner) - 1:
            inner = inner[group.end() : -1]
        if inner == text:
            break
        text = inner
    return text


def after_marker(text: str, marker: str) -> str | None:
    """The text after the last `marker`, stripped."""
    _, found, rest = text.rpartition(marker)
    return rest.strip() if found else None


def boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{}` or `\fbox{}`; "" when its brace is never closed.

    That of one without a brace, `\boxed 5`, ends with its formula or line.
    """
    openers = list(_BOX.finditer(text))
    if not openers:
        return None
    start = openers[-1].end()
    if openers[-1]["brace"] is None:
        return _END_OF_FORMULA.split(text[start:], maxsplit=1)[0].strip()
    end = _closing_brace(text, start)
    return "" if end is None else text[start:end].strip()


def _closing_brace(text: str, start: int) -> int | None:
    """Where the group whose content begins at `start` is closed; None where it never is."""
    depth, position = 1, start
    while position < len(text):
        character = text[position]
        if character == "\\":  # \{ and \} are printed braces and group nothing
            position += 2
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return position
        position += 1
    return None


def answer_line(text: str) -> str | None:
    """What follows the last `Answer:` on its line (or on the next, when its own is empty), or the formula below it."""
    openers = list(_ANSWER_LINE.finditer(text))
    if not openers:
        return None
    line, _, below = text[openers[-1].end() :].partition("\n")
    if (closer := _CLOSERS.get(line.strip())) is not None:
        formula, closed, _ = below.partition(closer)
        return formula.strip() if closed else ""
    return line.strip().strip("*").strip()


def answer_tag(text: str) -> str | None:
    """The content of the last `<answer>...</answer>`; "" when the last tag is never closed."""
    openers = list(_ANSWER_TAG.finditer(text))
    if not openers:
        return None
    match = _ANSWER_TAGS.match(text, openers[-1].start())
    return match.group(1).strip() if match else ""


def python_block(text: str) -> str | None:
    """The last block fenced as ```python, or with more of ` or ~; "" when it is never closed.

    As in Markdown, a line of as many of its signs or more closes a fence: around a program that has ``` on a line of
    its own it must be longer.
    """
    block: list[str] | None = None
    last: str | None = None
    fence = ""
    for line in text.split("\n"):  # other line ends may stand in a program's strings
        mark = line.strip()
        if fence and mark.startswith(fence) and not mark.strip(fence[0]):
            last = last if block is None else "\n".join(block) + "\n"
            fence, block = "", None
        elif fence and block is not None:
            block.append(line)
        elif not fence and (opened := _FENCE.fullmatch(mark)):
            fence, block = opened[1], [] if PYTHON_NAMES & set(opened[2].lower().split()[:1]) else None
    return last if block is None else ""


def first_line(text: str) -> str:
    """The first line that is not empty, stripped."""
    return text.strip().partition("\n")[0].strip()
