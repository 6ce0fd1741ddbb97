import sys
from pathlib import Path

# The script is part of no package; the tests check what it does, with what it does it.
sys.path.insert(0, str(Path(__file__).parents[2]))
