"""For tests of deploy/: compose.yaml as Docker reads it, and its stack without containers. Needs PyYAML."""
