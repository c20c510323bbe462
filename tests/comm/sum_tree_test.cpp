#include "lora/comm/sum_tree.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <string>

#include "lora/comm/communicator.hpp"
#include "lora/core/error.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "support/thread_ranks.hpp"

namespace sum_tree_test {

using namespace lora;
using comm::Units;

std::string tree_of(const Units& node) {
  if (node.count() == 1) return std::to_string(node.begin);
  const auto [first, second] = comm::halves(node);
  return "(" + tree_of(first) + " " + tree_of(second) + ")";
}

TEST_CASE("sum tree: halves are powers of two first, whatever the number of units") {
  CHECK(tree_of({0, 1}) == "0");
  CHECK(tree_of({0, 2}) == "(0 1)");
  CHECK(tree_of({0, 3}) == "((0 1) 2)");
  CHECK(tree_of({0, 6}) == "(((0 1) (2 3)) (4 5))");
  CHECK(tree_of({0, 8}) == "(((0 1) (2 3)) ((4 5) (6 7)))");
}

TEST_CASE("sum tree: ranks have all units between them, each the largest nodes that it can form alone") {
  for (Index units = 1; units <= 16; ++units)
    for (int ranks = 1; ranks <= units; ++ranks) {
      CAPTURE(units);
      CAPTURE(ranks);
      Index next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Units own = comm::units_of(units, rank, ranks);
        CHECK(own.begin == next);
        CHECK(own.count() >= units / ranks);
        CHECK(own.count() <= (units + ranks - 1) / ranks);
        std::vector<Units> nodes;
        comm::add_nodes({0, units}, own, nodes);
        for (const auto& node : nodes) {
          CHECK(node.begin == next);
          next = node.end;
        }
        CHECK(next == own.end);
        if (ranks == 1) CHECK(nodes == std::vector<Units>{{0, units}});
      }
      CHECK(next == units);
    }
  std::vector<Units> nodes;
  comm::add_nodes({0, 8}, comm::units_of(8, 1, 3), nodes);  // of [2, 5)
  CHECK(nodes == std::vector<Units>{{2, 4}, {4, 5}});
}

TEST_CASE("sum tree: a rank holds its nodes, what waits beside them, and its part of all nodes") {
  CHECK(comm::held_sums(1, 1) == 0);
  CHECK(comm::held_sums(2, 1) == 2);                // the whole, and the first unit while the second is made
  CHECK(comm::held_sums(6, 1) == 4);                // ((0 1) (2 3)) (4 5): three wait at most
  CHECK(comm::held_sums(2, 2) == 1);                // one unit each, where it is formed, and a half of both
  CHECK(comm::held_sums(3, 2) == 2 + 1 + 3 / 2.0);  // 1 and 2, which are no node, what waits, and a half of three
  CHECK(comm::held_sums(6, 3) == 1 + 1 + 1);        // (0 1) and what waits, and a third of three nodes
  CHECK(comm::held_sums(8, 3) == 2 + 2 + 5 / 3.0);  // [2, 5): (2 3) and 4, with room for three units one by one
}

TEST_CASE("sum tree: units that ranks take in turn, and the sums that wait for others") {
  const auto list = [](const comm::OwnUnits& own) {
    std::vector<Index> units;
    for (Index i = 0; i < own.count(); ++i) units.push_back(own[i]);
    for (Index unit = 0; unit < 20; ++unit)
      CHECK(own.has(unit) == (std::find(units.begin(), units.end(), unit) != units.end()));
    return units;
  };
  CHECK(list(comm::units_in_turn(7, 0, 3)) == std::vector<Index>{0, 3, 6});
  CHECK(list(comm::units_in_turn(7, 2, 3)) == std::vector<Index>{2, 5});
  CHECK(list(comm::units_in_turn(2, 2, 3)).empty());
  CHECK(list(comm::units_of_rank(7, 1, 1, 3)) == std::vector<Index>{2, 3});
  CHECK(list(comm::units_of_rank(7, 2, 1, 3)) == std::vector<Index>{1, 4});
  CHECK(list(comm::units_of_rank(3, 2, 0, 1)) == std::vector<Index>{0, 1, 2});
  // As many as a binary counter up to so many has bits that are set at once.
  for (const auto& one : {std::pair<Index, Index>{1, 1}, {2, 1}, {3, 2}, {6, 2}, {7, 3}, {8, 3}, {15, 4}, {64, 6}})
    CHECK(comm::held_in_turn(one.first) == one.second);
}

TEST_CASE("sum tree: sums follow the tree") {
  const double tiny = 0x1p-53;
  const std::vector<double> values{1, tiny, tiny, tiny};  // one by one, each tiny would be lost
  CHECK(comm::tree_sum(values, {0, 4}) == 1 + 2 * tiny);
  CHECK(comm::tree_sum(values, {0, 3}) == 1);
}

TEST_CASE("communicator: parts are whole blocks, as even as can be") {
  CHECK(comm::even_parts(5, 1024, 2) == std::vector<Index>{0, 2048, 5120});
  CHECK(comm::even_parts(1, 1024, 3) == std::vector<Index>{0, 0, 0, 1024});
  CHECK(comm::even_parts(0, 1024, 2) == std::vector<Index>{0, 0, 0});
}

TEST_CASE("communicator: threads as ranks gather, exchange, broadcast and agree") {
  std::vector<std::string> seen(3);
  test::run_ranks(3, [&](test::ThreadRank& self) {
    cpu::Device dev(1);
    const int rank = self.rank();
    const std::vector<double> own(static_cast<std::size_t>(rank + 1), rank);
    std::string& text = seen[static_cast<std::size_t>(rank)];
    const std::vector<Index> counts{0, 1, 3, 6};
    for (const double value : self.all_gather(std::span(own), counts)) text += std::to_string(static_cast<int>(value));
    std::vector<float> slab(6, static_cast<float>(rank));
    const std::vector<Index> begins{0, 1, 3, 6};
    const auto print = [&] {
      text += " ";
      for (const float value : slab) text += std::to_string(static_cast<int>(value));
    };
    self.all_gather(dev, View<cpu::Device, float>(slab.data(), 6), begins);
    print();
    std::vector<std::vector<float>> nodes(rank == 1 ? 2 : 1), parts(4, std::vector<float>(3, 9.0F));
    std::vector<View<cpu::Device, float>> mine, received;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (int j = 0; j < 6; ++j) nodes[i].push_back(static_cast<float>(rank + static_cast<int>(i) * 3 + j));
      mine.emplace_back(nodes[i].data(), 6);
    }
    for (auto& part : parts)
      received.emplace_back(part.data(),
                            begins[static_cast<std::size_t>(rank) + 1] - begins[static_cast<std::size_t>(rank)]);
    const std::vector<int> owners{0, 1, 1, 2};
    self.exchange(dev, std::span<const View<cpu::Device, float>>(mine), std::span<const int>(owners), begins,
                  std::span<const View<cpu::Device, float>>(received));
    for (const auto& part : parts) {
      text += " ";
      for (const float value : part) text += std::to_string(static_cast<int>(value));
    }
    text += " ";
    for (const double value : self.all_gather(std::span(own).first(1))) text += std::to_string(static_cast<int>(value));
    text += " " + std::to_string(self.agree(rank == 1 ? 5U : rank == 2 ? 8U : 0U));
  });
  // Slab j of rank r holds r + 3 j + 0, 1, 2 …
  CHECK(seen[0] == "011222 011222 099 199 499 299 012 13");
  CHECK(seen[1] == "011222 011222 129 239 569 349 012 13");
  CHECK(seen[2] == "011222 011222 345 456 789 567 012 13");
}

TEST_CASE("sum tree: one rank has nobody to exchange with, and says so") {
  cpu::Device dev(1);
  comm::Single<cpu::Device> alone;
  CHECK_THROWS_WITH_AS((alone.exchange<float>(dev, {}, {}, {}, {})), "[comm] one rank has nobody to exchange with",
                       Error);
}

TEST_CASE("sum tree: numbers that a rank gives are those that all agreed on") {
  comm::Single<cpu::Device> alone;
  const std::vector<double> two{1, 2};
  const std::vector<Index> three{0, 3}, ranks{0, 2, 3};
  const char* const said = "[comm] rank 0 of 1 gives 2 numbers, which are not those that the ranks agreed on";
  CHECK_THROWS_WITH_AS(alone.all_gather(two, three), said, ShapeError);
  CHECK_THROWS_WITH_AS(alone.all_gather(two, ranks), said, ShapeError);
  CHECK(alone.all_gather(two) == two);
  CHECK(alone.agree(6) == 6);
}

TEST_CASE("sum tree: where a rank fails, the others are told which and why") {
  const auto ends = test::try_ranks(3, [](test::ThreadRank& self) {
    (void)self.agree(0);
    if (self.rank() == 1) fail<Error>("the disk is full");
    (void)self.agree(0);
  });
  CHECK(ends[0] == "rank 1 failed: the disk is full");
  CHECK(ends[1] == "the disk is full");
  CHECK(ends[2] == ends[0]);
}

}  // namespace sum_tree_test
