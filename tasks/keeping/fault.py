"""What `rlsift doctor` tells of: something amiss, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

AGAIN = "`rlsift run` makes it again, and nothing else"
COLLECT = "`rlsift gc` lists it, `rlsift gc --apply` removes it"


@dataclass(frozen=True)
class Fault:
    what: str
    where: str
    remedy: str
