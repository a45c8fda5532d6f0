"""``python -m agenthost``: the program ``agenthost``."""

import sys

from agenthost.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
