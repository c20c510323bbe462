#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "lora/nn/attention.hpp"
#include "lora/nn/mlp.hpp"

namespace lora::nn {

/// One layer:   h = attention(x),   y = mlp(h)
template <AnyDevice D, class T>
class Block {
 public:
  struct Saved {
    View<D, T> h;  // (N, E), or of the rows whose output is wanted
    typename Attention<D, T>::Saved attention;
    typename Mlp<D, T>::Saved mlp;
  };

  static Footprint footprint(const PassShape& pass, const BlockShape& shape, Keep keep) {
    const Footprint attention = Attention<D, T>::footprint(pass, shape.attention, keep),
                    mlp = Mlp<D, T>::footprint(pass.wanted_part(), shape.mlp, keep);
    const Index h = pass.wanted_part().rows_of<T>(shape.mlp.width), saved_h = keep == Keep::all ? h : 0;
    return {saved_h + attention.saved + mlp.saved, saved_h + attention.saved + mlp.low,
            h - saved_h + std::max(attention.scratch, chosen_bytes(pass, shape) + mlp.scratch)};
  }
  static Footprint recompute_footprint(const PassShape& pass, const BlockShape& shape) {
    const Footprint attention = Attention<D, T>::recompute_footprint(pass, shape.attention),
                    mlp = Mlp<D, T>::recompute_footprint(pass.wanted_part(), shape.mlp);
    const Index saved = pass.wanted_part().rows_of<T>(shape.mlp.width) + attention.saved + mlp.saved;
    return {saved, saved, std::max(attention.scratch, mlp.scratch)};
  }
  /// Scratch, where dx is wanted or not.
  static Index backward_footprint(const PassShape& pass, const BlockShape& shape, bool with_dx) {
    const bool further = with_dx || shape.attention.trains();
    const Index mlp = Mlp<D, T>::backward_footprint(pass.wanted_part(), shape.mlp, further);
    Index dh = chosen_bytes(pass, shape);
    if (dh == 0 && further && !with_dx) dh = pass.rows_of<T>(shape.mlp.width);
    return dh + (further ? std::max(mlp, Attention<D, T>::backward_footprint(pass, shape.attention, with_dx)) : mlp);
  }

  Block(Attention<D, T> attention, Mlp<D, T> mlp) : attention_(std::move(attention)), mlp_(std::move(mlp)) {}

  bool trains() const { return attention_.trains() || mlp_.trains(); }
  Attention<D, T>& attention() { return attention_; }
  Mlp<D, T>& mlp() { return mlp_; }
  /// The modules of projections, in the order of the work.
  std::array<LoraLinear<D, T>*, 4> groups() {
    return {&attention_.qkv_proj(), &attention_.o_proj(), &mlp_.gate_up_proj(), &mlp_.down_proj()};
  }

  /// Whether dropout acts behind attention, by random numbers that belong to all rows.
  bool drops() const { return attention_.drops_output() || mlp_.drops(); }

  /// y may be x, unless backward reads it. `rows` (n): those whose output is wanted, so that behind attention no others
  /// are computed, and the others of y stay as they are; empty: all.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep,
               View<D, const std::int32_t> rows = {}) const {
    const Arena::Scope scope(dev.arena());
    saved.h = save_or_scratch<T>(dev, keep == Keep::all, rows.empty() ? x.rows() : rows.size(), x.cols());
    attention_.forward(dev, pass, x, saved.h, saved.attention, keep, rows);
    if (rows.empty()) return mlp_.forward(dev, pass, saved.h, y, saved.mlp, keep);
    const View<D, T> chosen = scratch<T>(dev, rows.size(), x.cols());
    mlp_.forward(dev, pass, saved.h, chosen, saved.mlp, keep);
    kernel::scatter_rows(dev, View<D, const T>(chosen), rows, y);
  }

  /// Fills in what forward did not save under Keep::attention.
  void recompute(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved,
                 View<D, const std::int32_t> rows = {}) const {
    saved.h = save<T>(dev, rows.empty() ? x.rows() : rows.size(), x.cols());
    attention_.recompute(dev, pass, x, saved.h, saved.attention, rows);
    mlp_.recompute(dev, pass, saved.h, saved.mlp);
  }

  /// dx may be dy. `rows`: forward's; no others of dy are read.
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved, View<D, const T> dy, View<D, T> dx,
                View<D, const std::int32_t> rows = {}) {
    const Arena::Scope scope(dev.arena());
    const bool further = !dx.empty() || attention_.trains();
    View<D, T> dh = dx;
    if (!rows.empty()) {
      const View<D, T> chosen = scratch<T>(dev, rows.size(), x.cols());
      kernel::gather_rows(dev, dy, rows, chosen);
      dy = chosen;
      if (further) dh = chosen;
    } else if (further && dx.empty()) {
      dh = scratch<T>(dev, x.rows(), x.cols());
    }
    mlp_.backward(dev, pass, saved.h, saved.mlp, dy, dh);
    if (further) attention_.backward(dev, pass, x, saved.attention, dh, dx, rows);
  }

 private:
  // Of the chosen rows of the output, or of its gradient.
  static Index chosen_bytes(const PassShape& pass, const BlockShape& shape) {
    return pass.wanted > 0 ? pass.wanted_part().rows_of<T>(shape.mlp.width) : 0;
  }

  Attention<D, T> attention_;
  Mlp<D, T> mlp_;
};

}  // namespace lora::nn
