"""`python -m interp`, as `torchrun … -m interp train` needs it."""

from interp.cli import main

if __name__ == "__main__":
    main()
