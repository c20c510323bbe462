#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "lora/ascend/kernels/dropout_mask.hpp"
#include "lora/ascend/runtime/aligned.hpp"
#include "lora/kernel/elementwise.hpp"

namespace lora::ascend {

/// y += scale · x, rounded once.
template <class From, class To>
void add(Device& dev, View<Device, const From> x, View<Device, To> y, double scale = 1) {
  if constexpr (!std::same_as<From, float>) {
    // In a narrow type the operator would round scale · x before it adds.
    if (scale != 1) {
      const View<Device, float> wide = scratch<float>(dev, x.rows(), x.cols());
      copy(dev, x, wide);
      return launch(dev, dev.toolkit().operators.inplace_add, y, wide, Scalar{scale});
    }
  }
  launch(dev, dev.toolkit().operators.inplace_add, y, x, Scalar{scale});
}

/// y = scale · x, rounded once. Both begin on 32 bytes; they may be the same.
template <class T>
void scale(Device& dev, View<Device, const T> x, double factor, View<Device, T> y) {
  // A double is what the kernel of bfloat16 takes as it is: for a scalar of float32 the operator casts its operands.
  // That of float16 rounds it to float16.
  const auto& muls = dev.toolkit().operators.muls;
  if constexpr (std::same_as<T, f16>) {
    if (static_cast<double>(static_cast<float>(f16(static_cast<float>(factor)))) != factor) {
      const Arena::Scope scope(dev.arena());
      const View<Device, float> wide = scratch<float>(dev, x.rows(), x.cols());
      copy(dev, x, wide);
      launch(dev, muls, wide, WideScalar{factor}, wide);
      return copy(dev, wide, y);
    }
  }
  launch(dev, muls, x, WideScalar{factor}, y);
}

/// Numbers of rows as the host copied them to the device.
inline std::span<const std::int32_t> on_host(Device& dev, std::string_view kernel,
                                             View<Device, const std::int32_t> numbers) {
  const auto bytes = dev.host_copies().find(numbers.data(), static_cast<std::size_t>(numbers.size()) * 4);
  if (bytes.empty() && numbers.size() > 0)
    fail<DeviceError>("[", kernel, "] the host no longer has the numbers of ", numbers.size(),
                      " rows that the NPU has: it keeps what comes in one copy of at most ",
                      HostCopies::staged_bytes >> 20, " MiB; train with smaller micro-batches, or with lora_dropout 0");
  return {reinterpret_cast<const std::int32_t*>(bytes.data()), static_cast<std::size_t>(numbers.size())};
}

}  // namespace lora::ascend

namespace lora::kernel {

template <>
struct Elementwise<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void fill(D& dev, View<D, T> y, double value) {
    ascend::write_aligned(dev, y, false, false, [&](View<D, T> place) {
      auto& operators = dev.toolkit().operators;
      if (value == 0) return ascend::launch(dev, operators.inplace_zero, place);
      ascend::launch(dev, operators.inplace_fill_scalar, place, ascend::Scalar{value});
    });
  }

  template <class From, class To>
  static void convert(D& dev, View<D, const From> x, View<D, To> y, double scale, bool accumulate) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, const From> from = ascend::aligned(dev, x);
    ascend::write_aligned(dev, y, accumulate, false, [&](View<D, To> place) {
      if (accumulate) return ascend::add<From, To>(dev, from, place, scale);
      if (scale == 1) return ascend::copy(dev, from, place);
      // In the wider type, where scale · x is rounded once.
      if constexpr (std::same_as<From, To>) {
        ascend::scale<To>(dev, from, scale, place);
      } else if constexpr (sizeof(From) <= sizeof(To)) {
        ascend::copy(dev, from, place);
        ascend::scale<To>(dev, place, scale, place);
      } else {
        const View<D, From> wide = scratch<From>(dev, x.rows(), x.cols());
        ascend::scale<From>(dev, from, scale, wide);
        ascend::copy(dev, wide, place);
      }
    });
  }

  template <class T>
  static void add_bias(D& dev, View<D, const Accum<T>> bias, View<D, T> y) {
    ascend::write_aligned(dev, y, true, false, [&](View<D, T> place) { ascend::add<Accum<T>, T>(dev, bias, place); });
  }

  template <class T>
  static void gather_rows(D& dev, View<D, const T> x, View<D, const std::int32_t> index, View<D, T> y) {
    const Arena::Scope scope(dev.arena());
    if (y.size() == 0) return;
    const View<D, const T> from = ascend::aligned(dev, x);
    ascend::write_aligned(dev, y, false, true, [&](View<D, T> place) {
      ascend::launch(dev, dev.toolkit().operators.embedding, from, ascend::vector(index), place);
    });
  }

  template <class T>
  static void scatter_rows(D& dev, View<D, const T> x, View<D, const std::int32_t> index, View<D, T> y) {
    const Arena::Scope scope(dev.arena());
    if (x.size() == 0) return;
    const View<D, const T> from = ascend::aligned(dev, x);
    ascend::write_aligned(dev, y, true, false, [&](View<D, T> place) {
      ascend::launch(dev, dev.toolkit().operators.inplace_index_copy, place, std::int64_t{0}, ascend::vector(index),
                     from);
    });
  }

  /// Ahead, so that backward finds the bits: they are a sixteenth of x's bytes in bfloat16, and drawing them is the
  /// host's work, which would take longer than the NPU's.
  static View<D, const std::uint8_t> draw_dropout(D& dev, const Dropout& rule,
                                                  View<D, const std::int32_t> sequence_index,
                                                  View<D, const std::int32_t> positions, Index cols, bool saved) {
    const Index bytes = ascend::dropout_mask_bytes(positions.size() * cols);
    const View<D, std::uint8_t> bits = saved ? save<std::uint8_t>(dev, 1, bytes) : scratch<std::uint8_t>(dev, 1, bytes);
    if (bytes > 0)
      dev.state<ascend::DropoutMasks>().draw(rule, ascend::on_host(dev, "dropout", sequence_index),
                                             ascend::on_host(dev, "dropout", positions), cols, bits);
    return bits;
  }

  template <class T>
  static constexpr DropoutBytes dropout_bytes() {
    return {1.0 / 8, std::same_as<T, float> ? sizeof(float) : 2 * sizeof(float)};
  }

  template <class T>
  static void dropout(D& dev, const DropoutMask<D>& mask, View<D, const T> x, View<D, T> y, bool accumulate) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, const std::uint8_t> bits =
        mask.drawn.empty() ? draw_dropout(dev, mask.rule, mask.sequence_index, mask.positions, x.cols(), false)
                           : mask.drawn;
    const View<D, const T> from = ascend::compact(dev, x);
    const auto keep = [&]<class E>(View<D, const E> in, double p, View<D, E> out) {
      ascend::launch(dev, dev.toolkit().operators.dropout_do_mask, in, ascend::vector(bits), p, out);
    };
    if constexpr (std::same_as<T, bf16>) {
      if (!accumulate) {
        // The operator divides by 1 − p as rounded to T. It is told 1 / 2, which is exact, and given the rest.
        const double rest = mask.rule.p < 1 ? 0.5 / (1 - mask.rule.p) : 0;
        const View<D, T> scaled = scratch<T>(dev, x.rows(), x.cols());
        ascend::scale<T>(dev, from, rest, scaled);
        return ascend::write_aligned(dev, y, false, true,
                                     [&](View<D, T> place) { keep(View<D, const T>(scaled), 0.5, place); });
      }
    }
    // In float32, where that rounding is too small to matter, and a sum is rounded once.
    const View<D, float> kept = scratch<float>(dev, x.rows(), x.cols());
    if constexpr (std::same_as<T, float>) {
      if (!accumulate && y.data() != x.data())
        return ascend::write_aligned(dev, y, false, true, [&](View<D, T> place) { keep(from, mask.rule.p, place); });
      keep(from, mask.rule.p, kept);
    } else {
      const View<D, float> wide = scratch<float>(dev, x.rows(), x.cols());
      ascend::copy(dev, from, wide);
      keep(View<D, const float>(wide), mask.rule.p, kept);
    }
    convert(dev, View<D, const float>(kept), y, 1, accumulate);
  }
};

}  // namespace lora::kernel
