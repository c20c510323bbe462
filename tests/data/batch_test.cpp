#include "lora/data/batch.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace batch_test {

using namespace lora;
using data::Batch;
using data::Example;

using Ids = std::vector<std::int32_t>;

TEST_CASE("batch: labels are the next tokens of the same sequence, and nothing is padded") {
  Batch batch;
  batch.append({{10, 11, 12, 13}, {-100, -100, 12, 13}, 5}, 2);
  batch.append({{20}, {20}, 6}, 3);
  batch.append({{30, 31, 32}, {30, 31, -100}, 9}, 7);
  CHECK(batch.tokens == Ids{10, 11, 12, 13, 20, 30, 31, 32});
  CHECK(batch.labels == Ids{-100, 12, 13, -100, -100, 31, -100, -100});
  CHECK(batch.positions == Ids{0, 1, 2, 3, 0, 0, 1, 2});
  CHECK(batch.sequence_index == Ids{2, 2, 2, 2, 3, 7, 7, 7});
  CHECK(batch.records == std::vector<Index>{5, 6, 9});
  REQUIRE(batch.sequences() == 3);
  CHECK(batch.segments[0].begin == 0);
  CHECK(batch.segments[0].end == 4);
  CHECK(batch.segments[1].begin == 4);
  CHECK(batch.segments[1].end == 5);
  CHECK(batch.segments[2].begin == 5);
  CHECK(batch.segments[2].end == 8);
  CHECK(batch.labelled == 3);
}

TEST_CASE("batch: each token has a label") {
  Batch batch;
  CHECK_THROWS_WITH_AS(batch.append({{1, 2, 3}, {1, 2}, 0}, 0), "[batch] 3 tokens but 2 labels", ShapeError);
  CHECK_THROWS_WITH_AS(batch.append({{1, 2, 3}, {1, 2, 3, 4}, 0}, 0), "[batch] 3 tokens but 4 labels", ShapeError);
  CHECK(batch.rows() == 0);
}

TEST_CASE("batch: a first label cannot be learnt, an empty example adds nothing") {
  CHECK(Example{{1, 2}, {1, -100}}.labelled() == 0);
  CHECK(Example{{1, 2}, {-100, 2}}.labelled() == 1);
  CHECK(Example{}.labelled() == 0);
  Batch batch;
  batch.append({}, 0);
  CHECK(batch.sequences() == 0);
  CHECK_THROWS_AS(batch.append({{1, 2}, {1}}, 0), ShapeError);
}

}  // namespace batch_test
