"""One request of the Get started page, in a process of its own: a JSON object in, a JSON object a line out.

The SDK keeps one key for a whole process, so requests with different keys must not share one. The key comes on standard
input, which no other process can read, and is gone with this process.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, assert_never

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from cascade_cli.deploy_sail import manage
from cascade_cli.deploy_sail.deploy import Deployed, Deployer
from cascade_cli.deploy_sail.options import BUCKET, PREFIX, DeployOptions, OptionError
from cascade_cli.deploy_sail.sdk import DeployError, installed_sdk

Line: TypeAlias = dict[str, Any]
Write = Callable[[Line], None]


class Request(BaseModel):
    """What the page asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    action: Literal["deploy", "status", "pause", "resume", "delete"]
    workspace: str = Field(max_length=64)
    image: str | None = Field(default=None, max_length=300)
    api_key: SecretStr = Field(min_length=1, max_length=500)


def answer(request: Request, sdk: Any, http: httpx.Client, write: Write) -> None:
    """Do what `request` asks and write lines: any number of `step`, then one `result` or one `error`."""
    try:
        match request.action:
            case "deploy":
                options = DeployOptions(workspace=request.workspace, image=request.image or None)
                deployer = Deployer(sdk, http, environ={}, say=lambda step: write({"step": step}))
                write({"result": _result(deployer.deploy(options))})
            case "status":
                write({"result": {"status": manage.status(sdk, request.workspace)}})
            case "pause":
                write({"result": {"status": manage.pause(sdk, request.workspace)}})
            case "resume":
                write({"result": {"status": manage.resume(sdk, request.workspace)}})
            case "delete":
                write({"result": {"status": manage.delete(sdk, request.workspace)}})
            case _:
                assert_never(request.action)
    except (DeployError, OptionError) as error:
        write({"error": str(error)})


def _result(deployed: Deployed) -> Line:
    return {
        "sailbox": deployed.sailbox_id,
        "app": deployed.app_url,
        "open": deployed.open_url,
        "token": deployed.token,
        "s3_endpoint": deployed.s3_url,
        "upload": [
            f"uv run python scripts/upload_trace.py ./my-run --run-name my-run --endpoint {deployed.s3_url}",
            f"rclone copy ./my-run ':s3,provider=Other,endpoint=\"{deployed.s3_url}\":{BUCKET}/{PREFIX}/my-run'",
        ],
    }


def main() -> int:
    """Answer the request on standard input."""

    def write(line: Line) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        request = Request.model_validate_json(sys.stdin.read())
    except ValidationError as error:
        write({"error": f"the request is not understood: {error.error_count()} field(s) are wrong"})
        return 1
    os.environ["SAIL_API_KEY"] = request.api_key.get_secret_value()
    try:
        sdk = installed_sdk()
    except DeployError as error:
        write({"error": str(error)})
        return 1
    with httpx.Client() as http:
        answer(request, sdk, http, write)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
