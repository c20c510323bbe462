#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ascend/stand_in/stand_in.h"
#include "lora/ascend/kernels.hpp"

/// Libraries that stand for the vendor's, in tests of the Ascend backend: LORA_STAND_IN is their folder.
namespace lora::test {

/// A function of the stand-in's own, which is opened when the first NPU is.
template <class F>
F* stand_in(const char* name) {
  static void* const library = [] {
    setenv("LORA_ASCEND_LIBRARIES", LORA_STAND_IN, 1);
    return dlopen(LORA_STAND_IN "/libascendcl.so", RTLD_LAZY | RTLD_GLOBAL);
  }();
  REQUIRE(library != nullptr);
  void* const address = dlsym(library, name);
  REQUIRE(address != nullptr);
  return reinterpret_cast<F*>(address);
}

inline StandInCounts stand_in_counts() {
  StandInCounts counts;
  stand_in<decltype(standInCounts)>("standInCounts")(&counts);
  return counts;
}

/// What was done against the interface's rules since the last call; empty: nothing.
inline std::string stand_in_faults() {
  std::string text(4096, '\0');
  const std::size_t count = stand_in<decltype(standInTakeFaults)>("standInTakeFaults")(text.data(), text.size());
  text.resize(text.find('\0') != text.npos ? text.find('\0') : text.size());
  return count == 0 ? "" : std::to_string(count) + " faults:\n" + text;
}

/// A setting of the stand-in for as long as this lives.
class StandInSetting {
 public:
  StandInSetting(const char* name, std::int64_t value, std::int64_t afterward) : name_(name), afterward_(afterward) {
    set(value);
  }
  StandInSetting(const StandInSetting&) = delete;
  StandInSetting& operator=(const StandInSetting&) = delete;
  ~StandInSetting() { set(afterward_); }

 private:
  void set(std::int64_t value) const { CHECK(stand_in<decltype(standInSet)>("standInSet")(name_, value) == 0); }

  const char* name_;
  std::int64_t afterward_;
};

/// Calls body() with the stand-in ready, and fails if it saw anything done that real libraries may not notice.
template <class Body>
void on_stand_in(const Body& body) {
  (void)stand_in_faults();
  body();
  CHECK(stand_in_faults() == "");
}

}  // namespace lora::test
