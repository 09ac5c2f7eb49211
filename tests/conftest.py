"""No test asserts how long something takes: a machine that tests is often busy."""

from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
