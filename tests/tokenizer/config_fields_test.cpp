#include "lora/tokenizer/config_fields.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace tokenizer_config_fields_test {

using namespace lora;
using tokenizer::SentencePiecePrefix;
using tokenizer::Tokenizer;
using tokenizer::detail::TokenizerFolder;
using Kind = tokenizer::SentencePiece::Kind;
using Ids = std::vector<std::int32_t>;

namespace {

/// A folder with a tokenizer.model of <unk> <s> </s> a and a space.
struct Folder {
  explicit Folder(std::string_view config, bool leading_space = false) {
    io::write_file(temp / "tokenizer.model", tokenizer::sentencepiece_proto({{"<unk>", 0, Kind::unknown},
                                                                             {"<s>", 0, Kind::control},
                                                                             {"</s>", 0, Kind::control},
                                                                             {"a", -1, Kind::normal},
                                                                             {"\u2581", -2, Kind::normal}},
                                                                            leading_space));
    io::write_file(temp / "tokenizer_config.json", config);
  }
  Tokenizer load() const { return Tokenizer::from_folder(temp.path()); }
  std::string name() const { return (temp / "tokenizer_config.json").native(); }

  test::TempFolder temp = test::TempFolder::in_memory();
};

std::string told(const Folder& folder) {
  const test::Quiet quiet;
  (void)folder.load();
  return quiet.text;
}

SentencePiecePrefix prefix(std::string_view config) {
  const Folder folder(config);
  return tokenizer::detail::piece_prefix(TokenizerFolder(folder.temp.path()));
}

}  // namespace

TEST_CASE("tokenizer_config_fields: every field that is known is silent, any other is named") {
  for (const std::string key : {"additional_special_tokens",
                                "added_tokens_decoder",
                                "chat_template",
                                "extra_special_tokens",
                                "fast_tokenizer_files",
                                "model_specific_special_tokens",
                                "_commit_hash",
                                "add_special_tokens",
                                "auto_map",
                                "backend",
                                "bos_token_id",
                                "chat_control_tokens",
                                "cls_token_id",
                                "device_map",
                                "do_lower_case",
                                "eos_token_id",
                                "errors",
                                "files_loaded",
                                "from_slow",
                                "init_inputs",
                                "is_fast",
                                "is_local",
                                "keep_accents",
                                "local_files_only",
                                "mask_token_id",
                                "max_len",
                                "max_length",
                                "merges_file",
                                "model_input_names",
                                "model_max_length",
                                "model_type",
                                "name_or_path",
                                "pad_to_multiple_of",
                                "pad_token_id",
                                "pad_token_type_id",
                                "padding",
                                "padding_side",
                                "processor_class",
                                "remove_space",
                                "response_schema",
                                "response_template",
                                "return_token_type_ids",
                                "sep_token_id",
                                "sp_model_kwargs",
                                "slow_tokenizer_class",
                                "spaces_between_special_tokens",
                                "special_tokens_map_file",
                                "stride",
                                "strip_accents",
                                "tokenize_chinese_chars",
                                "tokenizer_file",
                                "tokenizer_type",
                                "torch_dtype",
                                "transformers_version",
                                "truncation",
                                "truncation_side",
                                "truncation_strategy",
                                "trust_remote_code",
                                "unk_token_id",
                                "use_cache",
                                "use_default_system_prompt",
                                "use_fast",
                                "use_source_tokenizer",
                                "verbose",
                                "vocab_file",
                                "vocab_size",
                                "add_bos_token",
                                "add_eos_token",
                                "add_prefix_space",
                                "clean_up_tokenization_spaces",
                                "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                                "fix_mistral_regex",
                                "legacy",
                                "split_special_tokens",
                                "tokenizer_class",
                                "own_token"}) {
    CAPTURE(key);
    CHECK(told(Folder("{\"" + key + "\": null}")).empty());
  }
  const Folder odd(R"({"lega": null, "own_tokens": 1, "legacy": null, "add_bos_token add_eos_token": 2})");
  CHECK(told(odd) == odd.name() + ": not known here, and so without effect: lega, own_tokens\n");
}

TEST_CASE("tokenizer_config_fields: where a space is put before texts follows from the class and from legacy") {
  using Prefix = SentencePiecePrefix;
  CHECK(prefix("{}") == Prefix::as_in_file);
  CHECK(prefix(R"({"legacy": true})") == Prefix::as_in_file);
  CHECK(prefix(R"({"legacy": false})") == Prefix::first_if_in_file);
  CHECK(prefix(R"({"legacy": null})") == Prefix::first_if_in_file);
  CHECK(prefix(R"({"add_prefix_space": false})") == Prefix::as_in_file);
  for (const std::string name : {"LlamaTokenizer", "LlamaTokenizerFast"}) {
    const auto of = [&](const std::string& more) {
      return prefix("{\"tokenizer_class\": \"" + name + "\"" + more + "}");
    };
    CHECK(of("") == Prefix::first);
    CHECK(of(R"(, "legacy": true)") == Prefix::each);
    CHECK(of(R"(, "legacy": false)") == Prefix::first);
    CHECK(of(R"(, "add_prefix_space": true)") == Prefix::first);
    CHECK(of(R"(, "add_prefix_space": false)") == Prefix::never);
    CHECK(of(R"(, "add_prefix_space": false, "legacy": true)") == Prefix::never);
  }
}

TEST_CASE("tokenizer_config_fields: the ways of putting a space before texts") {
  const auto ids = [](const char* config, bool in_file, const char* text) {
    return Folder(config, in_file).load().encode(text).ids;
  };
  const char* const each = R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})";
  const char* const first = R"({"tokenizer_class": "LlamaTokenizer"})";
  const char* const never = R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})";
  for (const bool in_file : {false, true}) {
    CHECK(ids(each, in_file, "a</s>a</s> a") == Ids{4, 3, 2, 4, 3, 2, 4, 3});
    CHECK(ids(first, in_file, "a</s>a") == Ids{4, 3, 2, 3});
    CHECK(ids(first, in_file, " a</s>a") == Ids{4, 3, 2, 3});
    CHECK(ids(first, in_file, "</s>a") == Ids{2, 3});
    CHECK(ids(never, in_file, "a</s>a") == Ids{3, 2, 3});
  }
  CHECK(ids("{}", true, "a</s>a</s> a") == Ids{4, 3, 2, 4, 3, 2, 4, 4, 3});
  CHECK(ids("{}", false, "a</s>a") == Ids{3, 2, 3});
  CHECK(Folder(first).load().encode("aa").begins == std::vector<std::size_t>{0, 0, 1});
  CHECK(Folder(first).load().decode(Ids{4, 3, 2, 4, 3}) == "a</s> a");
  CHECK(Folder(never).load().decode(Ids{4, 3}) == " a");
}

TEST_CASE("tokenizer_config_fields: a text is framed as the settings say, where the model has the tokens") {
  const auto framed = [](const char* config) { return Folder(config).load().encode("a", true).ids; };
  CHECK(framed("{}") == Ids{1, 3});
  CHECK(framed(R"({"add_bos_token": true, "add_eos_token": true})") == Ids{1, 3, 2});
  CHECK(framed(R"({"add_bos_token": false})") == Ids{3});
  CHECK(framed(R"({"add_bos_token": false, "add_eos_token": true})") == Ids{3, 2});
  CHECK(framed(R"({"bos_token": null, "eos_token": null, "add_eos_token": true})") == Ids{3});
  const Tokenizer both = Folder(R"({"add_eos_token": true})").load();
  CHECK(both.opening() == Ids{1});
  CHECK(both.closing() == Ids{2});
  CHECK(both.encode("aa", true).begins == std::vector<std::size_t>{0, 0, 1, 2});
}

TEST_CASE("tokenizer_config_fields: what cannot be followed says why and what helps") {
  const Folder files(R"({"fast_tokenizer_files": ["tokenizer.json", "other.json"]})");
  CHECK(test::message_of([&] { files.load(); }) ==
        files.name() + ": \"fast_tokenizer_files\" names other.json, which is not supported; tokenizer.json is");
  CHECK(told(Folder(R"({"fast_tokenizer_files": ["tokenizer.json"]})")).empty());
  const Folder regex(R"({"fix_mistral_regex": true})");
  CHECK(test::message_of([&] { regex.load(); }) ==
        regex.name() +
            ": \"fix_mistral_regex\" is true, which is not supported: it replaces the way in which tokenizer.json "
            "splits text; save the tokenizer once it is fixed, and leave the setting out");
  const Folder split(R"({"split_special_tokens": true})");
  CHECK(told(split) ==
        split.name() +
            ": \"split_special_tokens\" is true: special tokens in texts, also those that a chat template writes, are "
            "cut into pieces, as in transformers\n");
  const test::Quiet quiet;
  CHECK(split.load().encode("a</s>").ids == Ids{3, 0});
  CHECK(Folder(R"({"split_special_tokens": false})").load().encode("a</s>").ids == Ids{3, 2});
}

}  // namespace tokenizer_config_fields_test
