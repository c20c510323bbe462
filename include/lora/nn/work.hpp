#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/nn/footprint.hpp"

// What the modules ask of a device: FLOPs and bytes, from shapes alone. FLOPs are those that a profile counts; bytes
// are each operand of a kernel once, as there, but for what is small: biases, rows of one number, tables.

namespace lora::nn {

/// Sums over kernels.
struct Work {
  double products = 0;   ///< FLOPs of matrix products
  double attention = 0;  ///< FLOPs of attention
  double moved = 0;      ///< bytes of all other kernels
  double thin = 0;       ///< bytes of the rows that products with an adapter's factors read and write
  double decoded = 0;    ///< numbers of weights that are decoded before products read them

  double flops() const { return products + attention; }
  Work& operator+=(const Work& other) {
    products += other.products;
    attention += other.attention;
    moved += other.moved;
    thin += other.thin;
    decoded += other.decoded;
    return *this;
  }
  friend Work operator+(Work a, const Work& b) { return a += b; }
  friend Work operator*(double factor, Work work) {
    return {factor * work.products, factor * work.attention, factor * work.moved, factor * work.thin,
            factor * work.decoded};
  }
};

/// The rows of a pass, the types that it computes in, and how its device divides the work.
struct WorkPass {
  Index rows = 0;                      ///< N
  Index labeled = 0;                   ///< n
  Index wanted = 0;                    ///< rows of a layer's output that anything reads; 0: all
  double pairs = 0;                    ///< of a query and a key that it sees: Σ S (S + 1) / 2 of sequences of S tokens
  std::map<Index, double> windowed{};  ///< the same by the window of a layer
  double element = 4;                  ///< bytes of T
  double sum = 4;                      ///< bytes of Accum<T>
  Tiling tiling;
  bool whole_rows = false;  ///< the loss takes whole rows of logits, and keeps them for its gradient

  double pairs_in(Index window) const {
    const auto found = windowed.find(window);
    return found == windowed.end() ? pairs : found->second;
  }
  bool narrow() const { return element < sum; }
  /// Of what is computed of the wanted rows alone.
  WorkPass wanted_part() const {
    WorkPass part = *this;
    if (wanted > 0) part.rows = std::exchange(part.wanted, 0);
    return part;
  }
  /// Of so many columns of T.
  double bytes(double columns) const { return static_cast<double>(rows) * columns * element; }
  double bytes(Index columns) const { return bytes(static_cast<double>(columns)); }
  /// FLOPs of a product N × a × b.
  double product(double ab) const { return 2 * static_cast<double>(rows) * ab; }
};

Work forward_work(const WorkPass& pass, const LoraLinearShape& shape);
/// Of both halves of backward, or of the second where dx is not needed.
Work backward_work(const WorkPass& pass, const LoraLinearShape& shape, bool with_dx);

Work forward_work(const WorkPass& pass, const BlockShape& shape);
/// With what gradient checkpointing computes again.
Work backward_work(const WorkPass& pass, const BlockShape& shape, bool with_dx);

/// Of forward and backward. `wants_dx`: what the stack's input is computed from trains.
Work training_work(const WorkPass& pass, const StackShape& shape, bool wants_dx);

/// Of the final norm, the head and the loss, with gradients.
Work training_work(const WorkPass& pass, const HeadShape& shape);

/// Of the norm of the gradients and an AdamW step over so many numbers that train.
Work update_work(double numbers, double element, double sum);

}  // namespace lora::nn

#ifndef LORA_COMPILED
#  include "lora/nn/work.ipp"
#endif
