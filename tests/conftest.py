"""One thread: these models are so small that a second one only waits, and other work may share the machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
