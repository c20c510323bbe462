#pragma once

#include <cstdlib>

namespace lora::test {

/// A number that decides how long a test takes: `whole`, or `shortened` where LORA_TEST_SHORT is set, as under the
/// sanitizers, which make everything many times slower. Nothing is left out, only thinned.
template <class Number>
Number effort(Number whole, Number shortened) {
  static const bool is_short = std::getenv("LORA_TEST_SHORT") != nullptr;
  return is_short ? shortened : whole;
}

}  // namespace lora::test
