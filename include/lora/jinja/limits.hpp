#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lora/core/error.hpp"
#include "lora/core/format.hpp"

namespace lora::jinja {

/// What a template may take: it comes from a stranger's folder.
struct Limits {
  std::uint64_t steps = 5'000'000;  ///< parts of the syntax tree that are evaluated; a long value counts as more
  std::size_t text = std::size_t{16} << 20;     ///< bytes of the output, and of each text in between
  std::size_t memory = std::size_t{128} << 20;  ///< bytes of all values at a time
  int depth = 400;                              ///< of statements, expressions and macros inside each other
  int value_depth = 250;                        ///< of lists and mappings inside each other
};

/// Bytes of a template's text, and parts of its syntax tree inside each other.
inline constexpr std::size_t most_template_bytes = std::size_t{1} << 20;
inline constexpr int most_template_depth = 150;

/// Where something stands in a template's text; counted from 1, columns in characters.
struct Place {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

/// Throws   FormatError with the place
template <class... Parts>
[[noreturn]] void fail_at(const std::string& name, Place place, const Parts&... parts) {
  lora::fail<FormatError>(name, ":", place.line, ":", place.column, ": ", parts...);
}

/// What a rendering has taken so far, and where it is.
class Meter {
 public:
  Meter(const Limits& limits, const std::string& name) : limits_(limits), name_(&name) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  const Limits& limits() const { return limits_; }

  void at(Place place) { place_ = place; }
  Place place() const { return place_; }

  void step(std::size_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps) fail("rendering takes more than ", limits_.steps, " steps");
  }
  /// Steps for work on so many bytes.
  void read(std::size_t bytes) { step(bytes / 32); }

  void take(std::size_t bytes) {
    if (bytes > limits_.memory - memory_) fail("the values take more than ", size_text(limits_.memory));
    memory_ += bytes;
  }
  void give_back(std::size_t bytes) { memory_ -= bytes; }

  void expect_text(std::size_t bytes) {
    if (bytes > limits_.text) fail("a text has more than ", size_text(limits_.text));
  }

  void enter() {
    if (++depth_ > limits_.depth) fail("nested deeper than ", limits_.depth, " levels");
  }
  void leave() { --depth_; }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_at(*name_, place_, parts...);
  }

 private:
  const Limits limits_;
  const std::string* name_;
  Place place_{};
  std::uint64_t steps_ = 0;
  std::size_t memory_ = 0;
  int depth_ = 0;
};

/// A level of evaluation.
class Level {
 public:
  explicit Level(Meter& meter) : meter_(meter) { meter_.enter(); }
  ~Level() { meter_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Meter& meter_;
};

}  // namespace lora::jinja
