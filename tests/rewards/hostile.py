"""Programs that try to hurt the machine, to look around, or to be called right without being right.

Those of SNOOPS print what they found. Each of CHEATS would pass `add(3, 4) == 7`, or print 7, if the cheat worked.
"""

from __future__ import annotations

HARMFUL = {
    "fork bomb": "import os\nwhile True:\n    os.fork()",
    "fork bomb that goes on after errors": """
import os
for _ in range(10**5):
    try: os.fork()
    except OSError: pass
raise SystemExit(1)
""",
    "threads without end": "import threading, time\n"
    "while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "10 GB of memory": "a = bytearray(10 * 2**30)",
    "a little memory, again and again": "a = []\nwhile True: a.append(bytes(2**26))",
    "fills the disk": """
n = 0
while True:
    with open(f"/tmp/{n}", "wb") as file: file.write(bytes(2**20))
    n += 1
""",
    "one file without end": "with open('big', 'wb') as f:\n    while True: f.write(bytes(2**20))",
    "kills everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)\n"
    "os.kill(os.getppid(), signal.SIGKILL)\nraise KeyError",
    "interrupts everybody": "import os\nfor number in range(1, 32):\n    for pid in (1, os.getppid()):\n"
    "        try: os.kill(pid, number)\n        except OSError: pass\nraise KeyError",
    "kills its group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "stops its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nraise KeyError",
    "a shell": "import subprocess\nsubprocess.run('true', shell=True, check=True)",
    "another program in its place": "import os\nos.execv('/bin/sh', ['sh'])",
    "memory that no limit counts": "import os\nwhile True: os.write(os.memfd_create('x'), bytes(2**20))",
    "recursion": "def f(): f()\nf()",
    "imports itself": """
import sys
sys.path.insert(0, "/tmp")
sys.setrecursionlimit(10**6)
open("/tmp/me.py", "w").write("import sys; del sys.modules['me']; import me")
import me
""",
    "a crash in C": "import ctypes\nctypes.string_at(0)",
}

LITTER = {
    "files and links": """
import os
open("a", "w").write("x")
open(b"\\xff" * 255, "w").close()
os.symlink("/tmp", "self"); os.symlink("/", "root"); os.symlink("nowhere", "dangling")
os.link("a", "b"); os.mkfifo("f")
""",
    "nobody may look": """
import os
os.makedirs("a/b/c"); open("a/b/file", "w").close()
os.chmod("a/b/file", 0); os.chmod("a/b/c", 0); os.chmod("a/b", 0); os.chmod("a", 0)
try: os.chmod("/tmp", 0)
except OSError: pass
""",
    "deeper than a path": """
import os
for _ in range(20_000):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("bottom", "w").close()
""",
    "many": """
import os
for i in range(200):
    os.mkdir(str(i))
    for j in range(200): open(f"{i}/{j}", "w").close()
""",
    "full": """
try:
    while True: open(str(len(os.listdir())), "w").write("x" * 2**19)
except OSError: pass
""",
}

SLOW = {
    "sleeps": "import time\ntime.sleep(1000)",
    "closes its output and sleeps": "import os, time\nos.close(1)\ntime.sleep(1000)",
    "a loop": "while True: pass",
    "a loop that ignores signals": """
import signal
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP): signal.signal(number, signal.SIG_IGN)
while True: pass
""",
    "a thread that stays": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
}

LOUD = {
    "one long line": "import sys\nwhile True: sys.stdout.write('x' * 2**20)",
    "past Python": "import os\nwhile True: os.write(1, b'7\\n' * 2**18)",
}

SNOOPS = {
    "variables": "import os\nprint(dict(os.environ))",
    "variables by C": """
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(getenv(b"SECRET"), getenv(b"HOME"), getenv(b"PATH"))
""",
    "variables of processes": """
import os
for pid in ["self", *range(1, 300)]:
    for name in ("environ", "cmdline", "fd", "root", "mem"):
        if os.path.lexists(f"/proc/{pid}/{name}"): print(pid, name)
print(os.path.exists("/proc"))
""",
    "files": """
import os
for top in ("/etc", "/home", "/work", "/var", "/sys", "/dev/shm", "/proc", "/run", "/bin/sh"):
    if os.path.exists(top) and (not os.path.isdir(top) or os.listdir(top)): print(top)
for link in ("..", "/..", "/tmp/../.."):
    if "etc" in os.listdir(link): print(link)
""",
    "descriptors": """
import os
for fd in range(3, 300):
    try: print(fd, os.fstat(fd))
    except OSError: pass
""",
    "sockets": """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
    try: print(socket.socket(family, socket.SOCK_DGRAM))
    except OSError: pass
""",
    "other processes": """
import os
me = os.getpid()
for pid in range(2, 2000):
    try: os.kill(pid, 0)
    except ProcessLookupError: continue
    if pid != me: print(pid)
""",
    "expected outputs in memory": """
import gc
def walk(value, seen):
    if isinstance(value, (str, bytes)) and ("EXPECTED" + "-7") in str(value): print("found")
for thing in gc.get_objects():
    walk(thing, set())
    if isinstance(thing, dict):
        for entry in list(thing.values()): walk(entry, set())
""",
}

CHEATS = {
    "ends early": "import sys\nsys.exit(0)",
    "ends early and hard": "import os\nos._exit(0)",
    "ends early when called": "import os\ndef add(*args): os._exit(0)",
    "raises SystemExit when called": "def add(*args): raise SystemExit(0)",
    "equal to everything": """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 7
    def __repr__(self): return "7"
    __str__ = __repr__
def add(*args): return Any(5)
""",
    "equal to everything, without a base": """
class Any:
    def __eq__(self, other): return True
def add(*args): return Any()
""",
    "patched builtins": """
import builtins, sys
builtins.AssertionError = SystemExit
builtins.print = lambda *args, **kwargs: None
builtins.isinstance = lambda *args: True
builtins.exec = lambda *args: None
builtins.__import__ = lambda *args, **kwargs: sys
sys.exit = lambda *args: None
sys.excepthook = lambda *args: None
def add(*args): return 5
""",
    "patched json and os": """
import json, os, sys
json.dumps = lambda *args, **kwargs: "[null, 7]"
for name, module in list(sys.modules.items()):
    for key in ("send", "encode", "check", "confine"):
        if hasattr(module, key): setattr(module, key, lambda *args, **kwargs: 0)
def add(*args): return 5
""",
    "exit hooks": "import atexit, os\natexit.register(os._exit, 0)\ndef add(*args): raise KeyError",
    "writes on every descriptor": """
import os, json
for message in ({"status": "exited", "output": "7", "value": "7"}, [None, 7], 7):
    data = json.dumps(message).encode()
    for fd in range(2, 64):
        try: os.write(fd, len(data).to_bytes(8, "big") + data)
        except OSError: pass
def add(*args): return 5
""",
    "frames": """
import sys
frame = sys._getframe()
while frame:
    for key, value in list(frame.f_locals.items()):
        if isinstance(value, dict): value.update(status="exited", cpu_seconds=10**9)
    frame = frame.f_back
def add(*args): return 5
""",
    "prints what a checker might": "print('exited', 'passed', '{\"status\": \"exited\"}')\ndef add(*args): return 5",
}
