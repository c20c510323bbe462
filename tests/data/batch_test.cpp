#include "lora/data/batches/batch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lora/core/ignore_index.hpp"

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
  CHECK(batch.labeled == 3);
}

namespace {

/// A sequence of `beginning` and `end`, the tokens of which are labeled.
Example example_of(const Ids& beginning, const Ids& end, Index record) {
  Example example{beginning, Ids(beginning.size(), ignore_index), record};
  example.tokens.insert(example.tokens.end(), end.begin(), end.end());
  example.labels.insert(example.labels.end(), end.begin(), end.end());
  return example;
}

Ids counted(std::int32_t first, std::size_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

Ids joined(Ids one, const Ids& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

using Rows = std::vector<std::vector<Index>>;

Rows segments_of(const Batch& batch) {
  Rows rows;
  for (const auto& segment : batch.segments) rows.push_back({segment.begin, segment.end, segment.parent});
  return rows;
}

}  // namespace

TEST_CASE("batch: beginnings that sequences have in common lie there once, up to the row that learns") {
  constexpr auto n = static_cast<std::size_t>(data::least_shared);
  const Ids system = counted(100, n + 1), tools = counted(200, n);  // the system's last row learns in the fourth
  const std::vector<Example> examples{example_of(joined(system, tools), {1, 2}, 4),
                                      example_of({9}, {8}, 5),
                                      {{}, {}, 6},
                                      example_of(system, {7}, 7),
                                      example_of(joined(system, tools), {3}, 8)};
  Batch batch;
  batch.append({{50, 51}, {-100, 51}, 1}, 3);
  batch.append(examples, std::vector<Index>{10, 11, 12, 13, 14}, true);
  const auto at = static_cast<Index>(n);
  // The system prompt but for its last row; that and the tools but for theirs, to two; what each has of its own.
  CHECK(segments_of(batch) == Rows{{0, 2, -1},
                                   {2, 2 + at, -1},
                                   {2 + at, 2 + 2 * at, 1},
                                   {2 + 2 * at, 5 + 2 * at, 2},
                                   {5 + 2 * at, 7 + 2 * at, 2},
                                   {7 + 2 * at, 9 + 2 * at, 1},
                                   {9 + 2 * at, 11 + 2 * at, -1}});
  const std::int32_t last = 200 + static_cast<std::int32_t>(n) - 1, of_system = 100 + static_cast<std::int32_t>(n);
  CHECK(batch.tokens ==
        joined(joined({50, 51}, system), joined(counted(200, n - 1), {last, 1, 2, last, 3, of_system, 7, 9, 8})));
  CHECK(Ids(batch.labels.end() - 9, batch.labels.end()) == Ids{1, 2, -100, 3, -100, 7, -100, 8, -100});
  CHECK(std::count(batch.labels.begin(), batch.labels.end(), ignore_index) == batch.rows() - 6);
  const auto end = static_cast<std::int32_t>(2 * n);
  CHECK(Ids(batch.positions.end() - 9, batch.positions.end()) ==
        Ids{end, end + 1, end + 2, end, end + 1, end / 2, end / 2 + 1, 0, 1});
  CHECK(Ids(batch.sequence_index.end() - 9, batch.sequence_index.end()) == Ids{10, 10, 10, 14, 14, 13, 13, 11, 11});
  CHECK(batch.sequence_index[2] == 10);
  CHECK(batch.records == std::vector<Index>{1, 4, 5, 7, 8});
  CHECK(batch.sequences() == 5);
  CHECK(batch.labeled == 6);
  CHECK(batch.sequence_tokens == 2 + (2 * at + 3) + 2 + (at + 2) + (2 * at + 2));
}

TEST_CASE("batch: sequences with too little in common, or that need not share, are appended as each alone is") {
  constexpr auto n = static_cast<std::size_t>(data::least_shared);
  for (const bool shares : {false, true}) {
    CAPTURE(shares);
    const std::size_t common = n + (shares ? 0 : 1);  // but for the row that learns
    const std::vector<Example> examples{example_of(counted(1, common), {4}, 4),
                                        {{7, 8, 9}, {-100, -100, -100}, 5},
                                        example_of(counted(1, common), {6}, 6)};
    const std::vector<Index> places{0, 1, 2};
    Batch batch, apart;
    batch.append(examples, places, shares);
    for (std::size_t i = 0; i < examples.size(); ++i) apart.append(examples[i], places[i]);
    CHECK(batch.tokens == apart.tokens);
    CHECK(batch.labels == apart.labels);
    CHECK(batch.positions == apart.positions);
    CHECK(batch.sequence_index == apart.sequence_index);
    CHECK(batch.records == apart.records);
    CHECK(batch.labeled == apart.labeled);
    CHECK(batch.sequence_tokens == batch.rows());
    CHECK(segments_of(batch) == segments_of(apart));
  }
}

TEST_CASE("batch: sequences that are the same, or the beginning of another, without a label or with") {
  const auto n = static_cast<std::size_t>(data::least_shared);
  const Example whole = example_of(counted(1, n + 1), {99}, 4), beginning = example_of(counted(1, n), {}, 5);
  const std::vector<Index> places{0, 1, 2};
  Batch batch;
  batch.append(std::vector<Example>{whole, beginning, whole}, places, true);
  CHECK(batch.rows() == data::least_shared + 4);  // the row before 99 has a label
  CHECK(batch.sequences() == 3);
  CHECK(batch.segments.size() == 3);
  CHECK(batch.labeled == 2);
  Batch nothing;
  nothing.append(std::vector<Example>{beginning, beginning, beginning}, places, true);
  CHECK(nothing.tokens == beginning.tokens);
  CHECK(nothing.segments.size() == 1);
  CHECK(nothing.sequences() == 3);
}

TEST_CASE("batch: each token has a label") {
  Batch batch;
  CHECK_THROWS_WITH_AS(batch.append({{1, 2, 3}, {1, 2}, 0}, 0), "[batch] 3 tokens but 2 labels", ShapeError);
  CHECK_THROWS_WITH_AS(batch.append({{1, 2, 3}, {1, 2, 3, 4}, 0}, 0), "[batch] 3 tokens but 4 labels", ShapeError);
  for (const bool shares : {false, true}) {
    CHECK_THROWS_WITH_AS(batch.append(std::vector<Example>{{{1}, {}, 0}}, std::vector<Index>{0}, shares),
                         "[batch] 1 tokens but 0 labels", ShapeError);
    CHECK_THROWS_WITH_AS(batch.append(std::vector<Example>{{{1}, {1}, 0}}, std::vector<Index>{}, shares),
                         "[batch] 1 sequences but 0 places", ShapeError);
  }
  CHECK(batch.rows() == 0);
}

TEST_CASE("batch: a first label cannot be learned, an empty example adds nothing") {
  CHECK(Example{{1, 2}, {1, -100}}.labeled() == 0);
  CHECK(Example{{1, 2}, {-100, 2}}.labeled() == 1);
  CHECK(Example{}.labeled() == 0);
  Batch batch;
  batch.append({}, 0);
  CHECK(batch.sequences() == 0);
  CHECK_THROWS_AS(batch.append({{1, 2}, {1}}, 0), ShapeError);
}

}  // namespace batch_test
