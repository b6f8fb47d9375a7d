"""The readable twins of the chunked losses and of their kernels.

N tokens, V vocabulary.
"""

from torch import Tensor


def smoothed_cross_entropy(logits_NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int) -> tuple[Tensor, Tensor]:
    """Σ −(1−ε) log p(y) − ε/V Σ_v log p(v) (Szegedy et al. 2016), and Σ −log p(y)."""
    logp_NV = logits_NV.log_softmax(-1)
    # What is ignored may be no id at all.
    nll_N = -logp_NV.gather(1, labels_N[:, None].clamp(min=0))[:, 0]
    loss_N = (1 - smoothing) * nll_N - smoothing * logp_NV.mean(-1)
    kept = labels_N != ignore
    return loss_N[kept].sum(), nll_N[kept].sum()


def readable_paired_cross_entropy(
    logits_2NV: Tensor, labels_N: Tensor, smoothing: float, ignore: int, weight: float
) -> tuple[Tensor, Tensor]:
    """Mean of two passes' smoothed cross-entropies plus weight · ½(KL(p‖q) + KL(q‖p))."""
    first, second = logits_2NV.chunk(2)
    (loss_a, nll_a), (loss_b, nll_b) = (smoothed_cross_entropy(x, labels_N, smoothing, ignore) for x in (first, second))
    logp_NV, logq_NV = first.log_softmax(-1), second.log_softmax(-1)
    distance_N = ((logp_NV.exp() - logq_NV.exp()) * (logp_NV - logq_NV)).sum(-1) / 2
    distance = distance_N[labels_N != ignore].sum()
    return (loss_a + loss_b) / 2 + weight * distance, (nll_a + nll_b) / 2
