#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "lora/ascend/aligned.hpp"
#include "lora/core/random.hpp"
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

/// The bits of dropout's mask, 1 where an element is kept, the first element's lowest, padded as the operator wants.
inline std::vector<std::uint8_t> dropout_bits(const kernel::Dropout& rule, std::span<const std::int32_t> sequence_index,
                                              std::span<const std::int32_t> positions, Index cols) {
  constexpr std::size_t unit = 128;
  const std::size_t count = positions.size() * static_cast<std::size_t>(cols);
  std::vector<std::uint8_t> bits((count + unit - 1) / unit * unit / 8);
  const double limit = rule.p * 0x1p32;
  std::size_t at = 0;
  for (std::size_t row = 0; row < positions.size(); ++row)
    for (Index column = 0; column < cols; column += 4) {
      const auto words = philox({static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(positions[row]),
                                 static_cast<std::uint32_t>(sequence_index[row]), 0},
                                rule.key);
      const Index left = std::min<Index>(4, cols - column);
      for (Index j = 0; j < left; ++j, ++at)
        bits[at / 8] |= static_cast<std::uint8_t>(
            (static_cast<double>(words[static_cast<std::size_t>(j)]) >= limit ? 1u : 0u) << (at % 8));
    }
  return bits;
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

  template <class T>
  static void dropout(D& dev, const Dropout& rule, View<D, const T> x, View<D, const std::int32_t> sequence_index,
                      View<D, const std::int32_t> positions, View<D, T> y, bool accumulate) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const auto bits = ascend::dropout_bits(rule, ascend::on_host(dev, "dropout", sequence_index),
                                           ascend::on_host(dev, "dropout", positions), x.cols());
    const View<D, std::uint8_t> mask = scratch<std::uint8_t>(dev, 1, static_cast<Index>(bits.size()));
    copy_staged<D, std::uint8_t>(dev, bits, mask);
    const View<D, const T> from = ascend::compact(dev, x);
    const auto run = [&](View<D, T> to) {
      ascend::launch(dev, dev.toolkit().operators.dropout_do_mask, from, ascend::vector(mask), rule.p, to);
    };
    if (!accumulate && y.data() != x.data()) return ascend::write_aligned(dev, y, false, true, run);
    const View<D, T> kept = scratch<T>(dev, x.rows(), x.cols());
    run(kept);
    convert(dev, View<D, const T>(kept), y, 1, accumulate);
  }
};

}  // namespace lora::kernel
