#pragma once

#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::test {

/// The content of a file that zlib packed.
inline std::string unpacked(const std::string& path) {
  const std::string packed = io::read_file(path);
  std::string content(std::size_t{64} << 20, '\0');
  auto size = static_cast<uLongf>(content.size());
  const int status = ::uncompress(reinterpret_cast<Bytef*>(content.data()), &size,
                                  reinterpret_cast<const Bytef*>(packed.data()), static_cast<uLong>(packed.size()));
  if (status != Z_OK) throw std::runtime_error(path + ": zlib returns " + std::to_string(status));
  content.resize(size);
  return content;
}

inline std::string tokenizer_data(const std::string& name) { return std::string(LORA_FIXTURES "/tokenizers/") + name; }

/// The whole tokenizer.json of qwen2_5, qwen3 or smollm2, as tests/make/tokenizer_fixtures.py took it apart.
inline std::string tokenizer_json(const std::string& name) {
  io::Json document = io::read_json(tokenizer_data(name + ".json"));
  const std::string lines = unpacked(tokenizer_data(name == "smollm2" ? "smollm2_merges.txt.z" : "qwen2_merges.txt.z"));
  auto& vocabulary = document["model"]["vocab"].get_ref<io::Json::object_t&>();
  io::Json& merges = document["model"]["merges"];
  const bool pairs = name != "qwen2_5";  // the older way to write a merge is one string
  for (std::size_t begin = 0, end; begin < lines.size(); begin = end + 1) {
    end = lines.find('\n', begin);
    const std::string merge = lines.substr(begin, end - begin);
    const std::size_t space = merge.find(' ');
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    const auto id = vocabulary.size();
    vocabulary.emplace_back(left + right, id);
    merges.push_back(pairs ? io::Json::array({left, right}) : io::Json(merge));
  }
  return io::to_text(document, -1);
}

inline std::uint32_t checksum(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

/// A packed fixture that is one JSON value.
inline io::Json packed_json(const std::string& file) { return io::parse_json(unpacked(tokenizer_data(file)), file); }

/// The texts on which every tokenizer is compared.
inline std::vector<std::string> texts() { return packed_json("texts.json.z").get<std::vector<std::string>>(); }

/// As block_text in tests/make/tokenizer_fixtures.py.
inline std::string block_text(char32_t block) {
  std::string text;
  for (char32_t c = block * 256; c < block * 256 + 256; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string own;
    tokenizer::unicode::append_utf8(own, c);
    text += "a" + own + "\u0323\u0301b " + own + "1" + own + "\n";
  }
  return text;
}

}  // namespace lora::test
