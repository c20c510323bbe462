#pragma once

#include <regex.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lora::model {

/// A Python regular expression over names, if POSIX has an equivalent.
class ModulePattern {
 public:
  enum class Fits {
    whole,  ///< the whole name, like in PEFT
    part    ///< any part of it, as re.search does
  };
  explicit ModulePattern(std::string_view expression, Fits fits = Fits::whole) {
    const auto posix = in_posix(expression, fits);
    known_ = posix && ::regcomp(&compiled_, posix->c_str(), REG_EXTENDED | REG_NOSUB) == 0;
  }
  ModulePattern(const ModulePattern&) = delete;
  ModulePattern& operator=(const ModulePattern&) = delete;
  ~ModulePattern() {
    if (known_) ::regfree(&compiled_);
  }

  /// False if the expression uses something that POSIX doesn't have.
  bool known() const { return known_; }
  bool matches(const std::string& name) const { return ::regexec(&compiled_, name.c_str(), 0, nullptr, 0) == 0; }

 private:
  /// Of what the two read alike: names, dots, groups, choices, classes without escapes, and repetitions without counts
  /// (which may grow beyond all bounds). A repetition that takes little fits the same whole names.
  static std::optional<std::string> in_posix(std::string_view expression, Fits fits) {
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

  regex_t compiled_{};
  bool known_ = false;
};

}  // namespace lora::model
