#pragma once

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/tokenizer/normalizer.hpp"

namespace lora::tokenizer {

LORA_INLINE bool Normalizer::changes(std::string_view text) const {
  return !empty() && !(is_nfc() && unicode::is_plainly_nfc(text));
}

namespace detail {

/// The same text, where each byte comes from the code point that it is part of.
LORA_INLINE unicode::Normalized unchanged(std::string_view text) {
  unicode::Normalized same{std::string(text), std::vector<std::size_t>(text.size())};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + unicode::code_point_at(text, at).bytes;
    std::fill(same.begins.begin() + static_cast<std::ptrdiff_t>(at),
              same.begins.begin() + static_cast<std::ptrdiff_t>(end), at);
    at = end;
  }
  return same;
}

LORA_INLINE void put_before(unicode::Normalized& text, std::string_view what) {
  text.begins.insert(text.begins.begin(), what.size(), text.begins.front());
  text.text.insert(0, what);
}

LORA_INLINE unicode::Normalized with_replaced(const unicode::Normalized& text, std::string_view from,
                                              std::string_view to) {
  unicode::Normalized made;
  const auto keep = [&](std::size_t begin, std::size_t end) {
    made.text.append(text.text, begin, end - begin);
    made.begins.insert(made.begins.end(), text.begins.begin() + static_cast<std::ptrdiff_t>(begin),
                       text.begins.begin() + static_cast<std::ptrdiff_t>(end));
  };
  std::size_t done = 0;
  for (std::size_t at = text.text.find(from); at != text.text.npos; at = text.text.find(from, done)) {
    keep(done, at);
    made.text += to;
    done = at + from.size();
    made.begins.resize(made.text.size(), text.begins[done - 1]);
  }
  keep(done, text.text.size());
  return made;
}

}  // namespace detail

LORA_INLINE unicode::Normalized Normalizer::operator()(std::string_view text, bool first) const {
  using Kind = Step::Kind;
  if (is_nfc()) return unicode::to_nfc(text);
  unicode::Normalized made = detail::unchanged(text);
  for (const Step& step : steps_) {
    if (made.text.empty()) break;
    if (step.kind == Kind::nfc) {
      unicode::Normalized next = unicode::to_nfc(made.text);
      for (std::size_t& begin : next.begins) begin = made.begins[begin];
      made = std::move(next);
    } else if (step.kind == Kind::replace) {
      made = detail::with_replaced(made, step.from, step.to);
    } else if (step.kind == Kind::prepend || (!made.text.starts_with(step.to) && (first || step.kind == Kind::mark))) {
      detail::put_before(made, step.to);
    }
  }
  return made;
}

LORA_INLINE std::size_t Normalizer::growth(std::size_t growth) const {
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::nfc)
      growth *= 3;  // UAX #15: at most 3 times in UTF-8
    else if (step.kind == Step::Kind::replace)
      growth *= std::max<std::size_t>(1, (step.to.size() + step.from.size() - 1) / step.from.size());
    else
      growth += step.to.size();  // a text has a byte or more
    growth = std::min(growth, std::size_t{1} << 32);
  }
  return growth;
}

LORA_INLINE std::string Normalizer::text() const {
  std::string all;
  for (const Step& step : steps_) {
    constexpr const char* names[] = {"NFC", "prepend", "mark", "mark first", "replace"};
    all += concat(all.empty() ? "" : ", ", names[static_cast<std::size_t>(step.kind)]);
    for (const std::string* part : {&step.from, &step.to})
      if (step.kind != Step::Kind::nfc) all += concat(" ", part->size(), " ", *part);
  }
  return all;
}

}  // namespace lora::tokenizer
