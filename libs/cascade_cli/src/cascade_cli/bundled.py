"""What ships beside the code: GPU configs, the demo trace, a recorded log, samples and the dashboard's sources."""

from pathlib import Path

# Editable installs and images keep the checkout's layout: libs/cascade_cli/src/cascade_cli/bundled.py.
ROOT = Path(__file__).resolve().parents[4]

CONFIGS = ROOT / "configs"
DEMO_TRACE = ROOT / "examples" / "demo-trace"
REPLAY_LOG = ROOT / "examples" / "replay" / "rtx3070-babelstream.log.gz"
SAMPLES = ROOT / "samples"
WEB_SOURCES = ROOT / "web"
WEB_BUILD = WEB_SOURCES / "dist"
