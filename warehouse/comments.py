"""Comments of columns, taken from where the columns are written down: behind `--` at the end of their line."""

import re
from collections.abc import Iterator

BEGIN = re.compile(r"CREATE (?:TABLE IF NOT EXISTS|OR REPLACE (VIEW)) (\w+)")
OF_A_TABLE = re.compile(r" +(\w+) .*-- (.+)")
OF_A_VIEW = re.compile(r".*?(\w+),? +-- (.+)")  # the name stands last: `expression AS name,`


def column_comments(definition: str) -> str:
    """COMMENT ON COLUMN statements for every line of a CREATE TABLE or VIEW that is code and comment."""
    return "".join(
        f"COMMENT ON COLUMN {name}.{column} IS '{text.replace(chr(39), chr(39) * 2)}';\n"
        for name, column, text in _columns(definition)
    )


def _columns(definition: str) -> Iterator[tuple[str, str, str]]:
    name, pattern = "", OF_A_TABLE
    for line in definition.splitlines():
        if begin := BEGIN.match(line):
            name, pattern = begin[2], OF_A_VIEW if begin[1] else OF_A_TABLE
        elif not line.lstrip().startswith("--") and (column := pattern.fullmatch(line)):
            yield name, column[1], column[2]
