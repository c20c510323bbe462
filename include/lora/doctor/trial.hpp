#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/doctor/outcome.hpp"
#include "lora/kernel/segment.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/stored.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::doctor {

/// The extents that kernels are tried at.
struct Sizes {
  Index rows = 100, width = 896, out = 128, rank = 8;
  Index heads = 4, kv_heads = 2, head_width = 64, wide_head = 128;
  Index ffn = 1216, vocabulary = 3000, parameters = 5000;
  std::vector<Index> sequences = {1, 37, 128, 134};  ///< of attention
  Index gap = 32;                                    ///< columns on both sides of operands whose rows lie apart
};

/// How many roundings a result may be off: in types of 16 bits, where the rounding of results is all there is, and in
/// float32, where sums count.
struct Bound {
  double narrow, single;
};

/// A reference to what launches a check's kernels, which outlives it. There are hundreds: with one type for all of them
/// what runs them is compiled once.
class Launch {
 public:
  template <std::invocable F>
  Launch(const F& f) : call_([](const void* of) { (*static_cast<const F*>(of))(); }), f_(&f) {}

  void operator()() const { call_(f_); }

 private:
  void (*call_)(const void*);
  const void* f_;
};

/// Kernels of one check on device D in T, with operands that are the same for every device: drawn from the order in
/// which they are asked for, and rounded to `precision`, which T holds exactly.
template <AnyDevice D, class T>
class Trial {
 public:
  using A = Accum<T>;

  /// How a kernel's launches are run: once, or as often as their time takes to be measured.
  using Launcher = std::function<void(const Launch&)>;

  Trial(D& dev_, Precision precision, const Sizes& sizes_, Launcher launcher = {})
      : dev(dev_),
        sizes(sizes_),
        precision_(precision),
        launcher_(std::move(launcher)),
        saved_(dev_.arena()),
        scratch_(dev_.arena()) {}

  D& dev;
  const Sizes& sizes;

  /// Numbers in [low, high) of the type that is checked.
  View<D, T> values(Index rows, Index cols, double low = -1, double high = 1) {
    return given<T>(rows, cols, draw(rows * cols, low, high, precision_));
  }
  /// The same where rows lie apart.
  View<D, T> apart(Index rows, Index cols, double low = -1, double high = 1) {
    return values(rows, cols + 2 * sizes.gap, low, high).col_slice(sizes.gap, cols);
  }
  /// Numbers of the type of sums.
  View<D, A> sums(Index rows, Index cols, double low = -1, double high = 1) {
    return given<A>(rows, cols, draw(rows * cols, low, high, Precision::float32));
  }
  /// These numbers, in T or in the type of sums.
  template <class U>
  View<D, U> given(Index rows, Index cols, std::span<const double> numbers) {
    std::vector<U> host;
    host.reserve(numbers.size());
    for (const double number : numbers) host.push_back(as<U>(number));
    return kept<U>(rows, cols, host);
  }
  /// Room for a result. What a kernel leaves as it was is NaN.
  View<D, T> room(Index rows, Index cols) { return empty<T>(rows, cols); }
  View<D, A> sums_room(Index rows, Index cols) { return empty<A>(rows, cols); }
  template <class U>
  View<D, U> empty(Index rows, Index cols) {
    const std::vector<U> host(static_cast<std::size_t>(rows * cols), as<U>(std::numeric_limits<double>::quiet_NaN()));
    return kept<U>(rows, cols, host);
  }
  View<D, const std::int32_t> numbers(const std::vector<std::int32_t>& host) {
    return kept<std::int32_t>(1, static_cast<Index>(host.size()), host);
  }
  /// A weight as a file in the type that is checked holds it; in double, as one of float32 does.
  StoredView<D> stored(Index rows, Index cols) {
    if constexpr (std::same_as<T, double>) {
      std::vector<float> host;
      for (const double number : draw(rows * cols, -1, 1, precision_)) host.push_back(static_cast<float>(number));
      return StoredView<D>(kept<float>(rows, cols, host).data(), DType::f32, rows, cols);
    } else {
      return StoredView<D>(values(rows, cols).data(), dtype_of<T>, rows, cols);
    }
  }

  /// One of Q8_0's blocks, in the order in which the device takes them.
  StoredView<D> stored_blocks(Index rows, Index cols) {
    constexpr std::size_t quanta = 32, scale = sizeof(f16);
    const auto blocks = static_cast<std::size_t>(cols) / quanta, row_bytes = blocks * (scale + quanta);
    const auto numbers = draw(rows * cols, -127, 127, Precision::float32);
    const auto scales = draw(rows * static_cast<Index>(blocks), 1e-3, 1e-2, Precision::float16);
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes);
    for (std::size_t block = 0; block < scales.size(); ++block) {
      const std::size_t row = block / blocks, i = block % blocks;
      std::byte* const begin = bytes.data() + row * row_bytes;
      std::byte* const to = D::splits_blocks ? begin + i * quanta : begin + i * (scale + quanta) + scale;
      const auto factor = f16(static_cast<float>(scales[block]));
      std::memcpy(D::splits_blocks ? begin + blocks * quanta + i * scale : to - scale, &factor, scale);
      for (std::size_t j = 0; j < quanta; ++j)
        to[j] = static_cast<std::byte>(static_cast<std::int8_t>(std::lround(numbers[block * quanta + j])));
    }
    return StoredView<D>(kept<std::byte>(1, static_cast<Index>(bytes.size()), bytes).data(), DType::q8_0, rows, cols);
  }

  /// f() launches kernels that read and write the operands above, and what the caller keeps.
  void launch(const Launch& f) {
    try {
      if (launcher_) return launcher_(f);
      f();
    } catch (...) {
      // What has been queued by then still uses memory that goes with whoever called.
      try {
        dev.synchronize();
      } catch (...) {  // the first error is the reason
      }
      throw;
    }
    dev.synchronize();  // an error of the kernels belongs to this check
  }

  /// An output that is rounded to T, or formed of what is.
  template <class U>
  void result(std::string_view name, View<D, U> view, Bound bound) {
    const bool single = precision_ == Precision::float32;
    tell(name, view, roundoff(precision_), single ? bound.single : bound.narrow);
  }
  /// One that is formed in float32 whatever T is.
  template <class U>
  void sum_result(std::string_view name, View<D, U> view, double bound) {
    tell(name, view, roundoff(Precision::float32), bound);
  }

  /// The mean of what is not 0, which may be off by so much of itself.
  void mean_result(std::string_view name, View<D, T> view, double bound) {
    tell(name, view, roundoff(Precision::float32), bound / roundoff(Precision::float32));
    if (outputs_.empty()) return;
    Output& output = outputs_.back();
    double sum = 0, count = 0;
    for (const double value : output.values) {
      sum += value;
      count += value != 0 ? 1 : 0;
    }
    output.values = {sum / count};
  }

  Precision precision() const { return precision_; }
  std::vector<Output>& outputs() { return outputs_; }

 private:
  template <class U>
  static U as(double number) {
    if constexpr (std::same_as<U, double>) {
      return number;
    } else {
      return static_cast<U>(static_cast<float>(number));
    }
  }

  // Large operands repeat what they begin with: nobody looks at the numbers that are timed.
  std::vector<double> draw(Index count, double low, double high, Precision precision) {
    constexpr std::size_t most = std::size_t{1} << 21;
    Random random(mix_key(0x646F63746F72u, ++drawn_));
    std::vector<double> numbers(static_cast<std::size_t>(count));
    const std::size_t own = std::min(numbers.size(), most);
    for (std::size_t i = 0; i < own; ++i)
      numbers[i] = rounded(low + (high - low) * static_cast<double>(random.uniform()), precision);
    for (std::size_t i = own; i < numbers.size(); ++i) numbers[i] = numbers[i - own];
    return numbers;
  }

  template <class U>
  View<D, U> kept(Index rows, Index cols, const std::vector<U>& host) {
    const auto tensor = std::make_shared<Tensor<D, U>>(dev, rows, cols);
    kept_.push_back(tensor);
    copy_from_host<D, U>(dev, host, tensor->view());
    dev.synchronize();  // the host's numbers go away
    return tensor->view();
  }

  template <class U>
  void tell(std::string_view name, View<D, U> view, double roundoff, double bound) {
    if (launcher_) return;
    using Number = std::remove_const_t<U>;
    Output output{.name = name, .roundoff = roundoff, .bound = bound};
    for (const Number number : to_host(dev, view)) {
      if constexpr (std::is_same_v<Number, bf16> || std::is_same_v<Number, f16>) {
        output.values.push_back(static_cast<double>(static_cast<float>(number)));
      } else {
        output.values.push_back(static_cast<double>(number));
      }
    }
    output.overflow = overflow(std::is_same_v<Number, T> ? precision_ : Precision::float32);
    outputs_.push_back(std::move(output));
  }

  Precision precision_;
  Launcher launcher_;
  Arena::SavedScope saved_;
  Arena::Scope scratch_;
  std::uint64_t drawn_ = 0;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<Output> outputs_;
};

namespace detail {

// Bounds. A result that is rounded once is off by 1 rounding at most, one whose parts are rounded by a few; sums over
// K products in float32 are off by some √K roundings. What is allowed is several times that, and far less than what a
// wrong kernel gives: results in units of the largest one differ by some 1/roundoff then.
constexpr Bound product_bound{4, 256};
constexpr Bound few{4, 16};

}  // namespace detail

}  // namespace lora::doctor
