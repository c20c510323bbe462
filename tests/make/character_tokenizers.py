#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/characters.json.z: tokenizers of characters and byte tokens, and what the `tokenizers` library makes of texts.

    python tests/make/character_tokenizers.py

One vocabulary that is trained here; of it every kind of tokenizer.json that published models have (Llama 2, Mistral 7B, Phi-3, Gemma), and
settings at their borders: JSON values at pointers, in the place of those of "tokenizer". Of each kind: a few cases in full (ids with what frames
a text, places in bytes, the text decoded with and without special tokens), and for each GROUP of the texts of the file and of texts.json.z the
CRC-32 of the same.
"""

import json
import pathlib
import random
import struct
import zlib

from tokenizers import Tokenizer, models, normalizers, trainers
from tokenizer_texts import CHINESE, EMOJI, PROSE, SPACES, WORDS

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fixtures/tokenizers"
GROUP, MARK = 128, "\u2581"
SPECIALS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
DECODERS = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]


def added(content, id, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def sequence(key, parts):
    return {"type": "Sequence", key: parts}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def trained():
    """Tokens and merges; some characters are left out, so that they become bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    lines = [piece for line in PROSE for piece in (MARK + line).replace(" ", " " + MARK).split(" ")]
    tokenizer.normalizer = None
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=900, limit_alphabet=180, special_tokens=SPECIALS + BYTES, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    for width in (2, 4, 8):  # runs of spaces, which published vocabularies have as well
        merges.append([MARK * (width // 2)] * 2)
        tokens.append(MARK * width)
    return tokens, merges


FLAGS = [dict(content="<l>", lstrip=True), dict(content="<r>", rstrip=True), dict(content="<n>", normalized=True), dict(content="<t> x", normalized=True, special=False),
         dict(content="word", single_word=True, special=False), dict(content=MARK + "x", special=False), dict(content="\u00e9", normalized=True, special=False, lstrip=True)]


def document(tokens, merges):
    frame = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(token, id) for id, token in enumerate(SPECIALS)],
            "normalizer": sequence("normalizers", [PREPEND, REPLACE]), "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing", "single": [frame, text], "pair": [frame, text, text],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": sequence("decoders", [*DECODERS, STRIP]),
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}}


def variants(tokens, merges):
    """name, values in the place of others, tokens that are left out of the vocabulary."""
    flags = [added(token, id) for id, token in enumerate(SPECIALS)]
    for flagged in FLAGS:
        flags.append(added(**{"id": len(tokens) + len(flags) - 3, **flagged}))
    first = {"/normalizer": None, "/pre_tokenizer": metaspace("first", False)}
    gemma = {"/normalizer": REPLACE, "/pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
             "/decoder": sequence("decoders", DECODERS)}
    missing = ["<0xC3>", "<0xE4>", "<0x09>", "e", "q"]
    kinds = {"llama2": {}, "mistral3": first, "gemma": gemma}
    for name, values in kinds.items():
        yield name, values, []
        yield name + " added tokens", {**values, "/added_tokens": flags}, []
        yield name + " bytes are missing", values, missing
    for scheme in ("first", "always", "never"):
        for split in (True, False):
            part = metaspace(scheme, split)
            yield f"Metaspace {scheme} {split}", {"/normalizer": None, "/pre_tokenizer": part, "/decoder": sequence("decoders", [DECODERS[1], part]), "/added_tokens": flags}, []
    yield "unknown ones stay apart", {"/model/fuse_unk": False}, missing
    yield "no byte tokens", {"/model/byte_fallback": False}, []
    yield "no unknown token", {**first, "/model/unk_token": None}, missing
    yield "words that are tokens stay whole", {**gemma, "/model/ignore_merges": True, "/pre_tokenizer": metaspace("always", True)}, []
    yield "no mark", {"/model/merges": [m for m in merges if MARK not in "".join(m)]}, [t for t in tokens if MARK in t]
    crossing = [["e", MARK], ["e" + MARK, "t"], ["<unk>", MARK], ["<0x0A>", MARK]]
    joined = {f"/model/vocab/{''.join(m)}": len(tokens) + i for i, m in enumerate(crossing)}
    yield "merges that cross words", {**joined, "/model/merges": crossing + merges}, []
    yield "NFC and texts of several characters", {"/normalizer": sequence("normalizers", [{"type": "NFC"}, {**REPLACE, "pattern": {"String": "he"}, "content": " y"}, PREPEND])}, []


def replaced(base, values, without):
    made = json.loads(json.dumps(base))
    for pointer, value in values.items():
        *way, last = pointer.split("/")[1:]
        place = made
        for key in way:
            place = place[key]
        place[last] = value
    model = made["model"]
    for token in without:
        del model["vocab"][token]
    model["merges"] = [m for m in model["merges"] if all(t in model["vocab"] for t in (*m, "".join(m)))]
    return made


def own_texts(draw):
    parts = [*SPECIALS, *(flagged["content"] for flagged in FLAGS), "<t>", "[INST]", "[/INST]", " ", "  ", "   ", "\n", "\t", MARK, MARK * 2, "<0x41>", "<0x0A>", "a", "b", "e", "x",
             "q", "e\u0301", "the", " the", "12", *EMOJI, *SPACES, *CHINESE[:12], *WORDS]
    hand = ["", " ", "  ", "\n", MARK, " a", "a ", "  a  b  ", "\u00e9\u00e9q", "q\u00e9\u00e4\tq", "<s>[INST] Hi there [/INST] ok</s>", "<s>a<s> b<n>c <n>", "a<t> x<l> <r> \n.", "word words word",
            "\U0001F600\U0001F601", "\u0e01\u0e34\u0e19", "\u4eca\u5929 \u5929\u6c14", "e the e  t\n the", "unrelated", "heheh"]
    return hand, ["".join(draw.choice(parts) for _ in range(draw.randint(1, 12))) for _ in range(1500)]


def packed(numbers):
    return struct.pack(f"<{len(numbers) + 1}i", len(numbers), *numbers)


def byte_places(text):
    places = [0]
    for c in text:
        places.append(places[-1] + len(c.encode()))
    return places


def result(tokenizer, text, has_places):
    encoding, before = tokenizer.encode(text), byte_places(text)
    plain = tokenizer.encode(text, add_special_tokens=False)
    # Where characters are left out the library miscounts the places behind them.
    places = [before[begin] for begin, _ in plain.offsets] if has_places else []
    return encoding.ids, places, *(tokenizer.decode(plain.ids, skip_special_tokens=skip) for skip in (False, True))


def main():
    tokens, merges = trained()
    base = document(tokens, merges)
    hand, drawn = own_texts(random.Random(5))
    texts = hand + drawn + json.loads(zlib.decompress((FOLDER / "texts.json.z").read_bytes()))
    written = []
    for name, values, without in variants(tokens, merges):
        tokenizer = Tokenizer.from_str(json.dumps(replaced(base, values, without)))
        has_places = name != "no unknown token"
        sums = []
        for begin in range(0, len(texts), GROUP):
            data = b""
            for text in texts[begin : begin + GROUP]:
                ids, places, whole, skipped = result(tokenizer, text, has_places)
                data += packed(ids) + packed(places) + whole.encode() + skipped.encode()
            sums.append(zlib.crc32(data))
        written.append({"name": name, "replaced": values, "without": without, "has_places": has_places,
                        "cases": [result(tokenizer, text, has_places) for text in hand], "sums": sums})
    # Values are over the base's, so what the loop leaves out is told by "without".
    data = json.dumps({"group": GROUP, "tokenizer": base, "texts": hand + drawn, "variants": written}, ensure_ascii=False, separators=(",", ":")).encode()
    out = zlib.compress(data, 9)
    (FOLDER / "characters.json.z").write_bytes(out)
    print(f"characters.json.z: {len(out)} bytes; {len(written)} variants, {len(texts)} texts")


main()
