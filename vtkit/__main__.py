"""Where ``vtkit`` and ``python -m vtkit`` start: Ctrl-C is answered while the command line is imported."""

import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from vtkit import cli

        cli.main()
    except KeyboardInterrupt:  # before vtkit.system.interrupt was there to answer it
        sys.stderr.write("error: interrupted\n")
        sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    main()
