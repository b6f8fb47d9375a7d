"""What is left out of compiled code, and that nobody loads a compiler who does not compile."""

import subprocess
import sys

import torch
import torch._dynamo.testing
from torch import nn

from headway.batch import TokenBatch
from headway.compiling import Uncompiled, compiled
from headway.models.gpt import GPT, GPTConfig
from headway.tasks.objective import NextToken
from headway.train.optimiser import Adam, Masters
from headway.train.step import TrainStep


@Uncompiled
def twice(x):
    assert not torch.compiler.is_compiling()
    return 2 * x


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.linear, self.inner = nn.Linear(3, 3), inner

    def forward(self, x):
        return self.inner(self.linear(x).relu()).sin()


def test_a_function_left_out_cuts_the_graph_as_torch_does():
    found = []
    for inner in (twice, torch.compiler.disable(lambda x: 2 * x)):
        counter = torch._dynamo.testing.CompileCounter()
        model, x = Around(inner), torch.randn(2, 3)
        fast = compiled(model, backend=counter)
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))
        found.append((counter.frame_count, counter.op_count))
    assert found[0] == found[1] and found[0][0] == 2


def test_sizes_of_another_model_are_not_taken_for_sizes_that_change():
    symbols = []

    def backend(graph, examples):
        symbols.append(sum(isinstance(example, torch.SymInt) for example in examples))
        return graph

    for size in (2, 3):
        compiled(Around(twice), backend=backend)(torch.randn(size, 3))
    same = compiled(Around(twice), backend=backend)
    for size in (4, 5):
        same(torch.randn(size, 3))
    assert symbols == [0, 0, 0, 0, 0, 0, 1, 1], "two graphs of each model; only the last one's sizes do change"


def test_the_compiler_is_not_loaded_before_somebody_compiles():
    used = "import headway.recipes, headway.train.job, headway.generate.generator, sys"
    ask = f"{used}; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", ask], check=False).returncode == 0


def test_batches_of_many_sizes_share_what_was_compiled():
    """torch gives a function up that it had to compile more than eight times."""
    objective = NextToken().build(GPT(GPTConfig(1, 16, heads=2), 20))
    counter = torch._dynamo.testing.CompileCounter()
    step = TrainStep(compiled(objective, backend=counter), Masters(objective.named_parameters(), Adam()))
    counts = []
    for rows in range(2, 9):
        ids = torch.randint(4, 20, (rows, 5 + rows))
        step(TokenBatch(ids, ids, examples=tuple(range(rows))))
        counts.append(counter.frame_count)
    assert counts[-1] == counts[2], "after a second and a third size nothing is compiled any more"
