#include "lora/tokenizer/gguf.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/effort.hpp"
#include "support/gguf_writer.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_gguf_test {

using namespace lora;
using test::GgufWriter;
using test::holds;
using test::message_of;
using tokenizer::Tokenizer;

namespace {

io::Gguf parsed(const std::string& bytes) {
  return io::Gguf::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "test.gguf");
}

/// The metadata that a converter writes for a tokenizer.json, with two tokens that fill up the vocabulary.
GgufWriter converted(const std::string& name, const char* pre) {
  const io::Json document = io::parse_json(test::tokenizer_json(name), name);
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  for (const auto& [token, id] : document["model"]["vocab"].items()) tokens.push_back(token);
  types.resize(tokens.size(), 1);
  for (const io::Json& token : document["added_tokens"]) {
    const auto id = token["id"].get<std::size_t>();
    if (id == tokens.size()) {
      tokens.emplace_back();
      types.push_back(0);
    }
    tokens[id] = token["content"].get<std::string>();
    types[id] = token["special"].get<bool>() ? 3 : 4;
  }
  for (const io::Json& merge : document["model"]["merges"])
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  for (const char* filler : {"[PAD1]", "[PAD2]"}) {
    tokens.emplace_back(filler);
    types.push_back(5);
  }
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", pre);
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.merges", merges);
  const auto end = std::find(tokens.begin(), tokens.end(), "<|im_end|>") - tokens.begin();
  writer.add("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(end));
  writer.add("tokenizer.chat_template", "{{ messages }}");
  return writer;
}

void check_same_ids(const Tokenizer& a, const Tokenizer& b) {
  const std::string file = "texts.json.z";
  const io::Json texts = io::parse_json(test::unpacked(test::tokenizer_data(file)), file);
  int wrong = 0;
  for (std::size_t i = 0; i < texts.size(); i += test::effort<std::size_t>(1, 60, "tokenizer_gguf: 59 of 60 texts")) {
    const auto& line = texts[i].get_ref<const std::string&>();
    if (a.encode(line, true).ids != b.encode(line, true).ids) ++wrong;
  }
  CHECK(wrong == 0);
}

GgufWriter small(const char* pre = "gpt-2") {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2");
  if (pre) writer.add("tokenizer.ggml.pre", pre);
  return writer;
}

std::string message(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  return message_of([&] { Tokenizer::from_gguf(parsed(bytes)); });
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("tokenizer_gguf: qwen2 and smollm have the ids of their tokenizer.json, also once saved") {
  const auto names = {std::pair("qwen2_5", "qwen2"), std::pair("smollm2", "smollm")};
  for (const auto& [name, pre] : names) {
    if (pre == std::string_view("qwen2") && !test::effort(true, false, "tokenizer_gguf: the larger tokenizer"))
      continue;
    const auto original = Tokenizer::from_json(test::tokenizer_json(name), name);
    const std::string bytes = converted(name, pre).bytes();
    const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
    CHECK(tokenizer.vocab_size() == original.vocab_size());
    CHECK(tokenizer.eos() == original.id_of("<|im_end|>").value());
    CHECK_FALSE(tokenizer.bos());
    CHECK(tokenizer.chat_template() == "{{ messages }}");
    check_same_ids(tokenizer, original);

    const test::TempFolder folder;
    tokenizer.save(folder / "saved");
    const auto loaded = Tokenizer::from_folder(folder / "saved");
    CHECK(loaded.vocab_size() == original.vocab_size());
    CHECK(loaded.eos() == tokenizer.eos());
    CHECK(loaded.chat_template() == "{{ messages }}");
    check_same_ids(loaded, original);
    CHECK(loaded.decode(std::vector<std::int32_t>{0, 1, 2, 500}) ==
          original.decode(std::vector<std::int32_t>{0, 1, 2, 500}));
    CHECK(loaded.decode(std::vector<std::int32_t>{original.id_of("<|im_start|>").value()}, true).empty());
  }
}

TEST_CASE("tokenizer_gguf: llama-bpe leaves words whole and puts the beginning-of-text token first") {
  GgufWriter writer = small("llama-bpe");
  writer.add("tokenizer.ggml.tokens", Strings{"a", "b", "ab", "bab", "<|begin|>"});
  writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 1, 3});
  writer.add("tokenizer.ggml.merges", Strings{"a b"});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{4});
  const std::string bytes = writer.bytes();
  const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
  CHECK(tokenizer.encode("bab", true).ids == std::vector<std::int32_t>{4, 3});
  CHECK(tokenizer.encode("baab").ids == std::vector<std::int32_t>{1, 0, 2});
  const test::TempFolder folder;
  tokenizer.save(folder.path());
  CHECK(Tokenizer::from_folder(folder.path()).encode("bab", true).ids == std::vector<std::int32_t>{4, 3});
  writer.add("tokenizer.ggml.add_bos_token", false);
  const std::string without = writer.bytes();
  CHECK(Tokenizer::from_gguf(parsed(without)).encode("bab", true).ids == std::vector<std::int32_t>{3});
}

TEST_CASE("tokenizer_gguf: smollm cuts numbers into digits and gpt-2 does not, also once saved") {
  for (const auto& [pre, ids] :
       {std::pair("smollm", std::vector<std::int32_t>{0, 1}), std::pair("gpt-2", std::vector<std::int32_t>{2})}) {
    GgufWriter writer = small(pre);
    writer.add("tokenizer.ggml.tokens", Strings{"1", "2", "12"});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1});
    writer.add("tokenizer.ggml.merges", Strings{"1 2"});
    const std::string bytes = writer.bytes();
    const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
    CHECK(tokenizer.encode("12").ids == ids);
    CHECK(tokenizer.id_of("1") == 0);
    CHECK(tokenizer.id_of("12") == 2);
    CHECK_FALSE(tokenizer.id_of("3"));
    const test::TempFolder folder;
    tokenizer.save(folder.path());
    CHECK(Tokenizer::from_folder(folder.path()).encode("12").ids == ids);
  }
}

TEST_CASE("tokenizer_gguf: the tokens that its metadata name are named beside what is saved") {
  GgufWriter writer = small("llama-bpe");
  writer.add("tokenizer.ggml.tokens", Strings{"a", "b", "ab", "<|begin|>", "<|end|>", "<|pad|>"});
  writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 3, 3, 3});
  writer.add("tokenizer.ggml.merges", Strings{"a b"});
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{3});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{4});
  writer.add("tokenizer.ggml.padding_token_id", std::uint32_t{5});
  const std::string bytes = writer.bytes();
  const test::TempFolder folder;
  Tokenizer::from_gguf(parsed(bytes)).save(folder.path());
  const io::Json config = io::read_json(folder / "tokenizer_config.json");
  CHECK(config["bos_token"] == "<|begin|>");
  CHECK(config["eos_token"] == "<|end|>");
  CHECK(config["pad_token"] == "<|pad|>");
}

TEST_CASE("tokenizer_gguf: tokens that an id alone declares are special, also once saved") {
  const std::string ids[] = {"bos_token_id",       "eos_token_id",  "padding_token_id", "unknown_token_id",
                             "seperator_token_id", "mask_token_id", "eot_token_id"};
  for (const bool scores : {false, true}) {
    GgufWriter writer;
    writer.add("tokenizer.ggml.model", scores ? "llama" : "gpt2");
    Strings tokens{"<u>", "a", "b", scores ? "\u2581" : "\u0120"};
    std::vector<std::int32_t> types{scores ? 2 : 1, 1, 1, 1};
    for (std::size_t i = 0; i < std::size(ids); ++i) {
      tokens.push_back(concat("<", i, ">"));
      types.push_back(1);
      writer.add("tokenizer.ggml." + ids[i], static_cast<std::uint32_t>(4 + i));
    }
    writer.add("tokenizer.ggml.tokens", tokens);
    if (scores) {
      writer.add("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1));
      writer.add("tokenizer.ggml.token_type", types);
      writer.add("tokenizer.ggml.add_space_prefix", false);
    } else {
      writer.add("tokenizer.ggml.pre", "gpt-2");
      writer.add("tokenizer.ggml.merges", Strings{});
    }
    const std::string bytes = writer.bytes();
    const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
    const test::TempFolder folder;
    tokenizer.save(folder.path());
    for (const auto& made : {tokenizer, Tokenizer::from_folder(folder.path())}) {
      const auto encoded = made.encode("a<0><1><2><3><4><5><6>b").ids;
      CHECK(encoded == std::vector<std::int32_t>{1, 4, 5, 6, 7, 8, 9, 10, 2});
      CHECK(made.decode(encoded, true) == "ab");
    }
  }
}

TEST_CASE("tokenizer_gguf: a vocabulary with scores is a sentencepiece model") {
  const std::string proto = io::read_file(test::tokenizer_data("pieces_bpe.model"));
  const tokenizer::SentencePieceModel model(proto, "pieces");
  Strings tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  for (std::int32_t id = 0; id < model.end(); ++id) {
    tokens.push_back(model.text_of(id));
    scores.push_back(static_cast<float>(-id));
    const bool byte = tokens.back().size() == 6 && tokens.back().rfind("<0x") == 0;
    types.push_back(id == 0 ? 2 : id < 3 ? 3 : tokens.back() == "<tool>" ? 4 : byte ? 6 : 1);
  }
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  CHECK(holds(message(writer), "tokenizer.ggml.scores is missing"));
  GgufWriter odd = writer;
  odd.add("tokenizer.ggml.scores", std::vector<float>{1});
  CHECK(holds(message(odd), "tokenizer.ggml.scores has 1 items, but there are 900 tokens"));
  GgufWriter strange = writer;
  auto unknown = scores;
  unknown[7] = std::numeric_limits<float>::quiet_NaN();
  strange.add("tokenizer.ggml.scores", unknown);
  CHECK(holds(message(strange), "tokenizer.ggml.scores[7] is nan; expected a finite number"));
  writer.add("tokenizer.ggml.scores", scores);
  const std::string bytes = writer.bytes();
  const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
  const auto original = Tokenizer::from_file(test::tokenizer_data("pieces_bpe.model"));
  const test::TempFolder folder;
  tokenizer.save(folder.path());
  const auto loaded = Tokenizer::from_folder(folder.path());
  for (const std::string text : {"All human beings are born free</s>and equal", "  中<tool>x", ""}) {
    CHECK(tokenizer.encode(text, true).ids == original.encode(text, true).ids);
    // As transformers' LlamaTokenizer, which puts no space before text that begins with one.
    CHECK(loaded.encode(text, true).ids == original.encode(text.starts_with(' ') ? text.substr(1) : text, true).ids);
  }

  // Which tokens frame a text are the file's words; without them it is the first one alone.
  auto framed = original.encode("x").ids;
  framed.insert(framed.begin(), 1);
  CHECK(tokenizer.encode("x", true).ids == framed);
  GgufWriter ended = writer;
  ended.add("tokenizer.ggml.add_eos_token", true);
  framed.push_back(2);
  const std::string with_both = ended.bytes();
  CHECK(Tokenizer::from_gguf(parsed(with_both)).encode("x", true).ids == framed);
  ended.add("tokenizer.ggml.add_bos_token", false);
  framed.erase(framed.begin());
  const std::string with_end = ended.bytes();
  const auto only_end = Tokenizer::from_gguf(parsed(with_end));
  CHECK(only_end.encode("x", true).ids == framed);
  const test::TempFolder other;
  only_end.save(other.path());
  CHECK(Tokenizer::from_folder(other.path()).encode("x", true).ids == framed);
}

TEST_CASE("tokenizer_gguf: what is missing, broken or unknown is an error that names it") {
  GgufWriter other;
  CHECK(holds(message(other), "tokenizer.ggml.model is missing"));
  other.add("tokenizer.ggml.model", "bert");
  CHECK(
      holds(message(other), "test.gguf: the tokenizer (tokenizer.ggml.model) bert is not supported; gpt2 or llama is"));
  CHECK(holds(message(small(nullptr)), "tokenizer.ggml.pre is missing"));
  CHECK(message(small("poro-chat")) ==
        "test.gguf: the pre-tokenizer (tokenizer.ggml.pre) poro-chat is not supported; one of smollm, gpt-2, qwen2, "
        "deepseek-r1-qwen, stablelm2, llama-bpe, llama3, llama-v3, smaug-bpe is");
  CHECK(holds(message(small()), "tokenizer.ggml.tokens is missing"));

  GgufWriter broken = small();
  broken.add("tokenizer.ggml.tokens", Strings{"a", "\xC3"});
  CHECK(holds(message(broken), "tokenizer.ggml.tokens[1] is not valid UTF-8"));

  GgufWriter types = small();
  types.add("tokenizer.ggml.tokens", Strings{"a", "b"});
  GgufWriter few = types;
  few.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1});
  CHECK(holds(message(few), "token_type has 1 items, but there are 2 tokens"));
  types.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 9});
  CHECK(holds(message(types), "tokenizer.ggml.token_type[1] is 9"));

  GgufWriter twins = small();
  twins.add("tokenizer.ggml.tokens", Strings{"a", "a"});
  CHECK(holds(message(twins), "token \"a\" has two ids, 0 and 1"));

  GgufWriter merges = small();
  merges.add("tokenizer.ggml.tokens", Strings{"a", "b"});
  CHECK(holds(message(merges), "tokenizer.ggml.merges is missing"));
  GgufWriter unknown = merges;
  unknown.add("tokenizer.ggml.merges", Strings{"a b"});
  CHECK(holds(message(unknown), "merge 0 joins \"a\" and \"b\", but \"ab\" is not in the vocabulary"));
  GgufWriter single = merges;
  single.add("tokenizer.ggml.merges", Strings{"ab"});
  CHECK(holds(message(single), "tokenizer.ggml.merges[0] must be two tokens, found \"ab\""));
  merges.add("tokenizer.ggml.merges", Strings{});
  merges.add("tokenizer.ggml.eos_token_id", std::uint32_t{7});
  CHECK(holds(message(merges), "tokenizer.ggml.eos_token_id is 7, which no token has"));
}

TEST_CASE("tokenizer_gguf: each name of a pre-tokenizer stands for the settings of the models that have it") {
  const auto settings = [](const char* pre, bool with_bos = true) {
    GgufWriter writer = small(pre);
    writer.add("tokenizer.ggml.tokens", Strings{"a", "b", "ab", "<s>", "<own>"});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 6, 1, 2, 4});
    writer.add("tokenizer.ggml.merges", Strings{"a b"});
    if (with_bos) writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{3});
    const std::string bytes = writer.bytes();
    const test::TempFolder folder;
    Tokenizer::from_gguf(parsed(bytes)).save(folder.path());
    return io::read_json(folder / "tokenizer.json");
  };
  const auto text = [](const io::Json& json) { return io::to_text(json, -1); };
  const std::string bytes_own = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  const std::string bytes_cut =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
  const auto sequence = [](const std::string& one, const std::string& two) {
    return R"({"type":"Sequence","pretokenizers":[)" + one + "," + two + "]}";
  };
  const auto split = [&](std::string_view regex) {
    const io::Json pattern = io::json_object({{"Regex", std::string(regex)}});
    return sequence(R"({"type":"Split","pattern":)" + text(pattern) + R"(,"behavior":"Isolated","invert":false})",
                    bytes_cut);
  };
  const io::Json gpt2 = settings("gpt-2");
  CHECK(text(gpt2) ==
        R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":3,"content":"<s>",)"
        R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},{"id":4,)"
        R"("content":"<own>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}],)"
        R"("normalizer":null,"pre_tokenizer":)" +
            bytes_own +
            R"(,"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
            R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
            R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)"
            R"("ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2,"<s>":3,"<own>":4},"merges":["a b"]}})");
  CHECK(text(settings("smollm")["pre_tokenizer"]) ==
        sequence(R"({"type":"Digits","individual_digits":true})", bytes_own));
  for (const char* const pre : {"qwen2", "deepseek-r1-qwen"}) {
    const io::Json qwen2 = settings(pre);
    CHECK(text(qwen2["pre_tokenizer"]) == split(tokenizer::WordPattern::qwen2_regex));
    CHECK(text(qwen2["normalizer"]) == R"({"type":"NFC"})");
    CHECK(qwen2["post_processor"].is_null());
    CHECK(qwen2["model"]["ignore_merges"] == false);
  }
  for (const char* const pre : {"llama-bpe", "llama3", "llama-v3"}) {
    const io::Json llama = settings(pre);
    CHECK(text(llama["pre_tokenizer"]) == split(tokenizer::WordPattern::llama3_regex));
    CHECK(llama["normalizer"].is_null());
    CHECK(llama["model"]["ignore_merges"] == true);
    CHECK(text(llama["post_processor"]) ==
          R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A",)"
          R"("type_id":0}}],"pair":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},)"
          R"({"SpecialToken":{"id":"<s>","type_id":1}},{"Sequence":{"id":"B","type_id":1}}],)"
          R"("special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}})");
    CHECK(settings(pre, false)["post_processor"].is_null());
  }
  for (const auto& [pre, regex] : {std::pair("stablelm2", tokenizer::WordPattern::qwen2_regex),
                                   std::pair("smaug-bpe", tokenizer::WordPattern::llama3_regex)}) {
    const io::Json other = settings(pre);
    CHECK(text(other["pre_tokenizer"]) == split(regex));
    CHECK(other["normalizer"].is_null());
    CHECK(other["model"]["ignore_merges"] == false);
    CHECK(other["post_processor"].is_null());
  }
}

TEST_CASE("tokenizer_gguf: tokens around texts stand in the template that is saved, on their side") {
  const auto saved = [](bool begins, bool ends) {
    GgufWriter writer = small();
    writer.add("tokenizer.ggml.tokens", Strings{"a", "<s>", "</s>"});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 3, 3});
    writer.add("tokenizer.ggml.merges", Strings{});
    writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    writer.add("tokenizer.ggml.add_bos_token", begins);
    writer.add("tokenizer.ggml.add_eos_token", ends);
    const std::string bytes = writer.bytes();
    const test::TempFolder folder;
    Tokenizer::from_gguf(parsed(bytes)).save(folder.path());
    return io::to_text(io::read_json(folder / "tokenizer.json")["post_processor"], -1);
  };
  const auto token = [](const char* name, int of) {
    return concat(R"({"SpecialToken":{"id":")", name, R"(","type_id":)", of, "}}");
  };
  const auto text = [](const char* name, int of) {
    return concat(R"({"Sequence":{"id":")", name, R"(","type_id":)", of, "}}");
  };
  const auto known = [](const char* name, int id) {
    return concat("\"", name, R"(":{"id":")", name, R"(","ids":[)", id, R"(],"tokens":[")", name, "\"]}");
  };
  const std::string start = R"({"type":"TemplateProcessing","single":[)";
  CHECK(saved(false, false) == "null");
  CHECK(saved(true, true) == start + token("<s>", 0) + "," + text("A", 0) + "," + token("</s>", 0) + R"(],"pair":[)" +
                                 token("<s>", 0) + "," + text("A", 0) + "," + token("</s>", 0) + "," + token("<s>", 1) +
                                 "," + text("B", 1) + "," + token("</s>", 1) + R"(],"special_tokens":{)" +
                                 known("<s>", 1) + "," + known("</s>", 2) + "}}");
  CHECK(saved(false, true) == start + text("A", 0) + "," + token("</s>", 0) + R"(],"pair":[)" + text("A", 0) + "," +
                                  token("</s>", 0) + "," + text("B", 1) + "," + token("</s>", 1) +
                                  R"(],"special_tokens":{)" + known("</s>", 2) + "}}");
}

TEST_CASE("tokenizer_gguf: what fills a vocabulary is no token, wherever it stands") {
  GgufWriter writer = small("llama-bpe");
  writer.add("tokenizer.ggml.tokens", Strings{"a", "[PAD1]", "b", "ab", "[PAD4]"});
  writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 5, 1, 1, 5});
  writer.add("tokenizer.ggml.merges", Strings{"a b"});
  const std::string bytes = writer.bytes();
  const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
  CHECK(tokenizer.vocab_size() == 4);
  CHECK(tokenizer.decode(std::vector<std::int32_t>{0, 1, 2, 4}) == "ab");
  CHECK_FALSE(tokenizer.id_of("[PAD1]"));
  const test::TempFolder folder;
  tokenizer.save(folder.path());
  CHECK(io::to_text(io::read_json(folder / "tokenizer.json")["model"]["vocab"], -1) == R"({"a":0,"b":2,"ab":3})");
  for (const std::uint32_t id : {1u, 4u, 5u}) {
    GgufWriter named = writer;
    named.add("tokenizer.ggml.bos_token_id", id);
    CHECK(message(named) == concat("test.gguf: tokenizer.ggml.bos_token_id is ", id, ", which no token has"));
  }
}

TEST_CASE("tokenizer_gguf: kinds of tokens go from 1 to 6; without any all are words") {
  const auto told = [](std::int32_t kind) {
    GgufWriter writer = small();
    writer.add("tokenizer.ggml.tokens", Strings{"a", "b"});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, kind});
    writer.add("tokenizer.ggml.merges", Strings{});
    return message(writer);
  };
  for (std::int32_t kind = 1; kind <= 6; ++kind) CHECK(told(kind) == "nothing was thrown");
  CHECK(told(0) == "test.gguf: tokenizer.ggml.token_type[1] is 0; expected 1 to 6");
  CHECK(told(7) == "test.gguf: tokenizer.ggml.token_type[1] is 7; expected 1 to 6");

  GgufWriter writer = small();
  writer.add("tokenizer.ggml.tokens", Strings{"a", "b", "ab", "<e>"});
  writer.add("tokenizer.ggml.merges", Strings{"a b"});
  writer.add("tokenizer.ggml.add_bos_token", true);  // of a file that names none
  const std::string bytes = writer.bytes();
  const auto tokenizer = Tokenizer::from_gguf(parsed(bytes));
  CHECK(tokenizer.encode("abb<e>", true).ids == std::vector<std::int32_t>{2, 1});
  CHECK(tokenizer.chat_template().empty());
  CHECK_FALSE(tokenizer.has_tool_template());
  for (const bool other : {false, true}) {
    GgufWriter templates = writer;
    templates.add("tokenizer.chat_template", "a");
    templates.add("tokenizer.chat_template.tool_use", other ? "b" : "a");
    const std::string all = templates.bytes();
    CHECK(Tokenizer::from_gguf(parsed(all)).has_tool_template() == other);
  }
  CHECK_FALSE(tokenizer.eos());
  CHECK(tokenizer.saved_bytes() == 4 * 64);
  CHECK(tokenizer.where() == "test.gguf");
}

TEST_CASE("tokenizer_gguf: what its metadata name must be there, each by its own key") {
  for (const std::string name : {"bos", "eos", "padding", "unknown", "seperator", "cls", "mask", "eot", "eom"}) {
    GgufWriter writer = small();
    writer.add("tokenizer.ggml.tokens", Strings{"a", "b"});
    writer.add("tokenizer.ggml.merges", Strings{});
    GgufWriter beyond = writer;
    writer.add("tokenizer.ggml." + name + "_token_id", std::uint32_t{1});
    beyond.add("tokenizer.ggml." + name + "_token_id", std::uint32_t{2});
    const std::string bytes = writer.bytes();
    CHECK(Tokenizer::from_gguf(parsed(bytes)).decode(std::vector<std::int32_t>{0, 1}, true) == "a");
    CHECK(message(beyond) == "test.gguf: tokenizer.ggml." + name + "_token_id is 2, which no token has");
  }
}

TEST_CASE("tokenizer_gguf: a merge is two tokens, of which the first may begin with a space") {
  const auto told = [](const char* merge) {
    GgufWriter writer = small();
    writer.add("tokenizer.ggml.tokens", Strings{"a", "b", "ab"});
    writer.add("tokenizer.ggml.merges", Strings{"a b", merge});
    return message(writer);
  };
  CHECK(told("a b") == "nothing was thrown");
  for (const char* const merge : {"", "a", " ", "a ", " a", "ab"})
    CHECK(told(merge) == concat("test.gguf: tokenizer.ggml.merges[1] must be two tokens, found \"", merge, "\""));
  CHECK(told("a \xFF") == "test.gguf: tokenizer.ggml.merges[1] must be two tokens, found \"a \uFFFD\"");
  CHECK(told("  a") == "test.gguf: merge 1 joins \" \" and \"a\", but \" \" is not in the vocabulary");
}

TEST_CASE("tokenizer_gguf: pieces have a space before texts unless the file says otherwise") {
  const auto of = [](int space, std::string_view text) {
    GgufWriter writer;
    writer.add("tokenizer.ggml.model", "llama");
    writer.add("tokenizer.ggml.tokens", Strings{"<unk>", "a", "\u2581", "<own>"});
    writer.add("tokenizer.ggml.scores", std::vector<float>{0, -1, -2, -3});
    writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 1, 1, 4});
    if (space >= 0) writer.add("tokenizer.ggml.add_space_prefix", space > 0);
    const std::string bytes = writer.bytes();
    return Tokenizer::from_gguf(parsed(bytes)).encode(text, true).ids;
  };
  CHECK(of(-1, "a") == std::vector<std::int32_t>{2, 1});
  CHECK(of(1, "a") == std::vector<std::int32_t>{2, 1});
  CHECK(of(0, "a") == std::vector<std::int32_t>{1});
  CHECK(of(0, "a<own>a") == std::vector<std::int32_t>{1, 3, 1});
}

}  // namespace tokenizer_gguf_test
