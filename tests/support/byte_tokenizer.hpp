#pragma once

#include <span>
#include <string>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "lora/tokenizer/split.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::test {

inline constexpr const char* llama_marks[] = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                              "<|eot_id|>"};
inline constexpr const char* tool_marks[] = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"};

/// The tokenizer.json of a tokenizer with a token for each byte and for the marks of ChatML. Ids: 0-255 the bytes, then
/// the marks, then `more` of them.
inline std::string byte_tokenizer_json(std::span<const char* const> more = {}) {
  io::Json vocab = io::Json::object();
  const auto letter = [](int code) {
    std::string text;
    tokenizer::unicode::append_utf8(text, static_cast<char32_t>(code));
    return text;
  };
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocab[printable ? letter(byte) : letter(256 + next++)] = byte;
  }
  io::Json added = io::Json::array();
  int id = 256;
  std::vector<const char*> marks = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"};
  marks.insert(marks.end(), more.begin(), more.end());
  for (const char* mark : marks)
    added.push_back({{"id", id++},
                     {"content", mark},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  // As transformers' class for Qwen's models has them.
  const io::Json words = {{"type", "Split"},
                          {"pattern", {{"Regex", std::string(tokenizer::WordPattern::qwen2_regex)}}},
                          {"behavior", "Isolated"},
                          {"invert", false}};
  const io::Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return io::to_text(
      {{"version", "1.0"},
       {"added_tokens", added},
       {"normalizer", {{"type", "NFC"}}},
       {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {words, bytes}}}},
       {"post_processor", nullptr},
       {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", io::Json::array()}}}});
}

}  // namespace lora::test
