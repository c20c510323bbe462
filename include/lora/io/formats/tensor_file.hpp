#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lora/core/scalar.hpp"
#include "lora/core/shape.hpp"
#include "lora/io/files/mapped_file.hpp"

namespace lora::io {

/// A tensor as stored in a file: row-major, slowest extent first. `bytes` need not be aligned to the type.
/// It stays valid as long as `file` is held (empty where the bytes were parsed from the caller's own memory).
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> file;
};

/// Whether two tensors have the same type, shape and bytes. Pages of their files that this reads are given back, so
/// that few are resident at once, and none afterward: a forecast of memory counts those that are.
inline bool is_same(const StoredTensor& a, const StoredTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.bytes.size() != b.bytes.size()) return false;
  constexpr std::size_t piece = std::size_t{1} << 20;
  bool same = true;
  for (std::size_t at = 0; same && at < a.bytes.size(); at += piece) {
    const std::size_t size = std::min(piece, a.bytes.size() - at);
    same = std::memcmp(a.bytes.data() + at, b.bytes.data() + at, size) == 0;
    for (const StoredTensor* tensor : {&a, &b})
      if (tensor->file) tensor->file->note_read(size);
  }
  for (const StoredTensor* tensor : {&a, &b})
    if (tensor->file) tensor->file->release();
  return same;
}

namespace detail {

/// Bytes of a tensor whose rows are whole blocks; nothing if they overflow an Index. Extents of 0 count as 1 in that
/// check, so that the product of any of the extents is safe.
inline std::optional<Index> checked_bytes(DType dtype, const Shape& shape) {
  Index product = block_bytes(dtype);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (__builtin_mul_overflow(product, std::max<Index>(shape[axis], 1), &product)) return std::nullopt;
  return bytes_of(dtype, shape.count());
}

}  // namespace detail

/// A tensor that is about to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

}  // namespace lora::io
