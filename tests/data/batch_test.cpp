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

TEST_CASE("batch: rows before all labels that sequences have in common have their place once") {
  const std::vector<Example> examples{{{1, 2, 3, 4, 5, 6}, {-100, -100, -100, -100, -100, 6}, 4},
                                      {{9, 8}, {-100, 8}, 5},
                                      {{}, {}, 6},
                                      {{1, 2, 3, 7}, {-100, -100, -100, 7}, 7},
                                      {{1, 2, 3, 4, 6}, {-100, -100, -100, -100, 6}, 8}};
  const std::vector<Index> places{10, 11, 12, 13, 14};
  Batch batch;
  batch.append({{50, 51}, {-100, 51}, 1}, 3);
  batch.append_shared(examples, places, 1);
  // 1 2 is common to three, of which the third has a label behind it; 3 then to two, whose 4 one of them learns behind.
  CHECK(batch.tokens == Ids{50, 51, 1, 2, 3, 4, 5, 6, 4, 6, 3, 7, 9, 8});
  CHECK(batch.labels == Ids{51, -100, -100, -100, -100, -100, 6, -100, 6, -100, 7, -100, 8, -100});
  CHECK(batch.positions == Ids{0, 1, 0, 1, 2, 3, 4, 5, 3, 4, 2, 3, 0, 1});
  CHECK(batch.sequence_index == Ids{3, 3, 10, 10, 10, 10, 10, 10, 14, 14, 13, 13, 11, 11});
  CHECK(batch.records == std::vector<Index>{1, 4, 5, 7, 8});
  CHECK(batch.sequences() == 5);
  CHECK(batch.labelled == 5);
  const std::vector<std::vector<Index>> expected{{0, 2, -1}, {2, 4, -1},  {4, 5, 1},   {5, 8, 2},
                                                 {8, 10, 2}, {10, 12, 1}, {12, 14, -1}};
  std::vector<std::vector<Index>> segments;
  for (const auto& segment : batch.segments) segments.push_back({segment.begin, segment.end, segment.parent});
  CHECK(segments == expected);
}

TEST_CASE("batch: sequences with nothing in common, or too little, are appended as each alone is") {
  const std::vector<Example> examples{{{1, 2, 3, 4}, {-100, -100, -100, 4}, 4},
                                      {{7, 8, 9}, {-100, -100, -100}, 5},
                                      {{1, 2, 6, 4}, {-100, -100, -100, 4}, 6}};
  const std::vector<Index> places{0, 1, 2};
  Batch shared, apart;
  shared.append_shared(examples, places, 3);
  for (std::size_t i = 0; i < examples.size(); ++i) apart.append(examples[i], places[i]);
  CHECK(shared.tokens == apart.tokens);
  CHECK(shared.labels == apart.labels);
  CHECK(shared.segments.size() == apart.segments.size());
  CHECK(shared.records == apart.records);
  Batch less;
  less.append_shared(examples, places, 2);
  CHECK(less.rows() == 9);
}

TEST_CASE("batch: sequences that are the same, or the beginning of another, without a label or with") {
  const Example whole{{1, 2, 3, 4}, {-100, -100, -100, 4}, 4}, beginning{{1, 2}, {-100, -100}, 5};
  const std::vector<Index> places{0, 1, 2};
  Batch batch;
  batch.append_shared(std::vector<Example>{whole, beginning, whole}, places, 1);
  CHECK(batch.tokens == Ids{1, 2, 3, 4, 3, 4});  // the row of 3 has a label
  CHECK(batch.sequences() == 3);
  CHECK(batch.segments.size() == 3);
  CHECK(batch.labelled == 2);
  Batch nothing;
  nothing.append_shared(std::vector<Example>{beginning, beginning, beginning}, places, 1);
  CHECK(nothing.tokens == Ids{1, 2});
  CHECK(nothing.segments.size() == 1);
  CHECK(nothing.sequences() == 3);
}

TEST_CASE("batch: each token has a label") {
  Batch batch;
  CHECK_THROWS_WITH_AS(batch.append({{1, 2, 3}, {1, 2}, 0}, 0), "[batch] 3 tokens but 2 labels", ShapeError);
  CHECK_THROWS_WITH_AS(batch.append({{1, 2, 3}, {1, 2, 3, 4}, 0}, 0), "[batch] 3 tokens but 4 labels", ShapeError);
  CHECK_THROWS_WITH_AS(batch.append_shared(std::vector<Example>{{{1}, {}, 0}}, std::vector<Index>{0}, 1),
                       "[batch] 1 tokens but 0 labels", ShapeError);
  CHECK_THROWS_WITH_AS(batch.append_shared(std::vector<Example>{{{1}, {1}, 0}}, std::vector<Index>{}, 1),
                       "[batch] 1 sequences but 0 places", ShapeError);
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
