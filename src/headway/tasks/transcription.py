"""Transcription: what is said in recordings."""

from __future__ import annotations

from headway.generate.transcriber import Transcriber
from headway.tasks.task import Task


class Transcription(Task):
    name = "transcription"
    roles = ("steps",)
    takes = ("sound", "text")
    verb = "predict"
    opens = Transcriber
