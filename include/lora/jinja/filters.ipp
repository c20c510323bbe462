#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/jinja/fields.hpp"
#include "lora/jinja/filters.hpp"
#include "lora/jinja/json_text.hpp"
#include "lora/jinja/methods.hpp"
#include "lora/jinja/operations.hpp"
#include "lora/jinja/python_text.hpp"
#include "lora/jinja/text_case.hpp"

namespace lora::jinja::detail {

using Given = std::span<const Value>;

/// What str() makes of it.
LORA_INLINE Value plain_text(Meter& meter, const Value& value) {
  if (value.is_markup()) meter.fail("this filter of what safe and escape give is not supported");
  return as_text(meter, value);
}

LORA_INLINE Value stream_of(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, Sequence::Form::stream, std::move(items));
}

/// Follows an attribute's path: names and numbers with points between them, or a number.
LORA_INLINE Value at_path(Meter& meter, Value value, const Value& path, const Value& otherwise) {
  if (path.is_absent() || path.is_none()) return value;
  const auto follow = [&](const Value& part) {
    meter.step();
    value = item(meter, value, part);
    if (!otherwise.is_absent() && !otherwise.is_none() && value.is_undefined()) value = otherwise;
  };
  if (path.is_whole()) {
    follow(path);
    return value;
  }
  if (!path.is_text()) meter.fail("the attribute is ", kind_name(path), "; expected a text");
  std::string_view rest = path.text();
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    std::int64_t number = 0;
    const bool whole = !part.empty() && part.find_first_not_of("0123456789") == part.npos &&
                       std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc();
    follow(whole ? Value::of(number) : Value::of(&meter, std::string(part)));
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

LORA_INLINE Value without_case(Meter& meter, const Value& value, bool case_sensitive) {
  return value.is_text() && !case_sensitive ? lower(meter, value.text()) : value;
}

/// Sorted by keys, stably.
LORA_INLINE std::vector<Value> sorted(Meter& meter, const std::vector<Value>& items, const std::vector<Value>& keys,
                                      bool reverse) {
  std::vector<std::size_t> places(items.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    const std::partial_ordering found = order(meter, keys[reverse ? b : a], keys[reverse ? a : b], "sort");
    if (found == std::partial_ordering::unordered) meter.fail("sort of NaN");
    return found < 0;
  });
  std::vector<Value> result;
  result.reserve(items.size());
  for (const std::size_t place : places) result.push_back(items[place]);
  return result;
}

LORA_INLINE Value filter_abs(Meter& meter, const Value& value, Given) {
  if (value.is(Value::Kind::real)) return Value::of(std::fabs(value.real()));
  if (!value.is_whole()) meter.fail("abs of ", kind_name(value));
  return value.whole() < 0 ? negative(meter, value) : Value::of(value.whole());
}

LORA_INLINE Value filter_batch(Meter& meter, const Value& value, Given given) {
  const std::int64_t count = whole_argument(meter, given[0], "linecount", 0);
  if (count < 1) meter.fail("batch by ", count, "; expected at least 1");
  const auto most = static_cast<std::size_t>(count);
  const Value items = iterable(meter, value);
  std::vector<Value> lines;
  std::vector<Value> line;
  for (const Value& item : items.sequence().items) {
    if (line.size() == most) lines.push_back(make_list(meter, std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    const bool fills = !given[1].is_absent() && !given[1].is_none();
    if (fills && most > 100'000) meter.fail("batch fills up to ", count, " items; expected at most 100000");
    if (fills) line.resize(most, given[1]);
    lines.push_back(make_list(meter, std::move(line)));
  }
  return stream_of(meter, std::move(lines));
}

LORA_INLINE Value filter_capitalize(Meter& meter, const Value& value, Given) {
  return capitalized(meter, plain_text(meter, value).text());
}

LORA_INLINE Value filter_default(Meter& meter, const Value& value, Given given) {
  if (!value.is_undefined() && !(flag_argument(given[1], false) && !truth(value))) return value;
  return given[0].is_absent() ? Value::of(&meter, "") : given[0];
}

LORA_INLINE Value filter_dictsort(Meter& meter, const Value& value, Given given) {
  if (!value.is(Value::Kind::dict)) meter.fail("dictsort of ", kind_name(value), "; expected a mapping");
  const bool by_value = given[1].is_text() && given[1].text() == "value";
  if (!given[1].is_absent() && !by_value && !(given[1].is_text() && given[1].text() == "key"))
    meter.fail("dictsort sorts by key or value");
  std::vector<Value> items, keys;
  for (const auto& [key, field] : value.dict().entries) {
    items.push_back(make_sequence(meter, Sequence::Form::tuple, {key, field}));
    keys.push_back(without_case(meter, by_value ? field : key, flag_argument(given[0], false)));
  }
  return make_list(meter, sorted(meter, items, keys, whole_argument(meter, given[2], "reverse", 0) != 0));
}

LORA_INLINE Value filter_escape(Meter& meter, const Value& value, Given) {
  if (value.is_markup()) return value;
  const Value text = as_text(meter, value);
  TextBuilder out(meter);
  for (const char c : text.text()) {
    constexpr std::string_view special = "&<>'\"";
    constexpr std::string_view written[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const auto found = special.find(c);
    out.add(found == special.npos ? std::string_view(&c, 1) : written[found]);
  }
  return out.value(true);
}

LORA_INLINE Value filter_first(Meter& meter, const Value& value, Given) {
  if (value.is_text()) return item(meter, value, Value::of(std::int64_t{0}));
  if (value.is(Value::Kind::sequence)) {
    Sequence& sequence = value.sequence();
    if (sequence.form != Sequence::Form::stream) return sequence.items.empty() ? Value() : sequence.items.front();
    return sequence.taken == sequence.items.size() ? Value() : sequence.items[sequence.taken++];
  }
  const Value items = iterable(meter, value);
  return items.sequence().items.empty() ? Value() : items.sequence().items.front();
}

LORA_INLINE Value filter_last(Meter& meter, const Value& value, Given) {
  if (value.is_text()) return item(meter, value, Value::of(std::int64_t{-1}));
  if (value.is(Value::Kind::sequence) && value.sequence().form == Sequence::Form::stream)
    meter.fail("last of a generator; expected a list");
  const Value items = iterable(meter, value);
  return items.sequence().items.empty() ? Value() : items.sequence().items.back();
}

/// A number as Python's float() reads it; false if it is none.
LORA_INLINE bool read_real(Meter& meter, std::string_view text, double& number) {
  text = strip(text);
  if (!has_known_case(text)) meter.fail("a number with letters or digits beyond ASCII is not supported");
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    digits += ascii_lower(text[i]);
  }
  const auto has_sign = [&] { return digits.starts_with('+') || digits.starts_with('-'); };
  if (digits.starts_with('+')) {
    digits.erase(0, 1);
    if (has_sign()) return false;
  }
  if (digits.find("nan(") != digits.npos) return false;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, number);
  if (read.ec == std::errc::result_out_of_range)
    meter.fail("the number ", std::string_view(digits), " is out of range");
  return read.ec == std::errc() && read.ptr == end;
}

LORA_INLINE Value filter_float(Meter& meter, const Value& value, Given given) {
  if (value.is_undefined()) meter.fail("float of an undefined value");
  if (value.is_number()) return Value::of(value.real());
  double number = 0;
  if (value.is_text() && read_real(meter, value.text(), number)) return Value::of(number);
  return given[0].is_absent() ? Value::of(0.0) : given[0];
}

LORA_INLINE Value filter_int(Meter& meter, const Value& value, Given given) {
  if (value.is_undefined()) meter.fail("int of an undefined value");
  const Value otherwise = given[0].is_absent() ? Value::of(std::int64_t{0}) : given[0];
  if (value.is_whole()) return Value::of(value.whole());
  double number = 0;
  if (value.is_text()) {
    std::string digits;
    const std::string_view text = strip(value.text());
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] != '_' || i == 0 || !is_digit(text[i - 1]) || i + 1 == text.size() || !is_digit(text[i + 1]))
        digits += text[i];
    if (digits.starts_with('+') && digits.size() > 1 && is_digit(digits[1])) digits.erase(0, 1);
    std::int64_t whole = 0;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, whole);
    if (read.ec == std::errc() && read.ptr == end) return Value::of(whole);
    if (read.ec == std::errc::result_out_of_range && read.ptr == end) refuse_large(meter);
    if (!read_real(meter, value.text(), number)) return otherwise;
  } else if (value.is(Value::Kind::real)) {
    number = value.real();
  } else {
    return otherwise;
  }
  if (!std::isfinite(number)) return otherwise;
  if (number >= 0x1p63 || number < -0x1p63) refuse_large(meter);
  return Value::of(static_cast<std::int64_t>(number));
}

LORA_INLINE Value filter_indent(Meter& meter, const Value& value, Given given) {
  if (!value.is_text()) meter.fail("indent of ", kind_name(value), "; expected a text");
  const std::string text = plain_text(meter, value).text() + "\n";
  const std::int64_t width = given[0].is_text() ? 0 : whole_argument(meter, given[0], "width", 4);
  if (width > 10'000) meter.fail("indent by ", width, "; expected at most 10000");
  const std::string indention = given[0].is_text()
                                    ? given[0].text()
                                    : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const bool first = flag_argument(given[1], false), blank = flag_argument(given[2], false);
  TextBuilder out(meter);
  if (first) out.add(indention);
  bool begins = true;
  for (const std::string_view line : lines_of(text, false)) {
    meter.step();
    if (!begins) out.add("\n");
    if (!begins && (blank || !line.empty())) out.add(indention);
    begins = false;
    out.add(line);
  }
  return out.value();
}

LORA_INLINE Value filter_items(Meter& meter, const Value& value, Given) {
  std::vector<Value> items;
  if (!value.is_undefined()) {
    if (!value.is(Value::Kind::dict)) meter.fail("items of ", kind_name(value), "; expected a mapping");
    for (const auto& [key, field] : value.dict().entries)
      items.push_back(make_sequence(meter, Sequence::Form::tuple, {key, field}));
  }
  return stream_of(meter, std::move(items));
}

LORA_INLINE Value filter_join(Meter& meter, const Value& value, Given given) {
  const Value between = given[0].is_absent() ? Value::of(&meter, "") : as_text(meter, given[0]);
  const Value items = iterable(meter, value);
  TextBuilder out(meter);
  bool first = true;
  for (const Value& item : items.sequence().items) {
    meter.step();
    if (!first) out.add(between.text());
    first = false;
    write(meter, out, at_path(meter, item, given[1], Value::absent()));
  }
  return out.value();
}

LORA_INLINE Value filter_length(Meter& meter, const Value& value, Given) {
  return Value::of(static_cast<std::int64_t>(length(meter, value)));
}

LORA_INLINE Value filter_list(Meter& meter, const Value& value, Given) {
  const Value items = iterable(meter, value);
  return items.sequence().form == Sequence::Form::list ? items : make_list(meter, items.sequence().items);
}

LORA_INLINE Value filter_lower(Meter& meter, const Value& value, Given) {
  return lower(meter, plain_text(meter, value).text());
}

LORA_INLINE std::string_view name_argument(Meter& meter, const Value& value) {
  if (!value.is_text()) meter.fail("the name of a filter or test is ", kind_name(value), "; expected a text");
  return value.text();
}

/// The arguments behind a name, in the order of what it names.
LORA_INLINE std::vector<Value> rest_of(Meter& meter, const Signature& signature, Given given, std::size_t from) {
  std::vector<Value> rest;
  for (std::size_t i = from; i < given.size() && !given[i].is_absent(); ++i) rest.push_back(given[i]);
  return arranged(meter, signature, std::move(rest), {});
}

LORA_INLINE Value filter_map(Meter& meter, const Value& value, Given given) {
  if (!truth(value)) return stream_of(meter, {});
  constexpr std::size_t path = 4, otherwise = 5;
  const bool named = !given[0].is_absent();
  if (named != given[path].is_absent() || (named && !given[otherwise].is_absent()))
    meter.fail("map takes a filter with its arguments, or attribute and default");
  const Value items = iterable(meter, value);
  std::vector<Value> mapped;
  if (!named) {
    for (const Value& item : items.sequence().items)
      mapped.push_back(at_path(meter, item, given[path], given[otherwise]));
    return stream_of(meter, std::move(mapped));
  }
  const auto filter = filter_named(name_argument(meter, given[0]));
  if (!filter) meter.fail("the filter ", name_argument(meter, given[0]), " is not supported");
  const std::vector<Value> rest = rest_of(meter, filter_signature(*filter), given.first(path), 1);
  for (const Value& item : items.sequence().items) {
    meter.step();
    mapped.push_back(apply_filter(meter, *filter, item, rest));
  }
  return stream_of(meter, std::move(mapped));
}

/// `path`: whether the first argument is one, whose value is tested.
LORA_INLINE Value chosen(Meter& meter, const Value& value, Given given, bool path, bool wanted) {
  if (!truth(value)) return stream_of(meter, {});
  const std::size_t at = path ? 1 : 0;
  std::optional<std::uint32_t> test;
  std::vector<Value> rest;
  if (!given[at].is_absent()) {
    test = test_named(name_argument(meter, given[at]));
    if (!test) meter.fail("the test ", name_argument(meter, given[at]), " is not supported");
    rest = rest_of(meter, test_signature(*test), given, at + 1);
  }
  const Value items = iterable(meter, value);
  std::vector<Value> passed;
  for (const Value& item : items.sequence().items) {
    meter.step();
    const Value tested = path ? at_path(meter, item, given[0], Value::absent()) : item;
    if ((test ? apply_test(meter, *test, tested, rest) : truth(tested)) == wanted) passed.push_back(item);
  }
  return stream_of(meter, std::move(passed));
}

LORA_INLINE Value filter_select(Meter& meter, const Value& value, Given given) {
  return chosen(meter, value, given, false, true);
}
LORA_INLINE Value filter_reject(Meter& meter, const Value& value, Given given) {
  return chosen(meter, value, given, false, false);
}
LORA_INLINE Value filter_selectattr(Meter& meter, const Value& value, Given given) {
  return chosen(meter, value, given, true, true);
}
LORA_INLINE Value filter_rejectattr(Meter& meter, const Value& value, Given given) {
  return chosen(meter, value, given, true, false);
}

LORA_INLINE Value extreme(Meter& meter, const Value& value, Given given, bool most) {
  const Value items = iterable(meter, value);
  Value best, best_key;
  bool first = true;
  for (const Value& item : items.sequence().items) {
    const Value key =
        without_case(meter, at_path(meter, item, given[1], Value::absent()), flag_argument(given[0], false));
    if (first || (most ? order(meter, key, best_key, "max") > 0 : order(meter, key, best_key, "min") < 0)) {
      best = item;
      best_key = key;
    }
    first = false;
  }
  return best;
}

LORA_INLINE Value filter_max(Meter& meter, const Value& value, Given given) {
  return extreme(meter, value, given, true);
}
LORA_INLINE Value filter_min(Meter& meter, const Value& value, Given given) {
  return extreme(meter, value, given, false);
}

LORA_INLINE Value filter_replace(Meter& meter, const Value& value, Given given) {
  const std::int64_t most = given[2].is_none() ? -1 : whole_argument(meter, given[2], "count", -1);
  return text_replace(meter, as_text(meter, value).text(), as_text(meter, given[0]), as_text(meter, given[1]), most);
}

LORA_INLINE Value filter_reverse(Meter& meter, const Value& value, Given) {
  if (value.is_text()) return slice(meter, value, Value::absent(), Value::absent(), Value::of(std::int64_t{-1}));
  const bool stream = value.is(Value::Kind::sequence) && value.sequence().form == Sequence::Form::stream;
  const Value items = iterable(meter, value);
  std::vector<Value> reversed(items.sequence().items.rbegin(), items.sequence().items.rend());
  return stream ? make_list(meter, std::move(reversed)) : stream_of(meter, std::move(reversed));
}

LORA_INLINE Value filter_round(Meter& meter, const Value& value, Given given) {
  const std::int64_t precision = whole_argument(meter, given[0], "precision", 0);
  const std::string_view method = given[1].is_absent() ? "common" : name_argument(meter, given[1]);
  if (!value.is_number()) meter.fail("round of ", kind_name(value));
  if (precision < 0 || precision > 15) meter.fail("round to ", precision, " digits; expected 0 to 15");
  if (method == "common") {
    if (value.is_whole()) return Value::of(value.whole());
    if (!std::isfinite(value.real())) meter.fail("round of ", python_number(value.real()));
    char digits[400];
    const auto written = std::to_chars(digits, digits + sizeof digits, value.real(), std::chars_format::fixed,
                                       static_cast<int>(precision));
    double number = 0;
    std::from_chars(digits, written.ptr, number);
    return Value::of(number);
  }
  if (method != "ceil" && method != "floor") meter.fail("round by ", method, "; expected common, ceil or floor");
  const Value power = Value::of(detail::whole_power(meter, 10, precision));
  const double scaled = arithmetic(meter, Operator::multiply, value, power).real();
  if (!std::isfinite(scaled)) meter.fail("round of ", python_number(scaled));
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power.real());
}

LORA_INLINE Value filter_safe(Meter& meter, const Value& value, Given) {
  return Value::of(&meter, as_text(meter, value).text(), true);
}

LORA_INLINE Value filter_sort(Meter& meter, const Value& value, Given given) {
  const Value items = iterable(meter, value);
  std::vector<Value> keys;
  for (const Value& item : items.sequence().items) {
    if (given[2].is_text() && given[2].text().find(',') != std::string::npos)
      meter.fail("sort by several attributes is not supported");
    keys.push_back(
        without_case(meter, at_path(meter, item, given[2], Value::absent()), flag_argument(given[1], false)));
  }
  return make_list(meter,
                   sorted(meter, items.sequence().items, keys, whole_argument(meter, given[0], "reverse", 0) != 0));
}

LORA_INLINE Value filter_string(Meter& meter, const Value& value, Given) { return as_text(meter, value); }

LORA_INLINE Value filter_sum(Meter& meter, const Value& value, Given given) {
  const Value items = iterable(meter, value);
  Value sum = given[1].is_absent() ? Value::of(std::int64_t{0}) : given[1];
  for (const Value& each : items.sequence().items) {
    const Value part = at_path(meter, each, given[0], Value::absent());
    if (part.is(Value::Kind::real) || sum.is(Value::Kind::real))
      meter.fail("sum of floating point numbers is not supported");
    if (sum.is_text()) meter.fail("sum of texts; expected join");
    sum = arithmetic(meter, Operator::add, sum, part);
  }
  return sum;
}

LORA_INLINE Value filter_title(Meter& meter, const Value& value, Given) {
  return titled_words(meter, plain_text(meter, value).text());
}

LORA_INLINE Value filter_tojson(Meter& meter, const Value& value, Given given) {
  JsonStyle style;
  style.ensure_ascii = flag_argument(given[0], false);
  style.sort_keys = flag_argument(given[3], false);
  if (!given[1].is_absent() && !given[1].is_none()) {
    const std::int64_t width = given[1].is_text() ? 0 : whole_argument(meter, given[1], "indent", 0);
    if (width > 10'000) meter.fail("tojson indents by ", width, "; expected at most 10000");
    style.indent = given[1].is_text() ? given[1].text()
                                      : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    style.between = ",";
  }
  if (!given[2].is_absent() && !given[2].is_none()) {
    if (!is_listed(given[2]) || given[2].sequence().items.size() != 2)
      meter.fail("the separators of tojson are ", kind_name(given[2]), "; expected two texts");
    style.between = text_argument(meter, given[2].sequence().items[0], "separators");
    style.behind_key = text_argument(meter, given[2].sequence().items[1], "separators");
  }
  TextBuilder out(meter);
  write_json(meter, out, value, style);
  return out.value();
}

LORA_INLINE Value filter_trim(Meter& meter, const Value& value, Given given) {
  const Value text = plain_text(meter, value);
  meter.read(text.text().size());
  return Value::of(&meter, std::string(stripped(meter, text.text(), given[0], true, true)));
}

LORA_INLINE Value filter_unique(Meter& meter, const Value& value, Given given) {
  const Value items = iterable(meter, value);
  std::vector<Value> keys, unique;
  for (const Value& item : items.sequence().items) {
    Value key = without_case(meter, at_path(meter, item, given[1], Value::absent()), flag_argument(given[0], false));
    if (key.is(Value::Kind::dict) || (key.is(Value::Kind::sequence) && key.sequence().form == Sequence::Form::list))
      meter.fail("unique of ", kind_name(key), " is not supported");
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& other) { return equal(meter, key, other); })) continue;
    keys.push_back(std::move(key));
    unique.push_back(item);
  }
  return stream_of(meter, std::move(unique));
}

LORA_INLINE Value filter_upper(Meter& meter, const Value& value, Given) {
  return upper(meter, plain_text(meter, value).text());
}

struct Filter {
  Signature signature;
  Value (*apply)(Meter&, const Value&, Given);
};

constexpr Filter filter_table[] = {
    {{"abs"}, filter_abs},
    {{"batch", "linecount fill_with", 1}, filter_batch},
    {{"capitalize"}, filter_capitalize},
    {{"count"}, filter_length},
    {{"d", "default_value boolean"}, filter_default},
    {{"default", "default_value boolean"}, filter_default},
    {{"dictsort", "case_sensitive by reverse"}, filter_dictsort},
    {{"e"}, filter_escape},
    {{"escape"}, filter_escape},
    {{"first"}, filter_first},
    {{"float", "default"}, filter_float},
    {{"indent", "width first blank"}, filter_indent},
    {{"int", "default"}, filter_int},
    {{"items"}, filter_items},
    {{"join", "d attribute"}, filter_join},
    {{"last"}, filter_last},
    {{"length"}, filter_length},
    {{"list"}, filter_list},
    {{"lower"}, filter_lower},
    {{"map", ".filter .1 .2 .3 attribute default"}, filter_map},
    {{"max", "case_sensitive attribute"}, filter_max},
    {{"min", "case_sensitive attribute"}, filter_min},
    {{"reject", ".test .1 .2"}, filter_reject},
    {{"rejectattr", ".attribute .test .1 .2", 1}, filter_rejectattr},
    {{"replace", "old new count", 2}, filter_replace},
    {{"reverse"}, filter_reverse},
    {{"round", "precision method"}, filter_round},
    {{"safe"}, filter_safe},
    {{"select", ".test .1 .2"}, filter_select},
    {{"selectattr", ".attribute .test .1 .2", 1}, filter_selectattr},
    {{"sort", "reverse case_sensitive attribute"}, filter_sort},
    {{"string"}, filter_string},
    {{"sum", "attribute start"}, filter_sum},
    {{"title"}, filter_title},
    {{"tojson", "ensure_ascii indent separators sort_keys"}, filter_tojson},
    {{"trim", "chars"}, filter_trim},
    {{"unique", "case_sensitive attribute"}, filter_unique},
    {{"upper"}, filter_upper},
};

/// Whether a text has letters, and all are of this case.
LORA_INLINE bool all_in_case(Meter& meter, const Value& value, bool (*is)(char), bool (*is_other)(char)) {
  const Value text = as_text(meter, value);
  if (!has_known_case(text.text())) meter.fail("the case of letters beyond ASCII is not supported");
  return std::any_of(text.text().begin(), text.text().end(), is) &&
         std::none_of(text.text().begin(), text.text().end(), is_other);
}

LORA_INLINE bool leaves(Meter& meter, const Value& value, const Value& by, std::int64_t rest) {
  if (!value.is_number()) meter.fail("this test of ", kind_name(value), "; expected a number");
  return equal(meter, arithmetic(meter, Operator::modulo, value, by), Value::of(rest));
}

struct Test {
  Signature signature;
  bool (*holds)(Meter&, const Value&, Given);
};

template <Operator operation>
bool compares(Meter& meter, const Value& value, Given given) {
  return holds(meter, operation, value, given[0]);
}

constexpr Test test_table[] = {
    {{"!=", ".other", 1}, compares<Operator::unequal>},
    {{"<", ".other", 1}, compares<Operator::less>},
    {{"<=", ".other", 1}, compares<Operator::less_equal>},
    {{"==", ".other", 1}, compares<Operator::equal>},
    {{">", ".other", 1}, compares<Operator::greater>},
    {{">=", ".other", 1}, compares<Operator::greater_equal>},
    {{"boolean"}, [](Meter&, const Value& value, Given) { return value.is(Value::Kind::boolean); }},
    {{"callable"},
     [](Meter&, const Value& value, Given) { return value.is(Value::Kind::function) || value.is_undefined(); }},
    {{"defined"}, [](Meter&, const Value& value, Given) { return !value.is_undefined(); }},
    {{"divisibleby", ".num", 1},
     [](Meter& meter, const Value& value, Given given) { return leaves(meter, value, given[0], 0); }},
    {{"eq", ".other", 1}, compares<Operator::equal>},
    {{"equalto", ".other", 1}, compares<Operator::equal>},
    {{"even"},
     [](Meter& meter, const Value& value, Given) { return leaves(meter, value, Value::of(std::int64_t{2}), 0); }},
    {{"false"}, [](Meter&, const Value& value, Given) { return value.is(Value::Kind::boolean) && !value.flag(); }},
    {{"float"}, [](Meter&, const Value& value, Given) { return value.is(Value::Kind::real); }},
    {{"ge", ".other", 1}, compares<Operator::greater_equal>},
    {{"greaterthan", ".other", 1}, compares<Operator::greater>},
    {{"gt", ".other", 1}, compares<Operator::greater>},
    {{"in", ".seq", 1}, compares<Operator::in>},
    {{"integer"}, [](Meter&, const Value& value, Given) { return value.is(Value::Kind::integer); }},
    {{"iterable"}, [](Meter&, const Value& value, Given) { return is_iterable(value); }},
    {{"le", ".other", 1}, compares<Operator::less_equal>},
    {{"lessthan", ".other", 1}, compares<Operator::less>},
    {{"lower"}, [](Meter& meter, const Value& value, Given) { return all_in_case(meter, value, is_lower, is_upper); }},
    {{"lt", ".other", 1}, compares<Operator::less>},
    {{"mapping"}, [](Meter&, const Value& value, Given) { return value.is(Value::Kind::dict); }},
    {{"ne", ".other", 1}, compares<Operator::unequal>},
    {{"none"}, [](Meter&, const Value& value, Given) { return value.is_none(); }},
    {{"number"}, [](Meter&, const Value& value, Given) { return value.is_number(); }},
    {{"odd"},
     [](Meter& meter, const Value& value, Given) { return leaves(meter, value, Value::of(std::int64_t{2}), 1); }},
    {{"sequence"},
     [](Meter&, const Value& value, Given) {
       if (value.is(Value::Kind::sequence))
         return value.sequence().form != Sequence::Form::view && value.sequence().form != Sequence::Form::stream;
       return value.is_undefined() || value.is_text() || value.is(Value::Kind::dict);
     }},
    {{"string"}, [](Meter&, const Value& value, Given) { return value.is_text(); }},
    {{"true"}, [](Meter&, const Value& value, Given) { return value.is(Value::Kind::boolean) && value.flag(); }},
    {{"undefined"}, [](Meter&, const Value& value, Given) { return value.is_undefined(); }},
    {{"upper"}, [](Meter& meter, const Value& value, Given) { return all_in_case(meter, value, is_upper, is_lower); }},
};

template <class Table>
std::optional<std::uint32_t> place_in(const Table& table, std::string_view name) {
  for (std::uint32_t i = 0; i < std::size(table); ++i)
    if (table[i].signature.name == name) return i;
  return std::nullopt;
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE std::optional<std::uint32_t> filter_named(std::string_view name) {
  return detail::place_in(detail::filter_table, name);
}
LORA_INLINE std::optional<std::uint32_t> test_named(std::string_view name) {
  return detail::place_in(detail::test_table, name);
}

LORA_INLINE const Signature& filter_signature(std::uint32_t filter) { return detail::filter_table[filter].signature; }
LORA_INLINE const Signature& test_signature(std::uint32_t test) { return detail::test_table[test].signature; }

LORA_INLINE std::optional<Named> names_another(std::uint32_t filter) {
  const std::string_view name = filter_signature(filter).name;
  if (name == "map") return Named{true, 0};
  if (name == "select" || name == "reject") return Named{false, 0};
  if (name == "selectattr" || name == "rejectattr") return Named{false, 1};
  return std::nullopt;
}

LORA_INLINE Value apply_filter(Meter& meter, std::uint32_t filter, const Value& value,
                               std::span<const Value> arguments) {
  return detail::filter_table[filter].apply(meter, value, arguments);
}

LORA_INLINE bool apply_test(Meter& meter, std::uint32_t test, const Value& value, std::span<const Value> arguments) {
  return detail::test_table[test].holds(meter, value, arguments);
}

}  // namespace lora::jinja
