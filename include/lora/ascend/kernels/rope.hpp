#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/kernel/rope.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::ascend {

/// The rows of cos and sin that a pass's positions have, in the widths and types of its heads. They are the same for
/// all layers of the pass, so that they are prepared once: which pass it is shows in the copies that brought table and
/// positions to the device.
class RotaryRows {
 public:
  explicit RotaryRows(Device& dev) : dev_(dev) {}

  template <class T>
  struct Rows {
    View<Device, const T> cos, sin, minus_sin;  // (N, C)
  };

  template <class T>
  Rows<T> of(View<Device, const float> cos, View<Device, const float> sin, View<Device, const std::int32_t> positions) {
    const auto number = [&](const auto& view) {
      return dev_.host_copies().number_of(view.data(), static_cast<std::size_t>(view.size()) * 4);
    };
    const Key key{number(cos),      number(sin), number(positions), positions.data(),
                  positions.size(), cos.cols(),  acl_type<T>};
    const Index n = positions.size(), width = 2 * cos.cols();
    const Index part = (n * width + 31) / 32 * 32;
    const bool known = key == key_ && number(cos) != 0 && number(sin) != 0 && number(positions) != 0;
    if (!known) {
      if (const Index bytes = 3 * part * static_cast<Index>(sizeof(T)); bytes > memory_.size())
        memory_ = Tensor<Device, std::byte>(dev_, bytes);
      key_ = {};
    }
    T* const begin = reinterpret_cast<T*>(memory_.view().data());
    const View<Device, T> c(begin, n, width), s(begin + part, n, width), m(begin + 2 * part, n, width);
    if (!known) {
      prepare(cos, positions, c, 1);
      prepare(sin, positions, s, 1);
      prepare(sin, positions, m, -1);
      key_ = key;
    }
    return {c, s, m};
  }

 private:
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, const std::int32_t*, Index, Index, aclDataType>;

  /// Both halves of a row are factor · the table's row.
  template <class T>
  void prepare(View<Device, const float> table, View<Device, const std::int32_t> positions, View<Device, T> rows,
               double factor) {
    const Arena::Scope scope(dev_.arena());
    const View<Device, float> gathered = scratch<float>(dev_, rows.rows(), table.cols());
    kernel::Elementwise<Device>::gather_rows(dev_, table, positions, gathered);
    for (const Index half : {Index{0}, table.cols()})
      kernel::Elementwise<Device>::convert(dev_, View<Device, const float>(gathered),
                                           rows.col_slice(half, table.cols()), factor, false);
  }

  Device& dev_;
  Key key_{};
  Tensor<Device, std::byte> memory_;
};

}  // namespace lora::ascend

namespace lora::kernel {

/// In T throughout, so that cos and sin are rounded to it, as transformers rounds them.
template <>
struct Rope<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void run(D& dev, View<D, const T> x, View<D, const Accum<T>> cos, View<D, const Accum<T>> sin,
                  View<D, const std::int32_t> positions, Rotation rotation, View<D, T> y) {
    if (x.size() == 0) return;
    const auto rows = dev.state<ascend::RotaryRows>().of<T>(cos, sin, positions);
    const View<D, const T> turn = rotation == Rotation::forward ? rows.sin : rows.minus_sin;
    const Arena::Scope scope(dev.arena());
    const View<D, const T> from = ascend::aligned(dev, x);
    // The operator's result has no gaps, and is not written over its input.
    const bool direct = y.contiguous() && y.data() != x.data() && ascend::misalignment(y) == 0;
    const View<D, T> out = direct ? y : scratch<T>(dev, x.rows(), x.cols());
    const Index width = 2 * cos.cols(), count = x.cols() / width;
    auto& operators = dev.toolkit().operators;
    if (operators.rotary_position_embedding.there()) {
      constexpr std::int64_t half_split = 0;
      ascend::launch(dev, operators.rotary_position_embedding, tokens(from, count), tokens(rows.cos, 1),
                     tokens(turn, 1), half_split, tokens(out, count));
    } else {
      rotate_halves(dev, from, rows.cos, turn, out);
    }
    if (!direct) Elementwise<D>::convert(dev, View<D, const T>(out), y, 1, false);
  }

 private:
  /// (N, K·C) as (1, N, K, C): batch, sequence, heads, width.
  template <class V>
  static ascend::Operand tokens(V view, Index count) {
    const Index width = view.cols() / count;
    return ascend::Operand(view.data(), ascend::acl_type<std::remove_const_t<typename V::Element>>,
                           {1, view.rows(), count, width}, {view.rows() * view.stride(), view.stride(), width, 1});
  }
  /// The first half of a row of cos or sin, which is its second as well, for all heads.
  static ascend::Operand shared(View<D, const float> rows) {
    return ascend::Operand(rows.data(), ascend::ACL_FLOAT, {rows.rows(), 1, rows.cols() / 2}, {rows.stride(), 0, 1});
  }

  /// The formula, in operators that every version has and in float32: y₁ = x₁ ∘ cos − x₂ ∘ sin, y₂ = x₂ ∘ cos + x₁ ∘
  /// sin.
  template <class T>
  static void rotate_halves(D& dev, View<D, const T> x, View<D, const T> cos, View<D, const T> sin, View<D, T> y) {
    const Index n = x.rows(), width = cos.cols(), count = x.cols() / width, half = width / 2;
    const auto wide = [&](View<D, const T> view) {
      const View<D, float> copied = scratch<float>(dev, view.rows(), view.cols());
      ascend::copy(dev, view, copied);
      return View<D, const float>(copied);
    };
    const View<D, const float> from = wide(x), c = wide(cos), s = wide(sin);
    auto& operators = dev.toolkit().operators;
    View<D, float> in[2], out[2];
    for (const int i : {0, 1}) {
      in[i] = scratch<float>(dev, n, x.cols() / 2);
      out[i] = scratch<float>(dev, n, x.cols() / 2);
      ascend::launch(dev, operators.slice, ascend::heads(from, count), std::int64_t{2}, i * half, (i + 1) * half,
                     std::int64_t{1}, ascend::heads(in[i], count));
    }
    for (const int i : {0, 1}) {
      ascend::launch(dev, operators.mul, ascend::heads(in[i], count), shared(c), ascend::heads(out[i], count));
      ascend::launch(dev, operators.inplace_addcmul, ascend::heads(out[i], count), ascend::heads(in[1 - i], count),
                     shared(s), ascend::Scalar{i == 0 ? -1.0 : 1.0});
    }
    const View<D, float> joined = scratch<float>(dev, n, x.cols());
    ascend::launch(dev, operators.cat,
                   std::vector<ascend::Operand>{ascend::heads(out[0], count), ascend::heads(out[1], count)},
                   std::int64_t{2}, ascend::heads(joined, count));
    ascend::copy(dev, joined, y);
  }
};

}  // namespace lora::kernel
