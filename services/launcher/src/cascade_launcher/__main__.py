"""`python -m cascade_launcher`."""

import sys

from cascade_launcher.main import main

if __name__ == "__main__":
    sys.exit(main())
