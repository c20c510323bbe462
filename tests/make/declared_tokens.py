#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/declared.json: folders that declare tokens in every known way, and what transformers makes of them.

    python tests/make/declared_tokens.py      needs transformers, sentencepiece and protobuf

A case has a name, which docs/tokenizers.md uses, the files beside the vocabulary, and of each text the ids and what they decode to without
special tokens. Its vocabulary is "tokenizer" or, where it says so, "characters" (with the values at some JSON pointers replaced) or, where
"model" names it, a tokenizer.model.
"""

import copy
import json
import os
import pathlib
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fixtures/tokenizers"
END, MARK, NEW, TWO = "<|im_end|>", "<|x|>", "<new>", "<two>"
TEXTS = [f"a {END} b{MARK}", f"a {NEW} b{TWO}c"]
WORDS = ["12 A12", "abc", "e\u0301"]
CHARACTER_TEXTS = [f"a b{NEW} ab<s> ab{END}x", f" ab<s>a<unk>  {NEW}a", "ab<c>", "\u00e9\n\u2581a"]


def alphabet():
    following = iter(range(0x100, 0x200))
    return [chr(b if 0x20 < b < 0x7F or (b > 0xA0 and b != 0xAD) else next(following)) for b in range(256)]


def tokenizer():
    tokens = ["<|im_start|>", END, MARK, *alphabet()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": {**byte_level, "add_prefix_space": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}}


MARK_OF_SPACE, UNKNOWN, BEGIN = "\u2581", "<unk>", "<s>"
SPACE_TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": MARK_OF_SPACE}


def characters():
    """A tokenizer.json as one that was converted from a tokenizer.model of Llama 2: characters merge, others become bytes."""
    merges = [["a", "b"], [MARK_OF_SPACE, "a"], [MARK_OF_SPACE, MARK_OF_SPACE], [MARK_OF_SPACE, "ab"]]
    tokens = [UNKNOWN, BEGIN, "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcx12<>", MARK_OF_SPACE, *map("".join, merges)]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders = [{"type": "Replace", "pattern": {"String": MARK_OF_SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(token, id) for id, token in enumerate(tokens[:3])],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK_OF_SPACE}, SPACE_TO_MARK]},
            "pre_tokenizer": None, "post_processor": framed(BEGIN, 1), "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {"type": "BPE", "dropout": None, "unk_token": UNKNOWN, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}


def added(content, id, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def object_of(content, **flags):
    token = added(content, 0, **flags)
    del token["id"]
    return {"__type": "AddedToken", **token}


def framed(token, id):
    part = {"SpecialToken": {"id": token, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [part, text], "pair": [part, text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}}}


QWEN2_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_WORDS = {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": QWEN2_REGEX}, "behavior": "Isolated", "invert": False},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}


def cases():
    """name, fields of tokenizer_config.json, other files, replaced values of the vocabulary."""
    none = {}
    yield "no declaration", none, none, none
    yield "added_tokens", none, none, {"/added_tokens": [added(END, 1), added(NEW, 259, special=False, lstrip=True), added(TWO, 260)]}
    yield "added_tokens: other ids", none, none, {"/added_tokens": [added(END, 2), added(NEW, 300), added(TWO, 299)]}
    yield "added_tokens: one token twice", none, none, {"/added_tokens": [added(NEW, 259), added(NEW, 260)]}
    yield "post_processor", none, none, {"/added_tokens": [added(END, 1)], "/post_processor": framed(END, 1)}
    yield "post_processor: a token that nothing declares", none, none, {"/post_processor": framed(END, 1)}
    yield "post_processor: not replaced by add_bos_token", {"bos_token": MARK, "add_bos_token": False, "add_eos_token": True}, none, {"/post_processor": framed(END, 1)}
    decoder = {"1": {"content": END, "special": True}, "260": {"content": NEW}, "259": {"content": TWO, "special": True, "lstrip": True}}
    yield "added_tokens_decoder", {"added_tokens_decoder": decoder}, none, none
    yield "added_tokens_decoder: other ids", {"added_tokens_decoder": {"2": {"content": END}, "1000": {"content": NEW}, "999": {"content": TWO, "special": True}}}, none, none
    for special in (True, False):
        yield f"added_tokens_decoder over added_tokens: special {special}", {"added_tokens_decoder": {"1": {"content": END, "special": special, "lstrip": True}}}, none, {"/added_tokens": [added(END, 1, special=not special)]}
    yield "added_tokens_decoder: not special, but named", {"eos_token": END, "added_tokens_decoder": {"1": {"content": END, "special": False}}}, none, none
    yield "added_tokens_decoder: not special, but listed", {"additional_special_tokens": [END], "added_tokens_decoder": {"1": {"content": END, "special": False}}}, none, none
    yield "added_tokens.json", none, {"added_tokens.json": {END: 1, TWO: 260, NEW: 259}}, none
    yield "added_tokens.json: other ids", none, {"added_tokens.json": {END: 2, NEW: 300}}, none
    yield "added_tokens.json: not beside added_tokens_decoder", {"added_tokens_decoder": {}}, {"added_tokens.json": {END: 1, NEW: 259}}, none
    yield "added_tokens.json: a named token is special", {"eos_token": NEW}, {"added_tokens.json": {END: 1, NEW: 259}}, none
    yield "added_tokens.json: a listed token is special", {"additional_special_tokens": [NEW]}, {"added_tokens.json": {END: 1, NEW: 259}}, none
    yield "added_tokens.json: a token that special_tokens_map.json lists is not", none, {"added_tokens.json": {NEW: 259}, "special_tokens_map.json": {"additional_special_tokens": [NEW]}}, none
    yield "added_tokens.json and added_tokens", none, {"added_tokens.json": {NEW: 259}}, {"/added_tokens": [added(NEW, 259)]}
    for key in ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"):
        yield f"{key}", {key: END}, none, none
    yield "eos_token: new", {"eos_token": NEW}, none, none
    yield "eos_token: an object", {"eos_token": object_of(END, lstrip=True)}, none, none
    yield "eos_token: an object that is not special", {"eos_token": object_of(END, special=False, normalized=True)}, none, none
    yield "eos_token: null and empty", {"eos_token": None, "pad_token": ""}, none, none
    yield "eos_token: added_tokens has it as not special", {"eos_token": END}, none, {"/added_tokens": [added(END, 1, special=False)]}
    yield "eos_token: added_tokens has it as not special, beside added_tokens_decoder", {"eos_token": END, "added_tokens_decoder": {}}, none, {"/added_tokens": [added(END, 1, special=False)]}
    yield "eos_token: added_tokens says how it is found", {"eos_token": END}, none, {"/added_tokens": [added(END, 1, lstrip=True)]}
    yield "one new token of two names", {"eos_token": NEW, "pad_token": NEW}, none, none
    yield "image_token", {"image_token": END, "audio_token": NEW, "tool_token": None, "add_eos_token": True}, none, none
    yield "image_token: an object", {"image_token": object_of(END)}, none, none
    yield "image_token: an object without __type is no token", {"image_token": {"content": END}, "audio_token": {**object_of(NEW), "__type": "Other"}}, none, none
    yield "additional_special_tokens", {"additional_special_tokens": [END, NEW]}, none, none
    yield "additional_special_tokens: objects", {"additional_special_tokens": [object_of(END), object_of(NEW, lstrip=True), object_of(TWO, special=False)]}, none, none
    yield "additional_special_tokens: a map", {"additional_special_tokens": {"a": END}}, none, none
    yield "additional_special_tokens: added_tokens has it as not special", {"additional_special_tokens": [END]}, none, {"/added_tokens": [added(END, 1, special=False)]}
    yield "extra_special_tokens: a list", {"extra_special_tokens": [END, NEW]}, none, none
    yield "extra_special_tokens: a map", {"extra_special_tokens": {"image_token": END, "own": NEW}}, none, none
    for name, extra in (("an empty map", {}), ("an empty list", []), ("null", None), ("a map", {"own": NEW}), ("a list", [NEW])):
        yield f"additional_special_tokens beside extra_special_tokens: {name}", {"extra_special_tokens": extra, "additional_special_tokens": [END]}, none, none
    yield "ids of new tokens: names first", {"additional_special_tokens": [NEW], "eos_token": TWO}, none, none
    yield "ids of new tokens: standard names first", {"extra_special_tokens": {"z": NEW}, "pad_token": TWO}, none, none
    yield "ids of new tokens: added_tokens_decoder first", {"eos_token": NEW, "added_tokens_decoder": {"300": {"content": TWO}}}, none, none
    yield "ids of new tokens: after a gap", {"eos_token": NEW}, none, {"/added_tokens": [added(TWO, 300)]}
    yield "ids of new tokens: objects before texts", {"a_token": NEW, "b_token": object_of(TWO)}, none, none
    yield "ids of new tokens: objects before maps", {"extra_special_tokens": {"z": NEW}, "b_token": object_of(TWO)}, none, none
    yield "ids of new tokens: a map's name keeps the place of an object's", {"a_token": object_of(MARK), "b_token": object_of(TWO), "extra_special_tokens": {"z": TWO, "a_token": NEW}}, none, none
    yield "ids of new tokens: special_tokens_map.json before texts", {"a_token": TWO}, {"special_tokens_map.json": {"b_token": NEW}}, none
    yield "ids of new tokens: special_tokens_map.json in the place of an object", {"a_token": object_of(END), "b_token": object_of(TWO)}, {"special_tokens_map.json": {"c_token": TWO, "b_token": NEW}}, none
    own = {"model_specific_special_tokens": {"own": NEW}}
    yield "model_specific_special_tokens", {"model_specific_special_tokens": {"image_token": END, "own": object_of(NEW, lstrip=True)}}, none, none
    yield "model_specific_special_tokens: null", {"model_specific_special_tokens": None}, none, none
    yield "model_specific_special_tokens: over eos_token", {**own, "eos_token": END, "model_specific_special_tokens": {"eos_token": NEW}}, none, none
    yield "model_specific_special_tokens: a token that is not special", {"model_specific_special_tokens": {"own": END}, "added_tokens_decoder": {"1": {"content": END, "special": False}}}, none, none
    yield "model_specific_special_tokens beside image_token", {**own, "image_token": TWO}, none, none
    yield "model_specific_special_tokens beside image_token, an object", {**own, "image_token": object_of(TWO)}, none, none
    yield "model_specific_special_tokens beside extra_special_tokens: a map", {**own, "extra_special_tokens": {"image": TWO}}, none, none
    yield "model_specific_special_tokens beside extra_special_tokens: a list", {**own, "extra_special_tokens": [TWO]}, none, none
    yield "model_specific_special_tokens beside special_tokens_map.json", own, {"special_tokens_map.json": {"extra_special_tokens": {"image": TWO}}}, none
    yield "special_tokens_map.json", none, {"special_tokens_map.json": {"eos_token": END}}, none
    yield "special_tokens_map.json: an object", none, {"special_tokens_map.json": {"eos_token": {"content": END, "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}}}, none
    yield "special_tokens_map.json: additional_special_tokens", none, {"special_tokens_map.json": {"additional_special_tokens": [END, NEW]}}, none
    yield "special_tokens_map.json: extra_special_tokens, a list", {"extra_special_tokens": [TWO]}, {"special_tokens_map.json": {"extra_special_tokens": [END, NEW]}}, none
    yield "special_tokens_map.json: extra_special_tokens, a map", none, {"special_tokens_map.json": {"extra_special_tokens": {"own": END}}}, none
    yield "special_tokens_map.json: image_token", none, {"special_tokens_map.json": {"image_token": END}}, none
    yield "special_tokens_map.json over eos_token", {"eos_token": MARK}, {"special_tokens_map.json": {"eos_token": END}}, none
    yield "special_tokens_map.json: not over additional_special_tokens", {"additional_special_tokens": [MARK]}, {"special_tokens_map.json": {"additional_special_tokens": [END]}}, none
    yield "special_tokens_map.json: not beside added_tokens_decoder", {"eos_token": MARK, "added_tokens_decoder": {}}, {"special_tokens_map.json": {"eos_token": END, "additional_special_tokens": [NEW]}}, none
    yield "split_special_tokens", {"split_special_tokens": True, "eos_token": END}, none, {"/added_tokens": [added(MARK, 2, special=False)]}
    yield "split_special_tokens: the frame stays", {"split_special_tokens": True}, none, {"/added_tokens": [added(END, 1)], "/post_processor": framed(END, 1)}
    yield "add_prefix_space: of tokenizer.json alone", {"add_prefix_space": True}, none, none
    yield "the class of config.json", {"tokenizer_class": None, "additional_special_tokens": [NEW]}, {"config.json": {"model_type": "llama", "tokenizer_class": "GPT2Tokenizer"}}, none
    merges = {"/model/vocab/12": 259, "/model/vocab/abc": 260, "/model/merges": ["1 2"], "/model/ignore_merges": True}
    odd = {"/pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "[b-d]"}, "behavior": "Removed", "invert": False}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}]},
           "/normalizer": {"type": "Lowercase"}, "/model/unk_token": MARK, "/model/byte_fallback": True}
    for name, type in (("Qwen2Tokenizer", None), ("GPT2TokenizerFast", None), ("GPTNeoXTokenizerFast", None), ("PreTrainedTokenizerFast", "qwen2"), (None, "qwen3"), ("PreTrainedTokenizerFast", "qwen3"), ("Qwen2TokenizerFast", "mistral"), ("LlamaTokenizerFast", "llama")):
        beside = {"config.json": {"model_type": type}} if type else {}
        own = {"tokenizer_class": name}
        label = f"{name}, {type}: "
        yield label + "added_tokens in the order of ids", own, beside, {"/added_tokens": [added(NEW, 270), added(TWO, 265)]}
        yield label + "added_tokens beside added_tokens_decoder", {**own, "added_tokens_decoder": {"1": {"content": END, "special": True}}}, beside, {"/added_tokens": [added(END, 1), added(NEW, 259)]}
        yield label + "listed tokens", {**own, "additional_special_tokens": [END]}, beside, {"/added_tokens": [added(END, 1, lstrip=True, special=False)]}
        yield label + "a new token", {**own, "additional_special_tokens": [NEW]}, beside, none
        yield label + "a new token, and none of the class", {**own, "additional_special_tokens": [NEW], "unk_token": None, "eos_token": None, "bos_token": None, "pad_token": None}, beside, none
        words = {"/pre_tokenizer": QWEN2_WORDS, "/normalizer": {"type": "NFC"}} if name in (None, "Qwen2Tokenizer") or type == "qwen2" else {}
        yield label + "add_prefix_space", {**own, "add_prefix_space": True}, beside, {"/added_tokens": [added(END, 1)], **words}
        yield label + "add_prefix_space of tokenizer.json", own, beside, {"/added_tokens": [added(END, 1)], **(words or {"/pre_tokenizer/add_prefix_space": True})}
        yield label + "words of GPT-2", own, beside, merges
        yield label + "words of Qwen 2", own, beside, {**merges, "/pre_tokenizer": QWEN2_WORDS, "/normalizer": {"type": "NFC"}}
        yield label + "post_processor", own, beside, {"/added_tokens": [added(END, 1)], "/post_processor": framed(END, 1)}
        if name in (None, "Qwen2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizerFast") or type == "qwen2":
            yield label + "words and a normalizer that are not known here", own, beside, {**merges, **odd}


def character_cases():
    none = {}
    metaspace = {"/normalizer": None, "/pre_tokenizer": {"type": "Metaspace", "replacement": MARK_OF_SPACE, "prepend_scheme": "always", "split": False}}
    gemma = {"/normalizer": SPACE_TO_MARK, "/pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}}
    for name, type in ((None, "llama"), ("PreTrainedTokenizerFast", "llama"), ("LlamaTokenizer", "llama"), ("LlamaTokenizerFast", None), ("LlamaTokenizer", "mistral"),
                       ("LlamaTokenizerFast", "phi3"), ("LlamaTokenizer", "gemma"), ("GemmaTokenizerFast", "gemma"), (None, "gemma2"), ("GemmaTokenizer", None)):
        beside = {"config.json": {"model_type": type}} if type else {}
        own = {"tokenizer_class": name}
        label = f"characters, {name}, {type}: "
        yield label + "no declaration", own, beside, none
        yield label + "added_tokens", own, beside, {"/added_tokens": [added(UNKNOWN, 0), added(BEGIN, 1), added(END, 272, normalized=True), added(NEW, 273, special=False, rstrip=True)]}
        yield label + "added_tokens_decoder", {**own, "added_tokens_decoder": {"1": {"content": BEGIN, "special": True}, "272": {"content": NEW, "special": False, "normalized": True}}}, beside, none
        yield label + "listed tokens", {**own, "additional_special_tokens": [NEW], "pad_token": UNKNOWN}, beside, none
        yield label + "add_bos_token and add_eos_token", {**own, "add_bos_token": False, "add_eos_token": True}, beside, none
        if name and name.startswith("Llama"):
            for fields in ({"legacy": True}, {"legacy": False}, {"legacy": None}, {"add_prefix_space": False}, {"add_prefix_space": None, "legacy": True}):
                yield label + json.dumps(fields), {**own, **fields}, beside, none
        yield label + "Metaspace", own, beside, metaspace
        yield label + "words of Gemma", own, beside, gemma
        yield label + "ignore_merges", own, beside, {"/model/vocab/ab<c>": 272, "/model/ignore_merges": True}


def piece_cases():
    for name in (None, "LlamaTokenizer"):
        own = {"tokenizer_class": name, "legacy": True, "add_bos_token": True}
        label = f"tokenizer.model, {name}: "
        yield label + "no declaration", own, {}
        yield label + "eos_token", {**own, "eos_token": NEW, "add_eos_token": True}, {}
        yield label + "additional_special_tokens", {**own, "additional_special_tokens": [NEW]}, {}
        yield label + "added_tokens.json", own, {"added_tokens.json": {NEW: 900}}
        yield label + "added_tokens_decoder", {**own, "added_tokens_decoder": {"1": {"content": "<s>", "special": True}, "900": {"content": NEW, "special": True, "rstrip": True}}}, {}
        yield label + "special_tokens_map.json", own, {"special_tokens_map.json": {"pad_token": NEW}}
        yield label + "added_tokens.json, legacy false", {**own, "legacy": False}, {"added_tokens.json": {NEW: 900}}
        yield label + "split_special_tokens", {**own, "split_special_tokens": True}, {}
    for name in (None, "LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"):
        for legacy in ({}, {"legacy": None}, {"legacy": True}, {"legacy": False}):
            for space in ({}, {"add_prefix_space": False}):
                fields = {**legacy, **space, "add_bos_token": True}
                label = ", ".join(f"{key} {json.dumps(value)}" for key, value in {**legacy, **space}.items()) or "plain"
                yield f"tokenizer.model, {name}: {label}", {"tokenizer_class": name, **fields}, {}


def result(folder, texts):
    made = AutoTokenizer.from_pretrained(folder)
    ids = [made(text)["input_ids"] for text in texts]
    named = {key: getattr(made, f"{key}_token_id") for key in ("bos", "eos", "pad")}
    return {"ids": ids, "decoded": [made.decode(i, skip_special_tokens=True) for i in ids], **named}


def replaced(document, values):
    document = copy.deepcopy(document)
    for pointer, value in values.items():
        *way, last = pointer.split("/")[1:]
        place = document
        for key in way:
            place = place[key]
        place[last] = value
    return document


def written(case, texts, vocabulary):
    with tempfile.TemporaryDirectory() as folder:
        vocabulary(pathlib.Path(folder))
        for name, content in case["files"].items():
            (pathlib.Path(folder) / name).write_text(json.dumps(content))
        return {**case, "texts": texts, **result(folder, texts)}


def files_of(config, others):
    return {"tokenizer_config.json": {key: value for key, value in config.items() if key != "tokenizer_class" or value}, **others}


def main():
    base, letters, done = tokenizer(), characters(), []
    for name, config, others, values in cases():
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
        texts = [*TEXTS, "ab", f"{END}a b"] if "prefix" in name else [*TEXTS, *WORDS] if "words" in name else TEXTS
        document = replaced(base, values)
        done.append(written({"name": name, "replaced": values, "files": files_of(config, others)}, texts,
                            lambda folder: (folder / "tokenizer.json").write_text(json.dumps(document))))
    for name, config, others, values in character_cases():
        document = replaced(letters, values)
        done.append(written({"name": name, "characters": True, "replaced": values, "files": files_of(config, others)}, CHARACTER_TEXTS,
                            lambda folder: (folder / "tokenizer.json").write_text(json.dumps(document))))
    for name, config, others in piece_cases():
        model = (FOLDER / "pieces_bpe.model").read_bytes()
        done.append(written({"name": name, "model": "pieces_bpe.model", "files": files_of(config, others)},
                            [f"human beings</s>free{NEW}born", "equal", " free", f"{NEW} born", " ", "  two"], lambda folder: (folder / "tokenizer.model").write_bytes(model)))
    lines = ",\n  ".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in done)
    text = f'{{"transformers": "{transformers.__version__}",\n "tokenizer": {json.dumps(base, ensure_ascii=False, separators=(",", ":"))},\n "characters": {json.dumps(letters, ensure_ascii=False, separators=(",", ":"))},\n "cases": [\n  {lines}]}}\n'
    (FOLDER / "declared.json").write_text(text)
    print(f"{len(done)} cases, {len(text)} bytes")


main()
