#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "lora/cpu/stored_row.hpp"
#include "lora/cpu/threads.hpp"
#include "lora/model/tensor_provider.hpp"

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
  static HostMatrix split(ProvidedTensor tensor, Index rows, Index cols) {
    HostMatrix matrix(std::move(tensor), rows, cols);
    if (matrix.dtype_ != DType::q8_0)
      fail<FormatError>("[host_matrix] a matrix of ", name_of(matrix.dtype_), " has no planes; Q8_0 was expected");
    matrix.decode_ = [](const HostMatrix& m, Index begin, Index end, std::byte* to) {
      constexpr std::size_t quanta = 32, scale = sizeof(f16);
      const auto count = static_cast<std::size_t>(m.cols_) / quanta;
      for (Index row = begin; row < end; ++row) {
        const std::byte* block = m.stored_row(row);
        std::byte* const own = to + static_cast<std::size_t>(row) * m.row_bytes();
        for (std::size_t i = 0; i < count; ++i, block += scale + quanta) {
          std::memcpy(own + count * quanta + i * scale, block, scale);
          std::memcpy(own + i * quanta, block + scale, quanta);
        }
      }
    };
    return matrix;
  }

  /// As the device gets it.
  DType dtype() const { return dtype_; }
  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  std::size_t bytes() const { return static_cast<std::size_t>(bytes_of(dtype_, rows_ * cols_)); }
  const ProvidedTensor& tensor() const { return tensor_; }
  /// Whether `tensor()`'s bytes are what the device gets.
  bool is_as_provided() const { return decode_ == nullptr && tensor_.permuted_heads == 0; }

  /// Writes the whole matrix. Shapes   to (bytes), aligned to the dtype
  void write(const cpu::Threads& threads, std::byte* to) const {
    threads.parallel_for(rows_, 8192 / (cols_ + 1) + 1, [&](Index begin, Index end) { write(begin, end, to); });
  }

 private:
  using Decode = void (*)(const HostMatrix&, Index begin, Index end, std::byte* to);

  void write(Index begin, Index end, std::byte* to) const {
    if (decode_ != nullptr) return decode_(*this, begin, end, to);
    const std::size_t size = row_bytes();
    if (tensor_.permuted_heads == 0) {
      std::memcpy(to + static_cast<std::size_t>(begin) * size, stored_row(begin),
                  static_cast<std::size_t>(end - begin) * size);
      return;
    }
    for (Index row = begin; row < end; ++row)
      std::memcpy(to + static_cast<std::size_t>(row) * size, stored_row(row), size);
  }

  std::size_t row_bytes() const { return tensor_.bytes.size() / static_cast<std::size_t>(rows_); }

  // Row (head, half, pair) of the result is row (head, pair, half) of a file that permutes.
  const std::byte* stored_row(Index row) const {
    if (const Index heads = tensor_.permuted_heads; heads > 0) {
      const Index width = rows_ / heads;
      const Index head = row / width, half = row % width / (width / 2), pair = row % (width / 2);
      row = head * width + 2 * pair + half;
    }
    return tensor_.bytes.data() + static_cast<std::size_t>(row) * row_bytes();
  }

  ProvidedTensor tensor_;
  DType dtype_;
  Index rows_, cols_;
  Decode decode_ = nullptr;
};

}  // namespace lora::model
