// Attention over trees on the stand-in: what it gives, what it calls, what it needs and what it refuses.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/oracle.hpp"
#include "support/stand_in.hpp"

namespace ascend_attention_trees_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;
using kernel::AttentionShape;
using kernel::Segment;

struct Case {
  Index heads, kv_heads, width;
  std::vector<Index> sizes, parents;
  Index padding = 0;
};

std::vector<Segment> segments_of(const Case& c) {
  std::vector<Segment> segments;
  Index row = 0;
  for (std::size_t b = 0; b < c.sizes.size(); ++b) {
    segments.push_back({row, row + c.sizes[b], c.parents[b]});
    row += c.sizes[b];
  }
  return segments;
}

/// Operands, results and gradients, of numbers that depend on their place alone.
template <class T>
struct Run {
  Npu& dev;
  AttentionShape shape;
  std::vector<Segment> segments;
  Matrix<Npu, T> q, k, v, dout, out, dq, dk, dv;
  kernel::AttentionSaved<Npu, T> saved;

  Run(Npu& device, const Case& c)
      : dev(device),
        shape{c.heads, c.kv_heads, c.width, 1 / std::sqrt(static_cast<double>(c.width))},
        segments(segments_of(c)),
        q(made(c, c.heads, 1)),
        k(made(c, c.kv_heads, 2)),
        v(made(c, c.kv_heads, 3)),
        dout(made(c, c.heads, 4)),
        out(made(c, c.heads, 5)),
        dq(made(c, c.heads, 6)),
        dk(made(c, c.kv_heads, 7)),
        dv(made(c, c.kv_heads, 8)),
        saved(kernel::save_attention<T>(device, segments.back().end, c.heads)) {}

  Matrix<Npu, T> made(const Case& c, Index heads, std::uint64_t key) {
    return Matrix<Npu, T>(dev, segments.back().end, heads * c.width, key, c.padding);
  }
  void forward(bool saves = true) {
    kernel::attention<Npu, T>(dev, shape, q.in(), k.in(), v.in(), segments, segments, out.view(),
                              saves ? &saved : nullptr);
  }
  void backward() {
    kernel::attention_backward<Npu, T>(dev, shape, q.in(), k.in(), v.in(), out.in(), segments, saved, dout.in(),
                                       dq.view(), dk.view(), dv.view());
  }
  std::vector<std::vector<T>> results() { return {out.host(), dq.host(), dk.host(), dv.host()}; }
};

/// Calls of each operator in f, but for copies of operands.
template <class F>
std::map<std::string, std::uint64_t> calls_of(Npu& dev, const F& f) {
  dev.synchronize();
  stand_in<decltype(standInResetOperators)>("standInResetOperators")();
  f();
  dev.synchronize();
  std::map<std::string, std::uint64_t> calls;
  stand_in<decltype(standInOperators)>("standInOperators")(
      [](void* user, const char* name, std::uint64_t launches, double, double) {
        if (launches > 0) (*static_cast<std::map<std::string, std::uint64_t>*>(user))[name + 5] = launches;  // aclnn
      },
      &calls);
  return calls;
}

using Calls = std::map<std::string, std::uint64_t>;

}  // namespace

TEST_CASE("ascend trees: random ones, up to four parents deep, are as naive loops") {
  on_stand_in([] {
    Npu dev(2);
    const int count = test::effort(250, 8, "attention on the stand-in: 250 random trees");
    for (int number = 0; number < count; ++number) {
      CAPTURE(number);
      Random random(static_cast<std::uint64_t>(number));
      const auto draw = [&](Index below) { return Index{random.below(static_cast<std::uint32_t>(below))}; };
      Case c{};
      c.kv_heads = 1 + draw(2);
      c.heads = c.kv_heads * (1 + draw(3));
      c.width = 64 * (1 + draw(2));
      c.padding = draw(3);
      std::vector<Index> depths;
      const Index segments = 2 + draw(8);
      for (Index b = 0; b < segments; ++b) {
        c.sizes.push_back(draw(4) == 0 ? draw(2) : draw(20));
        Index parent = b - 1;  // or what that one descends from, or none
        for (Index up = draw(4); up > 0 && parent >= 0; --up) parent = c.parents[static_cast<std::size_t>(parent)];
        while (parent >= 0 && depths[static_cast<std::size_t>(parent)] == 4)
          parent = c.parents[static_cast<std::size_t>(parent)];
        c.parents.push_back(parent);
        depths.push_back(parent < 0 ? 0 : depths[static_cast<std::size_t>(parent)] + 1);
      }
      c.sizes.front() += 1;
      const auto check = [&]<class T>(T) {
        const std::size_t mark = dev.arena().mark();
        {
          Run<T> run(dev, c);
          run.forward();
          run.backward();
          const auto q = doubles(run.q.host()), k = doubles(run.k.host()), v = doubles(run.v.host());
          oracle::Attention expected(run.shape, run.q.view().rows(), run.k.view().rows(), q, k, v, run.segments,
                                     run.segments, roundoff<float>, roundoff<T>);
          check_near(run.out.host(), expected.out.value, expected.out.bound);
          expected.backward(doubles(run.dout.host()));
          check_near(run.dq.host(), expected.dq.value, expected.dq.bound);
          check_near(run.dk.host(), expected.dk.value, expected.dk.bound);
          check_near(run.dv.host(), expected.dv.value, expected.dv.bound);
        }
        dev.arena().release(mark);
      };
      number % 2 == 0 ? check(float{}) : check(bf16{});
    }
  });
}

TEST_CASE("ascend trees: bits of a sequence depend neither on other trees nor, in its rows, on those beside it") {
  on_stand_in([] {
    Npu dev(2);
    const auto check = [&]<class T>(T) {
      const Case both{4, 2, 64, {9, 3, 5, 1, 20, 0, 7, 2}, {-1, 0, 1, 0, -1, 4, 5, 4}};
      Run<T> together(dev, both), again(dev, both), alone(dev, both), fewer(dev, both);
      together.forward();
      together.backward();
      again.forward(false);
      check_same_bits(again.out.host(), together.out.host());
      const Index first = together.segments[4].begin;
      const auto tail = [&](std::vector<std::vector<T>> results) {
        for (auto& values : results) {
          const Index cols = std::ssize(values) / together.segments.back().end;
          values.erase(values.begin(), values.begin() + first * cols);
        }
        return results;
      };
      alone.segments.erase(alone.segments.begin(), alone.segments.begin() + 4);  // the second tree without the first
      for (Segment& segment : alone.segments)
        if (segment.parent >= 0) segment.parent -= 4;
      alone.forward();
      alone.backward();
      const auto expected = tail(together.results()), found = tail(alone.results());
      for (std::size_t i = 0; i < expected.size(); ++i) check_same_bits(found[i], expected[i]);
      fewer.segments.pop_back();  // a sequence less
      fewer.forward();
      fewer.backward();
      const Index last = together.segments.back().begin;
      const auto head = [&](const std::vector<T>& values) {
        return std::vector<T>(values.begin(), values.begin() + last * together.q.view().cols());
      };
      check_same_bits(head(fewer.out.host()), head(together.out.host()));
      check_same_bits(head(fewer.dq.host()), head(together.dq.host()));
    };
    check(float{});
    check(bf16{});
  });
}

TEST_CASE("ascend trees: a call for each segment and each that it descends from, and what puts them together") {
  on_stand_in([] {
    Npu dev(2);
    const auto calls = [&](const std::vector<Index>& sizes, const std::vector<Index>& parents) {
      Run<bf16> run(dev, Case{2, 1, 64, sizes, parents});
      run.forward();  // which brings the mask and the ends of sequences
      return std::pair{calls_of(dev, [&] { run.forward(); }), calls_of(dev, [&] { run.backward(); })};
    };
    const auto expect = [](std::uint64_t pairs, std::uint64_t parents) {
      Calls forward{{"FlashAttentionVarLenScore", 1 + pairs}};
      Calls backward{{"FlashAttentionUnpaddingScoreGrad", 1 + pairs}};
      if (pairs > 0) {
        forward["RingAttentionUpdate"] = parents;
        forward["InplaceCopy"] = 3 * parents;
        backward["InplaceCopy"] = 6;
        backward["InplaceAdd"] = 2 * pairs + parents;
      }
      return std::pair{forward, backward};
    };
    CHECK(calls({5, 4, 3}, {-1, -1, -1}) == expect(0, 0));
    CHECK(calls({5, 4, 3}, {-1, 0, 0}) == expect(2, 1));
    CHECK(calls({5, 4, 3, 2}, {-1, 0, 1, 2}) == expect(1 + 2 + 3, 3));
    CHECK(calls({5, 4, 3, 2, 6}, {-1, 0, -1, 2, 2}) == expect(1 + 2, 2));
    CHECK(calls({5, 4, 0, 2}, {-1, 0, 0, 2}) == expect(2, 1));  // nothing is seen of a segment without rows
    CHECK(calls({0, 4, 3}, {-1, 0, 0}) == expect(0, 0));
    CHECK(calls({5, 0, 0}, {-1, 0, 1}) == expect(0, 0));
  });
}

TEST_CASE("ascend trees: ends of sequences are copied once, until they are others") {
  on_stand_in([] {
    Npu dev(2);
    Run<float> run(dev, Case{2, 1, 64, {5, 4, 3}, {-1, 0, 0}}), other(dev, Case{2, 1, 64, {5, 3, 4}, {-1, 0, 0}}),
        larger(dev, Case{2, 1, 64, {2, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {-1, 0, 0, 0, 0, 0, 0, 0, 0, 0}});
    const auto copies = [&](Run<float>& one) {
      const std::uint64_t before = stand_in_counts().copies_in;
      one.forward();
      return stand_in_counts().copies_in - before;
    };
    (void)copies(run);
    const auto expected = run.out.host();
    CHECK(copies(run) == 0);
    CHECK(copies(other) == 1);
    CHECK(copies(larger) == 1);
    CHECK(copies(run) == 1);
    check_same_bits(run.out.host(), expected);
    run.backward();
    CHECK(copies(run) == 0);
  });
}

TEST_CASE("ascend trees: scratch grows with rows alone") {
  on_stand_in([] {
    // With 100 rows that all others go on from.
    const auto peak = [](Index leaves, Index rows, const auto& use) {
      Case c{4, 2, 64, {100}, {-1}};
      for (Index i = 0; i < leaves; ++i) {
        c.sizes.push_back(rows);
        c.parents.push_back(0);
      }
      Npu dev(2);
      Run<bf16> run(dev, c);
      kernel::fill(dev, run.saved.top, 0.0);
      kernel::fill(dev, run.saved.sum, 1.0);
      use(run);
      return static_cast<Index>(dev.arena().peak_scratch());
    };
    const auto forward = [](Run<bf16>& run) { run.forward(); };
    const auto unsaved = [](Run<bf16>& run) { run.forward(false); };
    const auto backward = [](Run<bf16>& run) { run.backward(); };
    // The operators' workspaces, and what keeps pieces apart.
    constexpr Index update = Index{16} << 20, gradient = Index{1} << 19, slack = 4096;
    constexpr Index statistics = 2 * 4 * 8 * 4, part = 4 * 64 * 2 + statistics, sums = (4 + 2 * 2) * 64 * (4 + 2);
    for (const Index leaves : {4, 400}) {
      CAPTURE(leaves);
      const Index rows = 400 / leaves;
      CHECK(peak(leaves, rows, forward) <= update + 2 * 400 * part + slack);
      CHECK(peak(leaves, rows, unsaved) <= update + 2 * 400 * part + 500 * statistics + slack);
      CHECK(peak(leaves, rows, backward) <= gradient + 500 * sums + slack);
      // As forecasts have it, for any number of rows that others go on from.
      kernel::PassExtents extents{.rows = 500, .heads = 4, .kv_heads = 2, .head_dim = 64};
      CHECK(kernel::Buffers<Npu>::most<bf16>({}, extents) == 0);
      extents.trees = true;
      const double most = kernel::Buffers<Npu>::most<bf16>({}, extents);
      CHECK(most == 500 * std::max(2 * part + statistics, sums));
      CHECK(static_cast<double>(peak(leaves, rows, unsaved)) <= update + most + slack);
    }
  });
}

TEST_CASE("ascend trees: heads that the operator does not take are refused") {
  on_stand_in([] {
    Npu dev(2);
    const auto said = [&]<class T>(T, Case c) {
      Run<T> run(dev, c);
      const std::string forward = message_of<ShapeError>([&] { run.forward(); });
      const std::string backward = message_of<ShapeError>([&] { run.backward(); });
      const auto words = [](const std::string& message) { return message.substr(message.find(' ')); };
      CHECK(words(backward) == words(forward));
      return forward;
    };
    const Case narrow{2, 1, 8, {2, 1}, {-1, 0}};
    const std::string expected =
        "; expected a multiple of 64 up to 768, and so many heads that an operator has room for a row's";
    CHECK(said(float{}, narrow) == "[attention] segments have parents, and 2 heads are 8 wide, in float32" + expected);
    CHECK(said(bf16{}, Case{2, 1, 96, {2, 1}, {-1, 0}}) ==
          "[attention] segments have parents, and 2 heads are 96 wide, in bfloat16" + expected);
    CHECK(said(float{}, Case{43, 1, 128, {2, 1}, {-1, 0}}) ==
          "[attention] segments have parents, and 43 heads are 128 wide, in float32" + expected);
    CHECK(said(bf16{}, Case{43, 1, 128, {2, 1}, {-1, 0}}) == "nothing was thrown");
    Run<float> without(dev, Case{2, 1, 8, {2, 1}, {-1, -1}});
    CHECK_NOTHROW(without.forward());
    Run<float> windowed(dev, Case{2, 1, 64, {2, 1}, {-1, 0}});
    windowed.shape.window = 2;
    CHECK(message_of<ShapeError>([&] { windowed.forward(); }) ==
          "[attention] segments have parents, and each query sees a window of 2 keys; expected one of the two");
    Run<float> whole(dev, Case{2, 1, 64, {2, 1}, {-1, 0}}), plain(dev, Case{2, 1, 64, {2, 1}, {-1, 0}});
    whole.shape.window = 3;  // which holds each sequence
    whole.forward();
    plain.forward();
    check_same_bits(whole.out.host(), plain.out.host());
  });
  const auto takes = []<class T>(T, Index heads, Index width) {
    return kernel::takes_trees<Npu, T>({heads, 1, width});
  };
  CHECK(takes(bf16{}, 64, 128));
  CHECK_FALSE(takes(bf16{}, 65, 128));
  CHECK(takes(f16{}, 64, 128));
  CHECK(takes(float{}, 42, 128));
  CHECK_FALSE(takes(float{}, 43, 128));
  CHECK(takes(bf16{}, 1, 768));
  CHECK_FALSE(takes(bf16{}, 1, 832));
  CHECK_FALSE(takes(bf16{}, 1, 80));
  CHECK(kernel::Attention<Npu>::takes_trees({42, 1, 128}));  // in float32
  CHECK_FALSE(kernel::Attention<Npu>::takes_trees({43, 1, 128}));
  CHECK_FALSE(kernel::Attention<Npu>::takes_trees({42, 1, 128, 1, 4096}));
}

TEST_CASE("ascend trees: without its operator all else is as it was") {
  on_stand_in([] {
    {
      Npu has_it(2);
      CHECK(kernel::takes_trees(has_it, {2, 1, 64}));
      CHECK_FALSE(kernel::takes_trees(has_it, {2, 1, 80}));
    }
    const Environment without("LORA_ASCEND_WITHOUT", "RingAttentionUpdate");
    ascend::Toolkit lacking;
    CHECK(lacking.missing_operators().empty());
    Npu dev(ascend::DeviceSettings{}, lacking);
    Run<float> apart(dev, Case{2, 1, 64, {2, 1}, {-1, -1}}), tree(dev, Case{2, 1, 64, {2, 1}, {-1, 0}});
    CHECK_NOTHROW(apart.forward());
    CHECK_NOTHROW(apart.backward());
    CHECK_FALSE(kernel::takes_trees(dev, {2, 1, 64}));
    const std::string expected =
        " segments have parents, and the toolkit has no operator RingAttentionUpdate, which puts together what a row "
        "has of them; install one that does, or give each sequence whole";
    CHECK(message_of<DeviceError>([&] { tree.forward(); }) == "[attention]" + expected);
    CHECK(message_of<DeviceError>([&] { tree.backward(); }) == "[attention_backward]" + expected);
  });
}

}  // namespace ascend_attention_trees_test
