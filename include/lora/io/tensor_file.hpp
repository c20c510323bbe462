#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lora/core/scalar.hpp"
#include "lora/core/shape.hpp"
#include "lora/io/mapped_file.hpp"

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

/// Whether two tensors have the same type, shape and bytes.
inline bool is_same(const StoredTensor& a, const StoredTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
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
