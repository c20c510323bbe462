#pragma once

#include "lora/core/config.hpp"
#include "lora/model/weights/host_matrix.hpp"

namespace lora::model {

LORA_INLINE HostMatrix HostMatrix::split(ProvidedTensor tensor, Index rows, Index cols) {
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

LORA_INLINE void HostMatrix::write(const cpu::Threads& threads, std::byte* to) const {
  threads.parallel_for(rows_, cpu::rows_per_task(cols_), [&](Index begin, Index end) { write(begin, end, to); });
}

LORA_INLINE void HostMatrix::write(Index begin, Index end, std::byte* to) const {
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

LORA_INLINE const std::byte* HostMatrix::stored_row(Index row) const {
  if (tensor_.permuted_heads > 0) row = permuted_row(row, rows_, tensor_.permuted_heads);
  return tensor_.bytes.data() + static_cast<std::size_t>(row) * row_bytes();
}

}  // namespace lora::model
