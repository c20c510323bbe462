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
  explicit ModulePattern(std::string_view expression, Fits fits = Fits::whole);
  ModulePattern(const ModulePattern&) = delete;
  ModulePattern& operator=(const ModulePattern&) = delete;
  ~ModulePattern();

  /// False if the expression uses something that POSIX doesn't have.
  bool known() const { return known_; }
  bool matches(const std::string& name) const { return ::regexec(&compiled_, name.c_str(), 0, nullptr, 0) == 0; }

 private:
  /// Of what the two read alike: names, dots, groups, choices, classes without escapes, and repetitions without counts
  /// (which may grow beyond all bounds). A repetition that takes little fits the same whole names.
  static std::optional<std::string> in_posix(std::string_view expression, Fits fits);

  regex_t compiled_{};
  bool known_ = false;
};

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/module_pattern.ipp"
#endif
