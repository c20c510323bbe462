#include "lora/cpu/runtime/threads.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace threads_test {

namespace {

using namespace lora;
using Ranges = std::vector<std::pair<Index, Index>>;

Ranges ranges(const cpu::Threads& team, Index count, Index grain) {
  Ranges found;
  std::mutex mutex;
  team.parallel_for(count, grain, [&](Index begin, Index end) {
    const std::lock_guard lock(mutex);
    found.emplace_back(begin, end);
  });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

TEST_CASE("threads: a team is as large as is told, or as the process may have it") {
  CHECK(cpu::Threads(3).threads() == 3);
  for (const int count : {0, -1}) CHECK(cpu::Threads(count).threads() == cpu::available_threads());
  CHECK(cpu::Threads().threads() == cpu::available_threads());
  const int before = omp_get_max_threads();
  for (const int count : {5, 2}) {
    const cpu::Threads team(count);
    CHECK(omp_get_max_threads() == (count == 5 ? before : 5));  // one that nobody used changes nothing
    team.use_threads();
    CHECK(omp_get_max_threads() == count);
  }
  omp_set_num_threads(before);
}

TEST_CASE("threads: ranges lie end to end, one a thread at most, and none is smaller than the grain") {
  for (const int threads : {1, 2, 3, 4}) {
    const cpu::Threads team(threads);
    for (const Index count : {0, 1, 5, 8, 11, 12, 100})
      for (const Index grain : {0, 1, 3, 4, 12}) {
        CAPTURE(threads);
        CAPTURE(count);
        CAPTURE(grain);
        const Ranges found = ranges(team, count, grain);
        CHECK(found.empty() == (count == 0));
        CHECK(found.size() <= static_cast<std::size_t>(threads));
        Index end = 0;
        for (const auto& range : found) {
          CHECK(range.first == end);
          end = range.second;
          CHECK(range.second - range.first >= std::min(grain, count));
          // They differ by one at most.
          const auto own = static_cast<Index>(found.size());
          CHECK(range.second - range.first >= count / own);
          CHECK(range.second - range.first <= (count + own - 1) / own);
        }
        CHECK(end == count);
      }
  }
}

}  // namespace threads_test
