"""`python -m ddh` is the same as `ddh`."""

from ddh.cli import main

if __name__ == "__main__":
    main()
