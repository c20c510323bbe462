#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers: vocabularies, texts and what the `tokenizers` and sentencepiece libraries make of them.

    python tests/make/tokenizer_fixtures.py FOLDER      FOLDER holds qwen2_5, qwen3 and smollm2, each with its tokenizer.json

Files (.z: zlib):
  NAME.json            a tokenizer.json with only the first tokens of its vocabulary and without merges
  VOCABULARY_merges.txt.z   the merges, a line each; the merge on line i forms token (number of first tokens + i)
  texts.json.z         an array of texts; drawn anew only if it is missing, for some are lines of the project's own files
  NAME.ids.z           for each text: int32 count, CRC-32 of the decoded text with and without special tokens; count ids; count places in bytes
  NAME.blocks.z        for each block of 256 code points: CRC-32 of the ids of block_text(block)
  variants.json.z      small tokenizers with every setting that is read, and some cases in full
  pieces_*.model       small sentencepiece models, trained only if they are missing; pieces.json.z: some cases in full
  words.json.z         for each regular expression by which words are found, for each GROUP of all texts, and of block_text's of planes 0 and 1:
                       CRC-32 of the bytes at which words begin; a word's tokens tell little about where it ends
  sums.json.z          by the name of a small tokenizer, for each GROUP of all texts: CRC-32 of ids, places and decoded text
  versions.json        what this ran with
"""

import io
import json
import pathlib
import platform
import struct
import sys
import tempfile
import unicodedata
import zlib

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizer_texts import CHINESE, EMOJI, PROSE, SPACES, all_texts

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/tokenizers"
GROUP = 16
VOCABULARIES = {"qwen2_5": "qwen2", "qwen3": "qwen2", "smollm2": "smollm2"}
QWEN2_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_REGEX = QWEN2_REGEX.replace(r"\p{N}|", r"\p{N}{1,3}|")
CL100K_REGEX = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
OTHER_GPT2_REGEX = GPT2_REGEX.replace("'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)")
OTHER_CL100K_REGEX = CL100K_REGEX.replace("'(?i:[sdmt]|ll|ve|re)", "(?i:'s|'t|'re|'ve|'m|'ll|'d)")


def write(name, data):
    packed = zlib.compress(data, 9)
    (OUTPUT / name).write_bytes(packed)
    print(f"{name}: {len(packed)} bytes")


def split_document(document):
    """The document without its merges, the first tokens left in its vocabulary, and the merges as lines."""
    model = document["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    first = len(tokens) - len(merges)
    assert [model["vocab"][t] for t in tokens] == list(range(len(tokens)))
    assert all(a + b == tokens[first + i] for i, (a, b) in enumerate(merges))
    model["vocab"] = {t: i for i, t in enumerate(tokens[:first])}
    model["merges"] = []
    return document, "".join(f"{a} {b}\n" for a, b in merges)


def packed(numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


def byte_places(text):
    """For each code point, which is what the library counts, the byte at which it begins."""
    places = [0]
    for c in text:
        places.append(places[-1] + len(c.encode()))
    return places


class Reference:
    """What a tokenizer of the library gives, with places in bytes.

    The library drops a byte that has no token and miscounts the places after it. So places come from the same tokenizer with a token
    for each such byte, which is then dropped here, or becomes the unknown token where there is one.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        document = json.loads(tokenizer.to_str())
        vocabulary = document["model"]["vocab"]
        self.unknown = vocabulary.get(document["model"].get("unk_token"))
        following, self.first_missing = 0x100, tokenizer.get_vocab_size()
        for byte in range(256):
            printable = 0x20 < byte < 0x7F or (byte > 0xA0 and byte != 0xAD)
            letter = chr(byte if printable else following)
            following += not printable
            if tokenizer.token_to_id(letter) is None:
                vocabulary[letter] = self.first_missing + sum(id >= self.first_missing for id in vocabulary.values())
        self.complete = Tokenizer.from_str(json.dumps(document))

    def ids_and_places(self, text):
        encoding = self.complete.encode(text, add_special_tokens=False)
        bytes_before = byte_places(text)
        ids, places = [], []
        for id, (begin, _) in zip(encoding.ids, encoding.offsets):
            if id >= self.first_missing:
                id = self.unknown
            if id is not None:
                ids.append(id)
                places.append(bytes_before[begin])
        assert ids == self.tokenizer.encode(text, add_special_tokens=False).ids, text
        return ids, places

    def framed(self, text):
        return self.tokenizer.encode(text).ids

    def decoded(self, ids):
        """With and without special tokens."""
        return [self.tokenizer.decode(ids, skip_special_tokens=skip).encode() for skip in (False, True)]


def block_text(block):
    """Every code point of a block alone, before a mark and beside letters, digits and white space; tests build the same text."""
    text = []
    for c in range(block * 256, block * 256 + 256):
        if not 0xD800 <= c < 0xE000:
            text.append(f"a{chr(c)}\u0323\u0301b {chr(c)}1{chr(c)}\n")
    return "".join(text)


def group_sums(texts, result):
    """For each group of texts the CRC-32 of what result(text) lists: lists of numbers, each after its length, and bytes as they are."""
    sums = []
    for begin in range(0, len(texts), GROUP):
        data = b""
        for text in texts[begin : begin + GROUP]:
            for part in result(text):
                data += part if isinstance(part, bytes) else packed([len(part), *part])
        sums.append(zlib.crc32(data))
    return sums


def write_ids(name, tokenizer, texts):
    data = io.BytesIO()
    reference = Reference(tokenizer)
    for text in texts:
        ids, places = reference.ids_and_places(text)
        data.write(struct.pack("<iII", len(ids), *(zlib.crc32(d) for d in reference.decoded(ids))))
        data.write(packed(ids) + packed(places))
    write(f"{name}.ids.z", data.getvalue())
    sums = []
    for block in range(0x1100):
        sums.append(zlib.crc32(packed(tokenizer.encode(block_text(block), add_special_tokens=False).ids)))
    write(f"{name}.blocks.z", struct.pack(f"<{len(sums)}I", *sums))


def write_real(folder, texts):
    written = set()
    for name, vocabulary in VOCABULARIES.items():
        path = folder / name / "tokenizer.json"
        document, merges = split_document(json.loads(path.read_text()))
        (OUTPUT / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        if vocabulary not in written:
            write(f"{vocabulary}_merges.txt.z", merges.encode())
            written.add(vocabulary)
        else:
            assert zlib.decompress((OUTPUT / f"{vocabulary}_merges.txt.z").read_bytes()) == merges.encode()
        write_ids(name, Tokenizer.from_file(str(path)), texts)


def trained(pre_tokenizer, normalizer=None, size=420, specials=("<|end|>",), corpus=PROSE):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def changed(tokenizer, change):
    document = json.loads(tokenizer.to_str())
    change(document)
    return Tokenizer.from_str(json.dumps(document))


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


def split_then_bytes(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior, invert), byte_level()])


def llama3():
    """Llama 3's settings around a small vocabulary: a word that is a token stays whole even where the merges would not form it."""
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer = trained(split_then_bytes(Regex(LLAMA3_REGEX)), size=700, specials=())

    def whole_words(document):
        model = document["model"]
        model["ignore_merges"] = True
        for word in ("ĠUnreachable", "Ġbrotherhoods", "123", "1776", "éé", "zzzz"):
            stands_for = byte_level().pre_tokenize_str(word.replace("Ġ", " "))[0][0]
            model["vocab"].setdefault(stands_for, len(model["vocab"]))

    tokenizer = changed(tokenizer, whole_words)
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in specials])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def with_added_tokens(nfc):
    tokenizer = trained(split_then_bytes(Regex(QWEN2_REGEX)), normalizers.NFC() if nfc else None)
    tokenizer.add_tokens([
        AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
        AddedToken("<lr>", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
        AddedToken("wordy", normalized=False), AddedToken("a b", normalized=False), AddedToken("é", normalized=False),
        AddedToken("no\u0301rmal", normalized=True), AddedToken("plain", normalized=True, single_word=True),
        AddedToken("tail", normalized=True, rstrip=True), AddedToken("tai", normalized=True), AddedToken("<r> x", normalized=False),
        AddedToken("中", normalized=False, lstrip=True)])
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False), AddedToken("[MASK]", special=True, lstrip=True, normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> <s> $A [MASK]", pair="$A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>")), ("[MASK]", tokenizer.token_to_id("[MASK]"))])
    return tokenizer


def with_unknown():
    """Without a token for 'q', and with one for what is unknown."""
    def drop_q(document):
        model = document["model"]
        model["vocab"] = {t: i for i, t in enumerate(t for t in model["vocab"] if "q" not in t)}
        model["merges"] = [m for m in model["merges"] if "q" not in "".join(m)]
        model["unk_token"] = "<|end|>"
    return changed(trained(byte_level(use_regex=True)), drop_q)


def variants():
    gpt2 = byte_level(use_regex=True)
    digits = [pre_tokenizers.Sequence([pre_tokenizers.Digits(individual), gpt2]) for individual in (True, False)]
    yield "gpt2", trained(gpt2)
    yield "prefix_space", trained(byte_level(use_regex=True, add_prefix_space=True))
    yield "prefix_space_of_words", trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(add_prefix_space=True)]))
    yield "digits_alone", trained(digits[0])
    yield "digits_together", trained(digits[1])
    yield "qwen2", trained(split_then_bytes(Regex(QWEN2_REGEX)), normalizers.NFC())
    yield "cl100k", trained(split_then_bytes(Regex(CL100K_REGEX)))
    yield "normalizer_sequence", trained(split_then_bytes(Regex(GPT2_REGEX)), normalizers.Sequence([normalizers.NFC()]))
    yield "llama3", llama3()
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            yield f"literal_{behavior}_{invert}", trained(split_then_bytes("e", behavior, invert))
            yield f"regex_{behavior}_{invert}", trained(split_then_bytes(Regex(LLAMA3_REGEX), behavior, invert))
    yield "added_tokens", with_added_tokens(False)
    yield "added_tokens_nfc", with_added_tokens(True)
    yield "unknown", with_unknown()


def variant_texts(texts):
    own = [" Unreachable", "Unreachable", " brotherhoods brotherhood", "123", "1776", "17761234", "éé", "zzzz", " zzzz", "zzzzz", "eeee", "e e", "x e", "qq", "a quiet q"]
    own += [" ".join(EMOJI), "".join(CHINESE), "x".join(SPACES), "1".join(SPACES), "e".join(SPACES)]
    return own + texts[12:60:3] + texts[500:3000:60] + texts[3000::60]


def added_texts():
    return [a + b + c for a in ("", "a", " ", "\u00a0 ", "é", "_", "中", "1", ".") for b in
            ("<l>", "<r>", "<lr>", "word", "wordy", "words", "a b", "no\u0301rmal", "n\u00f3rmal", "plain", "tail", "tai", "<s>", "[MASK]", "<r> x", "e\u0301", "中")
            for c in ("", " ", "\u2003x", "b", "\u0301", "<l>", "<r> x", "-")]


def write_variants(texts, sums):
    entries = []
    for name, tokenizer in variants():
        reference = Reference(tokenizer)
        cases = []
        for text in variant_texts(texts) + (added_texts() if "added" in name else []):
            ids, places = reference.ids_and_places(text)
            cases.append([text, reference.framed(text), places, [zlib.crc32(d) for d in reference.decoded(ids)]])
        entries.append({"name": name, "tokenizer": tokenizer.to_str(), "cases": cases})

        def result(text):
            ids, places = reference.ids_and_places(text)
            return [reference.framed(text), places, *reference.decoded(ids)]

        sums[name] = group_sums(texts, result)
    write("variants.json.z", json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode())


def write_words(texts):
    written = []
    blocks = [block_text(block) for block in range(0x200)]
    for regex in (GPT2_REGEX, OTHER_GPT2_REGEX, QWEN2_REGEX, LLAMA3_REGEX, CL100K_REGEX, OTHER_CL100K_REGEX):
        splitter = pre_tokenizers.Split(Regex(regex), "isolated")

        def begins(text):
            places = byte_places(text)
            return [[places[begin] for _, (begin, _) in splitter.pre_tokenize_str(text)]]

        written.append({"regex": regex, "texts": group_sums(texts, begins), "blocks": group_sums(blocks, begins)})
    write("words.json.z", json.dumps({"group": GROUP, "patterns": written}).encode())


def train_pieces(kind, path):
    with tempfile.TemporaryDirectory() as folder:
        corpus = pathlib.Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(PROSE * 3))
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=str(pathlib.Path(folder) / "m"), vocab_size=900, model_type=kind, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, character_coverage=0.98,
            user_defined_symbols=["<tool>"], minloglevel=2, num_threads=1)
        path.write_bytes((pathlib.Path(folder) / "m.model").read_bytes())


def write_pieces(texts, sums):
    cases = [t for t in variant_texts(texts) if "\u2581" not in t and "\u0000" not in t] + ["  two  spaces ", "a\nb", "<tool>x <tool>", "<tool"]
    written = []
    for kind in ("bpe", "unigram"):
        path = OUTPUT / f"pieces_{kind}.model"
        if not path.exists():
            train_pieces(kind, path)
        model = path.read_bytes()
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)

        def result(text):
            pieces = processor.encode(text, return_type="proto").pieces
            ids = [p.id for p in pieces]
            return [ids, [p.begin for p in pieces], processor.decode(ids).encode()]

        results = [[ids, places, zlib.crc32(decoded)] for ids, places, decoded in map(result, cases)]
        written.append({"name": kind, "results": results})
        sums[f"pieces_{kind}"] = group_sums(texts, result)
    write("pieces.json.z", json.dumps({"texts": cases, "models": written}, ensure_ascii=False, separators=(",", ":")).encode())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    kept = OUTPUT / "texts.json.z"
    if not kept.exists():
        write(kept.name, json.dumps(all_texts(), ensure_ascii=False).encode())
    texts = json.loads(zlib.decompress(kept.read_bytes()))
    sums = {}
    write_words(texts)
    write_variants(texts, sums)
    write_pieces(texts, sums)
    write("sums.json.z", json.dumps({"group": GROUP, "sums": sums}).encode())
    write_real(pathlib.Path(sys.argv[1]), texts)
    versions = {"python": platform.python_version(), "unicode": unicodedata.unidata_version, "tokenizers": tokenizers.__version__,
                "sentencepiece": sentencepiece.__version__}
    (OUTPUT / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
    print(f"{len(texts)} texts; {versions}")


if __name__ == "__main__":
    main()
