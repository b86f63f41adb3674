"""`python -m moco_core VERB`."""

import sys

if __name__ == "__main__":
    try:
        from moco_core.cli import main
    except KeyboardInterrupt:  # Ctrl-C before anything has begun
        sys.exit(130)
    main()
