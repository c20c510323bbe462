#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"
#include "support/sentencepiece_file.hpp"

namespace fuzz_sentencepiece {

namespace {

/// A tokenizer.model with rules for text, and what the input makes of it: six bytes each, a place, what to do, a value.
std::string changed(std::string_view edits) {
  lora::test::CharsmapFile map;
  map.add("\u00E9", "e");
  map.add("e\u0301", "e");
  map.add("\uFB01", "fi");
  std::string model = lora::test::sentencepiece_file(map.bytes());
  for (; edits.size() >= 6 && !model.empty(); edits.remove_prefix(6)) {
    std::uint32_t place = 0;
    std::memcpy(&place, edits.data(), sizeof place);
    const std::size_t at = place % model.size();
    switch (edits[4] & 3) {
      case 0:
        model[at] = edits[5];
        break;
      case 1:
        model[at] = static_cast<char>(model[at] ^ (1 << (edits[5] & 7)));
        break;
      case 2:
        model.erase(at, static_cast<unsigned char>(edits[5]));
        break;
      default:
        model.insert(at, model.substr(at / 2, static_cast<unsigned char>(edits[5])));
    }
  }
  return model;
}

}  // namespace

/// A tokenizer.model; or, after a zero byte, changes to one that is sound.
LORA_FUZZ_TARGET(sentencepiece, data, size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const bool edits = size > 0 && input[0] == '\0';
    const lora::tokenizer::SentencePieceModel model(edits ? changed(input.substr(1)) : std::string(input), "input");
    const std::string_view text = "All e\u0301 \u00E9t\u00E9 \uFB01n  x";
    std::vector<std::int32_t> ids;
    std::vector<std::size_t> begins;
    model.encode(text, true, ids, begins);
    if (ids.size() != begins.size()) __builtin_trap();
    for (const std::size_t begin : begins)
      if (begin > text.size()) __builtin_trap();
    for (const std::int32_t id : ids) {
      if (!model.has(id)) __builtin_trap();
      (void)model.bytes_of(id);
    }
  } catch (const lora::Error&) {}
}

}  // namespace fuzz_sentencepiece
