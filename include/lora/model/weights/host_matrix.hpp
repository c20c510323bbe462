#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "lora/cpu/runtime/threads.hpp"
#include "lora/cpu/vectors/stored_row.hpp"
#include "lora/model/weights/tensor_provider.hpp"

namespace lora::model {

/// A matrix in memory of the host, and how a device gets it: its rows in order, and as it is stored or decoded.
class HostMatrix {
 public:
  HostMatrix(ProvidedTensor tensor, Index rows, Index cols)
      : tensor_(std::move(tensor)), dtype_(tensor_.dtype), rows_(rows), cols_(cols) {}

  /// Decoded to T: in Accum<T>, and rounded once, as kernel::decode does on a device.
  template <HasDType T>
  static HostMatrix decoded(ProvidedTensor tensor, Index rows, Index cols) {
    HostMatrix matrix(std::move(tensor), rows, cols);
    matrix.dtype_ = dtype_of<T>;
    matrix.decode_ = [](const HostMatrix& m, Index begin, Index end, std::byte* to) {
      cpu::with_row_decoder<T>(m.tensor_.dtype, m.cols_, [&](const auto& decode) {
        for (Index row = begin; row < end; ++row) decode(m.stored_row(row), reinterpret_cast<T*>(to) + row * m.cols_);
      });
    };
    return matrix;
  }

  /// Of Q8_0, each row as its quanta (cols) and then its scales (cols / 32), as devices take it that have operators for
  /// planes alone: as many bytes.
  /// Throws   FormatError for another type
  static HostMatrix split(ProvidedTensor tensor, Index rows, Index cols);

  /// As the device gets it.
  DType dtype() const { return dtype_; }
  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  std::size_t bytes() const { return static_cast<std::size_t>(bytes_of(dtype_, rows_ * cols_)); }
  const ProvidedTensor& tensor() const { return tensor_; }
  /// Whether `tensor()`'s bytes are what the device gets.
  bool is_as_provided() const { return decode_ == nullptr && tensor_.permuted_heads == 0; }

  /// Writes the whole matrix. Shapes   to (bytes), aligned to the dtype
  void write(const cpu::Threads& threads, std::byte* to) const;

 private:
  using Decode = void (*)(const HostMatrix&, Index begin, Index end, std::byte* to);

  void write(Index begin, Index end, std::byte* to) const;

  std::size_t row_bytes() const { return tensor_.bytes.size() / static_cast<std::size_t>(rows_); }

  // Row (head, half, pair) of the result is row (head, pair, half) of a file that permutes.
  const std::byte* stored_row(Index row) const;

  ProvidedTensor tensor_;
  DType dtype_;
  Index rows_, cols_;
  Decode decode_ = nullptr;
};

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/weights/host_matrix.ipp"
#endif
