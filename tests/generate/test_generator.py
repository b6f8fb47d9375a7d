"""The generator's face: text that comes in pieces, stop strings, choices, and what it refuses."""

import pytest
import torch
import transformers

from headway.errors import InputError
from headway.generate.generator import Generator
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Bias, Sampling
from headway.generate.search import Search
from headway.generate.spelling import HALF, Spelling, continuation
from headway.models.gpt import GPT, GPTConfig
from headway.text.tokenizer import END, PAD, START, TextOptions, Tokenizer

LINES = ["The cat sat on the mat, yes, yes.", "Grüße: 5 € für Müsli, no?", "  two\n\nlines 猫 😀 "] * 4
CONTEXT = 48


def tokenizer_of(size=300, kind="bpe"):
    return Tokenizer.train(LINES, TextOptions(kind, size))


def generator_of(seed=0, size=300, kind="bpe", **how):
    tokenizer = tokenizer_of(size, kind)
    torch.manual_seed(seed)
    config = GPTConfig(2, 16, heads=2, max_length=CONTEXT, tied=False)
    model = GPT(config, len(tokenizer)).double().eval()
    with torch.no_grad():
        model.output.weight.mul_(20.0)
    return Generator(model, tokenizer, context=CONTEXT, device=torch.device("cpu"), **how)


@pytest.fixture(scope="module")
def generator():
    return generator_of()


def feed(tokenizer, before, ids, stops=()):
    spelling = Spelling(tokenizer, before, stops)
    return [*map(spelling.add, ids), spelling.end()]


@pytest.mark.parametrize("size", [260, 300, 400])
@pytest.mark.parametrize("text", [*LINES, "a€ü😀b", "  ", "猫猫"])
def test_pieces_join_to_the_text_and_hold_whole_characters(size, text):
    tokenizer = tokenizer_of(size)
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    for cut in range(len(ids)):
        before = tokenizer.decode(ids[:cut])
        if HALF not in before:
            pieces = feed(tokenizer, [END, *ids[:cut]], ids[cut:])
            assert before + "".join(pieces) == whole and not any(HALF in piece for piece in pieces)


def test_bytes_that_are_no_character_show_once_the_next_one_is_there():
    tokenizer = tokenizer_of(260)
    euro, b = tokenizer.encode("€")[-3:], tokenizer.encode("b")[-1]
    assert feed(tokenizer, [b], [b, *euro[:2], b, *euro[:1]]) == ["b", "", "", HALF + "b", "", ""]
    assert feed(tokenizer, [b], [PAD, b, START, *euro]) == ["", "b", "", "", "", "€", ""]


def test_words_keep_the_spaces_between_them():
    tokenizer = tokenizer_of(kind="word", size=50)
    ids = tokenizer.encode("The cat sat on the mat, yes, zebra")
    assert "".join(feed(tokenizer, ids[:2], ids[2:])) == " sat on the mat, yes, <unk>"
    assert "".join(feed(tokenizer, [END], ids[:2])) == "The cat"


def test_text_that_may_become_a_stop_string_is_held_back():
    tokenizer = tokenizer_of(260)
    ids = continuation(tokenizer, "one ab two abc three")
    pieces = feed(tokenizer, [END], ids, ["abc", "zzz"])
    assert "".join(pieces) == "one ab two "
    assert pieces[:8] == ["o", "n", "e", " ", "", "", "ab ", "t"]
    assert "".join(feed(tokenizer, [END], ids, ["threet"])) == "one ab two abc three"  # it never came
    assert "".join(feed(tokenizer, [END], ids, ["two", " ab"])) == "one"  # the first in the text, not in the list


@pytest.mark.parametrize("text", ["yes", " yes", "", " ", "\n\nyes", "5 €", ", no?", "'s", "猫"])
@pytest.mark.parametrize("prompt", ["", "The cat", "Is it? ", "a\n"])
def test_a_continuation_spells_its_text_letter_by_letter(prompt, text):
    tokenizer = tokenizer_of(400)
    before = tokenizer.encode(prompt)
    found = tokenizer.decode([*before, *continuation(tokenizer, text)])
    assert found == (prompt + text if prompt else text.removeprefix(" "))


@pytest.mark.parametrize("prompt", ["The cat sat", "Grüße", "", "  two\n"])
@pytest.mark.parametrize("settings", [{"temperature": 0}, {"seed": 3}, {"top_k": 20, "seed": 4}])
def test_a_streams_pieces_join_to_the_whole(generator, prompt, settings):
    settings = {"max_new": 30} | settings
    pieces = list(generator.stream(prompt, **settings))
    assert ["".join(pieces)] == generator.generate([prompt], **settings)
    [[passage]] = generator.generate_n([prompt], **settings)
    ids = generator.tokenizer.encode(prompt)
    whole = generator.tokenizer.decode([*ids, *passage.written.ids])
    assert generator.tokenizer.decode(ids) + passage.text == whole.rstrip(HALF)
    assert len(passage.tokens) == len(passage.written.ids)


@pytest.mark.parametrize("seed", range(6))
def test_a_text_ends_before_a_stop_string(generator, seed):
    settings = {"max_new": 30, "seed": seed, "top_p": 0.95}
    [[free]] = generator.generate_n(["The cat"], **settings)
    middle = len(free.text) // 2
    for size in (1, 2, 4):
        stop = free.text[middle : middle + size]
        [[cut], [other]] = generator.generate_n(["The cat", "The mat"], stop=["no such text", stop], **settings)
        assert cut.text == free.text[: free.text.index(stop)] and cut.ended == "stop"
        assert len(cut.written.ids) < len(free.written.ids) and stop not in other.text
        assert cut.written.ids == free.written.ids[: len(cut.written.ids)]
        assert "".join(generator.stream("The cat", stop=[stop], **settings)) == cut.text


def test_one_of_the_choices_is_written(generator):
    choices = [" yes", " yes, yes", ", no?", "猫"]
    [found] = generator.generate_n(["The cat"], choices=choices, samples=200, temperature=5.0)
    assert {passage.text for passage in found} == set(choices) and {passage.ended for passage in found} == {"stop"}
    [text] = generator.generate(["The cat"], choices=choices, temperature=0)
    assert text in choices


def test_a_prompt_gives_the_same_alone_and_in_any_list(generator):
    prompts = ["The cat", "", "Müsli, no?", "The cat", "two lines and some more"]
    together = generator.generate(prompts, seed=7, max_new=20, batch=2)
    assert together == [generator.generate([prompt], seed=7, max_new=20)[0] for prompt in prompts]
    assert together[0] == together[3]
    assert generator.generate(["The cat"], seed=8, max_new=20) != together[:1]


def test_best_of_is_the_likeliest_sample(generator):
    settings = {"seed": 1, "max_new": 12}
    [samples] = generator.generate_n(["The cat"], samples=5, **settings)
    likeliest = max(samples, key=lambda passage: passage.written.mean)
    assert generator.generate(["The cat"], best_of=5, **settings) == [likeliest.text]
    assert len({passage.text for passage in samples}) == 5


def test_an_empty_prompt_starts_from_the_end_of_another_text_or_from_the_opening(generator):
    assert generator.ids("") == [END]
    opened = generator_of(opening=[START])
    assert opened.ids("") == [START]
    assert opened.ids("The") == [START, *generator.ids("The")]
    assert opened.generate([""], seed=1) != generator.generate([""], seed=1)


def test_a_generators_own_settings_are_changed_by_a_calls(generator):
    mine = generator_of(sampling=Sampling(0, bias=(Bias((9,), 2.0),)))
    assert mine.settings({"top_k": 3}, mine.sampling)[1] == Sampling(0, top_k=3, bias=(Bias((9,), 2.0),))
    assert mine.settings({"bias": [Bias((4,), 1.0)]}, mine.sampling)[1].bias == (Bias((4,), 1.0),)
    assert mine.generate(["The"], temperature=1.0, bias=(), seed=2) == generator.generate(["The"], seed=2)


def test_longer_than_the_context_only_where_a_window_is_asked_for(generator):
    long = "The cat sat on the mat, " * 20
    count = len(generator.tokenizer.encode(long))
    line = f"has {count} tokens, this model reads at most {CONTEXT}"
    with pytest.raises(InputError, match=f"prompt 2 {line}"):
        generator.generate(["The cat", long])
    with pytest.raises(InputError, match=f"the prompt {line}"):
        generator.stream(long)  # at once, not at the first piece
    settings = {"window": True, "max_new": 9, "stop": ["zz"]}
    assert generator.generate(["The cat", long], **settings)[1] == "".join(generator.stream(long, **settings))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"temprature": 1.0}, "unknown setting 'temprature'; did you mean 'temperature'"),
        ({"max_neww": 1}, "unknown setting 'max_neww'; did you mean 'max_new'"),
        ({"temperature": -1}, "temperature must be 0"),
        ({"max_new": 1.5}, "max_new must be a whole number, not 1.5"),
        ({"stop": "abc"}, "stop must be a list, not 'abc'"),
        ({"stop": [""]}, "a stop string must not be empty"),
        ({"samples": 3}, "write best_of, or use generate_n"),
        ({"best_of": 0}, "samples must be 1 or more, not 0"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(generator, settings, line):
    with pytest.raises(InputError, match=line):
        generator.generate(["The cat"], **settings)


def test_many_samples_of_a_stream_are_refused(generator):
    with pytest.raises(InputError, match="a stream is one sampled text: leave out samples"):
        generator.stream("The cat", samples=2)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("prompt", ["The cat", "A dog ran"])
def test_a_beam_finds_what_transformers_finds(generator, penalty, prompt):
    """A GPT-2 with the same weights: four hypotheses of each prompt, until as many have ended or there is no more room.
    The token that ends a text is one that the model likes to write."""
    ids, theirs = generator.ids(prompt), gpt2_of(generator.model)
    liked = generator.generate_n([prompt], temperature=0, max_new=3)[0][0].written.ids
    for end in (*liked[1:], generator.tokenizer.end):
        found = theirs.generate(
            torch.tensor([ids]), num_beams=4, num_return_sequences=4, max_new_tokens=8, do_sample=False,
            length_penalty=penalty, early_stopping=True, eos_token_id=end, pad_token_id=PAD, output_scores=True,
            return_dict_in_generate=True,
        )  # fmt: skip
        search = Search(beam=4, best=4, length_penalty=penalty)
        asked = Request(ids, search, max_new=8, stops=frozenset({end}), cut=True)
        (mine,) = generate_all(generator.model, [asked], context=CONTEXT, device=torch.device("cpu"))
        wanted = [[i for i in row[len(ids) :] if i not in (end, PAD)] for row in found.sequences.tolist()]
        assert [hypothesis.ids for hypothesis in mine.hypotheses] == wanted
        assert [hypothesis.score for hypothesis in mine.hypotheses] == pytest.approx(
            found.sequences_scores.tolist(), abs=1e-5
        )


def gpt2_of(model):
    """Hugging Face's GPT-2 with the weights of ours."""
    config = model.config
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=model.vocabulary, n_positions=config.max_length, n_embd=config.width, n_layer=config.layers,
            n_head=config.heads, activation_function="gelu", tie_word_embeddings=False,
        )
    )  # fmt: skip
    core, blocks = theirs.transformer, model.decoder.layers
    pairs = [(core.wte, model.embed.table), (core.wpe, model.embed.position.table), (core.ln_f, model.decoder.final)]
    for other, block in zip(core.h, blocks, strict=True):
        feed = block.feed_forward
        pairs += [
            (other.ln_1, block.around_attention.before), (other.ln_2, block.around_feed_forward.before),
            (other.attn.c_attn, block.attention.qkv), (other.attn.c_proj, block.attention.output),
            (other.mlp.c_fc, feed.expand), (other.mlp.c_proj, feed.contract),
        ]  # fmt: skip
    theirs = theirs.double().eval()
    with torch.no_grad():
        for to, of in [*pairs, (theirs.lm_head, model.output)]:
            weight = of.weight.T if isinstance(to, transformers.pytorch_utils.Conv1D) else of.weight[: len(to.weight)]
            to.weight.copy_(weight)
            if getattr(to, "bias", None) is not None:
                to.bias.copy_(of.bias)
    return theirs


def test_a_beam_searches_for_the_likeliest_text(generator):
    prompts = ["The cat", "A dog ran"]
    found = generator.generate_n(prompts, beam=4, best=3, length_penalty=0.0, max_new=6)
    for passages in found:
        scores = [passage.score for passage in passages]
        assert len(passages) == 3 and scores == sorted(scores, reverse=True)
        for passage in passages:
            assert sum(passage.written.logps) == pytest.approx(passage.score, abs=1e-4)
            assert passage.ended == "length" and len(passage.written.logps) == len(passage.written.ids) == 6
    assert generator.generate(prompts, beam=4, best=3, length_penalty=0.0, max_new=6) == [p[0].text for p in found]
    with pytest.raises(InputError, match="unknown setting 'temperature'"):
        generator.generate(prompts, beam=4, temperature=0.5)
    with pytest.raises(InputError, match="leave out beam"):
        generator.generate(prompts, beam=4, choices=[" yes"])
