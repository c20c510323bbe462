#include "lora/data/batches/grouping.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "lora/core/random.hpp"

namespace grouping_test {

using namespace lora;

namespace {

std::vector<Index> tokens_of(const data::Groups& groups, const std::vector<Index>& lengths) {
  std::vector<Index> tokens;
  for (const auto& group : groups) {
    Index sum = 0;
    for (const Index i : group) sum += lengths[static_cast<std::size_t>(i)];
    tokens.push_back(sum);
  }
  return tokens;
}

}  // namespace

TEST_CASE("grouping: every sequence once, within the limit, in no more groups than in the order given") {
  Random random(5);
  Index fewer = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<Index> lengths(random.below(40));
    const Index limit = 1 + random.below(300);
    for (Index& length : lengths) length = 1 + random.below(round % 2 == 0 ? 100 : 350);
    const data::Groups groups = data::group_by_tokens(lengths, limit);
    std::vector<Index> seen;
    for (const auto& group : groups) {
      REQUIRE_FALSE(group.empty());
      REQUIRE(std::is_sorted(group.begin(), group.end()));
      seen.insert(seen.end(), group.begin(), group.end());
    }
    REQUIRE(std::is_sorted(groups.begin(), groups.end()));
    std::sort(seen.begin(), seen.end());
    std::vector<Index> all(lengths.size());
    std::iota(all.begin(), all.end(), Index{0});
    REQUIRE(seen == all);
    const auto tokens = tokens_of(groups, lengths);
    for (std::size_t g = 0; g < groups.size(); ++g) REQUIRE((tokens[g] <= limit || groups[g].size() == 1));
    const auto in_order = data::detail::fill_in_order(lengths, limit).groups.size();
    REQUIRE(groups.size() <= in_order);
    fewer += groups.size() < in_order;
    REQUIRE(data::group_by_tokens(lengths, limit) == groups);
  }
  CHECK(fewer > 100);
}

TEST_CASE("grouping: a group may have as many tokens as the limit, and a longer sequence stands alone") {
  using Filling = data::detail::Filling;
  CHECK(Filling{{{0, 1}, {2}}, {10, 20}}.within(10));
  CHECK_FALSE(Filling{{{0, 1}, {2}}, {10, 20}}.within(9));
  CHECK_FALSE(Filling{{{0}, {1, 2}}, {5, 10}}.within(9));
  CHECK(data::group_by_tokens(std::vector<Index>{5, 5, 4, 6}, 10) == data::Groups{{0, 1}, {2, 3}});
  CHECK(data::group_by_tokens(std::vector<Index>{5, 12, 5}, 10) == data::Groups{{0, 2}, {1}});
}

TEST_CASE("grouping: groups are even where they can be") {
  const std::vector<Index> lengths = {90, 10, 80, 20, 70, 30, 60, 40};
  CHECK(data::detail::fill_in_order(lengths, 380).tokens == std::vector<Index>{360, 40});
  CHECK(tokens_of(data::group_by_tokens(lengths, 380), lengths) == std::vector<Index>{200, 200});
}

TEST_CASE("grouping: by rows that sequences have in common: every sequence once, within the limit") {
  Random random(6);
  Index fewer = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    // Prompts of a few, each with answers; some prompts begin alike.
    std::vector<std::vector<std::int32_t>> prompts(1 + random.below(4));
    for (auto& prompt : prompts) {
      prompt.assign(random.below(40), 1);
      for (std::uint32_t i = random.below(30); i > 0; --i) prompt.push_back(static_cast<std::int32_t>(random.below(5)));
    }
    std::vector<data::Beginning> sequences;
    std::vector<Index> lengths;
    for (std::uint32_t i = random.below(25); i > 0; --i) {
      const auto& prompt = prompts[random.below(static_cast<std::uint32_t>(prompts.size()))];
      sequences.push_back({prompt, std::ssize(prompt) + 1 + random.below(20)});
      lengths.push_back(sequences.back().length);
    }
    const Index limit = 1 + random.below(150), least = 1 + random.below(8);
    const data::Groups groups = data::group_by_rows(sequences, limit, least);
    std::vector<Index> seen;
    Index rows = 0, tokens = 0;
    for (const auto& group : groups) {
      REQUIRE(std::is_sorted(group.begin(), group.end()));
      seen.insert(seen.end(), group.begin(), group.end());
      const Index own = data::shared_rows(sequences, group, least);
      REQUIRE((own <= limit || group.size() == 1));
      rows += own;
    }
    REQUIRE(std::is_sorted(groups.begin(), groups.end()));
    std::sort(seen.begin(), seen.end());
    std::vector<Index> all(sequences.size());
    std::iota(all.begin(), all.end(), Index{0});
    REQUIRE(seen == all);
    for (const auto& group : data::group_by_tokens(lengths, limit))
      tokens += data::shared_rows(sequences, group, least);
    REQUIRE(rows <= tokens);
    fewer += rows < tokens;
  }
  CHECK(fewer > 100);
}

TEST_CASE("grouping: sequences that begin alike meet, in even groups; without any the groups are those by tokens") {
  const std::vector<std::int32_t> one(20, 1), other(20, 2);
  const std::vector<data::Beginning> sequences{{one, 25}, {other, 25}, {one, 25}, {other, 25}, {one, 25}, {one, 25}};
  CHECK(data::group_by_rows(sequences, 40, 4) == data::Groups{{0, 2, 4, 5}, {1, 3}});
  CHECK(data::shared_rows(sequences, std::vector<Index>{0, 2, 4, 5}, 4) == 20 + 4 * 5);
  CHECK(data::group_by_rows(sequences, 36, 4) == data::Groups{{0, 2}, {1, 3}, {4, 5}});  // not three and one
  CHECK(data::shared_rows(sequences, std::vector<Index>{0, 2}, 21) == 50);
  const std::vector<Index> lengths{25, 25, 25, 25, 25, 25};
  CHECK(data::group_by_rows(sequences, 60, 21) == data::group_by_tokens(lengths, 60));
  CHECK(data::group_by_rows({}, 60, 4).empty());
  // Side by side the first two would stand alone, each beside half a micro-batch.
  const std::vector<std::int32_t> third(20, 3), fourth(20, 4);
  const std::vector<data::Beginning> few{{one, 100}, {one, 100}, {third, 60}, {fourth, 60}};
  CHECK(data::group_by_rows(few, 160, 4) == data::Groups{{0, 2}, {1, 3}});
}

TEST_CASE("grouping: the better of two rules") {
  const std::vector<Index> unlucky = {100, 100, 60, 60};
  CHECK(data::detail::fill_in_order(unlucky, 160).groups.size() == 3);
  CHECK(data::group_by_tokens(unlucky, 160) == data::Groups{{0, 2}, {1, 3}});
  // Longest first would need a third group.
  const std::vector<Index> lucky = {12, 6, 9, 4, 10, 13};
  CHECK(data::group_by_tokens(lucky, 27) == data::Groups{{0, 1, 2}, {3, 4, 5}});
  CHECK(data::group_by_tokens({}, 5).empty());
  CHECK(data::group_by_tokens(std::vector<Index>{9}, 5) == data::Groups{{0}});
}

TEST_CASE("grouping: by places, a group holds what lies in one span, also where places are left out") {
  using Places = std::vector<Index>;
  CHECK(data::group_by_places(Places{0, 1, 2, 3, 4, 5, 6}, 3) == data::Groups{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK(data::group_by_places(Places{0, 2, 3, 8, 9}, 3) == data::Groups{{0, 1}, {2}, {3}, {4}});
  CHECK(data::group_by_places(Places{2, 3}, 3) == data::Groups{{0}, {1}});
  CHECK(data::group_by_places(Places{4, 7, 8}, 1) == data::Groups{{0}, {1}, {2}});
  CHECK(data::group_by_places(Places{5, 6}, 100) == data::Groups{{0, 1}});
  CHECK(data::group_by_places({}, 3).empty());
}

}  // namespace grouping_test
