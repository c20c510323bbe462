#pragma once

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace lora::test {

/// A line for the summary of .ci/run, once in a process: what this run did not look at, and why.
inline void say_once(std::string_view kind, std::string_view what) {
  static std::set<std::string> said;
  const std::string line = std::string(kind) + ": " + std::string(what);
  if (said.insert(line).second) std::printf("%s\n", line.c_str());
}

/// A check that this machine can't make. It counts in the last line of .ci/run.
inline void skipped(std::string_view what) { say_once("skipped", what); }

/// A number that decides how long a test takes: `whole`, or `shortened` where LORA_TEST_SHORT is set, as under the
/// sanitizers, which make everything many times slower. Then it says what is left out.
template <class Number>
Number effort(Number whole, Number shortened, std::string_view left_out) {
  static const bool is_short = std::getenv("LORA_TEST_SHORT") != nullptr;
  if (is_short && whole != shortened) say_once("left out", left_out);
  return is_short ? shortened : whole;
}

}  // namespace lora::test
