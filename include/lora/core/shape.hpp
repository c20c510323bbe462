#pragma once

#include <array>
#include <initializer_list>
#include <string>

#include "lora/core/scalar.hpp"

namespace lora {

/// Up to four extents, the slowest first: (rows, columns) for a matrix.
class Shape {
 public:
  static constexpr int max_rank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<Index> extents) {
    if (extents.size() > max_rank) fail<ShapeError>("[shape] ", extents.size(), " extents; at most 4 are supported");
    for (const Index extent : extents) extents_[static_cast<std::size_t>(rank_++)] = extent;
  }

  constexpr int rank() const { return rank_; }
  constexpr Index operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }

  /// Adds a faster extent at the end.
  constexpr void push_back(Index extent) {
    if (rank_ == max_rank) fail<ShapeError>("[shape] more than 4 extents");
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }

  /// The product of the extents; 1 for a scalar.
  constexpr Index count() const {
    Index product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
    return product;
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<Index, max_rank> extents_{};
  int rank_ = 0;
};

/// "(4, 8)", as messages print it.
inline std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + ")";
}

}  // namespace lora
