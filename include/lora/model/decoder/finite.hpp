#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "lora/io/files/path.hpp"
#include "lora/kernel/quantize.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/weights/weights.hpp"

namespace lora::model {

/// The most extreme number in a model's weights: a NaN, else an infinity, else the largest.
struct ExtremeNumber {
  double value = 0;
  std::string tensor{}, file{};

  bool finite() const { return std::isfinite(value); }
  void see(double number, const std::string& name, const io::Path& where) {
    if (std::isnan(value) || (!std::isnan(number) && !(std::abs(number) > std::abs(value)))) return;
    value = number;
    tensor = name;
    file = where.native();
  }
};

namespace detail {

/// Calls take(double) for all values of a tensor.
template <AnyDevice D, class Take>
void for_each_value(D& dev, const io::StoredTensor& tensor, Take&& take) {
  if (block_elements(tensor.dtype) == 1) {
    for (Index i = 0; i < tensor.shape.count(); ++i) take(element_of(tensor, static_cast<std::size_t>(i), tensor.name));
    return;
  }
  const Index cols = tensor.shape[tensor.shape.rank() - 1], rows = tensor.shape.count() / std::max<Index>(cols, 1);
  const auto row_bytes = tensor.bytes.size() / static_cast<std::size_t>(std::max<Index>(rows, 1));
  for (Index row = 0; row < rows; ++row) {
    const Arena::Scope scope(dev.arena());
    const View<D, float> wide = scratch<float>(dev, 1, cols);
    const std::byte* data = tensor.bytes.data() + static_cast<std::size_t>(row) * row_bytes;
    kernel::decode(dev, StoredView<D>(data, tensor.dtype, 1, cols), wide);
    for (const float value : to_host(dev, wide)) take(static_cast<double>(value));
  }
}

}  // namespace detail

/// Reads all weights of a model and its adapter (null: none) to find the cause of results that are not finite.
template <AnyDevice D>
ExtremeNumber extreme_number(D& dev, const Source& source, const AdapterFiles* adapter) {
  ExtremeNumber extreme;
  const auto read = [&](const io::StoredTensor& tensor, const io::Path& where) {
    if (tensor.dtype == DType::i64 || tensor.dtype == DType::i32 || tensor.dtype == DType::i16 ||
        tensor.dtype == DType::i8 || tensor.dtype == DType::u8)
      return;
    detail::for_each_value(dev, tensor, [&](double value) { extreme.see(value, tensor.name, where); });
  };
  for (const auto& tensor : source.tensors()) {
    read(tensor, tensor.file ? tensor.file->path() : source.path());
    if (!extreme.finite()) return extreme;
  }
  if (adapter != nullptr)
    for (const auto& tensor : adapter->tensors.tensors()) read(tensor, adapter->folder / "adapter_model.safetensors");
  return extreme;
}

namespace detail {

/// Whether any of the numbers is NaN or infinite: all bits of its exponent are set, which `exponent` masks.
template <class Bits>
bool any_non_finite(std::span<const std::byte> bytes, Bits exponent) {
  bool any = false;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    any |= (bits & exponent) == exponent;
  }
  return any;
}

/// Whether a tensor may hold a number that is not finite in float32.
inline bool may_be_spoiled(const io::StoredTensor& tensor) {
  if (tensor.dtype == DType::f32) return any_non_finite<std::uint32_t>(tensor.bytes, 0x7F800000u);
  if (tensor.dtype == DType::bf16) return any_non_finite<std::uint16_t>(tensor.bytes, 0x7F80u);
  if (tensor.dtype == DType::f16) return any_non_finite<std::uint16_t>(tensor.bytes, 0x7C00u);
  return true;
}

}  // namespace detail

/// Reads the tensors of a model that training goes on from. Nothing of an initial one.
/// Throws   NonFiniteError naming the first tensor that holds NaN or infinity
template <AnyDevice D>
void expect_finite(D& dev, const Source& source) {
  if (source.is_initial()) return;
  for (const TensorInfo& info : tensors_of(source.config())) {
    const io::StoredTensor& tensor = source.at(info);
    if (!detail::may_be_spoiled(tensor)) continue;
    ExtremeNumber extreme;
    detail::for_each_value(dev, tensor, [&](double value) {
      extreme.see(static_cast<double>(static_cast<float>(value)), tensor.name,
                  tensor.file ? tensor.file->path() : source.path());
    });
    if (!extreme.finite())
      fail<NonFiniteError>("the tensor ", extreme.tensor, " of ", extreme.file, " holds ", extreme.value,
                           "; a model to train holds finite numbers");
  }
}

/// "the tensor T of F holds nan", or, if all are finite, the largest number.
inline std::string describe(const ExtremeNumber& extreme) {
  if (!extreme.finite()) return concat("the tensor ", extreme.tensor, " of ", extreme.file, " holds ", extreme.value);
  return concat("no weight is NaN or infinite, but the largest is ", extreme.value, ", in the tensor ", extreme.tensor,
                " of ", extreme.file);
}

}  // namespace lora::model
