#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lora/tokenizer/sentencepiece.hpp"

namespace lora::test {

/// A precompiled_charsmap in the making: states of 256 units each, so that every unit can be set by hand.
class CharsmapFile {
 public:
  static constexpr std::uint32_t width = 256;

  /// Adds a rule: what stands in the text, and what is written for it.
  void add(std::string_view from, std::string_view to) {
    std::uint32_t state = 1, place = 0;  // state 0's block holds the root alone
    for (const char c : from) {
      const auto byte = static_cast<unsigned char>(c);
      const auto [next, added] = states_.emplace(std::pair(state, byte), static_cast<std::uint32_t>(count_));
      if (added) ++count_;
      units.resize(count_ * width, unused);
      place = (state * width) ^ byte;
      point(place, byte, next->second * width);
      state = next->second;
    }
    units[place] |= 1u << 8;
    units[state * width] = std::uint32_t{1} << 31 | static_cast<std::uint32_t>(texts.size());
    texts += to;
    texts += '\0';
  }

  /// Makes the unit at `place` bear a byte and lead to a state that begins at `target`.
  void point(std::uint32_t place, std::uint32_t byte, std::uint32_t target) {
    units[place] = (units[place] & 1u << 8) | (place ^ target) << 10 | byte;
  }

  std::string bytes() const {
    const auto size = static_cast<std::uint32_t>(units.size() * 4);
    std::string result(4 + size, '\0');
    std::memcpy(result.data(), &size, 4);
    std::memcpy(result.data() + 4, units.data(), size);
    return result + texts;
  }

  std::vector<std::uint32_t> units = [] {
    std::vector<std::uint32_t> start(2 * width, unused);
    start[0] = width << 10;
    return start;
  }();
  std::string texts;

 private:
  static constexpr std::uint32_t unused = std::uint32_t{1} << 31;  // a leaf, which no byte leads to

  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> states_;
  std::size_t count_ = 2;
};

/// A tokenizer.model of a few pieces, with this precompiled_charsmap; `extra` are further fields of the model.
inline std::string sentencepiece_file(const std::string& charsmap, const std::string& extra = {}) {
  using Kind = tokenizer::SentencePiece::Kind;
  const std::vector<tokenizer::SentencePiece> pieces = {
      {"<unk>", 0, Kind::unknown}, {"a", -1, Kind::normal}, {"b", -2, Kind::normal}, {"\u2581", -3, Kind::normal}};
  tokenizer::detail::ProtoWriter normalizer, model;
  normalizer.put_bytes(2, charsmap);
  model.put_bytes(3, normalizer.bytes());
  return tokenizer::sentencepiece_proto(pieces, true) + model.bytes() + extra;
}

}  // namespace lora::test
