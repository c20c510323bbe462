#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/jinja/builtins.hpp"
#include "lora/jinja/json_text.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::jinja::detail {

class JsonWriter {
 public:
  JsonWriter(Meter& meter, TextBuilder& out, const JsonStyle& style) : meter_(meter), out_(out), style_(style) {}

  void write(const Value& value) {
    meter_.step();
    if (value.is_text()) return write_text(value.text());
    if (value.is(Value::Kind::dict)) return write_dict(value.dict());
    const bool listed = value.is(Value::Kind::sequence) && (value.sequence().form == Sequence::Form::list ||
                                                            value.sequence().form == Sequence::Form::tuple);
    if (!listed) return void(out_.add(plain(value)));
    const std::vector<Value>& items = value.sequence().items;
    out_.add("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i == 0);
      write(items[i]);
    }
    close("]", items.empty());
  }

 private:
  void write_text(std::string_view text) {
    std::string quoted;
    add_json_text(quoted, text, style_.ensure_ascii);
    out_.add(quoted);
  }

  /// What is no text, list or mapping.
  std::string plain(const Value& value) const {
    if (value.is_none()) return "null";
    if (value.is(Value::Kind::boolean)) return value.flag() ? "true" : "false";
    if (value.is(Value::Kind::integer)) return concat(value.whole());
    if (!value.is(Value::Kind::real)) meter_.fail("tojson of ", kind_name(value));
    const double number = value.real();
    return std::isnan(number)   ? "NaN"
           : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity")
                                : python_number(number);
  }

  void write_dict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const Dict::Entry* entry : entries)
        if (!entry->first.is_text()) meter_.fail("tojson sorts keys that are texts alone");
      meter_.step(entries.size());
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) { return a->first.text() < b->first.text(); });
    }
    out_.add("{");
    ++level_;
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      separate(first);
      first = false;
      const Value& key = entry->first;
      write_text(key.is_text() ? key.text() : key.is(Value::Kind::sequence) ? fail_at_key(key) : plain(key));
      out_.add(style_.behind_key);
      write(entry->second);
    }
    close("}", entries.empty());
  }

  [[noreturn]] std::string fail_at_key(const Value& key) const {
    meter_.fail("tojson of a key that is ", kind_name(key));
  }

  void separate(bool first) {
    if (!first) out_.add(style_.between);
    new_line();
  }
  void close(std::string_view bracket, bool empty) {
    --level_;
    if (!empty) new_line();
    out_.add(bracket);
  }
  void new_line() {
    if (!style_.indent) return;
    out_.add("\n");
    for (int i = 0; i < level_; ++i) out_.add(*style_.indent);
  }

  Meter& meter_;
  TextBuilder& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE void write_json(Meter& meter, TextBuilder& out, const Value& value, const JsonStyle& style) {
  detail::JsonWriter(meter, out, style).write(value);
}

}  // namespace lora::jinja
