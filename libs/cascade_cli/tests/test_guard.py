"""Without a parent-death signal in the kernel, a watcher ends the server of a killed parent."""

import asyncio
import subprocess
import sys
from pathlib import Path

from cascade_cli.embedded.locks import is_free, wait_for_lock

PARENT = """
import asyncio, sys
from pathlib import Path
from cascade_cli.embedded.process import ServerProcess, ServerSpec

async def main():
    server = ServerProcess(
        ServerSpec(name="sleeper", argv=["/bin/sleep", "600"], directory=Path(sys.argv[1]), watch=True)
    )
    await server.start()
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_watcher_ends_the_server_of_a_killed_parent(tmp_path: Path) -> None:
    with subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        await asyncio.to_thread(parent.stdout.readline)
        lock_path = tmp_path / "sleeper.lock"
        assert not is_free(lock_path)
        parent.kill()
    lock = await asyncio.to_thread(wait_for_lock, lock_path, timeout_s=60)
    assert lock is not None
    lock.close()
