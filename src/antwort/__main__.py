"""`python -m antwort`, the same as `antwort`."""

from antwort.cli.main import main

if __name__ == "__main__":
    main()
