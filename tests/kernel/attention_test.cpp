#include "lora/cpu/kernels/attention.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "lora/core/random.hpp"
#include "support/backends.hpp"
#include "support/effort.hpp"
#include "support/gradcheck.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/oracle.hpp"

namespace attention_test {

namespace {

using namespace lora;
using namespace lora::test;
using kernel::AttentionShape;
using kernel::Segment;
using Cpu = cpu::Device;

struct Case {
  Index heads, kv_heads, width;
  std::vector<Index> queries, extra_keys;  ///< per segment
  Index padding;
  std::vector<Index> parents{};
  Index window = 0;
  double cap = 0;
};

const std::vector<Case> square = {
    {1, 1, 1, {1}, {}, 0},         {1, 1, 2, {}, {}, 0},         {2, 1, 3, {0, 5, 0, 2}, {}, 1},
    {4, 2, 8, {63, 1, 66}, {}, 3}, {9, 3, 16, {70, 3}, {}, 0},   {2, 2, 17, {129}, {}, 2},
    {6, 1, 40, {33, 64}, {}, 2},   {7, 1, 64, {130, 28}, {}, 4}, {2, 1, 31, {40, 70}, {}, 1},
    {1, 1, 4, {20, 700}, {}, 1},   {1, 1, 66, {200}, {}, 0},     {200, 100, 4, {3}, {}, 0},
    {210, 1, 2, {2}, {}, 0},
};
const std::vector<Case> cached = {
    {4, 2, 16, {1, 1, 1}, {0, 63, 200}, 0},
    {3, 1, 80, {1, 1}, {4200, 6}, 1},
    {5, 1, 64, {1}, {127}, 0},
    {3, 3, 7, {1, 5}, {64, 70}, 3},
    {6, 2, 32, {70, 0}, {1, 4}, 2},
    {2, 1, 8, {3, 1, 2}, {4, 6, 0}, 0, {-1, 0, 1}},
};

// Parts that sequences share: one row, empty ones, more than a tile of keys or of queries, chains, several trees.
const std::vector<Case> trees = {
    {2, 1, 8, {70, 5, 9}, {}, 0, {-1, 0, 0}},
    {4, 2, 16, {1, 1, 1, 3}, {}, 3, {-1, 0, 1, 0}},
    {2, 2, 17, {130, 66, 1, 64, 200}, {}, 1, {-1, 0, 1, 0, -1}},
    {6, 1, 40, {3, 0, 5, 0, 2}, {}, 0, {-1, 0, 1, 0, 3}},
    {3, 3, 4, {0, 4, 4}, {}, 0, {-1, 0, 0}},
    {1, 1, 64, {20, 30, 10, 7, 65, 12, 2, 40}, {}, 0, {-1, 0, 1, 2, 2, 0, -1, 6}},
    {12, 2, 5, {100, 33, 33}, {}, 2, {-1, 0, 0}},
    {2, 1, 3, {5, 300, 2}, {}, 0, {-1, 0, 0}},
    {4, 1, 6, {3, 0, 2, 1, 9, 4, 0, 7}, {}, 1, {-1, 0, 1, 2, 3, 2, 5, 6}},
};

// Windows of one key, of a part of a tile, of whole ones, of one more and one less, of a sequence and beyond it;
// sequences that are shorter, and longer than a tile of queries.
const std::vector<Case> windowed = {
    {1, 1, 2, {5}, {}, 0, {}, 1},         {2, 1, 3, {0, 5, 0, 2}, {}, 1, {}, 3}, {4, 2, 8, {63, 1, 66}, {}, 3, {}, 17},
    {9, 3, 16, {70, 3}, {}, 0, {}, 64},   {2, 2, 17, {129}, {}, 2, {}, 65},      {6, 1, 40, {33, 130}, {}, 2, {}, 63},
    {1, 1, 4, {20, 700}, {}, 1, {}, 70},  {1, 1, 5, {450}, {}, 0, {}, 1},        {1, 1, 4, {500}, {}, 0, {}, 128},
    {3, 1, 6, {200, 40}, {}, 0, {}, 200}, {2, 1, 4, {300}, {}, 0, {}, 5},
};
const std::vector<Case> cached_windows = {
    {4, 2, 16, {1, 1, 1}, {0, 63, 200}, 0, {}, 40},
    {3, 1, 80, {1, 1}, {4200, 6}, 1, {}, 4100},
    {5, 1, 64, {1}, {1000}, 0, {}, 1},
    {3, 3, 7, {1, 5, 80}, {64, 270, 200}, 3, {}, 66},
    {6, 2, 32, {70, 0}, {1, 4}, 2, {}, 3},
};
const std::vector<Case> windows_of_trees = {
    {2, 1, 8, {70, 5, 9}, {}, 0, {-1, 0, 0}, 7},
    {2, 2, 17, {130, 66, 1, 64, 200}, {}, 1, {-1, 0, 1, 0, -1}, 100},
    {1, 1, 64, {20, 30, 10, 7, 65, 12, 2, 40}, {}, 0, {-1, 0, 1, 2, 2, 0, -1, 6}, 33},
    {12, 2, 5, {100, 33, 33}, {}, 2, {-1, 0, 0}, 65},
    {2, 1, 3, {5, 300, 2}, {}, 0, {-1, 0, 0}, 64},
    {2, 1, 8, {3, 1, 2}, {}, 0, {-1, 0, 1}, 2},
};

std::vector<Segment> segments_of(const std::vector<Index>& sizes, const std::vector<Index>& extra = {},
                                 const std::vector<Index>& parents = {}) {
  std::vector<Segment> segments;
  Index row = 0;
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    const Index size = sizes[b] + (extra.empty() ? 0 : extra[b]);
    segments.push_back({row, row + size, parents.empty() ? -1 : parents[b]});
    row += size;
  }
  return segments;
}

Index rows_of(const std::vector<Segment>& segments) { return segments.empty() ? 0 : segments.back().end; }

AttentionShape shape_of(const Case& c) {
  return {c.heads, c.kv_heads, c.width, 1 / std::sqrt(static_cast<double>(c.width)), c.window, c.cap};
}

/// The same with heads that the backend takes where there are trees.
template <class D, class T>
Case fitted(Case c) {
  if (!c.parents.empty() && !kernel::takes_trees<D, T>(shape_of(c))) c.width = 64;
  return c;
}

/// Operands, results and gradients of one case.
template <class D, class T>
struct Run {
  std::vector<Segment> queries, keys;
  Matrix<D, T> q, k, v, dout, out, dq, dk, dv;
  kernel::AttentionSaved<D, T> saved;
  AttentionShape shape;
  D& dev;

  Run(D& device, const Case& c, double size = 2, Index unused_rows = 0)
      : queries(segments_of(c.queries, {}, c.parents)),
        keys(segments_of(c.queries, c.extra_keys, c.parents)),
        q(device, rows_of(queries) + unused_rows, c.heads * c.width,
          values(queries, unused_rows, c.heads * c.width, 1, size), c.padding),
        k(device, rows_of(keys) + unused_rows, c.kv_heads * c.width,
          values(keys, unused_rows, c.kv_heads * c.width, 2, size), c.padding),
        v(device, rows_of(keys) + unused_rows, c.kv_heads * c.width,
          values(keys, unused_rows, c.kv_heads * c.width, 3, 1), c.padding),
        dout(device, rows_of(queries) + unused_rows, c.heads * c.width, 4, c.padding),
        out(device, rows_of(queries) + unused_rows, c.heads * c.width, 5, c.padding),
        dq(device, rows_of(queries) + unused_rows, c.heads * c.width, 6, c.padding),
        dk(device, rows_of(keys) + unused_rows, c.kv_heads * c.width, 7, c.padding),
        dv(device, rows_of(keys) + unused_rows, c.kv_heads * c.width, 8, c.padding),
        saved(kernel::save_attention<T>(device, rows_of(queries) + unused_rows, c.heads)),
        shape(shape_of(c)),
        dev(device) {}

  static std::vector<T> values(const std::vector<Segment>& segments, Index unused, Index cols, std::uint64_t key,
                               double size) {
    return random_values<T>((rows_of(segments) + unused) * cols, key, -size, size);
  }
  void forward() { kernel::attention<D, T>(dev, shape, q.in(), k.in(), v.in(), queries, keys, out.view(), &saved); }
  void backward() {
    kernel::attention_backward<D, T>(dev, shape, q.in(), k.in(), v.in(), out.in(), queries, saved, dout.in(), dq.view(),
                                     dk.view(), dv.view());
  }
};

template <class T, class D>
void check_case(D& dev, const Case& given, bool gradients) {
  const Case c = fitted<D, T>(given);
  CAPTURE(c.heads);
  CAPTURE(c.width);
  const std::size_t mark = dev.arena().mark();
  {
    Run<D, T> run(dev, c);
    run.forward();
    const auto q = doubles(run.q.host()), k = doubles(run.k.host()), v = doubles(run.v.host());
    oracle::Attention expected(run.shape, run.q.view().rows(), run.k.view().rows(), q, k, v, run.queries, run.keys,
                               roundoff<Accum<T>>, roundoff<T>);
    check_near(run.out.host(), expected.out.value, expected.out.bound);
    if (gradients) {
      run.backward();
      expected.backward(doubles(run.dout.host()));
      check_near(run.dq.host(), expected.dq.value, expected.dq.bound);
      check_near(run.dk.host(), expected.dk.value, expected.dk.bound);
      check_near(run.dv.host(), expected.dv.value, expected.dv.bound);
    }
  }
  dev.arena().release(mark);
}

}  // namespace

TEST_CASE("attention: output and gradients equal naive loops, ragged and grouped") {
  each_backend_and_type([]<class D, class T>() {
    for (int threads = is_cpu<D> ? test::effort(1, 3, "attention: one and two threads") : 3; threads <= 3; ++threads) {
      D dev(threads);
      for (const Case& c : square) check_case<T>(dev, c, true);
    }
  });
}

TEST_CASE("attention: what sequences have in common is seen by all that go on from it, and gets the gradients of all") {
  each_backend_and_type([]<class D, class T>() {
    for (const int threads : is_cpu<D> ? std::vector{1, 3, 8} : std::vector{2}) {
      D dev(threads);
      for (const Case& c : trees) check_case<T>(dev, c, true);
    }
  });
}

static_assert(kernel::Attention<Cpu>::takes_trees({3, 1, 7}));
static_assert(kernel::Attention<Cpu>::takes_trees({3, 1, 7, 1, 5}));

TEST_CASE("attention: of a window a query sees the last keys up to its own, forward, backward, behind a cache") {
  each_backend_and_type([]<class D, class T>() {
    for (int threads = is_cpu<D> ? test::effort(1, 3, "attention: one and two threads") : 3; threads <= 3; ++threads) {
      D dev(threads);
      for (const Case& c : windowed) check_case<T>(dev, c, true);
      for (const Case& c : cached_windows) check_case<T>(dev, c, false);
    }
  });
}

TEST_CASE("attention: a window goes on through what sequences have in common") {
  each_type([]<class T>() {
    for (const int threads : {1, 3, 8}) {
      Cpu dev(threads);
      for (const Case& c : windows_of_trees) check_case<T>(dev, c, true);
    }
  });
}

TEST_CASE("attention: a window that holds each sequence has the bits of none, on any number of threads") {
  each_type([]<class T>() {
    const auto run_with = [](int threads, Index window, const std::vector<Index>& parents) {
      Cpu dev(threads);
      Run<Cpu, T> run(dev, Case{6, 2, 24, {150, 3, 67, 1}, {}, 0, parents, window});
      run.forward();
      run.backward();
      return std::vector{run.out.host(), run.dq.host(), run.dk.host(), run.dv.host()};
    };
    for (const std::vector<Index>& parents : {std::vector<Index>{}, std::vector<Index>{-1, 0, 0, 2}}) {
      const auto whole = run_with(1, 0, parents), held = run_with(3, 221, parents);
      for (std::size_t i = 0; i < whole.size(); ++i) check_same_bits(whole[i], held[i]);
      const auto one = run_with(1, 40, parents);
      for (const int threads : {2, 3, 7}) {
        const auto more = run_with(threads, 40, parents);
        for (std::size_t i = 0; i < one.size(); ++i) check_same_bits(one[i], more[i]);
      }
      CHECK(doubles(one[0]) != doubles(whole[0]));
    }
  });
}

TEST_CASE("attention: what lies whole tiles before all windows is not read") {
  Cpu dev(2);
  const Case c{2, 1, 8, {1, 70, 1}, {800, 600, 0}, 0, {}, 50};
  const auto poisoned = [&](bool poison) {
    Run<Cpu, float> run(dev, c);
    for (std::size_t b = 0; poison && b < 2; ++b) {
      // Of a step nothing before its window; of others no key of a tile that no query sees.
      const Index first = run.keys[b].size() - run.queries[b].size() + 1 - c.window;
      const Index end = run.keys[b].begin + (run.queries[b].size() == 1 ? first : first / 64 * 64);
      for (auto* matrix : {&run.k, &run.v})
        for (Index row = run.keys[b].begin; row < end; ++row)
          std::fill_n(matrix->view().row(row), c.kv_heads * c.width, std::numeric_limits<float>::quiet_NaN());
    }
    run.forward();
    return run.out.host();
  };
  check_same_bits(poisoned(true), poisoned(false));
}

TEST_CASE("attention: keys of its tile that lie before a query's window change nothing for it, however large") {
  Cpu dev(2);
  const Case c{2, 1, 8, {20}, {}, 0, {}, 5};
  const auto with_first_key = [&](float scale) {
    Run<Cpu, float> run(dev, c);
    for (Index i = 0; i < c.width; ++i) run.k.view().row(0)[i] *= scale;
    run.forward();
    run.backward();
    std::vector<float> rows;  // of queries that do not see it
    for (auto* matrix : {&run.out, &run.dq})
      for (Index row = c.window; row < 20; ++row)
        rows.insert(rows.end(), matrix->view().row(row), matrix->view().row(row) + c.heads * c.width);
    return rows;
  };
  check_same_bits(with_first_key(1), with_first_key(1e4f));
}

TEST_CASE("attention: scores behind a soft cap, forward, backward, behind a cache, under windows and in trees") {
  each_backend_and_type([]<class D, class T>() {
    if constexpr (kernel::HasSoftCap<D, T>) {
      D dev(3);
      const auto check = [&](const std::vector<Case>& cases, bool gradients) {
        for (Case c : cases) {
          c.cap = c.width % 3 == 0 ? 0.4 : 1.5;  // of scores that are as large
          check_case<T>(dev, c, gradients);
        }
      };
      check(square, true);
      check(windowed, true);
      check(windows_of_trees, true);
      check(cached, false);
      check(cached_windows, false);
    }
  });
}

TEST_CASE("attention: a cap below 0 is refused") {
  Cpu dev(1);
  Run<Cpu, float> run(dev, {1, 1, 4, {3}, {}, 0, {}, 0, -1});
  CHECK(message_of<ShapeError>([&] { run.forward(); }) == "[attention] a cap of -1; expected 0 or more");
}

TEST_CASE("attention: a window of less than no key is refused") {
  Cpu dev(1);
  Run<Cpu, float> run(dev, Case{1, 1, 2, {3}, {}, 0, {}, -1});
  CHECK(message_of<ShapeError>([&] { run.forward(); }) == "[attention] a window of -1 keys; expected 0 or more");
}

TEST_CASE("attention: random trees") {
  Cpu dev(3);
  const Index count = test::effort(1000, 40, "attention: a thousand random trees");
  for (Index number = 0; number < count; ++number) {
    CAPTURE(number);
    Random random(static_cast<std::uint64_t>(number));
    const auto draw = [&](Index below) { return Index{random.below(static_cast<std::uint32_t>(below))}; };
    Case c{};
    c.kv_heads = 1 + draw(3);
    c.heads = c.kv_heads * (1 + draw(3));
    c.width = 1 + draw(20);
    c.padding = draw(3);
    const Index segments = 1 + draw(9), longest = draw(4) == 0 ? 150 : 12;
    for (Index b = 0; b < segments; ++b) {
      c.queries.push_back(draw(longest));
      Index parent = b - 1;  // or what that one descends from, or none
      for (Index up = draw(4); up > 0 && parent >= 0; --up) parent = c.parents[static_cast<std::size_t>(parent)];
      c.parents.push_back(parent);
    }
    check_case<float>(dev, c, true);
    if (number % 4 == 0) check_case<bf16>(dev, c, true);
  }
}

TEST_CASE("attention: bits of trees depend neither on threads nor on other trees") {
  each_type([]<class T>() {
    const Case together{6, 2, 24, {150, 3, 67, 1, 40, 9}, {}, 0, {-1, 0, 0, 2, -1, 4}};
    const auto run_with = [&](int threads) {
      Cpu dev(threads);
      Run<Cpu, T> run(dev, together);
      run.forward();
      run.backward();
      return std::vector{run.out.host(), run.dq.host(), run.dk.host(), run.dv.host()};
    };
    const auto one = run_with(1);
    for (const int threads : {2, 3, 7}) {
      const auto more = run_with(threads);
      for (std::size_t i = 0; i < one.size(); ++i) check_same_bits(one[i], more[i]);
    }
    Cpu dev(3);
    Run<Cpu, T> alone(dev, together);  // the second tree without the first
    const std::vector<Segment> tree{{alone.queries[4].begin, alone.queries[4].end},
                                    {alone.queries[5].begin, alone.queries[5].end, 0}};
    kernel::attention<Cpu, T>(dev, alone.shape, alone.q.in(), alone.k.in(), alone.v.in(), tree, tree, alone.out.view(),
                              &alone.saved);
    kernel::attention_backward<Cpu, T>(dev, alone.shape, alone.q.in(), alone.k.in(), alone.v.in(), alone.out.in(), tree,
                                       alone.saved, alone.dout.in(), alone.dq.view(), alone.dk.view(), alone.dv.view());
    const auto tail = [&](const std::vector<T>& values) {
      const Index cols = static_cast<Index>(values.size()) / rows_of(alone.queries);
      return std::vector<T>(values.begin() + tree[0].begin * cols, values.end());
    };
    check_same_bits(tail(alone.out.host()), tail(one[0]));
    check_same_bits(tail(alone.dq.host()), tail(one[1]));
    check_same_bits(tail(alone.dk.host()), tail(one[2]));
    check_same_bits(tail(alone.dv.host()), tail(one[3]));
  });
}

TEST_CASE("attention: segments that are no trees are refused") {
  Cpu dev(1);
  const auto said = [&](const std::vector<Index>& parents, Index gap = 0) {
    Case c{1, 1, 2, {3, 2, 2, 2}, {}, 0, parents};
    Run<Cpu, float> run(dev, c, 2, gap);
    for (std::size_t b = 2; b < run.keys.size(); ++b)
      for (auto* segments : {&run.queries, &run.keys}) {
        (*segments)[b].begin += gap;
        (*segments)[b].end += gap;
      }
    const std::string forward = message_of<ShapeError>([&] { run.forward(); });
    const std::string backward = message_of<ShapeError>([&] { run.backward(); });
    const auto words = [](const std::string& message) { return message.substr(message.find(' ')); };
    CHECK(words(backward) == words(forward));
    return forward;
  };
  const std::string expected = "; expected the segment before it, one that this descends from, or -1";
  const std::string nothing = "nothing was thrown";
  CHECK(said({-1, 0, 1, 0}) == nothing);
  CHECK(said({-1, 0, 0, 1}) == "[attention] segment 3: its parent is segment 1" + expected);
  CHECK(said({-1, -1, 0, 1}) == "[attention] segment 2: its parent is segment 0" + expected);
  CHECK(said({-1, 1, 0, 0}) == "[attention] segment 1: its parent is segment 1" + expected);
  CHECK(said({0, 0, 0, 0}) == "[attention] segment 0: its parent is segment 0" + expected);
  CHECK(said({-1, 0, -2, 0}) == "[attention] segment 2: its parent is segment -2" + expected);
  CHECK(said({-1, 0, -1, 2}, 4) == nothing);
  CHECK(said({-1, 0, 0, 0}, 4) ==
        "[attention] segment 2: its rows begin at 9; expected 5, where those before it in its tree end");
}

TEST_CASE("attention: queries at the end of longer keys") {
  each_backend_and_type([]<class D, class T>() {
    D dev(2);
    for (const Case& c : cached) check_case<T>(dev, c, false);
  });
}

TEST_CASE("attention: scores far apart neither overflow nor vanish") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    const Case c{2, 1, 16, {90}, {}, 0};
    Run<D, T> run(dev, c, 40);
    run.forward();
    run.backward();
    for (const auto& values : {run.out.host(), run.dq.host(), run.dk.host(), run.dv.host()})
      for (const T& value : values) REQUIRE(std::isfinite(real(value)));
    const auto v = run.v.host(), out = run.out.host();
    for (std::size_t j = 0; j < 16; ++j)
      CHECK(real(out[j]) == doctest::Approx(real(v[j])));  // the first row sees one key
    // Of steps as well, whose keys are taken in parts.
    Run<D, T> steps(dev, Case{2, 1, 16, {1, 1, 1, 1}, {400, 400, 400, 400}, 0}, 40);
    steps.forward();
    for (const T& value : steps.out.host()) REQUIRE(std::isfinite(real(value)));
  });
}

TEST_CASE("attention: bits depend neither on threads nor on the other segments") {
  each_type([]<class T>() {
    const Case together{6, 2, 24, {150, 0, 67, 1}, {}, 0};
    const auto run_with = [&](int threads, const Case& c) {
      Cpu dev(threads);
      Run<Cpu, T> run(dev, c);
      run.forward();
      run.backward();
      return std::vector{run.out.host(), run.dq.host(), run.dk.host(), run.dv.host()};
    };
    const auto one = run_with(1, together);
    for (const int threads : {2, 3, 7}) {
      const auto more = run_with(threads, together);
      for (std::size_t i = 0; i < one.size(); ++i) check_same_bits(one[i], more[i]);
    }
    Cpu dev(5);
    Run<Cpu, T> whole(dev, together);
    for (const Segment& segment : whole.queries) {
      if (segment.begin == segment.end) continue;
      CAPTURE(segment.begin);
      const auto part_of = [&](const std::vector<T>& values) {
        const Index cols = static_cast<Index>(values.size()) / rows_of(whole.queries);
        return std::vector<T>(values.begin() + segment.begin * cols, values.begin() + segment.end * cols);
      };
      Case one_segment = together;
      one_segment.queries = {segment.end - segment.begin};
      Run<Cpu, T> alone(dev, one_segment);  // a long one in two passes: one segment for five threads
      for (auto [to, from] : {std::pair{&alone.q, &whole.q}, std::pair{&alone.k, &whole.k},
                              std::pair{&alone.v, &whole.v}, std::pair{&alone.dout, &whole.dout}})
        copy_from_host<Cpu, T>(dev, part_of(from->host()), to->view());
      alone.forward();
      alone.backward();
      check_same_bits(alone.out.host(), part_of(one[0]));
      check_same_bits(alone.dq.host(), part_of(one[1]));
      check_same_bits(alone.dk.host(), part_of(one[2]));
      check_same_bits(alone.dv.host(), part_of(one[3]));
    }
  });
}

TEST_CASE("attention: a step's bits depend neither on threads nor on the other sequences") {
  each_type([]<class T>() {
    const Case together{6, 2, 64, {1, 3, 1, 1}, {0, 5, 300, 63}, 0};
    Cpu dev(1);
    Run<Cpu, T> run(dev, together);
    run.forward();
    const std::vector<T> one = run.out.host();
    for (const int threads : {2, 3, 7}) {
      Cpu more(threads);
      Run<Cpu, T> again(more, together);
      again.forward();
      check_same_bits(again.out.host(), one);
    }
    Run<Cpu, T> alone(dev, together);
    for (std::size_t b = 0; b < run.queries.size(); ++b) {
      const std::vector<Segment> query{run.queries[b]}, keys{run.keys[b]};
      kernel::attention<Cpu, T>(dev, run.shape, alone.q.in(), alone.k.in(), alone.v.in(), query, keys, alone.out.view(),
                                nullptr);
    }
    check_same_bits(alone.out.host(), one);
  });
}

TEST_CASE("attention: gradients may take the memory of their operands") {
  each_backend_and_type([]<class D, class T>() {
    for (const Case& given : {Case{4, 2, 10, {70, 9}, {}, 0}, Case{4, 2, 10, {70, 9, 66, 3}, {}, 0, {-1, 0, 0, -1}}})
      for (const int threads : is_cpu<D> ? std::vector{1, 5} : std::vector{2}) {
        D dev(threads);
        const Case c = fitted<D, T>(given);
        Run<D, T> apart(dev, c), shared(dev, c);
        apart.forward();
        apart.backward();
        shared.forward();
        kernel::attention_backward<D, T>(dev, shared.shape, shared.q.in(), shared.k.in(), shared.v.in(),
                                         shared.out.in(), shared.queries, shared.saved, shared.dout.in(),
                                         shared.q.view(), shared.k.view(), shared.v.view());
        check_same_bits(shared.q.host(), apart.dq.host());
        check_same_bits(shared.k.host(), apart.dk.host());
        check_same_bits(shared.v.host(), apart.dv.host());
        Run<D, T> over_out(dev, c), over_dout(dev, c);
        over_out.forward();
        kernel::attention_backward<D, T>(dev, over_out.shape, over_out.q.in(), over_out.k.in(), over_out.v.in(),
                                         over_out.out.in(), over_out.queries, over_out.saved, over_out.dout.in(),
                                         over_out.out.view(), over_out.dk.view(), over_out.dv.view());
        check_same_bits(over_out.out.host(), apart.dq.host());
        over_dout.forward();
        kernel::attention_backward<D, T>(dev, over_dout.shape, over_dout.q.in(), over_dout.k.in(), over_dout.v.in(),
                                         over_dout.out.in(), over_dout.queries, over_dout.saved, over_dout.dout.in(),
                                         over_dout.dout.view(), over_dout.dk.view(), over_dout.dv.view());
        check_same_bits(over_dout.dout.host(), apart.dq.host());
      }
  });
}

TEST_CASE("attention: rows of no segment stay untouched, and nothing need be saved") {
  each_backend([]<class D>() {
    D dev(2);
    for (const Case& given : {Case{2, 1, 8, {5, 4}, {}, 0}, Case{2, 1, 8, {5, 4}, {}, 0, {-1, 0}}}) {
      const Case c = fitted<D, float>(given);
      Run<D, float> run(dev, c, 2, 3), again(dev, c, 2, 3);
      const auto before = run.out.host(), dq = run.dq.host(), dk = run.dk.host();
      run.forward();
      run.backward();
      const auto check_tail = [](const std::vector<float>& a, const std::vector<float>& b, std::size_t from) {
        for (std::size_t i = from; i < a.size(); ++i) REQUIRE(a[i] == b[i]);
      };
      const auto own = static_cast<std::size_t>(9 * c.width);
      check_tail(run.out.host(), before, 2 * own);
      check_tail(run.dq.host(), dq, 2 * own);
      check_tail(run.dk.host(), dk, own);
      kernel::attention<D, float>(dev, again.shape, again.q.in(), again.k.in(), again.v.in(), again.queries, again.keys,
                                  again.out.view(), nullptr);
      check_same_bits(again.out.host(), run.out.host());
    }
  });
}

TEST_CASE("attention: memory grows linearly with the longest segment") {
  const auto peak = [](Index length) {
    Cpu dev(2);
    Run<Cpu, float> run(dev, Case{1, 1, 2, {length}, {}, 0});
    run.forward();
    run.backward();
    return static_cast<double>(dev.arena().peak_scratch());
  };
  CHECK(peak(1024) - peak(512) < 1.2 * (peak(512) - peak(0)) + 600.0 * 1024);
  CHECK(peak(1024) < 512.0 * 1024 * sizeof(float));
}

TEST_CASE("attention: gradients equal complex steps") {
  using Z = std::complex<double>;
  for (const Case& c :
       {Case{4, 2, 3, {66, 5}, {}, 0}, Case{4, 2, 3, {66, 5}, {}, 0, {-1, 0}},
        Case{2, 1, 3, {20, 7, 2, 9, 3}, {}, 0, {-1, 0, 1, 1, 0}},
        Case{2, 2, 2, {5, 4, 3, 2, 6, 3}, {}, 0, {-1, 0, 1, 2, 2, -1}}, Case{4, 2, 3, {66, 5}, {}, 0, {}, 9},
        Case{2, 1, 3, {20, 7, 2, 9, 3}, {}, 0, {-1, 0, 1, 1, 0}, 8}, Case{4, 2, 3, {66, 5}, {}, 0, {}, 0, 0.3},
        Case{2, 1, 3, {20, 7, 2, 9, 3}, {}, 0, {-1, 0, 1, 1, 0}, 8, 0.5}}) {
    CAPTURE(c.parents.size());
    CAPTURE(c.window);
    Cpu dev(2);
    Run<Cpu, double> run(dev, c, 1);
    run.forward();
    run.backward();
    Run<Cpu, Z> stepped(dev, c, 1);
    for (auto [to, from] :
         {std::pair{&stepped.q, &run.q}, std::pair{&stepped.k, &run.k}, std::pair{&stepped.v, &run.v}}) {
      const auto values = from->host();
      copy_from_host<Cpu, Z>(dev, std::vector<Z>(values.begin(), values.end()), to->view());
    }
    const auto dout = run.dout.host();
    const auto loss = [&] {
      stepped.forward();
      Z sum = 0;
      const auto out = elements(stepped.out.view());
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
      return sum;
    };
    // Every element would take minutes: some of each operand, from both segments and both tiles of keys.
    for (auto [x, gradient] :
         {std::pair{&stepped.q, &run.dq}, std::pair{&stepped.k, &run.dk}, std::pair{&stepped.v, &run.dv}}) {
      const auto all = elements(x->view());
      const auto exact = gradient->host();
      std::vector<double> actual, expected;
      for (std::size_t i = 1; i < all.size(); i += 23) {
        expected.push_back(complex_step(all.subspan(i, 1), loss)[0]);
        actual.push_back(exact[i]);
      }
      CHECK(gradient_error(std::span<double>(actual), expected) < 1e-12);
    }
  }
}

}  // namespace attention_test
