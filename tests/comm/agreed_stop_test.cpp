// Ranks that work on their own and stop together: each has done what one of them being told to stop leaves it to do.

#include "lora/comm/agreed_stop.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <utility>
#include <vector>

#include "support/thread_ranks.hpp"

namespace agreed_stop_test {

using namespace lora;
using namespace lora::test;

namespace {

constexpr Index every = 4;

/// What ranks that share `pieces` out in turn have done of them, and whether each ended stopped. Rank `told` is told to
/// stop once it has done `after`.
struct Outcome {
  std::vector<Index> done;
  std::vector<bool> stopped;
};
Outcome work(int ranks, Index pieces, std::optional<int> told, Index after) {
  Outcome outcome;
  outcome.done.resize(static_cast<std::size_t>(ranks));
  std::vector<char> stopped(static_cast<std::size_t>(ranks));  // written by several threads, which bits can't be
  run_ranks(ranks, [&](ThreadRank& self) {
    const auto rank = static_cast<std::size_t>(self.rank());
    Index& done = outcome.done[rank];
    bool says = self.rank() == told;  // once: a flag that is set for a moment counts as much as one that stays
    comm::AgreedStop stop(self, pieces / ranks, every,
                          [&] { return says && done == after ? std::exchange(says, false) : false; });
    const Index own = (pieces + ranks - 1 - self.rank()) / ranks;
    while (done < own && !stop.stopped()) {
      ++done;
      stop.did_one();
    }
    stopped[rank] = stop.ends_stopped() ? 1 : 0;
  });
  outcome.stopped.assign(stopped.begin(), stopped.end());
  return outcome;
}

}  // namespace

TEST_CASE("agreed stop: ranks that are not told to stop do all there is") {
  for (const int ranks : {1, 2, 3, 5}) {
    for (Index pieces = 0; pieces < 30; ++pieces) {
      CAPTURE(ranks);
      CAPTURE(pieces);
      const Outcome outcome = work(ranks, pieces, std::nullopt, 0);
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(outcome.done[static_cast<std::size_t>(rank)] == (pieces + ranks - 1 - rank) / ranks);
        CHECK_FALSE(outcome.stopped[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

TEST_CASE("agreed stop: the others do no more than up to where they ask next") {
  for (const int ranks : {1, 2, 3}) {
    for (const Index pieces : {0, 1, 2, 7, 8, 9, 24, 26, 29}) {
      for (int told = 0; told < ranks; ++told) {
        const Index common = pieces / ranks, has = (pieces + ranks - 1 - told) / ranks;
        for (Index after = 0; after <= has; ++after) {
          CAPTURE(ranks);
          CAPTURE(pieces);
          CAPTURE(told);
          CAPTURE(after);
          const Outcome outcome = work(ranks, pieces, told, after);
          for (int rank = 0; rank < ranks; ++rank) {
            const Index own = (pieces + ranks - 1 - rank) / ranks;
            // What is done when a multiple of `every` is reached is asked about there, with this piece's flag.
            const bool asks_now = after > 0 && after % every == 0 && after <= common;
            const Index next = asks_now ? after : (after / every + 1) * every;
            const Index expected = rank == told ? after : next <= common ? next : own;
            CHECK(outcome.done[static_cast<std::size_t>(rank)] == expected);
            CHECK(outcome.stopped[static_cast<std::size_t>(rank)]);
          }
        }
      }
    }
  }
}

}  // namespace agreed_stop_test
