"""`python -m moco_core VERB`."""

from moco_core.cli import main

if __name__ == "__main__":
    main()
