"""What vLLM's wheel needs beside what rlsift has installed already.

    python deploy/vllm_requirements.py vllm-0.32.0-….whl > requirements.txt

Its own list cannot be met beside Prefect 3.9: it pins fastapi below 0.137, and Prefect asks for 0.139 or newer. torch
is there in the same version; torch's companions for pictures and sound are asked for and not used.
"""

from __future__ import annotations

import sys
import zipfile
from email.parser import Parser

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}
ANY_VERSION = {"fastapi": "fastapi[standard]"}


def requirements(wheel: str) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        asked = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or []
    needed = []
    for requirement in asked:
        name = "".join(character if character.isalnum() or character in "-_." else " " for character in requirement)
        name = name.split()[0].lower()
        if name not in LEFT_OUT and "extra ==" not in requirement:
            needed.append(ANY_VERSION.get(name, requirement))
    return needed


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
