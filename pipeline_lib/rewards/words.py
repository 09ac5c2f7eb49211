"""Words, dates and times as answers: to math-verify Paris is a product of five variables, and Sirap the same one."""

from __future__ import annotations

import re
import unicodedata

_WORD = r"[^\W\d_]+"
_WORDS = re.compile(rf"{_WORD}(?:[ ,.'-]+(?:{_WORD}|[0-9]+))*")
_LONG = re.compile(r"[^\W\d_]{3}")
_YES_OR_NO = {"yes", "no"}
_SAME = str.maketrans({"’": "'", "‘": "'", "‐": "-", "‑": "-", "–": "-", "~": " "})
_IN_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_DATE = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{4}"
_TIME = r"[0-9]{1,2}:[0-9]{2}"
_TOLD = re.compile(rf"{_DATE}|{_TIME}[ap]m|[0-9]{{1,2}}:0[0-9]")  # 3:10 may be a ratio, 3:05 is none


def words(text: str, *, short: bool = False) -> str | None:
    """`text` in one case, without spaces, hyphens and apostrophes, the parts between commas sorted.

    None where it is more than words, or, unless `short`, may be a product of two variables.
    """
    spaced = unicodedata.normalize("NFKC", text).translate(_SAME).replace("\\ ", " ")
    plain = " ".join(spaced.split()).removesuffix(".")
    if _WORDS.fullmatch(plain) is None:
        return None
    if not short and _LONG.search(plain) is None and plain.lower() not in _YES_OR_NO:
        return None
    parts = (re.sub(r"[ .'-]", "", part) for part in plain.casefold().split(","))
    return ",".join(sorted(parts))


def same_date_or_time(one: str, other: str) -> bool | None:
    """Whether two texts are the same date or time of the day; None where neither is any.

    One of two times may leave out am or pm.
    """
    one, other = (re.sub(r"[\s.]", "", _IN_TEXT.sub(r"\1", text).lower()) for text in (one, other))
    if _TOLD.fullmatch(one) is None and _TOLD.fullmatch(other) is None:
        return None
    return one == other or one in (f"{other}am", f"{other}pm") or other in (f"{one}am", f"{one}pm")
