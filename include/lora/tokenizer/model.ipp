#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/model.hpp"

namespace lora::tokenizer {

LORA_INLINE void ByteLevelModel::encode(std::string_view text, std::vector<std::int32_t>& ids,
                                        std::vector<std::size_t>& begins) const {
  Bpe::Scratch scratch;
  pre_tokenizer_.split(text, [&](std::string_view word, std::size_t place, std::size_t added) {
    bpe_.encode(word, scratch, [&](Bpe::Symbol symbol) {
      ids.push_back(symbol.id);
      begins.push_back(place + (symbol.begin > added ? symbol.begin - added : 0));
    });
  });
}

LORA_INLINE std::string ByteLevelModel::bytes_of_added(std::string_view content) const {
  return ByteAlphabet::instance().to_bytes(content).value_or(std::string(content));
}

LORA_INLINE Fingerprints ByteLevelModel::fingerprints() const {
  detail::FingerprintSum vocabulary, merges, normalizer;
  for (std::int32_t id = 0; id < end(); ++id) {
    if (!has(id)) continue;
    vocabulary.add_number(id);
    vocabulary.add(bpe_.vocabulary().text(id));
  }
  merges.add_numbers(std::span(bpe_.merges()));
  merges.add_number(bpe_.ignore_merges());
  merges.add_number(bpe_.unknown());
  normalizer.add(nfc_ ? "NFC" : "");
  return {vocabulary.value(), merges.value(), 0, normalizer.value(), pre_tokenizer_.fingerprint()};
}

}  // namespace lora::tokenizer
