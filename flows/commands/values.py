"""Values for which Python has no good words, in DuckDB's: intervals and bytes, at any depth of lists and structs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

PRINTABLE = {byte: chr(byte) for byte in range(32, 127) if byte != ord("\\")}


def readable(value: Any) -> Any:
    match value:
        case pa.MonthDayNano():
            return _interval(value)
        case bytes():
            return "".join(PRINTABLE.get(byte, f"\\x{byte:02X}") for byte in value)
        case dict():
            return {key: readable(inner) for key, inner in value.items()}
        case list():
            return [readable(inner) for inner in value]
        case tuple():  # an entry of a map
            return tuple(readable(inner) for inner in value)
        case _:
            return value


def _interval(value: pa.MonthDayNano) -> str:
    """As `1 year 2 months 3 days 04:05:06.5`."""
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    counted = {"year": sign * years, "month": sign * months, "day": value.days}
    parts = [f"{n} {unit}{'' if n in (1, -1) else 's'}" for unit, n in counted.items() if n]
    if value.nanoseconds or not parts:
        seconds, nanoseconds = divmod(abs(value.nanoseconds), 1_000_000_000)
        fraction = f".{nanoseconds // 1000:06d}".rstrip("0").rstrip(".")
        minus = "-" if value.nanoseconds < 0 else ""
        parts.append(f"{minus}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}")
    return " ".join(parts)
