"""`python -m hub_config` is `berth`, for processes that must not depend on a PATH."""

import sys

from hub_config.cli import main

if __name__ == "__main__":
    sys.exit(main())
