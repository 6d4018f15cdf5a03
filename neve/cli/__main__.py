"""`python -m neve.cli`."""

from __future__ import annotations

from neve.cli.app import app

if __name__ == "__main__":
    app(prog_name="neve")
