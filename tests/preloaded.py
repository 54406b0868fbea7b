"""What the server of :mod:`command_line` has imported before a call: every module of vtkit, and so what they import."""

import os
from importlib import import_module
from pkgutil import walk_packages

for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):  # read when torch and numba are imported
    os.environ[name] = "1"

for module in walk_packages(import_module("vtkit").__path__, "vtkit."):
    if not module.name.endswith("__main__") and ".deploy.scripts." not in module.name:  # these run outside of vtkit
        import_module(module.name)
