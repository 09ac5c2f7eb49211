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
_HALF_DAY = r"\s*[ap]\.?\s?m\.?"
_TIME = rf"[0-9]{{1,2}}:[0-9]{{2}}{_HALF_DAY}|[0-9]{{1,2}}:0[0-9]"  # 3:10 may be a ratio, 3:05 is none
_DATE_OR_TIME = re.compile(f"{_DATE}|{_TIME}", re.IGNORECASE)


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


def date_or_time(text: str) -> str | None:
    """`text` in one case, without spaces and full stops; None where it is no date and no time of the day."""
    plain = _IN_TEXT.sub(r"\1", text).strip()
    return re.sub(r"[\s.]", "", plain.lower()) if _DATE_OR_TIME.fullmatch(plain) else None
