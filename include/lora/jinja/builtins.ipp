#pragma once

#include <algorithm>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/jinja/builtins.hpp"

namespace lora::jinja {

LORA_INLINE std::vector<std::string_view> Signature::list() const {
  std::vector<std::string_view> names;
  for (std::string_view rest = parameters; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    names.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

LORA_INLINE std::optional<std::vector<std::size_t>> places_of(const Signature& signature, std::size_t count,
                                                              std::span<const std::string> names,
                                                              std::string& problem) {
  const std::vector<std::string_view> parameters = signature.list();
  const bool any = !parameters.empty() && parameters.back() == "*";
  const std::size_t known = parameters.size() - (any ? 1 : 0), positional = count - names.size();
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < positional; ++i) places.push_back(i);
  if (positional > known && !any) {
    problem = concat(signature.name, " takes at most ", known, known == 1 ? " argument" : " arguments");
    return std::nullopt;
  }
  for (const std::string& name : names) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end() || name == "*") {
      problem = concat(signature.name, " takes no argument ", std::string_view(name));
      return std::nullopt;
    }
    places.push_back(static_cast<std::size_t>(found - parameters.begin()));
  }
  for (std::size_t i = 0; i < std::max(known, places.size()); ++i) {
    const auto given = std::count(places.begin(), places.end(), i);
    if (given > 1 || (given == 0 && i < signature.required)) {
      problem = concat(signature.name, " takes its argument ", parameters[i], " once");
      return std::nullopt;
    }
  }
  return places;
}

LORA_INLINE std::vector<Value> arranged(Meter& meter, const Signature& signature, std::vector<Value> arguments,
                                        std::span<const std::string> names) {
  std::string problem;
  const auto places = places_of(signature, arguments.size(), names, problem);
  if (!places) meter.fail(std::string_view(problem));
  const std::vector<std::string_view> parameters = signature.list();
  const bool any = !parameters.empty() && parameters.back() == "*";
  std::vector<Value> in_order(std::max(parameters.size() - (any ? 1 : 0), arguments.size()), Value::absent());
  for (std::size_t i = 0; i < arguments.size(); ++i) in_order[(*places)[i]] = std::move(arguments[i]);
  return in_order;
}

LORA_INLINE std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::absent:
    case Value::Kind::undefined:
      return "an undefined value";
    case Value::Kind::none:
      return "none";
    case Value::Kind::boolean:
      return value.flag() ? "true" : "false";
    case Value::Kind::integer:
      return "an integer";
    case Value::Kind::real:
      return "a floating point number";
    case Value::Kind::text:
      return "a text";
    case Value::Kind::dict:
      return "a mapping";
    case Value::Kind::space:
      return "a namespace";
    case Value::Kind::function:
      return "a function";
    case Value::Kind::loop:
      return "the variable loop";
    case Value::Kind::sequence:
      break;
  }
  switch (value.sequence().form) {
    case Sequence::Form::list:
      return "a list";
    case Sequence::Form::tuple:
      return "a tuple";
    case Sequence::Form::range:
      return "a range";
    case Sequence::Form::view:
      return "a view of a mapping";
    case Sequence::Form::stream:
      break;
  }
  return "a generator";
}

LORA_INLINE std::int64_t whole_argument(Meter& meter, const Value& value, std::string_view name,
                                        std::int64_t otherwise) {
  if (value.is_absent()) return otherwise;
  if (!value.is_whole()) meter.fail("the argument ", name, " is ", kind_name(value), "; expected an integer");
  return value.whole();
}

LORA_INLINE bool flag_argument(const Value& value, bool otherwise) {
  return value.is_absent() ? otherwise : truth(value);
}

}  // namespace lora::jinja
