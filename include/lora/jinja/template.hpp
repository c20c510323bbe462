#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "lora/jinja/limits.hpp"

namespace lora::jinja {

struct Tree;

/// A variable that a template is rendered with.
struct Variable {
  std::string_view name;
  const io::Json* value;
};

/// A chat template in Jinja, parsed. Renders as Python's jinja2 does when transformers' apply_chat_template calls it,
/// or refuses. Thread-safe.
class Template {
 public:
  /// `name`: of the template in errors.
  /// Throws   FormatError with line and column for what is no Jinja, or not supported
  Template(std::string_view text, std::string name);

  /// `day`: YYYY-MM-DD, which strftime_now writes.
  /// Throws   FormatError with line and column for what raises an error in Python, is not supported, or takes more than
  ///          the limits
  std::string render(const std::vector<Variable>& variables, const std::string& day, const Limits& limits = {}) const;

  /// Whether it has a variable of that name, or asks a value for a field of that name.
  bool names(std::string_view name) const;
  bool asks_for(std::string_view field) const;

 private:
  std::string name_;
  std::shared_ptr<const Tree> tree_;
};

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/template.ipp"
#endif
