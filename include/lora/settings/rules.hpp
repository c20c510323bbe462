#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/stage_lists.hpp"

namespace lora::settings {

/// A constraint between keys: without it a command would silently ignore a key, or fail later.
struct Rule {
  enum class Kind {
    required,  ///< the key must be given if `applies`
    excludes,  ///< the key and `other` must not both be given; the command line's replaces the file's
    refused,   ///< the key must not be given if `applies`
    idle       ///< the key has no effect if `applies`; allowed in a file, which may serve other commands
  };

  Kind kind;
  unsigned commands;
  std::string_view key;
  std::string_view other;
  bool (*applies)(const Config&);
  std::string_view words;  ///< what is allowed, and why
};

/// All rules, in the order in which they are checked.
const std::vector<Rule>& rules();

/// Whether a command's settings break a rule.
bool is_broken(const Rule& rule, const Config& config, Command command);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/rules.ipp"
#endif
