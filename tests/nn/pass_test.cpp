// What a pass checks of its batch and brings to the device, and the rows of a key/value cache.

#include "lora/nn/pass.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "lora/core/ignore_index.hpp"
#include "support/backends.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"

namespace pass_test {

namespace {

using namespace lora;
using namespace lora::test;
using Ids = std::vector<std::int32_t>;

/// Three rows of two sequences, of which the first and the last have a label.
nn::Batch some_batch() {
  return {.tokens = {7, 8, 9},
          .positions = {0, 5, 1},
          .sequence_index = {0, 0, 4},
          .segments = {{0, 2}, {2, 3}},
          .labels = {3, ignore_index, 1}};
}

std::string refusal(const nn::Batch& batch) {
  cpu::Device dev(1);
  return message_of<ShapeError>([&] { const nn::Pass<cpu::Device, float> pass(dev, batch); });
}

}  // namespace

TEST_CASE("pass: all parts of a batch are on the device, each from 64 bytes on, and scratch of the arena") {
  each_backend([]<class D>() {
    D dev(1);
    const nn::PassShape shape{nn::machine_of(dev), 3, false};
    {
      const nn::Pass<D, float> pass(dev, some_batch(), 5);
      CHECK(dev.arena().scratch_bytes() == static_cast<std::size_t>(nn::Pass<D, float>::footprint(shape, 2)));
      CHECK(pass.count() == 3);
      CHECK(pass.max_position() == 5);
      CHECK(pass.random_key() == 5);
      CHECK(to_host(dev, pass.tokens()) == Ids{7, 8, 9});
      CHECK(to_host(dev, pass.positions()) == Ids{0, 5, 1});
      CHECK(to_host(dev, pass.sequence_index()) == Ids{0, 0, 4});
      CHECK(to_host(dev, pass.labeled()) == Ids{0, 2});
      CHECK(to_host(dev, pass.labels()) == Ids{3, 1});
      CHECK(Ids(pass.host_tokens().begin(), pass.host_tokens().end()) == Ids{7, 8, 9});
      CHECK(pass.cache_rows().empty());
      CHECK(pass.cache() == nullptr);
      CHECK(pass.segments().size() == 2);
      CHECK(pass.segments()[1].end == 3);
      CHECK(pass.keys().data() == pass.segments().data());
      const std::int32_t* const begin = pass.tokens().data();
      for (const auto& part : {pass.positions(), pass.sequence_index(), pass.labeled(), pass.labels()})
        CHECK((part.data() - begin) % 16 == 0);
    }
    CHECK(dev.arena().scratch_bytes() == 0);
    const nn::Pass<D, float> nothing(dev, nn::Batch{});
    CHECK(dev.arena().scratch_bytes() == 0);
    CHECK(nothing.count() == 0);
    CHECK(nothing.max_position() == -1);
    CHECK(nothing.random_key() == 0);
    CHECK(nothing.tokens().empty());
    nn::Batch unlabeled = some_batch();
    unlabeled.labels.clear();
    const nn::Pass<D, float> pass(dev, unlabeled);
    CHECK(pass.labeled().empty());
    CHECK(pass.labels().empty());
    CHECK(dev.arena().scratch_bytes() == static_cast<std::size_t>(nn::Pass<D, float>::footprint(shape, 0)));
  });
}

TEST_CASE("pass: its footprint is that of whole lines of numbers") {
  cpu::Device dev(1);
  nn::PassShape shape{{}, 16};
  using Pass = nn::Pass<cpu::Device, float>;
  CHECK(Pass::footprint(shape, 0) == 3 * 64);
  CHECK(Pass::footprint(shape, 1) == 5 * 64);
  CHECK(Pass::footprint(shape, 16) == 5 * 64);
  shape.rows = 17;
  CHECK(Pass::footprint(shape, 17) == 10 * 64);
}

TEST_CASE("pass: parts that are not as long as its tokens, and positions below 0, are named") {
  const auto without = [](const auto& change) {
    nn::Batch batch = some_batch();
    change(batch);
    return refusal(batch);
  };
  CHECK(refusal(some_batch()) == "nothing was thrown");
  CHECK(without([](auto& b) { b.sequence_index.clear(); }) == "nothing was thrown");
  CHECK(without([](auto& b) { b.positions.pop_back(); }) ==
        "[pass] 3 tokens, 2 positions, 3 sequence_index, 0 cache rows, 3 labels");
  CHECK(without([](auto& b) { b.positions.clear(); }) ==
        "[pass] 3 tokens, 0 positions, 3 sequence_index, 0 cache rows, 3 labels");
  CHECK(without([](auto& b) { b.sequence_index.pop_back(); }) ==
        "[pass] 3 tokens, 3 positions, 2 sequence_index, 0 cache rows, 3 labels");
  CHECK(without([](auto& b) { b.cache_rows = {1}; }) ==
        "[pass] 3 tokens, 3 positions, 3 sequence_index, 1 cache rows, 3 labels");
  CHECK(without([](auto& b) { b.labels.push_back(0); }) ==
        "[pass] 3 tokens, 3 positions, 3 sequence_index, 0 cache rows, 4 labels");
  CHECK(without([](auto& b) { b.positions = {0, 1, -2}; }) == "[pass] row 2 has the position -2");
}

TEST_CASE("pass: it is stopped once what it was told to look at is no longer 0") {
  cpu::Device dev(1);
  nn::Pass<cpu::Device, float> pass(dev, some_batch());
  CHECK_FALSE(pass.stopped());
  std::atomic<int> stop = 0;
  pass.stop_by(&stop);
  CHECK_FALSE(pass.stopped());
  stop = -1;
  CHECK(pass.stopped());
  pass.stop_by(nullptr);
  CHECK_FALSE(pass.stopped());
}

TEST_CASE("pass: with a cache, rows go where they are told and keys are those that it is given") {
  each_backend([]<class D>() {
    D dev(1);
    nn::KvCache<D, float> cache(dev, 2, 8, 4);
    nn::Batch batch = some_batch();
    batch.cache_rows = {0, 7, 3};
    const nn::Pass<D, float> pass(dev, batch, cache, {{0, 4}, {5, 8}});
    CHECK(pass.cache() == &cache);
    CHECK(pass.random_key() == 0);
    CHECK(to_host(dev, pass.cache_rows()) == Ids{0, 7, 3});
    CHECK(pass.keys().size() == 2);
    CHECK(pass.keys()[1].begin == 5);
    CHECK(pass.segments()[1].begin == 2);
  });
}

TEST_CASE("pass: a cache grows and copies rows in every layer, of keys and of values") {
  each_backend([]<class D>() {
    D dev(1);
    nn::KvCache<D, float> empty(dev, 2, 0, 4), cache(dev, 2, 5, 4);
    CHECK(empty.rows() == 0);
    CHECK(empty.keys(1).empty());
    empty.grow(dev, 3);
    CHECK(empty.rows() == 3);
    CHECK(empty.values(1).shape() == Shape{3, 4});
    const auto views = [&] { return std::vector{cache.keys(0), cache.keys(1), cache.values(0), cache.values(1)}; };
    std::vector<std::vector<float>> expected;
    for (const auto& view : views()) {
      CHECK(view.shape() == Shape{5, 4});
      expected.push_back(random_values<float>(20, expected.size()));
      copy_from_host<D, float>(dev, expected.back(), view);
    }
    dev.synchronize();
    cache.grow(dev, 7);
    CHECK(cache.rows() == 7);
    cache.copy(dev, 1, 4, 3);  // of rows 1 to 3 to 4 to 6
    cache.copy(dev, 0, 1, 0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      auto& values = expected[i];
      values.resize(28);
      std::copy_n(values.begin() + 4, 12, values.begin() + 16);
      CHECK(views()[i].shape() == Shape{7, 4});
      CHECK(to_host(dev, views()[i]) == values);
    }
  });
}

TEST_CASE("pass: one row of each sequence behind others is a decoding step, and nothing else is") {
  cpu::Device dev(1);
  nn::KvCache<cpu::Device, float> cache(dev, 1, 8, 4);
  const auto decodes = [&](std::vector<kernel::Segment> segments, std::vector<kernel::Segment> keys) {
    nn::Batch batch = some_batch();
    batch.tokens.resize(static_cast<std::size_t>(segments.back().end));
    batch.positions.resize(batch.tokens.size());
    batch.sequence_index.resize(batch.tokens.size());
    batch.labels.clear();
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) batch.cache_rows.push_back(static_cast<std::int32_t>(i));
    batch.segments = std::move(segments);
    return nn::Pass<cpu::Device, float>(dev, batch, cache, std::move(keys)).decodes();
  };
  CHECK(decodes({{0, 1}}, {{0, 2}}));
  CHECK(decodes({{0, 1}, {1, 2}}, {{0, 4}, {4, 6}}));
  CHECK_FALSE(decodes({{0, 1}, {1, 2}}, {{0, 4}, {4, 5}}));  // a sequence's first row
  CHECK_FALSE(decodes({{0, 1}, {1, 2}}, {{0, 1}, {4, 8}}));
  CHECK_FALSE(decodes({{0, 1}, {1, 3}}, {{0, 4}, {4, 8}}));
  CHECK_FALSE(decodes({{0, 2}, {2, 3}}, {{0, 4}, {4, 8}}));
  const nn::Pass<cpu::Device, float> without_cache(dev, some_batch());
  CHECK_FALSE(without_cache.decodes());
}

TEST_CASE("pass: a cache that could not grow has the rows that it had, and may grow again") {
  using D = proof::Device;
  D dev(1);
  nn::KvCache<D, float> cache(dev, 2, 3, 4);
  const auto views = [&] { return std::vector{cache.keys(0), cache.keys(1), cache.values(0), cache.values(1)}; };
  std::vector<std::vector<float>> expected;
  for (const auto& view : views()) {
    expected.push_back(random_values<float>(12, expected.size()));
    copy_from_host<D, float>(dev, expected.back(), view);
  }
  dev.synchronize();
  for (const std::size_t grown : {std::size_t{0}, std::size_t{2}}) {
    dev.fail_allocations_after(grown);
    CHECK_THROWS_AS(cache.grow(dev, 5), DeviceError);
    dev.fail_allocations_after(0, 0);
    CHECK(cache.rows() == 3);
  }
  cache.grow(dev, 6);
  CHECK(cache.rows() == 6);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(to_host(dev, views()[i].row_slice(0, 3)) == expected[i]);
}

}  // namespace pass_test
