#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/token_decoder.hpp"

namespace lora::tokenizer {

LORA_INLINE std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);
  unsigned value = 0;
  for (const char digit : digits) {
    const bool is_number = digit >= '0' && digit <= '9';
    const bool is_lower = digit >= 'a' && digit <= 'f', is_upper = digit >= 'A' && digit <= 'F';
    if (!is_number && !is_lower && !is_upper) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(is_number ? digit - '0' : digit - (is_lower ? 'a' : 'A') + 10);
  }
  return static_cast<char>(static_cast<unsigned char>(value));
}

namespace detail {

LORA_INLINE void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == text.npos) return;
  std::string made;
  std::size_t done = 0;
  for (; at != text.npos; at = text.find(from, done)) {
    made.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = made.append(text, done);
}

LORA_INLINE std::vector<std::string> with_bytes_joined(std::vector<std::string> tokens) {
  std::vector<std::string> made;
  std::string bytes;
  const auto end_of_bytes = [&] {
    const bool valid = unicode::find_invalid_utf8(bytes) == std::string_view::npos;
    if (valid && !bytes.empty()) made.push_back(bytes);
    if (!valid) made.insert(made.end(), bytes.size(), "\uFFFD");
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes += *byte;
      continue;
    }
    end_of_bytes();
    made.push_back(std::move(token));
  }
  end_of_bytes();
  return made;
}

LORA_INLINE std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

}  // namespace detail

LORA_INLINE std::size_t TokenDecoder::growth() const {
  std::size_t growth = 1;
  for (const Step& step : steps_)
    if (step.kind == Step::Kind::replace)
      growth = std::min(growth * std::max<std::size_t>(1, (step.to.size() + step.from.size() - 1) / step.from.size()),
                        std::size_t{1} << 32);
  return growth;
}

LORA_INLINE bool TokenDecoder::awaits_more(std::string_view token) const {
  return byte_of_token(token).has_value() &&
         std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == Step::Kind::bytes; });
}

LORA_INLINE std::string TokenDecoder::operator()(std::vector<std::string> tokens) const {
  using Kind = Step::Kind;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::replace:
        for (std::string& token : tokens) detail::replace_all(token, step.from, step.to);
        break;
      case Kind::bytes:
        tokens = detail::with_bytes_joined(std::move(tokens));
        break;
      case Kind::fuse:
        tokens = {detail::joined(tokens)};
        break;
      case Kind::strip:
        for (std::string& token : tokens) {
          std::size_t gone = 0;
          for (std::size_t i = 0; i < step.count && token.compare(gone, step.from.size(), step.from) == 0; ++i)
            gone += step.from.size();
          token.erase(0, gone);
        }
        break;
      case Kind::marks:
        for (std::size_t i = 0; i < tokens.size(); ++i)
          detail::replace_all(tokens[i], step.from, i == 0 && step.leading ? "" : " ");
        break;
    }
  }
  return detail::joined(tokens);
}

}  // namespace lora::tokenizer
