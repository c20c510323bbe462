#include "lora/data/batches/shared_parts.hpp"

#include <doctest/doctest.h>

#include <map>
#include <tuple>
#include <vector>

#include "lora/core/random.hpp"

namespace shared_parts_test {

using namespace lora;
using data::Beginning;
using data::Part;

using Ids = std::vector<std::int32_t>;

struct Sequences {
  std::vector<Ids> tokens;
  std::vector<Index> lengths;  // with what can't be shared

  std::vector<Part> parts(Index least) const {
    std::vector<Beginning> beginnings;
    for (std::size_t i = 0; i < tokens.size(); ++i) beginnings.push_back({tokens[i], lengths[i]});
    return data::shared_parts(beginnings, least);
  }
};

TEST_CASE("shared parts: what each has in common with the one with which it has most") {
  const std::vector<Ids> tokens{{1, 2, 3, 4}, {7, 8}, {1, 2, 3, 5, 6}, {1, 2, 9}, {}, {7, 8, 9}, {7}};
  std::vector<Beginning> all;
  for (const Ids& ids : tokens) all.push_back({ids, 10});
  CHECK(data::common_beginnings(all, 1) == std::vector<Index>{3, 2, 3, 2, 0, 2, 1});
  CHECK(data::common_beginnings(all, 3) == std::vector<Index>{3, 0, 3, 0, 0, 0, 0});
  CHECK(data::common_beginnings({}, 1).empty());
}

TEST_CASE("shared parts: every token of every sequence is in one part, behind those before it") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    Sequences all;
    const std::uint32_t count = random.below(9), alphabet = 1 + random.below(3), longest = 1 + random.below(12);
    for (std::uint32_t i = 0; i < count; ++i) {
      Ids ids(random.below(longest));
      for (auto& id : ids) id = static_cast<std::int32_t>(random.below(alphabet));
      all.lengths.push_back(std::ssize(ids) + random.below(3));
      all.tokens.push_back(std::move(ids));
    }
    const Index least = 1 + random.below(4);
    const std::vector<Part> parts = all.parts(least);
    // Which part has each sequence's last token: its own, or the last of what it is a whole part of.
    std::vector<Index> children(parts.size());
    std::vector<Index> own(all.tokens.size(), -1);
    std::vector<Index> path;
    for (Index p = 0; p < std::ssize(parts); ++p) {
      const Part& part = parts[static_cast<std::size_t>(p)];
      CHECK(part.size() > 0);
      while (!path.empty() && path.back() != part.parent) path.pop_back();
      REQUIRE((part.parent == -1 ? path.empty() : !path.empty()));  // preorder
      path.push_back(p);
      const Index before = part.parent < 0 ? 0 : parts[static_cast<std::size_t>(part.parent)].end;
      CHECK(part.begin == before);
      if (part.parent >= 0) ++children[static_cast<std::size_t>(part.parent)];
      if (part.end == all.lengths[static_cast<std::size_t>(part.sequence)] &&
          part.end > std::ssize(all.tokens[static_cast<std::size_t>(part.sequence)]))
        own[static_cast<std::size_t>(part.sequence)] = p;
      else if (part.end <= std::ssize(all.tokens[static_cast<std::size_t>(part.sequence)]) && part.size() < least)
        CHECK(part.end == all.lengths[static_cast<std::size_t>(part.sequence)]);  // short, but no common one
    }
    for (std::size_t i = 0; i < own.size(); ++i)
      CHECK((own[i] >= 0) == (all.lengths[i] > std::ssize(all.tokens[i])));  // what can't be shared is its own
    for (std::size_t i = 0; i < own.size(); ++i)
      for (Index p = own[i]; p >= 0; p = parts[static_cast<std::size_t>(p)].parent) {
        const Part& part = parts[static_cast<std::size_t>(p)];
        CHECK(part.sequence <= static_cast<Index>(i));
        const Ids& theirs = all.tokens[static_cast<std::size_t>(part.sequence)];
        for (Index t = part.begin; t < std::min(part.end, std::ssize(all.tokens[i])); ++t)
          CHECK(theirs.at(static_cast<std::size_t>(t)) == all.tokens[i][static_cast<std::size_t>(t)]);
      }
    if (least > 1) continue;
    // With any length shared, rows are as many as there are different beginnings, and what can't be shared.
    std::map<Ids, int> different;
    Index rows = 0;
    for (std::size_t i = 0; i < all.tokens.size(); ++i) {
      for (std::size_t t = 1; t <= all.tokens[i].size(); ++t)
        different[Ids(all.tokens[i].begin(), all.tokens[i].begin() + static_cast<std::ptrdiff_t>(t))] = 1;
      rows += all.lengths[i] - std::ssize(all.tokens[i]);
    }
    Index sizes = 0;
    for (const Part& part : parts) sizes += part.size();
    CHECK(sizes == rows + std::ssize(different));
  }
}

TEST_CASE("shared parts: what is too short to share is a part of each") {
  const Sequences all{{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 6}, {1, 9}, {7}}, {5, 5, 4, 1}};
  const auto as_rows = [](const std::vector<Part>& parts) {
    std::vector<std::tuple<Index, Index, Index, Index>> rows;
    for (const Part& part : parts) rows.emplace_back(part.sequence, part.begin, part.end, part.parent);
    return rows;
  };
  using Rows = std::vector<std::tuple<Index, Index, Index, Index>>;
  CHECK(as_rows(all.parts(1)) ==
        Rows{{0, 0, 1, -1}, {0, 1, 4, 0}, {0, 4, 5, 1}, {1, 4, 5, 1}, {2, 1, 4, 0}, {3, 0, 1, -1}});
  CHECK(as_rows(all.parts(2)) == Rows{{0, 0, 4, -1}, {0, 4, 5, 0}, {1, 4, 5, 0}, {2, 0, 4, -1}, {3, 0, 1, -1}});
  CHECK(as_rows(all.parts(5)) == Rows{{0, 0, 5, -1}, {1, 0, 5, -1}, {2, 0, 4, -1}, {3, 0, 1, -1}});
  CHECK(Sequences{}.parts(1).empty());
}

TEST_CASE("shared parts: trees come in the order of their first sequences") {
  const Sequences all{{{5, 1}, {3, 1}, {5, 2}, {1, 1}, {3, 2}, {5, 1}}, {3, 3, 3, 3, 3, 3}};
  std::vector<Index> order;
  for (const Part& part : all.parts(1)) order.push_back(part.sequence);
  CHECK(order == std::vector<Index>{0, 0, 0, 5, 2, 1, 1, 4, 3});
}

}  // namespace shared_parts_test
