"""What the Get started page's Manage does with a workspace that is there: look, pause, resume, delete."""

import time
from typing import Any

from cascade_cli.deploy_sail.options import app_name, check_workspace
from cascade_cli.deploy_sail.sdk import Clock, DeployError, SailWorkspace, translated


def status(sdk: Any, workspace: str) -> str:
    """The sandbox's status as Sail names it, or `none`. Raises DeployError, OptionError."""
    check_workspace(workspace)
    box = SailWorkspace(sdk, app_name(workspace)).find()
    return "none" if box is None else str(box.status)


def pause(sdk: Any, workspace: str) -> str:
    """Checkpoint the sandbox and stop it; the next resume goes on where it was."""
    box = _there(sdk, workspace)
    if box.status != "paused":
        with translated(sdk, "pausing the workspace"):
            box.pause()
    return str(box.status)


def resume(sdk: Any, workspace: str, clock: Clock = time) -> str:
    """Run the sandbox again."""
    box = _there(sdk, workspace)
    return str(SailWorkspace(sdk, app_name(workspace), clock).awake(box).status)


def delete(sdk: Any, workspace: str) -> str:
    """End the sandbox for good, with everything on its disk."""
    check_workspace(workspace)
    # There may be two, where two deploys ran at the same moment.
    while (box := SailWorkspace(sdk, app_name(workspace)).find()) is not None:
        with translated(sdk, "deleting the workspace"):
            box.terminate()
    return "none"


def _there(sdk: Any, workspace: str) -> Any:
    check_workspace(workspace)
    box = SailWorkspace(sdk, app_name(workspace)).find()
    if box is None:
        raise DeployError(
            f"there is no workspace {workspace} in this Sail account; check the name and the key"
        )
    return box
