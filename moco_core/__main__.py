"""`python -m moco_core VERB`."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written is cleared
    try:
        from moco_core.cli import main

        main()
    except KeyboardInterrupt:  # while it imports: `main` answers what comes later
        sys.exit(130)
