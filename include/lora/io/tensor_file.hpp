#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lora/core/scalar.hpp"
#include "lora/core/shape.hpp"
#include "lora/io/mapped_file.hpp"

namespace lora::io {

/// A tensor as it lies in a file: row-major, the slowest extent first. `bytes` need not be aligned to the type.
/// It stays valid as long as `file` is held (empty where the bytes were parsed from the caller's own memory).
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> file;
};

/// A tensor that is about to be written.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

}  // namespace lora::io
