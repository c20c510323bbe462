#include "lora/comm/facts.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lora/core/error.hpp"
#include "support/message_of.hpp"
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

/// The second of two ranks, which is told `number` in place of every number, its own too, and of texts nothing.
class Deceived final : public comm::Ranks {
 public:
  explicit Deceived(double number) : number_(number) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    within_ = within_ && begins.back() <= std::ssize(bytes);
    if (begins[1] == static_cast<Index>(sizeof number_))
      for (const std::size_t at : {std::size_t{0}, sizeof number_})
        std::memcpy(bytes.data() + at, &number_, sizeof number_);
  }
  bool within() const { return within_; }

 private:
  double number_;
  bool within_ = true;
};

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

TEST_CASE("facts: what others give is no size of a text, or no bits") {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const double number : {-1.0, 268435457.0, 1e300, infinite, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(number);
    Deceived ranks(number);
    CHECK(test::message_of<Error>([&] { (void)comm::text_of(ranks, 0, ""); }) ==
          concat("[comm] rank 0 gives a text of ", number, " bytes; expected at most 256 MiB"));
    // Its own is as long as it is.
    CHECK(comm::text_of(ranks, 1, "own") == "own");
    CHECK(ranks.within());
  }
  for (const double number : {-1.0, 4294967296.0, infinite, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(number);
    Deceived ranks(number);
    CHECK(test::message_of<Error>([&] { (void)ranks.agree(1); }) ==
          concat("[comm] a rank agrees with ", number, "; expected bits, 0 to 4294967295"));
  }
  Deceived all_bits(4294967295.0);
  CHECK(all_bits.agree(1) == 4294967295u);
}

}  // namespace facts_test
