#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/jinja/limits.hpp"
#include "lora/jinja/value.hpp"

namespace lora::jinja {

/// An iteration, and the variable loop of it. Items are chosen as late as in Jinja, since what chooses them may depend
/// on what the loop has done; some fields must know those to come.
struct Loop {
 public:
  /// `items`: a sequence. `passes`: whether an item is one of the loop; empty: all are.
  Loop(Value items, std::function<bool(const Value&)> passes) : items_(std::move(items)), passes_(std::move(passes)) {}

  /// Goes to the next item, if there is one.
  bool next();
  const Value& current() const { return current_; }

  /// A field of the variable.
  /// Throws   FormatError for one that is not supported
  Value field(Meter& meter, std::string_view name);
  /// The value whose turn it is.
  Value cycle(Meter& meter, const std::vector<Value>& values) const;

 private:
  /// Chooses items until `count` lie ahead, as far as there are so many; whether there are.
  bool look_ahead(std::size_t count);

  Value items_;
  std::function<bool(const Value&)> passes_;
  std::size_t read_ = 0;    // of the items
  std::size_t number_ = 0;  // of the current one, from 1
  Value previous_{}, current_{};
  std::deque<Value> ahead_{};
};

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/loop.ipp"
#endif
