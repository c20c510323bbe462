#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/kernel/low_rank.hpp"
#include "lora/nn/linear.hpp"
#include "lora/nn/module.hpp"

namespace lora::nn {

/// What one projection is given: rank 0 leaves it frozen.
struct LoraRank {
  Index rank = 0;
  double scale = 0;  ///< s = alpha / R, or alpha / √R with rsLoRA
};

/// One or more frozen projections of the same x (q, k, v; gate, up; a single one), each plus a trainable low-rank
/// update.
///   y_j = x W_jᵀ + b_j + s_j drop(x) A_jᵀ B_jᵀ
/// Shapes   x (N, I) · W_j (O_j, I) · A (ΣR, I), the projections' rows stacked · B_jᵀ (R_j, O_j) → y (N, ΣO)
/// Types    W may be stored as any dtype; y and dx are summed in Accum<T> and rounded to T once; gradients of A and B
///          in Accum<T>
/// Writes   y overwritten, or added to if `accumulate`; A.grad, B.grad added to
/// Saves    h = s drop(x) Aᵀ (N, ΣR), or nothing where the update rides in a widened W
/// Differs  from PEFT, which draws one dropout mask per projection: here the projections of one x share theirs
/// Source   Hu et al. 2021, eq. 3; Kalajdzievski 2023 for rsLoRA
template <AnyDevice D, class T>
class LoraLinear {
 public:
  struct Saved {
    View<D, T> h;  // (N, ΣR)
  };

  struct Projection {
    std::string name;  ///< "q_proj"
    Linear<D, T> linear;
    LoraRank lora{};
    Param<D, T> b{};         // (R, O): Bᵀ, since hᵀ dy is faster in this order
    Index first_row = 0;     // of A
    Index first_column = 0;  // of y
  };

  LoraLinear() = default;
  /// `module` tells this dropout's random numbers from other modules'.
  LoraLinear(std::vector<std::pair<std::string, Linear<D, T>>> projections, std::uint64_t module) : module_(module) {
    for (auto& [name, linear] : projections) {
      if (linear.in_features() != projections.front().second.in_features())
        fail<ShapeError>("[lora_linear] ", name, " has ", linear.in_features(), " input columns but its neighbour has ",
                         projections.front().second.in_features());
      Projection projection;
      projection.name = name;
      label_ += label_.empty() ? name : ", " + name;
      projection.first_column = out_features_;
      out_features_ += linear.out_features();
      projections_.push_back(std::move(projection));
    }
    in_features_ = projections.front().second.in_features();
    for (std::size_t j = 0; j < projections.size(); ++j) projections_[j].linear = std::move(projections[j].second);
  }

  Index in_features() const { return in_features_; }
  Index out_features() const { return out_features_; }
  /// ΣR; 0 where nothing trains.
  Index rank() const { return rank_; }
  bool trains() const {
    for (const auto& p : projections_)
      if (p.b.trains()) return true;
    return a_.trains();
  }
  /// Whether forward of n rows keeps h: not where the update rides in a widened W, where it is formed in backward.
  bool saves(const Pass<D, T>& pass, Index n) const { return rank_ > 0 && !merges(n, dropout_active(pass)); }
  const std::vector<Projection>& projections() const { return projections_; }

  /// Gives each projection its rank, and its A and B to the store under `prefix` + "q_proj.lora_A" and the like; once
  /// the store is built, the caller initialises or loads them.
  void attach(ParamStore<D, T>& params, const std::string& prefix, std::span<const LoraRank> ranks, double dropout) {
    if (ranks.size() != projections_.size())
      fail<ShapeError>("[lora_linear] ", ranks.size(), " ranks for ", projections_.size(), " projections");
    rank_ = 0;
    dropout_ = dropout;
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      auto& p = projections_[j];
      p.lora = ranks[j];
      p.first_row = rank_;
      rank_ += p.lora.rank;
    }
    a_ = rank_ > 0 ? params.add(rank_, in_features_) : Param<D, T>();
    for (auto& p : projections_) {
      p.b = p.lora.rank > 0 ? params.add(p.lora.rank, p.linear.out_features()) : Param<D, T>();
      if (p.lora.rank == 0) continue;
      params.name(a_, prefix + p.name + ".lora_A", p.first_row, p.lora.rank);
      params.name(p.b, prefix + p.name + ".lora_B", 0, p.lora.rank, true);
    }
  }

  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved* saved,
               bool accumulate = false) const {
    const Index n = x.rows();
    if (n == 0 || (y.empty() && (saved == nullptr || !saves(pass, n)))) return;
    expect_shape("lora_linear", "x", x, n, in_features_);
    if (!y.empty()) expect_shape("lora_linear", "y", y, n, out_features_);
    const Span part(profile_of(dev), Profile::Kind::part, label_);
    const Arena::Scope scope(dev.arena());
    if (saves(pass, n)) {
      const View<D, T> h = save_or_scratch<T>(dev, saved != nullptr, n, rank_);
      {
        const Span low_rank = update_span(dev);
        reduce(dev, dropped(dev, pass, x), h);
      }
      if (!y.empty()) project(dev, x, h, y, accumulate, false);
      if (saved != nullptr) saved->h = h;
    } else {
      project(dev, x, {}, y, accumulate, rank_ > 0);
    }
  }

  /// A function for x is called where something trains or dx is wanted; it must leave dy alone.
  void backward(D& dev, const Pass<D, T>& pass, const Input<D, T>& x, Saved&& saved, View<D, const T> dy,
                View<D, T> dx) {
    const Index n = dy.rows();
    if (n == 0) return;
    expect_shape("lora_linear_backward", "dy", dy, n, out_features_);
    const Span part(profile_of(dev), Profile::Kind::part, label_);
    const Arena::Scope scope(dev.arena());
    const bool has_h = saves(pass, n);
    View<D, T> dh;
    if (has_h) {
      const Span low_rank = update_span(dev);
      dh = scratch<T>(dev, n, rank_);
      kernel::low_rank_backward<D, T>(dev, saved.h, terms_of(dev, dy), dh);
    }
    if (!dx.empty()) input_gradient(dev, pass, dy, dh, dx);
    if (dx.empty() && !trains()) return;
    const View<D, const T> input = x();
    if (!trains()) return;
    const Span low_rank = update_span(dev);
    if (!has_h) return kernel::low_rank_gradients<D, T>(dev, input, a_.use(), gradient_of(dev, a_), terms_of(dev, dy));
    if (!a_.trains()) return;
    const View<D, const T> x_dropped = dropped(dev, pass, input);
    kernel::gemm(dev, kernel::Form::tn, dh, x_dropped, a_.grad(), 1.0, true);
  }

  /// W_j + s_j B_j A_j in Accum<T>, for merging.
  View<D, Accum<T>> merged(D& dev, std::size_t j) {
    auto& p = projections_[j];
    const auto weight = p.linear.weight.use(dev);
    const View<D, Accum<T>> out = scratch<Accum<T>>(dev, weight.view().rows(), weight.view().cols());
    kernel::widen(dev, weight.view(), out);
    if (p.lora.rank > 0)
      kernel::gemm(dev, kernel::Form::tn, p.b.value(), a_.value().row_slice(p.first_row, p.lora.rank), out,
                   p.lora.scale, true);
    return out;
  }

 private:
  static constexpr bool narrow = !std::same_as<T, Accum<T>>;
  // Rows of an output that stay in cache between its products.
  static constexpr Index row_tile = 512;

  // What the adapter costs beyond the frozen product.
  static Span update_span(D& dev) { return Span(profile_of(dev), Profile::Kind::part, "low-rank"); }

  bool dropout_active(const Pass<D, T>& pass) const { return dropout_ > 0 && pass.dropout_key() != 0 && rank_ > 0; }

  // Where W must be decoded into scratch anyway, W + s B A can be formed there, and the update rides in the frozen
  // product. That costs 4 O I R a step, both ways together, instead of 2 N (I + O) R: fewer FLOPs above 2 I O / (I + O)
  // rows, less time from half of that on, since low-rank products are slower ones. Never below f32: rounding W + s B A
  // to bf16 eats the update.
  bool merges(Index n, bool drops) const {
    if (narrow || rank_ == 0 || drops || !decodes()) return false;
    for (const auto& p : projections_) {
      const double i = static_cast<double>(in_features_), o = static_cast<double>(p.linear.out_features());
      if (static_cast<double>(n) <= i * o / (i + o)) return false;
    }
    return true;
  }

  // What the adapters see of y's gradient.
  std::vector<kernel::LowRankTerm<D, T>> terms_of(D& dev, View<D, const T> dy) {
    std::vector<kernel::LowRankTerm<D, T>> terms;
    for (auto& p : projections_)
      if (p.lora.rank > 0)
        terms.push_back(
            {dy.col_slice(p.first_column, p.linear.out_features()), p.b.use(), gradient_of(dev, p.b), p.lora.scale});
    return terms;
  }

  // Where a kernel that forms several gradients at once adds this one: scratch where it is frozen.
  static View<D, Accum<T>> gradient_of(D& dev, const Param<D, T>& param) {
    if (param.trains()) return param.grad();
    const View<D, Accum<T>> unused = scratch<Accum<T>>(dev, param.value().rows(), param.value().cols());
    kernel::fill(dev, unused, 0.0);
    return unused;
  }

  View<D, const T> dropped(D& dev, const Pass<D, T>& pass, View<D, const T> x) const {
    if (!dropout_active(pass)) return x;
    const View<D, T> out = scratch<T>(dev, x.rows(), x.cols());
    kernel::dropout(dev, dropout_rule(pass), x, pass.places(), pass.positions(), out);
    return out;
  }
  kernel::Dropout dropout_rule(const Pass<D, T>& pass) const {
    return {dropout_, mix_key(pass.dropout_key(), module_)};
  }

  // Frozen weights as a product takes them: those of projections [first, last), one below the other.
  struct Block {
    View<D, const T> w;
    std::size_t first, last;
  };

  // All weights in T, with s B A added if `merge`. Where they are decoded to float32 they become one block, since one
  // wide product is faster than several narrow ones; narrower outputs are summed in tiles, for which they would be too
  // wide. Scratch of the enclosing scope.
  std::vector<Block> weights(D& dev, std::vector<typename Weight<D>::Use>& uses, bool merge) const {
    std::vector<Block> blocks;
    View<D, T> all;
    if (!narrow && decodes()) {
      all = scratch<T>(dev, out_features_, in_features_);
      blocks.push_back({all, 0, projections_.size()});
    }
    for (std::size_t j = 0; j < projections_.size(); ++j) {
      const auto& p = projections_[j];
      uses.push_back(p.linear.weight.use(dev));
      const StoredView<D> stored = uses.back().view();
      if (all.empty()) {
        blocks.push_back({widened<T>(dev, stored), j, j + 1});
      } else {
        decode(dev, p, stored, merge, all.row_slice(p.first_column, p.linear.out_features()));
      }
    }
    return blocks;
  }

  bool decodes() const {
    for (const auto& p : projections_)
      if (stores<T>(p.linear.weight.dtype())) return false;
    return true;
  }

  void decode(D& dev, const Projection& p, const StoredView<D>& stored, bool merge, View<D, T> wide) const {
    if constexpr (!narrow) {
      if (merge && p.lora.rank > 0) {
        const Arena::Scope scope(dev.arena());
        const View<D, T> b = scratch<T>(dev, p.lora.rank, stored.rows());
        kernel::convert(dev, p.b.use(), b, p.lora.scale);
        kernel::widen_with_update<D, T>(dev, stored, b, a_.use().row_slice(p.first_row, p.lora.rank), wide);
        return;
      }
    }
    kernel::widen(dev, stored, wide);
  }

  // y's columns that a block's projections make.
  template <class V>
  V columns_of(V y, const Block& block) const {
    return y.col_slice(projections_[block.first].first_column, block.w.rows());
  }

  // h = s x Aᵀ. The scales are applied to these few columns, so that every product is a plain one; at once to the
  // columns of neighbours that share a scale, as all do in most adapters.
  void reduce(D& dev, View<D, const T> x, View<D, T> h) const {
    kernel::gemm(dev, kernel::Form::nt, x, a_.use(), h);
    for (std::size_t j = 0, end = 0; j < projections_.size(); j = end) {
      const double scale = projections_[j].lora.scale;
      Index count = 0;
      for (; end < projections_.size(); ++end) {
        const LoraRank& lora = projections_[end].lora;
        if (lora.rank > 0 && lora.scale != scale) break;
        count += lora.rank;
      }
      if (count == 0 || scale == 1) continue;
      const View<D, T> columns = h.col_slice(projections_[j].first_row, count);
      kernel::convert(dev, columns, columns, scale);
    }
  }

  // An update below half a unit in y's last place would vanish if every partial sum were rounded: where T is narrower
  // than its sums, the kernel sums a block's products itself. Else they are added to y by tiles of rows.
  void project(D& dev, View<D, const T> x, View<D, const T> h, View<D, T> y, bool accumulate, bool merge) const {
    const Arena::Scope scope(dev.arena());
    std::vector<typename Weight<D>::Use> uses;
    for (const Block& block : weights(dev, uses, merge)) {
      const auto updated = [&](const Projection& p) { return !merge && p.lora.rank > 0; };
      bool product_is_all = true;
      for (std::size_t j = block.first; j < block.last; ++j)
        if (updated(projections_[j]) || !projections_[j].linear.bias.empty()) product_is_all = false;
      if (product_is_all) {
        kernel::gemm(dev, kernel::Form::nt, x, block.w, columns_of(y, block), 1.0, accumulate);
        continue;
      }
      if constexpr (narrow) {
        const auto& p = projections_[block.first];
        std::vector<kernel::ProductTerm<D, T>> terms{{kernel::Form::nt, x, block.w}};
        if (updated(p)) terms.push_back({kernel::Form::nn, h.col_slice(p.first_row, p.lora.rank), p.b.use()});
        kernel::sum_of_products<D, T>(dev, terms, p.linear.bias.view(), columns_of(y, block), accumulate);
        continue;
      }
      for_row_tiles(x.rows(), row_tile, [&](Index begin, Index count) {
        const View<D, T> tile = columns_of(y, block).row_slice(begin, count);
        kernel::gemm(dev, kernel::Form::nt, x.row_slice(begin, count), block.w, tile, 1.0, accumulate);
        for (std::size_t j = block.first; j < block.last; ++j) {
          const auto& p = projections_[j];
          const View<D, T> own =
              tile.col_slice(p.first_column - projections_[block.first].first_column, p.linear.out_features());
          if (updated(p)) {
            const Span low_rank = update_span(dev);
            kernel::gemm(dev, kernel::Form::nn, h.row_slice(begin, count).col_slice(p.first_row, p.lora.rank),
                         p.b.use(), own, 1.0, true);
          }
          if (!p.linear.bias.empty()) kernel::add_bias(dev, p.linear.bias.view(), own);
        }
      });
    }
  }

  // dx = Σ_j dy_j W_j + drop'(dh A), summed in Accum<T> and rounded once.
  void input_gradient(D& dev, const Pass<D, T>& pass, View<D, const T> dy, View<D, const T> dh, View<D, T> dx) const {
    expect_shape("lora_linear_backward", "dx", dx, dy.rows(), in_features_);
    const Arena::Scope scope(dev.arena());
    const bool drops = dropout_active(pass), merge = merges(dy.rows(), drops);
    std::vector<typename Weight<D>::Use> uses;
    const std::vector<Block> blocks = weights(dev, uses, merge);
    if (narrow && !drops) {
      std::vector<kernel::ProductTerm<D, T>> terms;
      for (const Block& block : blocks) terms.push_back({kernel::Form::nn, columns_of(dy, block), block.w});
      if (rank_ > 0) terms.push_back({kernel::Form::nn, dh, a_.use()});
      return kernel::sum_of_products<D, T>(dev, terms, {}, dx);
    }
    for_row_tiles(dy.rows(), narrow ? row_tile : dy.rows(), [&](Index begin, Index count) {
      const Arena::Scope inner(dev.arena());
      const View<D, Accum<T>> sum = sum_for(dev, dx.row_slice(begin, count));
      for (const Block& block : blocks)
        kernel::gemm(dev, kernel::Form::nn, columns_of(dy.row_slice(begin, count), block), block.w, sum, 1.0,
                     block.first > 0);
      if (rank_ > 0 && !merge) {
        const Span low_rank = update_span(dev);
        if (drops) {
          const View<D, Accum<T>> update = scratch<Accum<T>>(dev, count, in_features_);
          kernel::gemm(dev, kernel::Form::nn, dh.row_slice(begin, count), a_.use(), update);
          kernel::dropout<D, Accum<T>>(dev, dropout_rule(pass), update, pass.places().col_slice(begin, count),
                                       pass.positions().col_slice(begin, count), sum, true);
        } else {
          kernel::gemm(dev, kernel::Form::nn, dh.row_slice(begin, count), a_.use(), sum, 1.0, true);
        }
      }
      if constexpr (narrow) kernel::convert(dev, sum, dx.row_slice(begin, count));
    });
  }

  std::vector<Projection> projections_;
  std::string label_;  // their names, for profiles
  Param<D, T> a_;      // (ΣR, I)
  Index in_features_ = 0;
  Index out_features_ = 0;
  Index rank_ = 0;
  double dropout_ = 0;
  std::uint64_t module_ = 0;
};

}  // namespace lora::nn
