"""What a model's heads and layers do, as small tables and pictures: one file an analysis, all of them in `ANALYSES`."""

from headway.explore.analyses.alignment import ALIGNMENT
from headway.explore.analyses.analysis import Analysis
from headway.explore.analyses.antecedents import ANTECEDENTS
from headway.explore.analyses.contexts import CONTEXTS
from headway.explore.analyses.heads import HEADS
from headway.explore.analyses.importance import IMPORTANCE
from headway.explore.analyses.induction import INDUCTION
from headway.explore.analyses.lens import LENS
from headway.explore.analyses.pronouns import PRONOUNS
from headway.explore.analyses.relations import RELATIONS
from headway.explore.analyses.rollout import REACH, ROLLOUT
from headway.explore.analyses.smoothing import SMOOTHING

ALL = (
    HEADS, ROLLOUT, REACH, SMOOTHING, ALIGNMENT, ANTECEDENTS, RELATIONS, PRONOUNS, IMPORTANCE, LENS, INDUCTION, CONTEXTS
)  # fmt: skip
ANALYSES: dict[str, Analysis] = {one.name: one for one in ALL}
