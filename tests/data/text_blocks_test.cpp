#include "lora/data/batches/text_blocks.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "support/message_of.hpp"

namespace text_blocks_test {

using namespace lora;
using data::Example;
using data::TextBlocks;

using Ids = std::vector<std::int32_t>;

TEST_CASE("text_blocks: every token of a long text is learned once, from what stands before it") {
  for (const Index opening : {0, 1, 2})
    for (const Index cutoff : {4, 7, 16})
      for (Index length = opening + 1; length < 60; ++length) {
        CAPTURE(opening);
        CAPTURE(cutoff);
        CAPTURE(length);
        Ids text(static_cast<std::size_t>(length));
        std::iota(text.begin(), text.end(), 0);
        const TextBlocks blocks{cutoff, opening};
        Ids learned;
        const Index count = blocks.count(length);
        for (Index i = 0; i < count; ++i) {
          const Example block = blocks.block(text, i);
          REQUIRE(std::ssize(block.tokens) <= cutoff);
          REQUIRE(block.labeled() > 0 + (length == 1 ? -1 : 0));
          if (i + 1 < count) REQUIRE(std::ssize(block.tokens) == cutoff);
          for (Index o = 0; o < opening; ++o) REQUIRE(block.tokens[static_cast<std::size_t>(o)] == o);
          for (std::size_t at = 1; at < block.labels.size(); ++at) {
            if (block.labels[at] == ignore_index) continue;
            REQUIRE(block.labels[at] == block.tokens[at]);
            const bool follows = block.tokens[at] == block.tokens[at - 1] + 1;
            REQUIRE((follows || static_cast<Index>(at) == opening));
            learned.push_back(block.labels[at]);
          }
        }
        Ids all(static_cast<std::size_t>(length - 1));
        std::iota(all.begin(), all.end(), 1);
        REQUIRE(learned == all);
      }
}

TEST_CASE("text_blocks: a cutoff without room for a block is an error") {
  CHECK(TextBlocks{2, 2}.count(2) == 1);
  CHECK_THROWS_AS(TextBlocks({2, 2}).count(3), ConfigError);
  CHECK_THROWS_AS(TextBlocks({1, 0}).count(3), ConfigError);
}

TEST_CASE("text_blocks: the least cutoff with room for a block is told") {
  const auto said = [](Index cutoff, Index opening) {
    return test::message_of<ConfigError>([&] { (void)TextBlocks{cutoff, opening}.count(9); });
  };
  CHECK(said(1, 0) == "cutoff_len is 1; texts are cut into blocks of at least 2 tokens");
  CHECK(said(1, 1) == "cutoff_len is 1; texts are cut into blocks of at least 2 tokens");
  CHECK(said(3, 3) == "cutoff_len is 3; texts are cut into blocks of at least 4 tokens");
  CHECK(said(4, 3) == "nothing was thrown");
  CHECK(TextBlocks{4, 3}.count(9) == 6);  // one token each after the three of the opening
  CHECK(TextBlocks{5, 1}.count(5) == 1);
  CHECK(TextBlocks{5, 1}.count(6) == 2);
  CHECK(TextBlocks{5, 1}.count(9) == 2);
  CHECK(TextBlocks{5, 1}.count(10) == 3);
}

}  // namespace text_blocks_test
