#pragma once

#include <cstdint>
#include <limits>

#include "lora/core/config.hpp"
#include "lora/jinja/builtins.hpp"
#include "lora/jinja/loop.hpp"

namespace lora::jinja {

LORA_INLINE bool Loop::look_ahead(std::size_t count) {
  const std::vector<Value>& items = items_.sequence().items;
  while (ahead_.size() < count && read_ < items.size()) {
    const Value& item = items[read_++];
    if (!passes_ || passes_(item)) ahead_.push_back(item);
  }
  return ahead_.size() >= count;
}

LORA_INLINE bool Loop::next() {
  if (!look_ahead(1)) return false;
  previous_ = std::move(current_);
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  ++number_;
  return true;
}

LORA_INLINE Value Loop::field(Meter& meter, std::string_view name) {
  const auto whole = [](std::size_t number) { return Value::of(static_cast<std::int64_t>(number)); };
  if (name == "index") return whole(number_);
  if (name == "index0") return whole(number_ - 1);
  if (name == "first") return Value::of(number_ == 1);
  if (name == "last") return Value::of(!look_ahead(1));
  if (name == "previtem") return previous_;
  if (name == "nextitem") return look_ahead(1) ? ahead_.front() : Value();
  if (name == "depth") return whole(1);
  if (name == "depth0") return whole(0);
  if (name == "length" || name == "revindex" || name == "revindex0") {
    (void)look_ahead(std::numeric_limits<std::size_t>::max());
    return whole(name == "length" ? number_ + ahead_.size() : ahead_.size() + (name == "revindex" ? 1 : 0));
  }
  meter.fail("loop.", name, " is not supported");
}

LORA_INLINE Value Loop::cycle(Meter& meter, const std::vector<Value>& values) const {
  if (values.empty()) meter.fail("loop.cycle takes at least one argument");
  return values[(number_ - 1) % values.size()];
}

}  // namespace lora::jinja
