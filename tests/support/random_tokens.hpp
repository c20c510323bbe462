#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::test {

/// A data file of random tokens for a model of 61, of which the later half of each record is labeled.
inline void write_tokens(const io::Path& path, Index count, std::uint64_t seed) {
  std::string text;
  Random random(seed);
  for (Index i = 0; i < count; ++i) {
    std::vector<std::int32_t> ids, labels;
    const Index length = 4 + random.below(9);
    for (Index j = 0; j < length; ++j) {
      ids.push_back(static_cast<std::int32_t>(random.below(61)));
      labels.push_back(j < length / 2 ? -100 : ids.back());
    }
    text += io::to_text(io::Json{{"input_ids", ids}, {"labels", labels}}, -1) + "\n";
  }
  io::write_file(path, std::string_view(text));
}

/// Gives the records of such a file these classes in turn, in the field "difficulty".
inline void write_classes(const io::Path& path, const std::vector<std::string>& labels) {
  const std::string before = io::read_file(path);
  std::string text;
  std::size_t record = 0;
  for (std::size_t at = 0, end; (end = before.find('\n', at)) != before.npos; at = end + 1) {
    io::Json json = io::parse_json(before.substr(at, end - at), "record");
    json["difficulty"] = labels[record++ % labels.size()];
    text += io::to_text(json, -1) + "\n";
  }
  io::write_file(path, std::string_view(text));
}

}  // namespace lora::test
