#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "lora/kernel/reduce.hpp"
#include "lora/kernel/row_product.hpp"
#include "lora/nn/footprint.hpp"
#include "lora/nn/low_rank_update.hpp"
#include "lora/nn/own_tensor.hpp"
#include "lora/nn/tiles.hpp"

namespace lora::nn {

/// A projection of the model: y = x Wᵀ + b.
template <AnyDevice D, class T>
struct Linear {
  OwnMatrix<D, T> weight;  // (O, I)
  OwnVector<D, T> bias{};  // (O), or empty

  Index in_features() const { return weight.cols(); }
  Index out_features() const { return weight.rows(); }
};

/// One or more projections of the same x, and what an adapter adds to them. They are frozen unless they are parameters.
///   y_j = x W_jᵀ + b_j + h_j B_jᵀ,   dx = Σ_j dy_j W_j + drop'(dh A),   dW_j += dy_jᵀ x,   db_j += Σ_i dy_ij
/// Shapes   x, dx (N, I) · y, dy (N, ΣO), the projections' columns in order · h, dh (N, ΣR)
/// Types    W may be stored as any dtype; sums in Accum<T>, rounded to T once
/// Differs  on an NPU, which rounds to T after each part of a sum (kernel::sum_of_products): bias, products, what they
///          are added to
template <AnyDevice D, class T>
class LinearGroup {
 public:
  struct Projection {
    std::string name;  ///< "q_proj"
    Linear<D, T> linear;
    Index first_column = 0;  // of y
  };

  LinearGroup() = default;
  explicit LinearGroup(std::vector<std::pair<std::string, Linear<D, T>>> projections) {
    in_features_ = projections.front().second.in_features();
    for (auto& [name, linear] : projections) {
      const Index in = linear.in_features(), out = linear.out_features();
      if (in != in_features_)
        fail<ShapeError>("[lora_linear] ", name, " has ", in, " input columns but its neighbor has ", in_features_);
      projections_.push_back({std::move(name), std::move(linear), out_features_});
      out_features_ += out;
    }
  }

  Index in_features() const { return in_features_; }
  Index out_features() const { return out_features_; }
  const std::vector<Projection>& projections() const { return projections_; }
  Linear<D, T>& linear(std::size_t j) { return projections_[j].linear; }
  bool trains() const {
    for (const auto& p : projections_)
      if (p.linear.weight.trains() || p.linear.bias.trains()) return true;
    return false;
  }

  /// Scratch of a product with the weights, in which an update joins them or does not: what is decoded.
  static Index footprint(const PassShape& pass, const LoraLinearShape& shape, UpdatePlace place) {
    Index decoded = 0, factor = 0;
    for (const auto& p : shape.projections) {
      if (p.decodes) decoded += pass.piece<T>(p.out, shape.in);
      if (place == UpdatePlace::weight && p.rank > 0) factor = std::max(factor, pass.piece<T>(p.rank, p.out));
    }
    const bool stacked = (pass.machine.tiling.joins_projections || !narrow) && shape.decodes();
    return stacked ? pass.piece<T>(shape.out(), shape.in) + factor : decoded;
  }
  /// Scratch of `backward_input`, with a mask of dropout or without.
  static Index backward_footprint(const PassShape& pass, const LoraLinearShape& shape, UpdatePlace place, bool masked) {
    const Index weights = footprint(pass, shape, place);
    if (narrow && !masked) return weights;
    const Index rows = narrow ? largest_row_tile(pass.rows, pass.machine.tiling.rows) : pass.rows;
    const Index sum = pass.piece<Accum<T>>(rows, shape.in);
    const auto dropped =
        static_cast<double>(rows * shape.in) * kernel::Elementwise<D>::template dropout_bytes<Accum<T>>().scratch;
    return weights + (narrow ? sum : 0) + (masked ? sum + static_cast<Index>(dropped) : 0);
  }

  /// Whether an update should join the weights for a product of n rows. It may only where they must be decoded anyway
  /// and T is as wide as its sums: rounding W + s B A to bfloat16 would lose the update.
  bool folds_update(const Tiling& tiling, Index n) const {
    if (narrow || !decodes()) return false;
    for (const auto& p : projections_)
      if (!tiling.folds_update(n, in_features_, p.linear.out_features())) return false;
    return true;
  }
  static bool folds_update(const PassShape& pass, const LoraLinearShape& shape) {
    if (narrow || !shape.decodes()) return false;
    for (const auto& p : shape.projections)
      if (!pass.machine.tiling.folds_update(pass.rows, shape.in, p.out)) return false;
    return true;
  }

  /// Writes   y overwritten, or added to if `accumulate`. h is read where the update joins the output.
  void forward(D& dev, View<D, const T> x, const LowRankUpdate<D, T>& update, View<D, const T> h, View<D, T> y,
               bool accumulate) const {
    const Arena::Scope scope(dev.arena());
    const Weights weights = weights_for(dev, update);
    for (const Block& block : weights.blocks) {
      const View<D, T> columns = columns_of(y, block);
      if (is_one_product(block, update)) {
        kernel::gemm(dev, kernel::Form::nt, x, block.w, columns, 1.0, accumulate);
      } else if (narrow && block.last - block.first > 1) {
        begin_joined(dev, block, update, h, columns, accumulate);
        kernel::gemm(dev, kernel::Form::nt, x, block.w, columns, 1.0, true);
      } else if constexpr (narrow) {
        // One kernel sums all products: if each partial sum were rounded, an update below half a unit in y's last place
        // would vanish.
        std::vector<kernel::ProductTerm<D, T>> terms{{kernel::Form::nt, x, block.w}};
        if (update.adds_to_output(block.first)) terms.push_back(update.output_term(block.first, h));
        const auto& bias = projections_[block.first].linear.bias;
        kernel::sum_of_products<D, T>(dev, terms, bias.view(), columns, accumulate);
      } else {
        for_row_tiles(x.rows(), dev.tiling().rows, [&](Index begin, Index count) {
          const View<D, T> tile = columns.row_slice(begin, count);
          kernel::gemm(dev, kernel::Form::nt, x.row_slice(begin, count), block.w, tile, 1.0, accumulate);
          add_updates_and_biases(dev, block, update, h.empty() ? h : h.row_slice(begin, count), tile);
        });
      }
    }
  }

  /// The same of a decoding step, on a device that has products of few rows. The update joins the output; its first
  /// factor is one of the weights that x is multiplied by.
  void forward_rows(D& dev, View<D, const T> x, const LowRankUpdate<D, T>& update, View<D, T> y, bool accumulate) const
    requires kernel::HasRowProduct<D, T>
  {
    const Arena::Scope scope(dev.arena());
    const View<D, Accum<T>> sum = sum_for(dev, y);
    if constexpr (narrow)
      if (accumulate) kernel::convert(dev, y, sum);
    std::vector<typename OwnMatrix<D, T>::Use> uses;  // held while products read
    std::vector<kernel::RowProductTerm<D, Accum<T>>> terms;
    for (const auto& p : projections_) {
      uses.push_back(p.linear.weight.use(dev));
      terms.push_back({uses.back().stored(), sum.col_slice(p.first_column, p.linear.out_features())});
    }
    View<D, Accum<T>> h;
    if (update.adds_to_output()) {
      h = scratch<Accum<T>>(dev, x.rows(), update.a.rows());
      if (accumulate) kernel::fill<D, Accum<T>>(dev, h, 0);
      terms.push_back({StoredView<D>(update.a.data(), dtype_of<T>, update.a.rows(), update.a.cols()), h});
    }
    kernel::row_products<D, T>(dev, x, terms, accumulate);
    if (!h.empty()) kernel::row_updates<D, Accum<T>>(dev, update.row_terms(h, terms));
    for (std::size_t j = 0; j < projections_.size(); ++j)
      if (const auto& bias = projections_[j].linear.bias; !bias.empty())
        kernel::add_bias<D, Accum<T>>(dev, bias.view(), terms[j].y);
    if constexpr (narrow) kernel::convert(dev, sum, y);
  }

  /// Writes   dx overwritten. dh is read where the update joins the output.
  void backward_input(D& dev, View<D, const T> dy, const LowRankUpdate<D, T>& update, View<D, const T> dh,
                      View<D, T> dx) const {
    const Arena::Scope scope(dev.arena());
    const Weights weights = weights_for(dev, update);
    if (narrow && !update.mask) {
      std::vector<kernel::ProductTerm<D, T>> terms;
      for (const Block& block : weights.blocks) terms.push_back({kernel::Form::nn, columns_of(dy, block), block.w});
      if (update.adds_to_output()) terms.push_back({kernel::Form::nn, dh, update.a});
      return kernel::sum_of_products<D, T>(dev, terms, {}, dx);
    }
    for_row_tiles(dy.rows(), narrow ? dev.tiling().rows : dy.rows(), [&](Index begin, Index count) {
      const Arena::Scope inner(dev.arena());
      const View<D, Accum<T>> sum = sum_for(dev, dx.row_slice(begin, count));
      for (const Block& block : weights.blocks)
        kernel::gemm(dev, kernel::Form::nn, columns_of(dy.row_slice(begin, count), block), block.w, sum, 1.0,
                     block.first > 0);
      if (update.adds_to_output()) update.add_to_input(dev, dh.row_slice(begin, count), begin, sum);
      if constexpr (narrow) kernel::convert(dev, sum, dx.row_slice(begin, count));
    });
  }

  /// Adds the gradients of the weights and biases that train.
  void backward_params(D& dev, View<D, const T> x, View<D, const T> dy) const {
    for (const auto& p : projections_) {
      const View<D, const T> own = dy.col_slice(p.first_column, p.linear.out_features());
      if (p.linear.weight.trains())
        kernel::gemm(dev, kernel::Form::tn, own, x, p.linear.weight.param().grad(), 1.0, true);
      if (p.linear.bias.trains()) kernel::column_sums(dev, own, p.linear.bias.param().grad());
    }
  }

 private:
  static constexpr bool narrow = !std::same_as<T, Accum<T>>;

  // Weights of the projections [first, last), one below the other, as a product takes them.
  struct Block {
    View<D, const T> w;
    std::size_t first, last;
  };
  struct Weights {
    std::vector<typename OwnMatrix<D, T>::Use> uses;  // held while products read
    std::vector<Block> blocks;
  };

  bool decodes() const {
    for (const auto& p : projections_)
      if (!p.linear.weight.decodes()) return false;
    return true;
  }

  // All weights in T; decoded ones are in scratch of the enclosing scope. Where all are decoded, or lie one below the
  // other, they become one block, since one wide product is faster than several narrow ones: on devices that want it
  // so, and in float32. On the CPU bfloat16 outputs are summed in tiles, for which one block would be too wide.
  Weights weights_for(D& dev, const LowRankUpdate<D, T>& update) const {
    Weights result;
    const bool joins = dev.tiling().joins_projections;
    if (joins && join(dev, result)) return result;
    const bool stacked = (joins || !narrow) && decodes();
    View<D, T> all;
    if (stacked) {
      all = scratch<T>(dev, out_features_, in_features_);
      result.blocks.push_back({all, 0, projections_.size()});
    }
    for (std::size_t j = 0; j < projections_.size(); ++j) {
      const auto& p = projections_[j];
      result.uses.push_back(p.linear.weight.use(dev));
      const auto& weight = result.uses.back();
      if (stacked) {
        update.decode(dev, j, weight.stored(), all.row_slice(p.first_column, p.linear.out_features()));
      } else {
        result.blocks.push_back({weight.rows(dev, 0, p.linear.out_features()), j, j + 1});
      }
    }
    return result;
  }

  // One block of all weights, where they are neighbors in memory. Holds them.
  bool join(D& dev, Weights& result) const {
    if (projections_.size() < 2) return false;
    std::vector<typename OwnMatrix<D, T>::Use> uses;
    const T* end = nullptr;
    for (const auto& p : projections_) {
      if (p.linear.weight.decodes() || !p.linear.weight.param().empty()) return false;
      uses.push_back(p.linear.weight.use(dev));
      const View<D, const T> w = uses.back().rows(dev, 0, p.linear.out_features());
      if (end != nullptr && w.data() != end) return false;
      end = w.data() + w.size();
    }
    result.blocks.push_back(
        {View<D, const T>(end - out_features_ * in_features_, out_features_, in_features_), 0, projections_.size()});
    result.uses = std::move(uses);
    return true;
  }

  // What is small, of several projections: updates and biases, which their product is then added to.
  void begin_joined(D& dev, const Block& block, const LowRankUpdate<D, T>& update, View<D, const T> h, View<D, T> y,
                    bool accumulate) const {
    for (std::size_t j = block.first; j < block.last; ++j) {
      const auto& p = projections_[j];
      const View<D, T> own = y.col_slice(p.first_column, p.linear.out_features());
      if (update.adds_to_output(j)) {
        const auto term = update.output_term(j, h);
        kernel::gemm(dev, term.form, term.a, term.b, own, 1.0, accumulate);
      } else if (!accumulate) {
        kernel::fill(dev, own, 0.0);
      }
      if (!p.linear.bias.empty()) kernel::add_bias(dev, p.linear.bias.view(), own);
    }
  }

  // The columns of y that a block's projections write.
  template <class V>
  V columns_of(V y, const Block& block) const {
    return y.col_slice(projections_[block.first].first_column, block.w.rows());
  }

  bool is_one_product(const Block& block, const LowRankUpdate<D, T>& update) const {
    for (std::size_t j = block.first; j < block.last; ++j)
      if (update.adds_to_output(j) || !projections_[j].linear.bias.empty()) return false;
    return true;
  }

  void add_updates_and_biases(D& dev, const Block& block, const LowRankUpdate<D, T>& update, View<D, const T> h,
                              View<D, T> tile) const {
    const Index first_column = projections_[block.first].first_column;
    for (std::size_t j = block.first; j < block.last; ++j) {
      const auto& p = projections_[j];
      const View<D, T> own = tile.col_slice(p.first_column - first_column, p.linear.out_features());
      if (update.adds_to_output(j)) update.add_to_output(dev, j, h, own);
      if (!p.linear.bias.empty()) kernel::add_bias(dev, p.linear.bias.view(), own);
    }
  }

  std::vector<Projection> projections_;
  Index in_features_ = 0;
  Index out_features_ = 0;
};

}  // namespace lora::nn
