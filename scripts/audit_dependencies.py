"""Look the locked runtime dependencies up in the vulnerability database: `python scripts/audit_dependencies.py`.

Ends with 1 for a known vulnerability. Where the database cannot be reached in time it says so and ends with 0: a gate
must not depend on somebody else's server.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

ROOT: Final = Path(__file__).parents[1]
AUDITOR: Final = "pip-audit@2.10.1"
TIMEOUT_S: Final = 60


class Vulnerability(BaseModel):
    """One entry of the database."""

    id: str
    fix_versions: list[str] = []


class Dependency(BaseModel):
    """One package, looked up or left out."""

    name: str
    version: str | None = None
    vulns: list[Vulnerability] = []
    skip_reason: str | None = None


class Report(BaseModel):
    """The auditor's answer."""

    dependencies: list[Dependency]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to say, and the exit code."""

    code: int
    lines: Sequence[str]


def verdict(report: Report) -> Verdict:
    """Judge an answer. A package that could not be looked up is told, not held against anybody."""
    found = [
        f"{one.name} {one.version}: {known.id}, fixed in {', '.join(known.fix_versions) or 'no version'}"
        for one in report.dependencies
        for known in one.vulns
    ]
    if found:
        return Verdict(1, [*found, "Raise the version in uv.lock: `uv lock --upgrade-package NAME`"])
    looked_up = [one for one in report.dependencies if one.skip_reason is None]
    if not looked_up:
        return Verdict(0, ["not audited: the vulnerability database could not be reached"])
    left_out = len(report.dependencies) - len(looked_up)
    said = f"{len(looked_up)} locked runtime dependencies without a known vulnerability"
    return Verdict(0, [f"{said}; {left_out} could not be looked up" if left_out else said])


def main() -> int:
    """Audit; the exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        export = "export --frozen --no-dev --all-packages --all-extras --no-emit-workspace --quiet"
        subprocess.run(
            ["uv", *export.split(), "--format", "requirements-txt", "--output-file", str(requirements)],
            cwd=ROOT,
            check=True,
        )
        audit = ["uv", "tool", "run", "--quiet", AUDITOR, "--disable-pip", "--progress-spinner", "off"]
        try:
            done = subprocess.run(
                [*audit, "--requirement", str(requirements), "--format", "json"],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            result = verdict(Report.model_validate_json(done.stdout))
        except (subprocess.TimeoutExpired, ValidationError) as error:
            result = Verdict(0, [f"not audited: the auditor gave no answer ({type(error).__name__})"])
    for line in result.lines:
        print(line)
    return result.code


if __name__ == "__main__":
    sys.exit(main())
