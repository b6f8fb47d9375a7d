"""The parts that every model here is built of: each is one equation of a paper, and initialises itself.

    from headway import nn
    attention = nn.SelfAttention(64, heads=4)
    y_BTD = attention(torch.randn(2, 10, 64))  # or attention(x_BTD, nn.Causal().view(scene))

A call takes rows (B), places (T) and features (D); names of tensors carry their axes. What is a choice between parts in
a model is a slot: a score in attention, norms in a residual connection, positions in a view.
"""

from headway.nn import tap
from headway.nn.attention import (
    Additive,
    CrossAttention,
    Multiplicative,
    SelfAttention,
    attend,
    dot,
    fused_attend,
    scaled_dot,
)  # fmt: skip
from headway.nn.bag import RunningMean
from headway.nn.block import Block, BlockStack, ParallelBlock, Stack
from headway.nn.cache import FixedCache, GrowingCache, NoCache
from headway.nn.disentangled import DisentangledAttention, DistanceVectors
from headway.nn.dropout import Dropout, LockedDropout, WordDropout
from headway.nn.embedding import Head, JoinedHead, TokenEmbedding, TypedEmbedding, token_table
from headway.nn.experts import Experts, SharedExperts
from headway.nn.feed_forward import MLP, GatedMLP, MapLayer, TanhLayer, gelu
from headway.nn.key_bias import KeyBias
from headway.nn.loss import linear_cross_entropy
from headway.nn.mask import Causal, Everything, Global, Mask, Padding, Random, Related, Scene, Segments, Window
from headway.nn.norm import BatchNorm, OneRMSNorm
from headway.nn.patches import ConvolutionalEmbedding, OverlappingEmbedding, PatchEmbedding, patches
from headway.nn.pooling import AttentionPooling, FirstToken, pool
from headway.nn.position import (
    FeatureBias,
    Learned,
    LinearBias,
    PartialRotary,
    Position,
    RelationBias,
    RelativeBias,
    Rotary,
    Sinusoidal,
    SinusoidalGrid,
    sinusoid,
)  # fmt: skip
from headway.nn.query_key_norm import HeadsLayerNorm, NormedSelfAttention, PerHead
from headway.nn.recurrent import GRUCell, LSTMCell, RecurrentLayer, RecurrentStack, RNNCell
from headway.nn.residual import Bare, LayerScale, Residual, StochasticDepth, post_norm, pre_norm
from headway.nn.slots import Memory
from headway.nn.state import State
from headway.nn.state_space import SelectiveStates, StateSpaceBlock
from headway.nn.view import SEE_ALL, View  # fmt: skip

__all__ = [
    "MLP", "SEE_ALL", "Additive", "AttentionPooling", "Bare", "BatchNorm", "Block", "BlockStack", "Causal",
    "ConvolutionalEmbedding", "CrossAttention", "DisentangledAttention", "DistanceVectors", "Dropout", "Everything",
    "Experts", "FeatureBias", "FirstToken", "FixedCache", "GRUCell", "GatedMLP", "Global", "GrowingCache", "Head",
    "HeadsLayerNorm", "JoinedHead", "KeyBias", "LSTMCell", "LayerScale", "Learned", "LinearBias", "LockedDropout",
    "MapLayer", "Mask", "Memory", "Multiplicative", "NoCache", "NormedSelfAttention", "OneRMSNorm",
    "OverlappingEmbedding", "Padding", "ParallelBlock", "PartialRotary", "PatchEmbedding", "PerHead", "Position",
    "RNNCell", "Random", "RecurrentLayer", "RecurrentStack", "Related", "RelationBias", "RelativeBias", "Residual",
    "Rotary", "RunningMean", "Scene", "Segments", "SelectiveStates", "SelfAttention", "SharedExperts", "Sinusoidal",
    "SinusoidalGrid", "Stack", "State", "StateSpaceBlock", "StochasticDepth", "TanhLayer", "TokenEmbedding",
    "TypedEmbedding", "View", "Window", "WordDropout", "attend", "dot", "fused_attend", "gelu", "linear_cross_entropy",
    "patches", "pool", "post_norm", "pre_norm", "scaled_dot", "sinusoid", "tap", "token_table",
]  # fmt: skip
