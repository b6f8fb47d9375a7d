"""How every encoder-decoder of attention is stepped, whatever its parts are.

B batch, R rows (hypotheses), S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from headway.nn import tap
from headway.nn.block import Stack
from headway.nn.embedding import Head, JoinedHead, TokenEmbedding
from headway.nn.mask import Causal, Padding, Scene
from headway.nn.state import DecoderState, fresh_caches


class EncoderDecoder(nn.Module):
    """Abstract. p(y_t | y_<t, x) = softmax(head(decoder(y_<t, encoder(x)))).

    `into_head` is what the last layer goes through on its way: nothing, a scale, a 1 for the bias.
    """

    embed_source: TokenEmbedding
    embed_target: TokenEmbedding
    encoder: Stack
    decoder: Stack
    into_head: nn.Module
    head: Head | JoinedHead

    def read(self, source_BS: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """The encoder's last layer."""
        scene = Scene(source_BS.shape[1], source_BS.shape[1], source_BS.device, key_lengths_B=lengths_B)
        view = Padding().view(scene).placed(self.embed_source.position)
        return self.encoder.walk(self.embed_source(source_BS), [(view,)] * len(self.encoder.layers))

    def encode(self, source_BS: Tensor, lengths_B: Tensor | None = None, room: int | None = None) -> DecoderState:
        """The source's memory for each decoder layer, and empty caches: fixed at `room`, growing, or, where `room`
        is 0, none (for a target that is given whole)."""
        x_BSD = self.read(source_BS, lengths_B)
        memories = [block.remember(x_BSD) for block in self.decoder.layers]  # type: ignore[operator]
        caches, clock = fresh_caches(len(memories), len(source_BS), source_BS.device, room)
        return DecoderState(caches, clock, memories, lengths_B)

    def hidden(self, ids_RT: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The decoder's last layer for the next T tokens of each row."""
        clock, steps, device = state.clock, ids_RT.shape[1], ids_RT.device
        scene = Scene(steps, clock.longest + steps, device, clock.start)
        view = Causal().view(scene).placed(self.embed_target.position)
        sources = Scene(1, state.memories[0].k_BHSK.shape[2], device, key_lengths_B=state.source_lengths_B)
        source_view = Padding().view(sources)
        x_RTD = self.embed_target(ids_RT, clock.start)
        pairs = zip(state.memories, state.caches, strict=True)
        x_RTD = self.decoder.walk(x_RTD, [(view, memory, source_view, cache) for memory, cache in pairs])
        clock.advance(steps)
        return self.into_head(x_RTD), state

    def decode(self, ids_RT: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        hidden_RTD, state = self.hidden(ids_RT, state)
        logits_RTV = self.head(hidden_RTD)
        if tap.recording():
            tap.save(self, "logits", logits_RTV, ("row", "target", "vocabulary"))
        return logits_RTV, state

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Logits of every target position at once, each from the true target before it."""
        return self.decode(target_BT, self.encode(source_BS, lengths_B))[0]
