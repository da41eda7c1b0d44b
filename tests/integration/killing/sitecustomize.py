"""On PYTHONPATH of a deployment under test; concerns its agent alone (the hub loads the steps by its extra_config)."""

import sys

if sys.orig_argv[1:4] == ["-m", "hub_config", "agent"]:
    from kill_points import install  # type: ignore[import-not-found]

    install("agent")
