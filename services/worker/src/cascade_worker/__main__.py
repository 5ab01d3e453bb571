"""`python -m cascade_worker`: the worker without the `cascade` command."""

from cascade_worker.main import main

if __name__ == "__main__":
    main()
