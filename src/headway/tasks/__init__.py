"""Tasks: one file each. `TASKS` is the one place where the name of a task becomes its class."""

from __future__ import annotations

from typing import Any, Union

from headway.tasks.acting import Acting
from headway.tasks.answers import Choosing, NextSentences, ReplacedTokens
from headway.tasks.captioning import Captioning
from headway.tasks.classification import Classification
from headway.tasks.conversing import Conversing
from headway.tasks.detection import Detection
from headway.tasks.encoding import Embedding
from headway.tasks.following import Following
from headway.tasks.graphs import GraphLabelling
from headway.tasks.instances import InstanceSegmentation
from headway.tasks.language import Language
from headway.tasks.masked import MaskedWords
from headway.tasks.mixing import Mixing
from headway.tasks.pictures import ImageClassification
from headway.tasks.preferring import Preferring
from headway.tasks.questions import QuestionAnswering
from headway.tasks.ranking import Ranking
from headway.tasks.reinforcement import Reinforcement
from headway.tasks.segmentation import Segmentation
from headway.tasks.sounds import SoundClassification
from headway.tasks.stories import StoryAnswering
from headway.tasks.summarising import Summarising
from headway.tasks.tagging import Tagging
from headway.tasks.task import Task
from headway.tasks.transcription import Transcription
from headway.tasks.transduction import Transduction
from headway.tasks.translation import Translation
from headway.tasks.word_vectors import WordVectors

EVERY = (
    Translation, Language, Classification, WordVectors, Embedding, MaskedWords, Tagging, ImageClassification,
    SoundClassification, Segmentation, Detection, InstanceSegmentation, Captioning,
    QuestionAnswering, NextSentences, Choosing, ReplacedTokens, StoryAnswering, Transduction,
    Transcription, Acting, Following, Reinforcement, GraphLabelling, Mixing, Conversing, Preferring,
    Ranking, Summarising,
)  # fmt: skip
TASKS: dict[str, type[Task]] = {task.name: task for task in EVERY}

BY_DATA: dict[str, type[Task]] = {task.data.name: task for task in EVERY if task.data}
Data: Any = Union[tuple(task.data for task in BY_DATA.values())]  # noqa: UP007
Objective: Any = Union[tuple(dict.fromkeys(kind for task in EVERY for kind in task.objectives))]  # noqa: UP007
