"""Which column each row takes, no column twice, so that the sum of costs is least: many such problems at a time, on the
device, in operations whose number depends on the shapes alone, so that a training step with them can be captured.

R problems, M rows, Q columns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.compiling import Uncompiled

FAR = 1e9  # what stands for infinite and undefined costs, and for the columns that are missing


@Uncompiled
@torch.no_grad()
def assigned(cost_RMQ: Tensor, there_RM: Tensor) -> Tensor:
    """(R, M): the column of each row; Q for rows that are not there, and for those that no column is left for.

    Rows come one after the other, and each is let in by the shortest path from it to a free column, over columns that
    change their rows on the way (Jonker and Volgenant 1987). Of the dual variables only the columns' are kept: a pair's
    own reduced cost is 0, which gives the row's."""
    given = there_RM.shape[1]
    if not (cost_RMQ.is_cuda and torch.cuda.is_current_stream_capturing()):
        # Rows that no problem has take as long as others: where a number may be asked of the device, they are left out.
        used = int(torch.arange(1, given + 1, device=there_RM.device).mul(there_RM.any(0)).amax()) if given else 0
        cost_RMQ, there_RM = cost_RMQ[:, :used], there_RM[:, :used]
    problems, rows, columns = cost_RMQ.shape
    cost_RMQ = cost_RMQ.double().nan_to_num(FAR, FAR, -FAR).clamp(-FAR, FAR)
    cost_RMQ = F.pad(cost_RMQ, (0, max(rows - columns, 0)), value=2 * FAR)
    price_RQ = cost_RMQ.new_zeros(problems, cost_RMQ.shape[2])
    row_RQ = torch.full_like(price_RQ, -1, dtype=torch.long)  # of each column
    for row in range(rows):
        far_RQ = cost_RMQ[:, row] - price_RQ  # the shortest path that is known to each column
        before_RQ = torch.full_like(row_RQ, -1)  # the column before it on that path
        done_RQ = torch.zeros_like(far_RQ, dtype=torch.bool)
        for _ in range(row):
            far_R1, at_R1 = _nearest(far_RQ, done_RQ)
            there_R1 = row_RQ.gather(1, at_R1)
            taken_R1 = there_R1 >= 0
            cost_RQ = cost_RMQ.gather(1, there_R1.clamp(min=0)[..., None].expand(-1, -1, cost_RMQ.shape[2]))[:, 0]
            reduced_RQ = cost_RQ - price_RQ
            via_RQ = far_R1 + reduced_RQ - reduced_RQ.gather(1, at_R1)
            done_RQ = done_RQ.scatter(1, at_R1, taken_R1)
            better_RQ = taken_R1 & ~done_RQ & (via_RQ < far_RQ)
            far_RQ, before_RQ = far_RQ.where(~better_RQ, via_RQ), before_RQ.where(~better_RQ, at_R1)
        end_R1, at_R1 = _nearest(far_RQ, done_RQ)
        wanted_R1 = there_RM[:, row, None]
        price_RQ = price_RQ + (far_RQ - end_R1) * (done_RQ & wanted_R1)
        for _ in range(row + 1):
            before_R1 = before_RQ.gather(1, at_R1)
            first_R1 = before_R1 < 0
            moved_R1 = row_RQ.gather(1, before_R1.clamp(min=0)).where(~first_R1, torch.full_like(at_R1, row))
            row_RQ = row_RQ.scatter(1, at_R1, moved_R1.where(wanted_R1, row_RQ.gather(1, at_R1)))
            wanted_R1, at_R1 = wanted_R1 & ~first_R1, before_R1.clamp(min=0)
    # Free columns write into a row that is cut off.
    column_RM = torch.full((problems, rows + 1), columns, device=row_RQ.device)
    numbers_RQ = torch.arange(row_RQ.shape[1], device=row_RQ.device).expand_as(row_RQ)
    column_RM = column_RM.scatter(1, row_RQ.masked_fill(row_RQ < 0, rows), numbers_RQ)[:, :rows].clamp(max=columns)
    return F.pad(column_RM, (0, given - rows), value=columns)


def _nearest(far_RQ: Tensor, done_RQ: Tensor) -> tuple[Tensor, Tensor]:
    """The distance of the nearest column that is not done, and which it is, both (R, 1)."""
    found = far_RQ.masked_fill(done_RQ, float("inf")).min(1, keepdim=True)
    return found.values, found.indices
