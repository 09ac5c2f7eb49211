"""Programs that try to leave something for the next one, and a program that prints all that it finds of itself."""

from __future__ import annotations

LOOK = """
import builtins, gc, json, math, os, resource, signal, sys, threading

def has(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False

print(json.dumps({
    "modules": sorted(sys.modules),
    "builtins": sorted((name, type(value).__name__, getattr(value, "__module__", None))
                       for name, value in vars(builtins).items()),
    "functions": [len("abc"), sorted([2, 1]), abs(-1), math.floor(2.5), isinstance(1, int), str(7), repr(7)],
    "integers": [i + 0 for i in range(-5, 257)],
    "path": sys.path, "argv": sys.argv, "flags": list(sys.flags), "recursion": sys.getrecursionlimit(),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace() is None, sys.getprofile() is None],
    "meta path": [str(finder) for finder in sys.meta_path], "gc": [gc.isenabled(), gc.get_threshold()],
    "directory": os.getcwd(), "tmp": sorted(os.listdir("/tmp")), "root": sorted(os.listdir("/")),
    "environment": dict(os.environ), "umask": os.umask(0o22), "nice": os.nice(0),
    "handlers": [str(signal.getsignal(n)) for n in range(1, 32)], "mask": sorted(signal.pthread_sigmask(0, [])),
    "limits": [resource.getrlimit(kind) for kind in range(16)], "threads": threading.active_count(),
    "descriptors": [fd for fd in range(256) if has(fd)],
    "processes": [os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0)],
}))
"""

INFLUENCES = {
    "modules and builtins": """
import builtins, sys, re, json, collections, gc, os
sys.modules["math"] = None
sys.modules["added"] = sys
sys.path.insert(0, "/tmp")
sys.meta_path.insert(0, sys)
sys.setrecursionlimit(77)
sys.argv[:] = ["other"]
gc.disable()
collections.Counter = dict
json.dumps = lambda *args, **kwargs: "no"
builtins.len = lambda *args: 99
builtins.print = None
os.environ["LEFT"] = "behind"
os.putenv("LEFT", "behind")
""",
    "the code of whoever runs it": """
import sys
def patched(*args, **kwargs): return {"status": "exited", "output": "patched", "value": "7"}
for name, module in list(sys.modules.items()):
    if name.startswith("inside"):
        for key, value in list(vars(module).items()):
            if callable(value): setattr(module, key, patched)
            elif isinstance(value, (int, str)) and not key.startswith("__"): setattr(module, key, type(value)())
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if isinstance(value, dict): value.clear()
        if hasattr(value, "__dict__") and not isinstance(value, type):
            for key in list(vars(value)): 
                try: setattr(value, key, None)
                except Exception: pass
    frame = frame.f_back
""",
    "objects by C": """
import ctypes
for number in (0, 1, 3, 7, 100, 256):
    ctypes.c_uint32.from_address(id(number) + 24).value = 5
for word in (None, True, len, print, int.__dict__):
    ctypes.memset(id(word), 0x41, 8)
""",
    "memory at random": """
import ctypes
for thing in (dict, list, str, type, ctypes, compile, object()):
    address = id(thing) & ~0xFFF
    ctypes.memset(address, 0xFF, 4096)
""",
    "files": """
import os
for top in ("/tmp", "/", "/usr/lib", "/dev", "/lib", "/inside", "/proc"):
    for name in ("left", "sitecustomize.py", "json.py", "usercustomize.py"):
        try: open(os.path.join(top, name), "w").write("raise SystemExit(7)")
        except OSError: pass
    for make in (os.mkdir, os.mkfifo):
        try: make(os.path.join(top, "made"))
        except OSError: pass
os.chmod("/tmp", 0o000)
os.chdir("/")
""",
    "locks on what all can read": """
import fcntl, os
fcntl.flock(os.open(os.__file__, os.O_RDONLY), fcntl.LOCK_EX)
open("/tmp/held", "w")
""",
    "limits, handlers and priority": """
import os, resource, signal
os.umask(0)
os.nice(19)
for kind in range(16):
    try: resource.setrlimit(kind, (1, 1) if kind in (1, 7) else resource.getrlimit(kind))
    except (OSError, ValueError): pass
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP): signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
""",
    "threads and processes that stay": """
import os, threading, time
for _ in range(4): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
for attempt in (os.fork, os.forkpty, os.setsid):
    try: attempt()
    except OSError: pass
os._exit(0)
""",
    "signals to everybody": """
import os, signal
for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
    for pid in (1, os.getppid(), *range(2, 3000)):
        if pid != os.getpid():
            try: os.kill(pid, number)
            except OSError: pass
os.killpg(0, signal.SIGKILL)
""",
    "every descriptor": """
import array, fcntl, os, socket
for fd in range(256):
    for attempt in (
        lambda: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK),
        lambda: os.ftruncate(fd, 0),
        lambda: os.write(fd, b"\\0" * 7 + b"\\x0f" + b'{"limits": {}}'),
        lambda: socket.socket(fileno=os.dup(fd)).sendmsg(
            [b"{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        ),
        lambda: os.close(fd),
    ):
        try: attempt()
        except Exception: pass
""",
    "all memory that it may have": "kept = []\nwhile True: kept.append(bytes(2**24))",
    "a crash in C": "import ctypes\nctypes.string_at(0)",
}
