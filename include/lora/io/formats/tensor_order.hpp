#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/formats/tensor_file.hpp"

namespace lora::io {

/// The tensors of a file that is being written: their data come in the order in which they were declared, each in one
/// piece or more.
class TensorOrder {
 public:
  /// `file` names it in errors. Throws   FormatError for a name that is declared twice
  TensorOrder(Path file, std::vector<TensorDeclaration> tensors);

  const std::vector<TensorDeclaration>& tensors() const { return tensors_; }

  /// Notes `size` more bytes of the tensor `name`, which must be the next that is not complete. True if they were its
  /// last.
  bool take(std::string_view name, std::size_t size);

  /// True once all data have been given.
  bool complete() const { return next_ == tensors_.size(); }
  void expect_complete() const;

  /// Begins an error about a tensor.
  std::string where(std::string_view name) const { return concat(file_.native(), ": tensor ", name); }

 private:
  /// Goes to the next tensor that has any bytes.
  void skip_empty();

  Path file_;
  std::vector<TensorDeclaration> tensors_;
  std::size_t next_ = 0;  // the first tensor that is not complete
  std::size_t left_ = 0;  // bytes that it still lacks
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/tensor_order.ipp"
#endif
