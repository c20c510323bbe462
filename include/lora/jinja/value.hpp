#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "lora/jinja/limits.hpp"

namespace lora::jinja {

/// The memory of a value, given back when it goes. Of a template's own constants there is no meter.
class Charge {
 public:
  Charge() = default;
  Charge(Meter* meter, std::size_t bytes) : meter_(meter), bytes_(bytes) {
    if (meter_) meter_->take(bytes_);
  }
  ~Charge() {
    if (meter_) meter_->give_back(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  Meter* meter_ = nullptr;
  std::size_t bytes_ = 0;
};

class Value;
struct Sequence;
struct Dict;
struct Space;
struct Function;
struct Loop;

struct Text {
  Text(Meter* meter, std::string content, bool marked)
      : bytes(std::move(content)), markup(marked), charge(meter, bytes.size() + sizeof(Text)) {}

  std::string bytes;
  bool markup;  ///< what `safe` and `escape` give: + and methods of Python's Markup escape what joins it
  Charge charge;
};

/// A value of Python's, as far as templates have them. Copies are cheap: what is large is shared and never changes,
/// but for namespaces and what is iterated over once.
class Value {
 public:
  enum class Kind : std::uint8_t {
    absent,     ///< an argument that was not given; no value of a template
    undefined,  ///< a name or a field that is not there
    none,
    boolean,
    integer,
    real,
    text,
    sequence,
    dict,
    space,     ///< a namespace
    function,  ///< a macro, a global function or a method with its object
    loop,      ///< the variable of that name
  };

  Value() = default;
  static Value absent() { return Value(Kind::absent); }
  static Value none() { return Value(Kind::none); }
  static Value of(bool flag) {
    Value value(Kind::boolean);
    value.number_ = flag;
    return value;
  }
  static Value of(std::int64_t number) {
    Value value(Kind::integer);
    value.number_ = number;
    return value;
  }
  static Value of(double number) {
    Value value(Kind::real);
    value.real_ = number;
    return value;
  }
  static Value of(Meter* meter, std::string text, bool markup = false);
  static Value of(std::shared_ptr<Sequence> items) { return Value(Kind::sequence, std::move(items)); }
  static Value of(std::shared_ptr<Dict> fields) { return Value(Kind::dict, std::move(fields)); }
  static Value of(std::shared_ptr<Space> space) { return Value(Kind::space, std::move(space)); }
  static Value of(std::shared_ptr<Function> function) { return Value(Kind::function, std::move(function)); }
  static Value of(std::shared_ptr<Loop> loop) { return Value(Kind::loop, std::move(loop)); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_absent() const { return kind_ == Kind::absent; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  /// Also true and false, which are integers of Python.
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }

  // Only of values of the kind.
  bool flag() const { return number_ != 0; }
  std::int64_t whole() const { return number_; }
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(number_); }
  const std::string& text() const { return static_cast<const Text*>(object_.get())->bytes; }
  bool is_markup() const { return kind_ == Kind::text && static_cast<const Text*>(object_.get())->markup; }
  Sequence& sequence() const { return *static_cast<Sequence*>(object_.get()); }
  Dict& dict() const { return *static_cast<Dict*>(object_.get()); }
  Space& space() const { return *static_cast<Space*>(object_.get()); }
  Function& function() const { return *static_cast<Function*>(object_.get()); }
  Loop& loop() const { return *static_cast<Loop*>(object_.get()); }

  /// Lists and mappings inside each other, this one too; 0 for what is none.
  int depth() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<void> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind_ = Kind::undefined;
  union {
    std::int64_t number_ = 0;
    double real_;
  };
  std::shared_ptr<void> object_{};
};

/// What has an order. Of a stream, such as `select` gives, each item is there once.
struct Sequence {
  enum class Form : std::uint8_t { list, tuple, range, view, stream };

  Sequence(Meter* meter, Form made, std::vector<Value> values);

  /// What an iteration goes over; a stream is empty afterward.
  std::vector<Value> take_all();

  Form form;
  std::vector<Value> items;
  std::size_t taken = 0;  ///< of a stream
  int depth = 1;
  Charge charge;
};

/// A mapping, in the order of its keys.
struct Dict {
  using Entry = std::pair<Value, Value>;

  Dict(Meter* meter, std::vector<Entry> fields);

  std::vector<Entry> entries;
  int depth = 1;
  Charge charge;
};

struct Space {
  std::vector<std::pair<std::string, Value>> fields;
};

/// Python's bool().
bool truth(const Value& value);

Value make_sequence(Meter& meter, Sequence::Form form, std::vector<Value> items);
inline Value make_list(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, Sequence::Form::list, std::move(items));
}
Value make_dict(Meter& meter, std::vector<Dict::Entry> entries);

namespace detail {

/// Values that hold others and can be changed don't end up in each other, so that none holds itself.
void expect_plain(const Meter& meter, const Value& value);

}  // namespace detail

/// A value of JSON.
/// Throws   FormatError for a number that is no 64-bit integer and not less than 2⁶³
Value value_of(Meter& meter, const io::Json& json);

/// Builds a text of limited size.
class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter) : meter_(meter) {}

  TextBuilder& add(std::string_view part) {
    meter_.expect_text(text_.size() + part.size());
    meter_.read(part.size());
    text_ += part;
    return *this;
  }
  std::size_t size() const { return text_.size(); }
  std::string take() { return std::move(text_); }
  Value value(bool markup = false) { return Value::of(&meter_, std::move(text_), markup); }

 private:
  Meter& meter_;
  std::string text_;
};

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/value.ipp"
#endif
