#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>

#include "lora/ascend/aligned.hpp"
#include "lora/ascend/dropout_mask.hpp"
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

/// Numbers of rows as the host copied them to the device.
inline std::span<const std::int32_t> on_host(Device& dev, std::string_view kernel,
                                             View<Device, const std::int32_t> numbers) {
  const auto bytes = dev.host_copies().find(numbers.data(), static_cast<std::size_t>(numbers.size()) * 4);
  if (bytes.empty() && numbers.size() > 0)
    fail<DeviceError>("[", kernel, "] numbers of ", numbers.size(), " rows must come from the host in one copy");
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
      auto& muls = dev.toolkit().operators.muls;
      if constexpr (sizeof(From) <= sizeof(To)) {
        // In the wider type, where scale · x is rounded once.
        if constexpr (!std::same_as<From, To>) {
          ascend::copy(dev, from, place);
          return ascend::launch(dev, muls, place, ascend::Scalar{scale}, place);
        }
      } else {
        const View<D, From> wide = scratch<From>(dev, x.rows(), x.cols());
        ascend::launch(dev, muls, from, ascend::Scalar{scale}, wide);
        return ascend::copy(dev, wide, place);
      }
      ascend::launch(dev, muls, from, ascend::Scalar{scale}, place);
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
    const auto run = [&]<class E>(View<D, const E> in, View<D, E> out) {
      ascend::launch(dev, dev.toolkit().operators.dropout_do_mask, in, ascend::vector(bits), mask.rule.p, out);
    };
    if (accumulate) {
      // In float32, so that the sum is rounded once.
      const View<D, float> kept = scratch<float>(dev, x.rows(), x.cols());
      if constexpr (std::same_as<T, float>) {
        run(from, kept);
      } else {
        const View<D, float> wide = scratch<float>(dev, x.rows(), x.cols());
        ascend::copy(dev, from, wide);
        run(View<D, const float>(wide), kept);
      }
      return convert(dev, View<D, const float>(kept), y, 1, true);
    }
    if (y.data() != x.data())
      return ascend::write_aligned(dev, y, false, true, [&](View<D, T> place) { run(from, place); });
    const View<D, T> kept = scratch<T>(dev, x.rows(), x.cols());
    run(from, kept);
    convert(dev, View<D, const T>(kept), y, 1, false);
  }
};

}  // namespace lora::kernel
