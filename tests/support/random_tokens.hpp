#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/io/file.hpp"
#include "lora/io/json.hpp"

namespace lora::test {

/// A data file of random tokens for a model of 61, of which the later half of each record is labelled.
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

}  // namespace lora::test
