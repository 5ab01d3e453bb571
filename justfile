# The commands of this repository. `just check` is what the gate runs.

default:
    @just --list

# Everything the gate checks.
check:
    .ci/run

# Format, lint, import rules and types of the whole workspace.
lint:
    uv run ruff format .
    uv run ruff check --fix .
    uv run lint-imports
    uv run mypy libs services tests scripts

test *args:
    uv run pytest {{args}}

demo:
    uv run cascade demo

# Write the files that are made from code: the sync client, the documentation's generated parts, the files for agents.
generate:
    uv run python scripts/build_sync_client.py
    uv run python -m cascade_core.events_page > docs/events.md
    uv run python scripts/build_docs_reference.py
    uv run python scripts/build_agent_files.py
