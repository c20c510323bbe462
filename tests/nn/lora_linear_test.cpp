// A group of projections with its adapter against double loops, element by element: what is rounded, and how often.

#include "lora/nn/lora_linear.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "support/backends.hpp"
#include "support/effort.hpp"
#include "support/matrix.hpp"

namespace lora_linear_test {

namespace {

using namespace lora;
using namespace lora::test;

/// A matrix of doubles with the few operations that the formulas need.
struct Dense {
  Index rows = 0, cols = 0;
  std::vector<double> values{};

  Dense(Index r, Index c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& at(Index i, Index j) { return values[static_cast<std::size_t>(i * cols + j)]; }
  double at(Index i, Index j) const { return values[static_cast<std::size_t>(i * cols + j)]; }
  /// f(element, the other's element) for each of them.
  template <class F>
  Dense with(const Dense& other, const F& f) const {
    Dense result = *this;
    for (std::size_t i = 0; i < values.size(); ++i) result.values[i] = f(values[i], other.values[i]);
    return result;
  }
  Dense operator+(const Dense& other) const { return with(other, std::plus<>()); }
  Dense times(const Dense& other) const { return with(other, std::multiplies<>()); }
  Dense scaled(double s) const {
    return with(*this, [=](double a, double) { return s * a; });
  }
  Dense sizes() const {
    return with(*this, [](double a, double) { return std::fabs(a); });
  }
  Dense transposed() const {
    Dense result(cols, rows);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) result.at(j, i) = at(i, j);
    return result;
  }
  Dense operator*(const Dense& other) const {
    Dense result(rows, other.cols);
    for (Index i = 0; i < rows; ++i)
      for (Index k = 0; k < cols; ++k) {
        const double a = at(i, k);
        if (a == 0) continue;
        const double* const from = &other.values[static_cast<std::size_t>(k * other.cols)];
        double* const to = &result.values[static_cast<std::size_t>(i * other.cols)];
        for (Index j = 0; j < other.cols; ++j) to[j] += a * from[j];
      }
    return result;
  }
};

/// Of -1, 0 and 1, times `unit`.
Dense signs(Index rows, Index cols, std::uint64_t key, double unit = 1) {
  Random random(key);
  Dense result(rows, cols);
  for (double& value : result.values) value = unit * (static_cast<double>(random.below(3)) - 1);
  return result;
}

template <class T>
std::vector<T> as(const Dense& matrix) {
  std::vector<T> result;
  for (const double value : matrix.values) result.push_back(rounded<T>(value));
  return result;
}

template <class T>
Dense dense(const std::vector<T>& values, Index rows, Index cols) {
  Dense result(rows, cols);
  std::transform(values.begin(), values.end(), result.values.begin(), [](T value) { return real(value); });
  return result;
}

struct Extents {
  Index rows, in;
  std::vector<Index> out, ranks;
  bool biased = true;
};

/// The module in T over weights stored as S, the last of them as Last, and what it is made of.
///
/// x, dy, A and B are whole numbers (-1, 0, 1) times powers of two, and few enough are added that h and dh have at most
/// 8 bits and the sums of A.grad and B.grad at most 24: all these are exact, in bfloat16 too. Weights and biases are
/// any numbers of their types. What is left for y and dx is the rounding of sums of float32 terms, and one to T: where
/// another one was on the way, some of the thousands of elements are further off.
template <class D, class T, class S, class Last = S>
class Subject {
 public:
  static constexpr double scale = 2, p = 0.5;

  Subject(D& dev, Extents extents, bool drops, double unit)
      : dev_(dev),
        e_(std::move(extents)),
        o_(std::accumulate(e_.out.begin(), e_.out.end(), Index{0})),
        r_(std::accumulate(e_.ranks.begin(), e_.ranks.end(), Index{0})),
        x(signs(e_.rows, e_.in, 1)),
        dy(signs(e_.rows, o_, 2)),
        before(dense(random_values<T>(e_.rows * o_, 3), e_.rows, o_)),
        a(signs(r_, e_.in, 4)),
        b(o_, r_),
        w(o_, e_.in),
        bias(e_.rows, o_),
        kept(signs(e_.rows, e_.in, 0)),
        positions_(static_cast<std::size_t>(e_.rows)),
        segments_{{0, e_.rows}},
        random_key_(drops ? 77 : 0) {
    std::iota(positions_.begin(), positions_.end(), 0);
    for (double& value : kept.values) value = 1;
    make_module(drops);
    fill_adapter(unit);
    if (drops) find_kept();
  }

  /// xWᵀ + b, and the update: s drop(x) Aᵀ Bᵀ.
  Dense frozen() const { return x * w.transposed() + bias; }
  Dense update() const { return (x.times(kept) * a.transposed()).scaled(scale) * b.transposed(); }

  /// y; added to `before` if so.
  std::vector<T> forward(bool accumulate) {
    Matrix<D, T> in(dev_, x.rows, x.cols, as<T>(x), 2), y(dev_, x.rows, o_, as<T>(before), 3);
    typename nn::LoraLinear<D, T>::Saved saved;
    module_.forward(dev_, pass(), in.in(), y.view(), saved, nn::Keep::nothing, accumulate);
    return y.host();
  }

  void check_forward(bool accumulate) {
    Dense expected = frozen() + update();
    Dense size = x.sizes() * w.sizes().transposed() + bias.sizes() +
                 (x.times(kept).sizes() * a.sizes().transposed()).scaled(scale) * b.sizes().transposed();
    if (accumulate) {
      expected = expected + before;
      size = size + before.sizes();
    }
    check_near(forward(accumulate), expected.values, bound(expected, size, x.cols + r_).values);
  }

  /// Whether forward keeps h for backward.
  bool saves_h() {
    Matrix<D, T> in(dev_, x.rows, x.cols, as<T>(x)), y(dev_, x.rows, o_, 5);
    const Arena::SavedScope scope(dev_.arena());
    const std::size_t mark = dev_.arena().mark();
    typename nn::LoraLinear<D, T>::Saved saved;
    module_.forward(dev_, pass(), in.in(), y.view(), saved, nn::Keep::all);
    return dev_.arena().mark() > mark;
  }

  void check_backward() {
    Matrix<D, T> in(dev_, x.rows, x.cols, as<T>(x), 2), gradient(dev_, x.rows, o_, as<T>(dy), 3);
    Matrix<D, T> y(dev_, x.rows, o_, 5), dx(dev_, x.rows, x.cols, 6, 1);
    const std::size_t mark = dev_.arena().mark();
    typename nn::LoraLinear<D, T>::Saved saved;
    params_.zero_grad(dev_);
    {
      const nn::Pass<D, T> p_ = pass();
      module_.forward(dev_, p_, in.in(), y.view(), saved, nn::Keep::all);
      module_.backward(dev_, p_, in.in(), saved, gradient.in(), dx.view());
    }
    dev_.arena().release(mark);

    const Dense h = (x.times(kept) * a.transposed()).scaled(scale), dh = (dy * b).scaled(scale);
    const Dense a_grad = dh.transposed() * x.times(kept), b_grad = h.transposed() * dy;
    each_param([&](const nn::ParamRef<D, T>& param, Index first_rank, Index first_column) {
      CAPTURE(param.name);
      const auto actual = dense(to_host(dev_, param.grad), param.value.rows(), param.value.cols());
      Dense expected = actual;
      for (Index r = 0; r < actual.rows; ++r)
        for (Index c = 0; c < actual.cols; ++c)
          expected.at(r, c) =
              param.transposed ? b_grad.at(first_rank + r, first_column + c) : a_grad.at(first_rank + r, c);
      CHECK(actual.values == expected.values);
    });

    check_halves(in, gradient, dx.host());

    const Dense expected = dy * w + (dh * a).times(kept);
    const Dense size = dy.sizes() * w.sizes() + ((dy.sizes() * b.sizes()).scaled(scale) * a.sizes()).times(kept);
    check_near(dx.host(), expected.values, bound(expected, size, o_ + r_).values);
  }

 private:
  /// After a forward that kept nothing and was completed, the halves of backward give the same bits, with x formed in
  /// dx's memory between them, and so does the second half alone.
  void check_halves(Matrix<D, T>& in, Matrix<D, T>& gradient, const std::vector<T>& expected) {
    const auto grads = [&] {
      std::vector<std::vector<Accum<T>>> result;
      params_.for_each([&](const nn::ParamRef<D, T>& param) { result.push_back(to_host(dev_, param.grad)); });
      return result;
    };
    const auto both_at_once = grads();
    for (const bool both : {true, false}) {
      Matrix<D, T> y(dev_, x.rows, o_, 5), dx(dev_, x.rows, x.cols, 7, 2);
      const Arena::Scope scope(dev_.arena());
      const Arena::SavedScope saved_here(dev_.arena());
      const nn::Pass<D, T> p_ = pass();
      typename nn::LoraLinear<D, T>::Saved saved;
      params_.zero_grad(dev_);
      module_.forward(dev_, p_, in.in(), y.view(), saved, nn::Keep::attention);
      module_.recompute(dev_, p_, in.in(), saved);
      if (both) {
        module_.backward_input(dev_, saved, gradient.in(), dx.view());
        check_same_bits(dx.host(), expected);
      }
      kernel::convert(dev_, in.in(), dx.view());
      module_.backward_params(dev_, dx.in(), saved, gradient.in());
      const auto after = grads();
      REQUIRE(after.size() == both_at_once.size());
      for (std::size_t i = 0; i < after.size(); ++i) check_same_bits(after[i], both_at_once[i]);
    }
  }

  /// One rounding to T, and those of sums of n float32 terms whose sizes add up to `size`; twice, for what is summed
  /// apart before it is added (the update in W, the bias, what was there).
  static Dense bound(const Dense& expected, const Dense& size, Index n) {
    return expected.with(size, [=](double value, double terms) {
      return roundoff<T> * std::fabs(value) + 2 * static_cast<double>(n + 4) * roundoff<Accum<T>> * terms;
    });
  }

  void make_module(bool drops) {
    std::vector<std::pair<std::string, nn::Linear<D, T>>> parts;
    std::vector<nn::LoraRank> ranks;
    Index first = 0;
    for (std::size_t j = 0; j < e_.out.size(); ++j) {
      const Index out = e_.out[j];
      const auto biases = random_values<Accum<T>>(out, 20 + j);
      nn::Linear<D, T> linear{j + 1 < e_.out.size() ? make_weight<S>(j, first) : make_weight<Last>(j, first)};
      if (e_.biased) linear.bias = tensor_of<Accum<T>>(dev_, biases, 1, out);
      parts.emplace_back(concat("part ", j), std::move(linear));
      ranks.push_back({e_.ranks[j], scale});
      for (Index o = 0; o < out; ++o)
        for (Index i = 0; i < e_.rows; ++i)
          bias.at(i, first + o) = e_.biased ? real(biases[static_cast<std::size_t>(o)]) : 0;
      first += out;
    }
    module_ = nn::LoraLinear<D, T>(std::move(parts), module_number);
    module_.attach(params_, "", ranks, drops ? p : 0);
    params_.build(dev_);
  }

  template <class Stored>
  nn::Weight<D> make_weight(std::size_t j, Index first) {
    const Index out = e_.out[j];
    const auto values = random_values<Stored>(out * e_.in, 10 + j);
    for (Index o = 0; o < out; ++o)
      for (Index i = 0; i < e_.in; ++i)  // a weight that is stored wider is rounded to T where it is used
        w.at(first + o, i) = real(rounded<T>(real(values[static_cast<std::size_t>(o * e_.in + i)])));
    const auto held = std::make_shared<Tensor<D, Stored>>(tensor_of<Stored>(dev_, values, out, e_.in));
    return nn::Weight<D>(StoredView<D>(held->view().data(), dtype_of<Stored>, out, e_.in), held);
  }

  void fill_adapter(double unit) {
    each_param([&](const nn::ParamRef<D, T>& param, Index first_rank, Index first_column) {
      Dense values = signs(param.value.rows(), param.value.cols(), 30 + static_cast<std::uint64_t>(first_column), unit);
      for (Index r = 0; r < values.rows; ++r)
        for (Index c = 0; c < values.cols; ++c) {
          if (!param.transposed) values.at(r, c) = a.at(first_rank + r, c);
          if (param.transposed) b.at(first_column + c, first_rank + r) = values.at(r, c);
        }
      copy_from_host<D, Accum<T>>(dev_, as<Accum<T>>(values), param.value);
    });
    params_.refresh(dev_);
  }

  /// 1 / (1 − p) where x is kept, else 0, by the rule that kernel::dropout is tested to follow.
  void find_kept() {
    const std::vector<double> ones(static_cast<std::size_t>(x.rows * x.cols), 1.0);
    Matrix<D, double> in(dev_, x.rows, x.cols, ones), out(dev_, x.rows, x.cols, ones);
    const nn::Pass<D, T> p_ = pass();
    kernel::dropout<D, double>(dev_, {p, mix_key(random_key_, module_number)}, in.in(), p_.sequence_index(),
                               p_.positions(), out.view());
    kept.values = out.host();
  }

  /// f(parameter, its first rank, its first column of y).
  template <class F>
  void each_param(const F& f) {
    Index rank = 0, column = 0;
    std::size_t part = 0;
    params_.for_each([&](const nn::ParamRef<D, T>& param) {
      for (; e_.ranks[part] == 0; ++part) column += e_.out[part];
      f(param, rank, column);
      if (!param.transposed) return;  // A, then B of each
      rank += e_.ranks[part];
      column += e_.out[part++];
    });
  }

  nn::Pass<D, T> pass() const {
    return nn::Pass<D, T>(dev_, nn::Batch{positions_, positions_, positions_, segments_}, random_key_);
  }

  static constexpr std::uint64_t module_number = 7;
  D& dev_;
  Extents e_;
  Index o_, r_;

 public:
  Dense x, dy, before, a, b, w, bias, kept;

 private:
  std::vector<std::int32_t> positions_;
  std::vector<kernel::Segment> segments_;
  std::uint64_t random_key_;
  nn::ParamStore<D, T> params_;
  nn::LoraLinear<D, T> module_;
};

/// Fewer rows than where the update is formed in W, more, and more than one tile of rows; with whole vectors of
/// columns, which some kernels ask for.
template <class D, class T, class S, class Last = S>
void check_all() {
  std::vector<Extents> all{{40, 40, {24, 9, 32}, {3, 0, 5}}, {600, 40, {24, 9, 32}, {3, 0, 5}}};
  if (is_cpu<D>) {
    all.push_back({3, 40, {24, 9, 32}, {3, 0, 5}});
    all.push_back({190, 48, {32, 16, 64}, {3, 0, 5}});
  }
  for (const Extents& extents : all) {
    for (const bool drops : {false, true}) {
      CAPTURE(extents.rows);
      CAPTURE(extents.in);
      CAPTURE(drops);
      D dev(2);
      Subject<D, T, S, Last> subject(dev, extents, drops, 1.0 / 8);
      subject.check_forward(false);
      subject.check_forward(true);
      subject.check_backward();
    }
  }
}

}  // namespace

TEST_CASE("lora_linear: y, dx and the adapter's gradients equal the formulas, with one rounding") {
  SUBCASE("f32") { check_all<cpu::Device, float, float>(); }
  SUBCASE("f32 over bf16") { check_all<cpu::Device, float, bf16>(); }
  SUBCASE("f32, the last of the weights in bf16") { check_all<cpu::Device, float, float, bf16>(); }
  SUBCASE("bf16") { check_all<cpu::Device, bf16, bf16>(); }
  if (effort(true, false, "lora_linear: two of seven pairs of types and devices")) {
    SUBCASE("bf16 over f32") { check_all<cpu::Device, bf16, float>(); }
    SUBCASE("proof, f32 over bf16") { check_all<proof::Device, float, bf16>(); }
  }
  SUBCASE("proof, bf16") { check_all<proof::Device, bf16, bf16>(); }
}

TEST_CASE("lora_linear: a device's tiling says how rows are cut, and whether an update joins the decoded weight") {
  const auto launches = [](Index rows, double fold_ratio) {
    CAPTURE(rows);
    CAPTURE(fold_ratio);
    const Tiling tiling{.rows = rows, .head_rows = 16, .head_columns = 16, .fold_ratio = fold_ratio};
    proof::Device dev(2, {.tiling = tiling});
    Subject<proof::Device, float, bf16> subject(dev, {40, 40, {24, 9, 32}, {3, 0, 5}}, false, 1.0 / 8);
    CHECK(subject.saves_h() == (fold_ratio != 0));
    subject.check_backward();
    const std::size_t before = dev.counts().launches;
    subject.check_forward(false);
    return dev.counts().launches - before;
  };
  constexpr double never = std::numeric_limits<double>::infinity();
  // A tile is a product, two updates and three biases.
  CHECK(launches(16, never) == launches(512, never) + 2 * 6);
  CHECK(launches(16, 0) == launches(512, 0) + 2 * 4);
}

TEST_CASE("lora_linear: projections that are multiplied as one overwrite what is there, or are added to it") {
  using D = proof::Device;
  const Tiling joins{.rows = 512,
                     .head_rows = 16,
                     .head_columns = 16,
                     .fold_ratio = std::numeric_limits<double>::infinity(),
                     .joins_projections = true};
  D dev(2, {.tiling = joins});
  for (const bool biased : {false, true}) {
    CAPTURE(biased);
    Subject<D, bf16, float> subject(dev, {40, 40, {24, 9, 32}, {3, 0, 5}, biased}, false, 1.0 / 8);
    for (const bool accumulate : {false, true}) {
      CAPTURE(accumulate);
      Dense expected = subject.frozen() + subject.update();
      Dense size = subject.x.sizes() * subject.w.sizes().transposed() + subject.bias.sizes() +
                   subject.update().sizes() + expected.sizes();
      if (accumulate) {
        expected = expected + subject.before;
        size = size + subject.before.sizes();
      }
      // The update, the bias and the products are rounded one after the other.
      check_near(subject.forward(accumulate), expected.values, size.scaled(4 * roundoff<bf16>).values);
    }
  }
}

TEST_CASE("lora_linear: neighbors each have their own scale") {
  using D = cpu::Device;
  D dev(1);
  const Index n = 3, in = 8, out = 4;
  const auto weight = random_values<float>(out * in, 1);
  const StoredView<D> stored(reinterpret_cast<const std::byte*>(weight.data()), DType::f32, out, in);
  // Powers of two, which round nothing: a scale of B is the projection's own.
  const auto output_of = [&](const std::vector<nn::LoraRank>& ranks, const std::vector<float>& scales_of_b) {
    std::vector<std::pair<std::string, nn::Linear<D, float>>> parts;
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      parts.emplace_back(name, nn::Linear<D, float>{nn::Weight<D>(stored, nullptr)});
    nn::LoraLinear<D, float> linear(std::move(parts), 1);
    nn::ParamStore<D, float> params;
    linear.attach(params, "", ranks, 0);
    params.build(dev);
    std::size_t b = 0;
    params.for_each([&](const nn::ParamRef<D, float>& param) {
      auto values = random_values<float>(param.value.size(), 2);
      if (param.transposed) {
        for (float& value : values) value *= scales_of_b[b];
        ++b;
      }
      copy_from_host<D, float>(dev, values, param.value);
    });
    params.refresh(dev);
    const std::vector<std::int32_t> ids{0, 1, 2};
    const std::vector<kernel::Segment> segments{{0, n}};
    const nn::Pass<D, float> pass(dev, nn::Batch{ids, ids, ids, segments});
    Matrix<D, float> x(dev, n, in, 3), y(dev, n, 3 * out, 4);
    nn::LoraLinear<D, float>::Saved saved;
    linear.forward(dev, pass, x.in(), y.view(), saved, nn::Keep::nothing);
    return y.host();
  };
  check_same_bits(output_of({{2, 0.5}, {1, 2}, {2, 2}}, {1, 1, 1}), output_of({{2, 1}, {1, 1}, {2, 1}}, {0.5, 2, 2}));
  check_same_bits(output_of({{2, 4}, {0, 1}, {2, 0.5}}, {1, 1}), output_of({{2, 1}, {0, 0}, {2, 1}}, {4, 0.5}));
}

TEST_CASE("lora_linear: a large decoded weight holds the update in all its rows") {
  cpu::Device dev(2);
  Subject<cpu::Device, float, bf16> subject(dev, {190, 256, {700}, {2}}, false, 1.0 / 8);
  subject.check_forward(false);
  subject.check_backward();
}

TEST_CASE("lora_linear: an update far below half a unit in y's last place shows in the mean of many rows") {
  cpu::Device dev(2);
  // Without a bias, which would spread what is rounded. Elements of y have sizes near 4, where bfloat16 has steps of
  // 2⁻⁶ and 2⁻⁵; the update's are 2⁻¹¹ in the mean and at most 2⁻⁸.
  Subject<cpu::Device, bf16, bf16> subject(dev, {1100, 72, {64}, {1}, false}, false, 0x1p-14);
  const auto y = subject.forward(false);
  const Dense update = subject.update(), frozen = subject.frozen();
  double dot = 0, square = 0, largest = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    dot += (real(y[i]) - frozen.values[i]) * update.values[i];
    square += update.values[i] * update.values[i];
    largest = std::max(largest, std::fabs(update.values[i]));
  }
  REQUIRE(largest < 0x1p-8);
  // y's roundings are independent of the update, with variances of step² / 12 ≤ (2⁻⁴)² / 12 for |y| < 16, so that the
  // part of the update that is in y is 1 ± σ with
  const double sigma = 0x1p-4 / std::sqrt(12 * square);
  CAPTURE(sigma);
  CHECK(std::fabs(dot / square - 1) < 4 * sigma);
  CHECK(4 * sigma < 0.5);
}

}  // namespace lora_linear_test
