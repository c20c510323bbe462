#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/jinja/loop.hpp"
#include "lora/jinja/methods.hpp"
#include "lora/jinja/operations.hpp"
#include "lora/jinja/python_text.hpp"
#include "lora/jinja/text_case.hpp"

namespace lora::jinja::detail {

using Arguments = std::vector<Value>;

LORA_INLINE const std::string& text_argument(Meter& meter, const Value& value, std::string_view name) {
  if (!value.is_text()) meter.fail("the argument ", name, " is ", kind_name(value), "; expected a text");
  return value.text();
}

LORA_INLINE Value text_value(Meter& meter, std::string_view text) { return Value::of(&meter, std::string(text)); }

LORA_INLINE std::string_view stripped(Meter& meter, std::string_view text, const Value& characters, bool left,
                                      bool right) {
  if (characters.is_absent() || characters.is_none()) {
    if (left) text = strip_left(text);
    return right ? strip_right(text) : text;
  }
  const std::string& set = text_argument(meter, characters, "chars");
  const auto has = [&](std::string_view one) {
    for (std::size_t at = 0; at < set.size(); at += bytes_at(set, at))
      if (std::string_view(set).substr(at, bytes_at(set, at)) == one) return true;
    return false;
  };
  meter.read(text.size() * (1 + set.size()));
  while (left && !text.empty() && has(text.substr(0, bytes_at(text, 0)))) text.remove_prefix(bytes_at(text, 0));
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0u) == 0x80u) --last;
    if (last + bytes_at(text, last) != text.size()) last = text.size() - 1;
    if (!has(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

/// A part of a text, as the arguments `from` and `to` of str.find choose it: where it begins, and how long it is.
struct Part {
  std::size_t begin, size;
  std::size_t first;  // character
  bool exists;        // `from` is not behind the text's end
};

LORA_INLINE Part part_of(Meter& meter, std::string_view text, const Value& from, const Value& to) {
  if ((from.is_absent() || from.is_none()) && (to.is_absent() || to.is_none())) return {0, text.size(), 0, true};
  const auto count = static_cast<std::int64_t>(characters(text));
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    const std::int64_t given = value.is_none() ? otherwise : whole_argument(meter, value, "start or end", otherwise);
    return given < 0 ? std::max<std::int64_t>(given + count, 0) : given;
  };
  const std::int64_t begin = bound(from, 0), end = std::min(bound(to, count), count);
  if (begin > count) return {text.size(), 0, 0, false};
  const std::size_t first = place_of(text, static_cast<std::size_t>(begin));
  const std::size_t last = end > begin ? place_of(text, static_cast<std::size_t>(end)) : first;
  return {first, last - first, static_cast<std::size_t>(begin), end >= begin};
}

LORA_INLINE Value text_starts(Meter& meter, std::string_view text, const Arguments& arguments, bool ends) {
  const Part part = part_of(meter, text, arguments[1], arguments[2]);
  const std::string_view inside = text.substr(part.begin, part.size);
  const auto matches = [&](const Value& value) {
    const std::string& other = text_argument(meter, value, "prefix");
    return part.exists && (ends ? inside.ends_with(other) : inside.starts_with(other));
  };
  const Value& given = arguments[0];
  if (!given.is(Value::Kind::sequence) || given.sequence().form != Sequence::Form::tuple)
    return Value::of(matches(given));
  bool found = false;
  for (const Value& each : given.sequence().items) found = found || matches(each);
  return Value::of(found);
}

/// Where a text stands first, or last, in characters; below 0 if nowhere.
LORA_INLINE std::int64_t text_find(Meter& meter, std::string_view text, const Arguments& arguments, bool last) {
  const std::string& other = text_argument(meter, arguments[0], "sub");
  meter.read(text.size() * (1 + other.size() / 64));
  const Part part = part_of(meter, text, arguments[1], arguments[2]);
  const std::string_view inside = text.substr(part.begin, part.size);
  const std::size_t found = !part.exists ? inside.npos : last ? inside.rfind(other) : inside.find(other);
  if (found == inside.npos) return -1;
  return static_cast<std::int64_t>(part.first + characters(inside.substr(0, found)));
}

LORA_INLINE Value text_replace(Meter& meter, std::string_view text, const Value& from, const Value& to,
                               std::int64_t most) {
  const std::string &old = text_argument(meter, from, "old"), &other = text_argument(meter, to, "new");
  meter.read(text.size() * (1 + old.size() / 64));
  TextBuilder out(meter);
  std::size_t at = 0;
  if (old.empty()) {
    for (std::size_t bytes = 0; most != 0; most -= most > 0 ? 1 : 0) {
      out.add(other);
      if (at == text.size()) return out.value();
      bytes = bytes_at(text, at);
      out.add(text.substr(at, bytes));
      meter.step();
      at += bytes;
    }
    return out.add(text.substr(at)).value();
  }
  for (std::size_t found = text.find(old); found != text.npos && most != 0; found = text.find(old, at)) {
    if (most > 0) --most;
    out.add(text.substr(at, found - at)).add(other);
    meter.step();
    at = found + old.size();
  }
  return out.add(text.substr(at)).value();
}

/// What str.split makes of a text at white space, with at most `most` cuts; below 0: any number.
LORA_INLINE std::vector<std::string_view> words_of(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> words;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    std::size_t end = 0;
    while (end < text.size() && white_space_at(text, end) == 0) end += bytes_at(text, end);
    if (most >= 0 && most-- == 0) end = text.size();
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

LORA_INLINE Value text_split(Meter& meter, std::string_view text, const Arguments& arguments, bool from_right) {
  std::int64_t most = whole_argument(meter, arguments[1], "maxsplit", -1);
  std::vector<std::string_view> parts;
  if (arguments[0].is_absent() || arguments[0].is_none()) {
    if (from_right && most >= 0) meter.fail("rsplit of words with maxsplit is not supported");
    parts = words_of(text, most);
  } else {
    const std::string& between = text_argument(meter, arguments[0], "sep");
    if (between.empty()) meter.fail("a text can't be split at an empty one");
    meter.read(text.size() * (1 + between.size() / 64));
    for (std::size_t found = 0; most != 0; most -= most > 0 ? 1 : 0) {
      found = from_right ? text.rfind(between) : text.find(between);
      if (found == text.npos) break;
      meter.step();
      parts.push_back(from_right ? text.substr(found + between.size()) : text.substr(0, found));
      text = from_right ? text.substr(0, found) : text.substr(found + between.size());
    }
    parts.push_back(text);
    if (from_right) std::reverse(parts.begin(), parts.end());
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(text_value(meter, part));
  return make_list(meter, std::move(items));
}

LORA_INLINE Value text_partition(Meter& meter, std::string_view text, const Value& between, bool last) {
  const std::string& mark = text_argument(meter, between, "sep");
  if (mark.empty()) meter.fail("a text can't be split at an empty one");
  meter.read(text.size() * (1 + mark.size() / 64));
  const std::size_t found = last ? text.rfind(mark) : text.find(mark);
  const bool is = found != text.npos;
  const std::string_view before = is ? text.substr(0, found) : last ? std::string_view() : text;
  const std::string_view behind = is ? text.substr(found + mark.size()) : last ? text : std::string_view();
  return make_sequence(meter, Sequence::Form::tuple,
                       {text_value(meter, before), text_value(meter, is ? mark : ""), text_value(meter, behind)});
}

LORA_INLINE std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = bytes_at(text, at);
    const char32_t code = code_point(text, at, bytes);
    const bool ends = (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
                      code == 0x2029;
    const std::size_t end = at;
    at += bytes;
    if (!ends) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

LORA_INLINE Value text_count(Meter& meter, std::string_view text, const Arguments& arguments) {
  const std::string& other = text_argument(meter, arguments[0], "sub");
  meter.read(text.size() * (1 + other.size() / 64));
  const Part part = part_of(meter, text, arguments[1], arguments[2]);
  const std::string_view inside = text.substr(part.begin, part.size);
  if (!part.exists) return Value::of(std::int64_t{0});
  if (other.empty()) return Value::of(static_cast<std::int64_t>(characters(inside) + 1));
  std::int64_t count = 0;
  for (auto at = inside.find(other); at != inside.npos; at = inside.find(other, at + other.size())) ++count;
  return Value::of(count);
}

LORA_INLINE Value text_join(Meter& meter, std::string_view between, const Value& values) {
  const Value items = iterable(meter, values);
  TextBuilder out(meter);
  bool first = true;
  for (const Value& item : items.sequence().items) {
    if (!item.is_text() || item.is_markup())
      meter.fail("join of a list with ", kind_name(item), "; expected texts alone");
    meter.step();
    if (!first) out.add(between);
    first = false;
    out.add(item.text());
  }
  return out.value();
}

enum class Method : std::uint8_t {
  strip,
  lstrip,
  rstrip,
  split,
  rsplit,
  startswith,
  endswith,
  replace,
  upper,
  lower,
  title,
  capitalize,
  join,
  find,
  rfind,
  index,
  count,
  splitlines,
  partition,
  rpartition,
  removeprefix,
  removesuffix,
  isdigit,
  isspace,
  list_index,
  list_count,
  list_copy,
  keys,
  values,
  items,
  get,
  dict_copy,
  cycle,
};  // clang-format off

enum class Owner : std::uint8_t { text, list, dict, loop };

struct MethodEntry {
  Method method;
  Owner owner;
  Signature signature;
};

constexpr MethodEntry method_table[] = {
    {Method::strip, Owner::text, {"strip", ".chars"}},
    {Method::lstrip, Owner::text, {"lstrip", ".chars"}},
    {Method::rstrip, Owner::text, {"rstrip", ".chars"}},
    {Method::split, Owner::text, {"split", "sep maxsplit"}},
    {Method::rsplit, Owner::text, {"rsplit", "sep maxsplit"}},
    {Method::startswith, Owner::text, {"startswith", ".prefix .start .end", 1}},
    {Method::endswith, Owner::text, {"endswith", ".suffix .start .end", 1}},
    {Method::replace, Owner::text, {"replace", ".old .new .count", 2}},
    {Method::upper, Owner::text, {"upper"}},
    {Method::lower, Owner::text, {"lower"}},
    {Method::title, Owner::text, {"title"}},
    {Method::capitalize, Owner::text, {"capitalize"}},
    {Method::join, Owner::text, {"join", ".iterable", 1}},
    {Method::find, Owner::text, {"find", ".sub .start .end", 1}},
    {Method::rfind, Owner::text, {"rfind", ".sub .start .end", 1}},
    {Method::index, Owner::text, {"index", ".sub .start .end", 1}},
    {Method::count, Owner::text, {"count", ".sub .start .end", 1}},
    {Method::splitlines, Owner::text, {"splitlines", "keepends"}},
    {Method::partition, Owner::text, {"partition", ".sep", 1}},
    {Method::rpartition, Owner::text, {"rpartition", ".sep", 1}},
    {Method::removeprefix, Owner::text, {"removeprefix", ".prefix", 1}},
    {Method::removesuffix, Owner::text, {"removesuffix", ".suffix", 1}},
    {Method::isdigit, Owner::text, {"isdigit"}},
    {Method::isspace, Owner::text, {"isspace"}},
    {Method::list_index, Owner::list, {"index", ".value", 1}},
    {Method::list_count, Owner::list, {"count", ".value", 1}},
    {Method::list_copy, Owner::list, {"copy"}},
    {Method::keys, Owner::dict, {"keys"}},
    {Method::values, Owner::dict, {"values"}},
    {Method::items, Owner::dict, {"items"}},
    {Method::get, Owner::dict, {"get", ".key .default", 1}},
    {Method::dict_copy, Owner::dict, {"copy"}},
    {Method::cycle, Owner::loop, {"cycle", "*"}},
};

// What Python's types have beside these. Those that change a value are undefined in Jinja's sandbox.
constexpr std::string_view changing_list[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view changing_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view other_of_text[] = {
    "casefold", "center", "encode", "expandtabs", "format", "format_map", "isalnum", "isalpha", "isascii", "isdecimal",
    "isidentifier", "islower", "isnumeric", "isprintable", "istitle", "isupper", "ljust", "maketrans", "rindex", "rjust",
    "swapcase", "translate", "zfill"};
constexpr std::string_view other_of_numbers[] = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                                 "from_bytes", "fromhex", "hex", "imag", "is_integer", "numerator", "real",
                                                 "to_bytes"};

LORA_INLINE bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

LORA_INLINE Value call_text(Meter& meter, Method method, const std::string& self, const Arguments& given) {
  const std::string_view text = self;
  switch (method) {
    case Method::strip:
      return text_value(meter, stripped(meter, text, given[0], true, true));
    case Method::lstrip:
      return text_value(meter, stripped(meter, text, given[0], true, false));
    case Method::rstrip:
      return text_value(meter, stripped(meter, text, given[0], false, true));
    case Method::split:
      return text_split(meter, text, given, false);
    case Method::rsplit:
      return text_split(meter, text, given, true);
    case Method::startswith:
      return text_starts(meter, text, given, false);
    case Method::endswith:
      return text_starts(meter, text, given, true);
    case Method::replace:
      return text_replace(meter, text, given[0], given[1], whole_argument(meter, given[2], "count", -1));
    case Method::upper:
      return upper(meter, text);
    case Method::lower:
      return lower(meter, text);
    case Method::title:
      return title(meter, text);
    case Method::capitalize:
      return capitalized(meter, text);
    case Method::join:
      return text_join(meter, text, given[0]);
    case Method::find:
      return Value::of(text_find(meter, text, given, false));
    case Method::rfind:
      return Value::of(text_find(meter, text, given, true));
    case Method::index: {
      const std::int64_t found = text_find(meter, text, given, false);
      if (found < 0) meter.fail("index: the text has no ", std::string_view(given[0].text()));
      return Value::of(found);
    }
    case Method::count:
      return text_count(meter, text, given);
    case Method::splitlines: {
      std::vector<Value> lines;
      for (const std::string_view line : lines_of(text, whole_argument(meter, given[0], "keepends", 0) != 0))
        lines.push_back(text_value(meter, line));
      return make_list(meter, std::move(lines));
    }
    case Method::partition:
      return text_partition(meter, text, given[0], false);
    case Method::rpartition:
      return text_partition(meter, text, given[0], true);
    case Method::removeprefix: {
      const std::string& prefix = text_argument(meter, given[0], "prefix");
      return text_value(meter, text.starts_with(prefix) ? text.substr(prefix.size()) : text);
    }
    case Method::removesuffix: {
      const std::string& suffix = text_argument(meter, given[0], "suffix");
      return text_value(meter, text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text);
    }
    case Method::isdigit:
      if (!has_known_case(text))
        meter.fail("isdigit of a text with letters or digits beyond ASCII is not supported");
      return Value::of(!text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }));
    default:
      return Value::of(!text.empty() && strip_left(text).empty());  // isspace
  }
}

LORA_INLINE Value call_list(Meter& meter, Method method, const Value& self, const Arguments& given) {
  const std::vector<Value>& items = self.sequence().items;
  if (method == Method::list_copy) return self;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!equal(meter, items[i], given[0])) continue;
    if (method == Method::list_index) return Value::of(static_cast<std::int64_t>(i));
    ++count;
  }
  if (method == Method::list_index) meter.fail("index: the list has no such value");
  return Value::of(count);
}

LORA_INLINE Value call_dict(Meter& meter, Method method, const Value& self, const Arguments& given) {
  const Dict& dict = self.dict();
  if (method == Method::dict_copy) return self;
  if (method == Method::get) {
    const Value* value = find(meter, dict, given[0]);
    if (value != nullptr) return *value;
    return given[1].is_absent() ? Value::none() : given[1];
  }
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries)
    items.push_back(method == Method::keys     ? key
                    : method == Method::values ? value
                                               : make_sequence(meter, Sequence::Form::tuple, {key, value}));
  return make_sequence(meter, Sequence::Form::view, std::move(items));
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE bool is_method(std::string_view name) {
  return detail::is_among(name, detail::changing_list) || detail::is_among(name, detail::changing_dict) ||
         std::any_of(std::begin(detail::method_table), std::end(detail::method_table),
                     [&](const auto& entry) { return entry.signature.name == name; });
}

LORA_INLINE std::optional<Value> method_of(Meter& meter, const Value& object, std::string_view name) {
  using detail::Owner;
  const auto method = [&](Owner owner) -> std::optional<Value> {
    for (std::uint32_t i = 0; i < std::size(detail::method_table); ++i)
      if (detail::method_table[i].owner == owner && detail::method_table[i].signature.name == name)
        return Value::of(std::make_shared<Function>(Function{Function::Kind::method, i, object}));
    return std::nullopt;
  };
  const auto refuse = [&] { meter.fail(name, " of ", kind_name(object), " is not supported"); };
  switch (object.kind()) {
    case Value::Kind::text:
      if (auto found = method(Owner::text)) return found;
      if (detail::is_among(name, detail::other_of_text)) refuse();
      return std::nullopt;
    case Value::Kind::dict:
      if (auto found = method(Owner::dict)) return found;
      if (detail::is_among(name, detail::changing_dict)) return Value();
      if (name == "fromkeys") refuse();
      return std::nullopt;
    case Value::Kind::sequence:
      if (object.sequence().form == Sequence::Form::list || object.sequence().form == Sequence::Form::tuple) {
        const bool list = object.sequence().form == Sequence::Form::list;
        if (list || name != "copy")
          if (auto found = method(Owner::list)) return found;
        return list && detail::is_among(name, detail::changing_list) ? std::optional(Value()) : std::nullopt;
      }
      if (name == "index" || name == "count" || name == "start" || name == "stop" || name == "step" ||
          name == "mapping" || name == "isdisjoint" || name == "send" || name == "throw" || name == "close")
        refuse();
      return std::nullopt;
    case Value::Kind::boolean:
    case Value::Kind::integer:
    case Value::Kind::real:
      if (detail::is_among(name, detail::other_of_numbers)) refuse();
      return std::nullopt;
    case Value::Kind::function:
      refuse();
      return std::nullopt;
    case Value::Kind::loop:
      return method(Owner::loop);
    default:
      return std::nullopt;
  }
}

LORA_INLINE Value call_method(Meter& meter, const Function& method, std::vector<Value> arguments,
                              std::span<const std::string> names) {
  const detail::MethodEntry& entry = detail::method_table[method.number];
  const Value& self = method.self;
  if (entry.owner == detail::Owner::loop) return self.loop().cycle(meter, arguments);
  const std::vector<Value> given = arranged(meter, entry.signature, std::move(arguments), names);
  switch (entry.owner) {
    case detail::Owner::text:
      if (self.is_markup()) meter.fail(entry.signature.name, " of what safe and escape give is not supported");
      meter.read(self.text().size());
      return detail::call_text(meter, entry.method, self.text(), given);
    case detail::Owner::list:
      return detail::call_list(meter, entry.method, self, given);
    default:
      return detail::call_dict(meter, entry.method, self, given);
  }
}

}  // namespace lora::jinja
