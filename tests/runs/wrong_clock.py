"""The server of a machine whose clock is wrong: `python wrong_clock.py SECONDS …` is `antwort …`, that much ahead."""

import sys
import time

from antwort.cli.main import main

if __name__ == "__main__":
    ahead, right = float(sys.argv.pop(1)), time.time
    time.time = lambda: right() + ahead
    main()
