"""`python -m cascade_cli`: the `cascade` command without its script."""

from cascade_cli.main import app

if __name__ == "__main__":
    app()
