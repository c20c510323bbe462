#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/model.hpp"

namespace lora::tokenizer {

LORA_INLINE const Normalizer& TokenModel::normalizer() const {
  static const Normalizer none;
  return none;
}

LORA_INLINE void BpeModel::encode(std::string_view text, bool first, std::vector<std::int32_t>& ids,
                                  std::vector<std::size_t>& begins) const {
  if (steps_.marks.empty()) return encode_words(text, ids, begins);
  const unicode::Normalized marked = steps_.marks(text, first);
  const std::size_t from = begins.size();
  encode_words(marked.text, ids, begins);
  for (std::size_t i = from; i < begins.size(); ++i) begins[i] = marked.begins[begins[i]];
}

LORA_INLINE void BpeModel::encode_words(std::string_view text, std::vector<std::int32_t>& ids,
                                        std::vector<std::size_t>& begins) const {
  Bpe::Scratch scratch;
  const bool is_text = bpe_.vocabulary().is_text();
  steps_.pre_tokenizer.split(text, [&](std::string_view word, std::size_t place, std::size_t added) {
    const auto take = [&](Bpe::Symbol symbol) {
      ids.push_back(symbol.id);
      begins.push_back(place + (symbol.begin > added ? symbol.begin - added : 0));
    };
    if (is_text)
      bpe_.encode_text(word, scratch, take);
    else
      bpe_.encode(word, scratch, take);
  });
}

LORA_INLINE std::string BpeModel::bytes_of_added(std::string_view content) const {
  return ByteAlphabet::instance().to_bytes(content).value_or(std::string(content));
}

LORA_INLINE Fingerprints BpeModel::fingerprints() const {
  detail::FingerprintSum vocabulary, merges, normalizer, splitting;
  for (std::int32_t id = 0; id < end(); ++id) {
    if (!has(id)) continue;
    vocabulary.add_number(id);
    vocabulary.add(bpe_.vocabulary().text(id));
  }
  merges.add_numbers(std::span(bpe_.merges()));
  merges.add_number(bpe_.ignore_merges());
  merges.add_number(bpe_.unknown());
  if (!is_byte_level())
    for (const bool flag : {bpe_.characters().byte_tokens, bpe_.characters().fuse_unknown}) merges.add_number(flag);
  normalizer.add(steps_.normalizer.text());
  // What byte-level tokenizers of earlier versions don't have is added only where it is.
  std::uint64_t words = steps_.pre_tokenizer.fingerprint();
  if (!is_byte_level() || !steps_.marks.empty()) {
    splitting.add_number(static_cast<std::int64_t>(words));
    splitting.add(steps_.marks.text());
    splitting.add_number(is_byte_level());
    words = splitting.value();
  }
  return {vocabulary.value(), merges.value(), 0, normalizer.value(), words};
}

}  // namespace lora::tokenizer
