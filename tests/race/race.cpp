// What the thread sanitizer must see, and what it must not: `race` has every thread write to one number, `barrier` has
// each write to its own and one read them all once the loop has ended.

#include <cstdio>
#include <numeric>
#include <string_view>
#include <vector>

#include "lora/cpu/runtime/device.hpp"

int main(int argc, char** argv) {
  const bool races = argc > 1 && std::string_view(argv[1]) == "race";
  constexpr lora::Index count = 1000;
  lora::cpu::Device dev(3);
  std::vector<lora::Index> sums(count);
  for (int repeat = 0; repeat < 10; ++repeat) {
    dev.parallel_for(count, 1, [&](lora::Index begin, lora::Index end) {
      for (lora::Index i = begin; i < end; ++i) sums[races ? 0 : static_cast<std::size_t>(i)] += i;
    });
    dev.parallel_items(count, [&](lora::Index i) { sums[races ? 0 : static_cast<std::size_t>(count - 1 - i)] += i; });
  }
  std::printf("%lld\n", static_cast<long long>(std::accumulate(sums.begin(), sums.end(), lora::Index{0})));
}
