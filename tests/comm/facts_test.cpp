#include "lora/comm/facts.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/core/error.hpp"
#include "support/thread_ranks.hpp"

namespace facts_test {

using namespace lora;
using comm::Fact;

namespace {

/// What each rank is told whose facts are facts_of(rank).
template <class FactsOf>
std::vector<std::string> told(int ranks, const FactsOf& facts_of) {
  return test::try_ranks(ranks, [&](test::ThreadRank& self) { comm::expect_same(self, facts_of(self.rank())); });
}

}  // namespace

TEST_CASE("facts: ranks that have the same go on, and all learn what differs and between whom") {
  const std::vector<Fact> same = {{"a", "1"}, {"b", ""}};
  for (const int ranks : {1, 2, 4})
    for (const std::string& error : told(ranks, [&](int) { return same; })) CHECK(error.empty());
  for (const std::string& error : told(4, [&](int rank) {
         std::vector<Fact> facts = same;
         if (rank == 2) facts[1].value = "a long text of two words";
         return facts;
       }))
    CHECK(error == "ranks differ in b: rank 0 has , rank 2 has a long text of two words");
  for (const std::string& error : told(2, [&](int rank) {  // the first of two
         std::vector<Fact> facts = same;
         if (rank == 1) facts[0].value = facts[1].value = "x";
         return facts;
       }))
    CHECK(error == "ranks differ in a: rank 0 has 1, rank 1 has x");
}

TEST_CASE("facts: ranks that compare other things are of another version") {
  for (const std::string& error : told(3, [](int rank) {
         std::vector<Fact> facts = {{"a", "1"}};
         if (rank == 1) facts.push_back({"b", "2"});
         return facts;
       }))
    CHECK(error == "rank 1 runs another version of this program than rank 0");
  for (const std::string& error : told(2, [](int rank) { return std::vector<Fact>{{rank == 0 ? "a" : "b", "1"}}; }))
    CHECK(error == "rank 1 runs another version of this program than rank 0");
}

TEST_CASE("facts: the text of any rank comes to all, also none") {
  test::run_ranks(3, [](test::ThreadRank& self) {
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(comm::text_of(self, rank, std::string(static_cast<std::size_t>(5 * self.rank()), 'x')) ==
            std::string(static_cast<std::size_t>(5 * rank), 'x'));
    }
  });
}

}  // namespace facts_test
