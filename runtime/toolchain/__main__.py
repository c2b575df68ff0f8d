"""`python -m kernwright.runtime.toolchain install|path|check`: set-up before anything else of the package is needed."""

import sys

from kernwright.runtime.toolchain.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
