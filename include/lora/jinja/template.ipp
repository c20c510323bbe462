#pragma once

#include <algorithm>

#include "lora/core/config.hpp"
#include "lora/jinja/evaluator.hpp"
#include "lora/jinja/parser.hpp"
#include "lora/jinja/template.hpp"

namespace lora::jinja {

LORA_INLINE Template::Template(std::string_view text, std::string name)
    : name_(std::move(name)), tree_(std::make_shared<const Tree>(parse(text, name_))) {}

LORA_INLINE std::string Template::render(const std::vector<Variable>& variables, const std::string& day,
                                         const Limits& limits) const {
  Meter meter(limits, name_);
  Evaluator evaluator(meter, *tree_, day);
  for (const Variable& variable : variables) evaluator.set(variable.name, value_of(meter, *variable.value));
  return evaluator.run();
}

LORA_INLINE bool Template::names(std::string_view name) const {
  return std::find(tree_->names.begin(), tree_->names.end(), name) != tree_->names.end();
}

LORA_INLINE bool Template::asks_for(std::string_view field) const {
  return std::find(tree_->fields.begin(), tree_->fields.end(), field) != tree_->fields.end();
}

}  // namespace lora::jinja
