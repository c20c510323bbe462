#pragma once

#include "lora/core/config.hpp"
#include "lora/model/description/module_pattern.hpp"

namespace lora::model {

LORA_INLINE ModulePattern::ModulePattern(std::string_view expression, Fits fits) {
  const auto posix = in_posix(expression, fits);
  known_ = posix && ::regcomp(&compiled_, posix->c_str(), REG_EXTENDED | REG_NOSUB) == 0;
}

LORA_INLINE ModulePattern::~ModulePattern() {
  if (known_) ::regfree(&compiled_);
}

LORA_INLINE std::optional<std::string> ModulePattern::in_posix(std::string_view expression, Fits fits) {
  constexpr std::size_t longest = 1000;
  if (expression.size() > longest || expression.find_first_of("{}") != expression.npos) return std::nullopt;
  std::string posix = fits == Fits::whole ? "^(" : "(";
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const std::string_view rest = expression.substr(i);
    if (c == '\0' || (c == '\\' && in_class) || rest.starts_with("[:") || rest.starts_with("[]") ||
        rest.starts_with("[^]"))
      return std::nullopt;
    if (c == '[' || c == ']') in_class = c == '[';
    if (c == '\\') {
      const char escaped = ++i < expression.size() ? expression[i] : '\0';
      constexpr std::string_view marks = ".-_$*+?()[]|/";
      if (escaped == 'd') {
        posix += "[0-9]";
      } else if (escaped == 'w') {
        posix += "[A-Za-z0-9_]";
      } else if (marks.find(escaped) != marks.npos) {
        posix += {'[', escaped, ']'};
      } else {
        return std::nullopt;
      }
    } else if (!in_class && rest.starts_with("(?")) {
      if (!rest.starts_with("(?:")) return std::nullopt;
      posix += '(';
      i += 2;
    } else {
      posix += c;
    }
  }
  return posix + (fits == Fits::whole ? ")$" : ")");
}

}  // namespace lora::model
