#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>

#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/exp.hpp"
#include "lora/cpu/vectors/random_words.hpp"
#include "lora/kernel/elementwise.hpp"

namespace lora::cpu::detail {

/// The type that conversions and sums are computed in: double if either side is, complex likewise.
template <class From, class To>
using Wider = decltype(Accum<From>{} + Accum<To>{});

/// Calls body(row, begin, end) for every piece of a matrix; rows are cut too, so that one long row is shared by all
/// threads.
template <class Body>
void for_each_piece(Device& dev, Index rows, Index cols, const Body& body) {
  constexpr Index piece = 4096;
  const Index pieces = (cols + piece - 1) / piece;
  dev.parallel_for(rows * pieces, rows_per_task(std::min(piece - 1, cols)), [&](Index first, Index last) {
    for (Index task = first; task < last; ++task) {
      const Index begin = task % pieces * piece;
      body(task / pieces, begin, std::min(cols, begin + piece));
    }
  });
}

}  // namespace lora::cpu::detail

namespace lora::kernel {

template <>
struct Elementwise<cpu::Device> {
  template <class T>
  static void fill(cpu::Device& dev, View<cpu::Device, T> y, double value);

  template <class From, class To>
  static void convert(cpu::Device& dev, View<cpu::Device, const From> x, View<cpu::Device, To> y, double scale,
                      bool accumulate);

  template <class T>
  static void add_bias(cpu::Device& dev, View<cpu::Device, const Accum<T>> bias, View<cpu::Device, T> y);

  template <class T>
  static void gather_rows(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const std::int32_t> index,
                          View<cpu::Device, T> y);

  template <class T>
  static void scatter_rows(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const std::int32_t> index,
                           View<cpu::Device, T> y);

  /// Nothing is drawn ahead: drawing costs no more than reading what was drawn.
  static View<cpu::Device, const std::uint8_t> draw_dropout(cpu::Device&, const Dropout&,
                                                            View<cpu::Device, const std::int32_t>,
                                                            View<cpu::Device, const std::int32_t>, Index, bool) {
    return {};
  }

  template <class T>
  static constexpr DropoutBytes dropout_bytes() {
    return {};
  }

  template <class T>
  static void dropout(cpu::Device& dev, const DropoutMask<cpu::Device>& mask, View<cpu::Device, const T> x,
                      View<cpu::Device, T> y, bool accumulate);
};

template <class T>
void Elementwise<cpu::Device>::fill(cpu::Device& dev, View<cpu::Device, T> y, double value) {
  T filler;
  if constexpr (HasDType<T>) {
    filler = static_cast<T>(static_cast<Accum<T>>(value));
  } else {
    filler = T(value);
  }
  cpu::detail::for_each_piece(dev, y.rows(), y.cols(), [=](Index row, Index begin, Index end) {
    std::fill(y.row(row) + begin, y.row(row) + end, filler);
  });
}

template <class From, class To>
void Elementwise<cpu::Device>::convert(cpu::Device& dev, View<cpu::Device, const From> x, View<cpu::Device, To> y,
                                       double scale, bool accumulate) {
  using C = cpu::detail::Wider<From, To>;
  const auto factor = static_cast<C>(scale);
  cpu::detail::for_each_piece(dev, x.rows(), x.cols(), [=](Index row, Index begin, Index end) {
    const From* const in = x.row(row);
    To* const out = y.row(row);
    const auto wide = [](auto value) { return static_cast<C>(static_cast<Accum<decltype(value)>>(value)); };
    const auto narrow = [](C value) { return narrowed<To>(static_cast<Accum<To>>(value)); };
    if (accumulate) {
      LORA_SIMD
      for (Index j = begin; j < end; ++j) out[j] = narrow(wide(out[j]) + factor * wide(in[j]));
    } else {
      LORA_SIMD
      for (Index j = begin; j < end; ++j) out[j] = narrow(factor * wide(in[j]));
    }
  });
}

template <class T>
void Elementwise<cpu::Device>::add_bias(cpu::Device& dev, View<cpu::Device, const Accum<T>> bias,
                                        View<cpu::Device, T> y) {
  const Accum<T>* const b = bias.data();
  cpu::detail::for_each_piece(dev, y.rows(), y.cols(), [=](Index row, Index begin, Index end) {
    T* const out = y.row(row);
    LORA_SIMD
    for (Index j = begin; j < end; ++j) out[j] = narrowed<T>(static_cast<Accum<T>>(out[j]) + b[j]);
  });
}

template <class T>
void Elementwise<cpu::Device>::gather_rows(cpu::Device& dev, View<cpu::Device, const T> x,
                                           View<cpu::Device, const std::int32_t> index, View<cpu::Device, T> y) {
  cpu::detail::for_each_piece(dev, y.rows(), y.cols(), [=](Index row, Index begin, Index end) {
    const T* const in = x.row(index.data()[row]);
    std::copy(in + begin, in + end, y.row(row) + begin);
  });
}

template <class T>
void Elementwise<cpu::Device>::scatter_rows(cpu::Device& dev, View<cpu::Device, const T> x,
                                            View<cpu::Device, const std::int32_t> index, View<cpu::Device, T> y) {
  cpu::detail::for_each_piece(dev, x.rows(), x.cols(), [=](Index row, Index begin, Index end) {
    const T* const in = x.row(row);
    std::copy(in + begin, in + end, y.row(index.data()[row]) + begin);
  });
}

template <class T>
void Elementwise<cpu::Device>::dropout(cpu::Device& dev, const DropoutMask<cpu::Device>& mask,
                                       View<cpu::Device, const T> x, View<cpu::Device, T> y, bool accumulate) {
  using A = Accum<T>;
  const Dropout& rule = mask.rule;
  const double threshold = std::ceil(rule.p * 0x1p32);  // word ≥ p · 2³² exactly where word ≥ ⌈p · 2³²⌉
  const bool none = threshold > 4294967295.0;
  const std::uint32_t limit = none ? 0 : static_cast<std::uint32_t>(threshold);
  const A keep = none ? A(0) : static_cast<A>(1 / (1 - rule.p));
  cpu::detail::for_each_piece(dev, x.rows(), x.cols(), [=](Index row, Index begin, Index end) {
    const auto place = mask.sequence_index.data()[row], position = mask.positions.data()[row];
    const auto piece = [&](Index at, Index count, const std::uint32_t* words) {
      const T* const in = x.row(row) + at;
      T* const out = y.row(row) + at;
      if (accumulate) {
        LORA_SIMD
        for (Index j = 0; j < count; ++j)
          out[j] = narrowed<T>(static_cast<A>(out[j]) + cpu::kept_if(words[j] >= limit, keep * static_cast<A>(in[j])));
      } else {
        LORA_SIMD
        for (Index j = 0; j < count; ++j)
          out[j] = narrowed<T>(cpu::kept_if(words[j] >= limit, keep * static_cast<A>(in[j])));
      }
    };
    cpu::detail::with_random_words(place, position, rule.key, begin, end, piece);
  });
}

}  // namespace lora::kernel
