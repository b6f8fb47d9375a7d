"""Systems: one file a family. `FAMILIES` is the one place where a family's name becomes a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union

import torch
from torch import Tensor

from headway.batch import TextInputs
from headway.models import (
    ast,
    bert,
    captioner,
    conv_seq2seq,
    deberta,
    decision,
    decoder,
    detr,
    gpt,
    graph,
    llama,
    mamba,
    memory,
    mixture,
    modernbert,
    neural_ngram,
    ngram,
    policy_rnn,
    policy_transformer,
    reactive,
    recurrent,
    rnn_seq2seq,
    robot,
    rung,
    t5,
    text_bag,
    text_cnn,
    text_rnn,
    tfidf,
    transformer,
    vit,
    whisper,
)
from headway.models.bounds import refuse_giants
from headway.models.configs import letters
from headway.models.heads import Headed
from headway.models.skip_gram import SkipGram, SkipGramConfig, blank_pairs


def blank_ids(config: Any, sizes: Sequence[int], batch: int, *lengths: int) -> tuple[Tensor, ...]:
    """Rows of ids for each length."""
    return tuple(torch.zeros(batch, length, dtype=torch.long) for length in lengths)


def blank_texts(config: Any, sizes: Sequence[int], batch: int, length: int) -> tuple[TextInputs]:
    """Texts that an encoder reads whole."""
    (ids_BT,) = blank_ids(config, sizes, batch, length)
    return (TextInputs(ids_BT, letters_BTC=blank_letters(config, ids_BT)),)


def blank_letters(config: Any, ids_BT: Tensor) -> Tensor | None:
    """Letters for tokens of a model that reads them."""
    most = letters(config)
    return torch.ones(*ids_BT.shape, most, dtype=torch.uint8, device=ids_BT.device) if most else None


class Family(NamedTuple):
    """A model is built of its config and the sizes of the processors that it `takes`.

    task: that of a checkpoint whose card names none; with a head, the head's task. sizes: configs by name.
    role: how it is called: `steps` (language models and sequence-to-sequence models), `encodes`, `scores` (counted
    models), `vectors`. learns: how its weights are found: by `gradients`, by `counting`, by `fitting` (all of the data
    at once), or by `rows` of its tables. bag: whether it reads a text as a bag of its words or n-grams.
    example: the inputs of a forward pass, for a config, the sizes, a batch size and a length for each vocabulary.
    sized: a phrase for those sizes, and the setting of a run that they are from.
    """

    config: Any
    model: Any
    task: str = "language"
    takes: tuple[str, ...] = ("text",)
    sizes: dict[str, Any] = {}
    role: str = "steps"
    learns: str = "gradients"
    example: Callable[..., tuple[Any, ...]] = blank_ids
    sized: tuple[str, str] = ("a vocabulary of {}", "data.text.size")
    bag: bool = False

    @property
    def has_source(self) -> bool:
        return "source" in self.takes

    @property
    def steps(self) -> bool:
        """Whether it reads token after token and passes a state on."""
        return self.role == "steps"


PAIR, STEPS = ("source", "target"), ("observations", "actions")
COMMANDED = (*STEPS, "text")
FAMILIES = {
    "transformer": Family(
        transformer.TransformerConfig, transformer.Transformer, "translation", PAIR, transformer.SIZES
    ),
    "bert": Family(bert.BertConfig, bert.Bert, "embedding", sizes=bert.SIZES, role="encodes", example=blank_texts),
    "captioner": Family(
        captioner.CaptionerConfig, captioner.Captioner, "captioning", ("image", "text"), captioner.SIZES,
        example=captioner.blank, sized=captioner.SIZED,
    ),
    "conv-seq2seq": Family(
        conv_seq2seq.ConvSeq2SeqConfig, conv_seq2seq.ConvSeq2Seq, "translation", PAIR, conv_seq2seq.SIZES
    ),
    "deberta": Family(
        deberta.DebertaConfig, deberta.Deberta, "embedding", sizes=deberta.SIZES, role="encodes", example=blank_texts
    ),
    "decision-transformer": Family(
        decision.DecisionTransformerConfig, decision.DecisionTransformer, "acting", STEPS, role="encodes",
        example=decision.blank_steps, sized=decision.SIZED,
    ),
    "detr": Family(
        detr.DetrConfig, detr.Detr, "detection", ("image",), detr.SIZES, "encodes", example=vit.blank, sized=vit.SIZED
    ),
    "gpt": Family(gpt.GPTConfig, gpt.GPT, sizes=gpt.SIZES),
    "graph-transformer": Family(
        graph.GraphTransformerConfig, graph.GraphTransformer, "graph-labelling", ("nodes", "edges"), role="encodes",
        example=graph.blank, sized=graph.SIZED,
    ),
    "llama": Family(llama.LlamaConfig, llama.Llama),
    "modernbert": Family(
        modernbert.ModernBertConfig, modernbert.ModernBert, "embedding", sizes=modernbert.SIZES, role="encodes",
        example=blank_texts,
    ),
    "decoder": Family(decoder.DecoderConfig, decoder.Decoder),
    "mamba": Family(mamba.MambaConfig, mamba.Mamba),
    "memory": Family(
        memory.MemoryConfig, memory.MemoryNetwork, "story-answering", ("story",), memory.SIZES, "encodes",
        example=memory.blank,
    ),
    "mixture": Family(
        mixture.MixtureConfig, mixture.Mixture, "mixing", (*STEPS, "image", "text"), example=mixture.blank,
        sized=mixture.SIZED,
    ),
    "message-passing": Family(
        graph.MessagePassingConfig, graph.MessagePassing, "graph-labelling", ("nodes", "edges"), role="encodes",
        example=graph.blank, sized=graph.SIZED,
    ),
    "neural-ngram": Family(neural_ngram.NeuralNGramConfig, neural_ngram.NeuralNGram),
    "ngram": Family(ngram.NGramConfig, ngram.NGram, role="scores", learns="counting"),
    "policy-rnn": Family(
        policy_rnn.PolicyRnnConfig, policy_rnn.PolicyRnn, "acting", STEPS, role="encodes",
        example=decision.blank_steps, sized=decision.SIZED,
    ),
    "policy-transformer": Family(
        policy_transformer.PolicyTransformerConfig, policy_transformer.PolicyTransformer, "acting", STEPS,
        role="encodes", example=decision.blank_steps, sized=decision.SIZED,
    ),
    "robot-transformer": Family(
        robot.RobotTransformerConfig, robot.RobotTransformer, "following", COMMANDED, role="encodes",
        example=robot.blank, sized=("commands of {} words", "data.text.size"),
    ),
    "reactive": Family(
        reactive.ReactiveConfig, reactive.Reactive, "acting", STEPS, role="encodes", example=decision.blank_steps,
        sized=decision.SIZED,
    ),
    "recurrent": Family(recurrent.RecurrentConfig, recurrent.Recurrent, sizes=recurrent.SIZES),
    "rnn-seq2seq": Family(
        rnn_seq2seq.RnnSeq2SeqConfig, rnn_seq2seq.RnnSeq2Seq, "translation", PAIR, rnn_seq2seq.SIZES
    ),
    "rung": Family(rung.RungConfig, rung.Rung),
    "t5": Family(t5.T5Config, t5.T5, "translation", PAIR),
    "t5-encoder": Family(t5.T5EncoderConfig, t5.T5Encoder, "embedding", role="encodes", example=blank_texts),
    "text-bag": Family(
        text_bag.TextBagConfig, text_bag.TextBag, "embedding", role="encodes", example=blank_texts, bag=True
    ),
    "text-cnn": Family(text_cnn.TextCnnConfig, text_cnn.TextCnn, "embedding", role="encodes", example=blank_texts),
    "text-rnn": Family(text_rnn.TextRnnConfig, text_rnn.TextRnn, "embedding", role="encodes", example=blank_texts),
    "tfidf": Family(
        tfidf.TfIdfConfig, tfidf.TfIdf, "embedding", role="encodes", learns="fitting", example=blank_texts, bag=True
    ),
    "skip-gram": Family(SkipGramConfig, SkipGram, "word-vectors", role="vectors", learns="rows", example=blank_pairs),
    "ast": Family(
        ast.ASTConfig, vit.ViT, "sound-classification", ("sound",), ast.SIZES, "encodes", example=vit.blank,
        sized=ast.SIZED,
    ),
    "vit": Family(
        vit.ViTConfig, vit.ViT, "image-classification", ("image",), vit.SIZES, "encodes", example=vit.blank,
        sized=vit.SIZED,
    ),
    "whisper": Family(
        whisper.WhisperConfig, whisper.Whisper, "transcription", ("sound", "text"), whisper.SIZES,
        example=whisper.blank, sized=whisper.SIZED,
    ),
}  # fmt: skip

ModelConfig: Any = Union[tuple(family.config for family in FAMILIES.values())]  # noqa: UP007


def build(family: str, config: Any, sizes: Sequence[int], head: Any = None) -> Any:
    """A model, its weights drawn anew; with a head, an encoder below it."""
    refuse_giants(config, tuple(sizes))
    model = FAMILIES[family].model(config, *sizes)
    return model if head is None else Headed(model, head)
