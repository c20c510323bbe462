#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "lora/kernel/activation.hpp"
#include "lora/kernel/buffers.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

// What the memory of modules depends on, as values: no device, no weights. Beside its Saved, each module says what it
// takes of the arena, in functions called `footprint` (of forward, as its `keep` says), `recompute_footprint` and
// `backward_footprint`, in bytes and exactly. What kernels take themselves while they run comes on top, and has a bound
// (kernel::Buffers).

namespace lora::nn {

/// What is taken of both ends of an arena, in bytes.
struct Footprint {
  Index saved = 0;    ///< left at the low end, for backward
  Index low = 0;      ///< at the low end at the most, with what is left
  Index scratch = 0;  ///< at the high end at the most
};

/// What of a device it depends on.
struct Machine {
  Tiling tiling{};
  Arena::Padding padding{};
  kernel::BufferSettings kernels{};
};

template <AnyDevice D>
Machine machine_of(D& dev) {
  return {dev.tiling(), dev.arena().padding(), kernel::Buffers<D>::settings(dev)};
}

/// A pass over so many rows.
struct PassShape {
  Machine machine{};
  Index rows = 0;       ///< N
  bool random = false;  ///< it has a key for random numbers: dropout drops
  Index labeled = 0;    ///< n: rows with a label
  Index wanted = 0;     ///< rows of a layer's output that anything reads; 0: all

  /// Of what is computed of the wanted rows alone.
  PassShape wanted_part() const {
    PassShape part = *this;
    if (wanted > 0) part.rows = std::exchange(part.wanted, 0);
    return part;
  }

  /// Bytes of a piece (n, cols) of T.
  template <class T>
  Index piece(Index n, Index cols) const {
    return static_cast<Index>(machine.padding(static_cast<std::size_t>(n * cols) * sizeof(T)));
  }
  /// Of a piece (N, cols).
  template <class T>
  Index rows_of(Index cols) const {
    return piece<T>(rows, cols);
  }
};

/// Whether the last layer computes only the labeled rows after attention (Stack). Gathering them costs a little, so at
/// least an eighth of the rows must have no label. With dropout all rows are computed: its masks are drawn for all.
inline bool leaves_rows_out(Index rows, Index labeled, bool drops) {
  return labeled > 0 && 8 * labeled <= 7 * rows && !drops;
}

/// A LoraLinear.
struct LoraLinearShape {
  struct Projection {
    Index out = 0;         ///< O
    bool decodes = false;  ///< products can't read its weight as it lies
    bool bias = false;
    bool trains_weight = false, trains_bias = false;
    Index rank = 0;         ///< R
    bool trains_b = false;  ///< of its factors
  };

  Index in = 0;  ///< I
  std::vector<Projection> projections{};
  bool trains_a = false;
  bool drops = false;  ///< its dropout is not 0

  Index out() const {
    Index sum = 0;
    for (const Projection& p : projections) sum += p.out;
    return sum;
  }
  Index rank() const {
    Index sum = 0;
    for (const Projection& p : projections) sum += p.rank;
    return sum;
  }
  bool decodes() const {
    return std::all_of(projections.begin(), projections.end(), [](const Projection& p) { return p.decodes; });
  }
  bool adapter_trains() const {
    return trains_a ||
           std::any_of(projections.begin(), projections.end(), [](const Projection& p) { return p.trains_b; });
  }
  bool trains() const {
    return adapter_trains() || std::any_of(projections.begin(), projections.end(),
                                           [](const Projection& p) { return p.trains_weight || p.trains_bias; });
  }
};

/// An Attention.
struct SelfAttentionShape {
  Index width = 0;     ///< E
  Index heads = 0;     ///< H
  Index kv_heads = 0;  ///< G
  Index head_dim = 0;  ///< C
  Index window = 0;    ///< keys that a query sees at most; 0: all before it
  bool qk_norm = false;
  bool norms_train = false;  ///< any of its three
  bool norm_trains = false;  ///< the first of them
  bool post_norm = false, post_norm_trains = false;
  LoraLinearShape qkv_proj{}, o_proj{};

  Index q_columns() const { return heads * head_dim; }
  Index qk_columns() const { return (heads + kv_heads) * head_dim; }
  bool trains_before_heads() const { return qkv_proj.trains() || norms_train; }
  bool trains() const { return trains_before_heads() || o_proj.trains() || post_norm_trains; }
};

/// An Mlp.
struct MlpShape {
  Index width = 0;  ///< E
  bool norm_trains = false;
  LoraLinearShape gate_up_proj{}, down_proj{};
  kernel::Gate gate = kernel::Gate::silu;
  bool post_norm = false, post_norm_trains = false;

  bool trains() const { return norm_trains || gate_up_proj.trains() || down_proj.trains() || post_norm_trains; }
};

/// A Block, with its switch of gradient checkpointing.
struct BlockShape {
  SelfAttentionShape attention{};
  MlpShape mlp{};
  bool recomputes = false;

  bool trains() const { return attention.trains() || mlp.trains(); }
  /// Whether dropout acts behind attention.
  bool drops() const { return attention.o_proj.drops || mlp.gate_up_proj.drops || mlp.down_proj.drops; }
};

/// A Stack.
struct StackShape {
  Index width = 0;  ///< E
  std::vector<BlockShape> layers{};

  Index size() const { return static_cast<Index>(layers.size()); }
  /// The lowest layer that trains; size() if none does.
  Index first_trained() const {
    return std::find_if(layers.begin(), layers.end(), [](const BlockShape& layer) { return layer.trains(); }) -
           layers.begin();
  }
};

/// A Head.
struct HeadShape {
  Index vocabulary = 0;  ///< V
  Index width = 0;       ///< E
  bool decodes = false;  ///< products can't read its weight as it lies
  bool trains = false;
  bool caps = false;
};

}  // namespace lora::nn
