"""Captured steps where no GPU is: run again instead of replayed."""

from headway.generate.stepper import GraphStepper


class Replay:
    def __init__(self, step):
        self.replay = step


class Uncaptured(GraphStepper):
    """All of it but the capture: the room's addresses must stay, and a step must leave everything at home."""

    def _graph(self, step, restore):
        step()  # as the one that warms libraries up
        restore()
        return Replay(step)
