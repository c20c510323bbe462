#pragma once

#include <cstddef>
#include <cstdint>

namespace fuzz {

/// A reader of foreign bytes that the fuzzer feeds. All of them are one program, so that what they share of the library
/// is compiled once; its first argument names one.
class Target {
 public:
  using Run = void (*)(const std::uint8_t* data, std::size_t size);

  Target(const char* called, Run function) : name(called), run(function), next_(first_) { first_ = this; }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  const char* const name;
  const Run run;

  /// Null where there is none of this name.
  static const Target* find(const char* name);
  static void print_names();

 private:
  const Target* const next_;
  static inline const Target* first_ = nullptr;
};

}  // namespace fuzz

/// Begins the function that is called with each input.
#define LORA_FUZZ_TARGET(NAME, DATA, SIZE)                     \
  static void run(const std::uint8_t* DATA, std::size_t SIZE); \
  static const fuzz::Target target(#NAME, &run);               \
  static void run(const std::uint8_t* DATA, std::size_t SIZE)
