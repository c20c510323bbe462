#pragma once

#include <span>
#include <string>
#include <vector>

#include "lora/kernel/low_rank.hpp"
#include "lora/nn/linear.hpp"
#include "lora/nn/param_store.hpp"

namespace lora::nn {

/// What one projection is given: rank 0 leaves it frozen.
struct LoraRank {
  Index rank = 0;
  double scale = 0;   ///< s = alpha / R, or alpha / √R with rsLoRA
  Index b_group = 0;  ///< the group of parameters that B belongs to
};

/// The trainable factors A and B of a group of projections.
/// Shapes   A (ΣR, I), the projections' rows stacked · B_jᵀ (R_j, O_j)
template <AnyDevice D, class T>
class LowRankAdapter {
 public:
  LowRankAdapter() = default;
  /// Adds A and B to the store under `prefix` + "q_proj.lora_A" and the like.
  LowRankAdapter(ParamStore<D, T>& params, const std::string& prefix, const LinearGroup<D, T>& base,
                 std::span<const LoraRank> ranks) {
    if (ranks.size() != base.projections().size())
      fail<ShapeError>("[lora_linear] ", ranks.size(), " ranks for ", base.projections().size(), " projections");
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      const auto& projection = base.projections()[j];
      parts_.push_back({ranks[j], {}, rank_, projection.first_column, projection.linear.out_features()});
      rank_ += ranks[j].rank;
    }
    if (rank_ > 0) a_ = params.add(rank_, base.in_features());
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      Part& p = parts_[j];
      if (p.lora.rank == 0) continue;
      p.b = params.add(p.lora.rank, p.columns, p.lora.b_group);
      params.name(a_, prefix + base.projections()[j].name + ".lora_A", p.first_row, p.lora.rank);
      params.name(p.b, prefix + base.projections()[j].name + ".lora_B", 0, p.lora.rank, true);
    }
  }

  /// ΣR; 0 where there is none.
  Index rank() const { return rank_; }
  bool trains() const {
    for (const Part& p : parts_)
      if (p.b.trains()) return true;
    return trains_a();
  }
  bool trains_a() const { return a_.trains(); }

  /// What it adds to the frozen products of one call.
  LowRankUpdate<D, T> update(UpdatePlace place) const {
    LowRankUpdate<D, T> result{place};
    if (place == UpdatePlace::none) return result;
    result.a = a_.use();
    for (const Part& p : parts_) {
      const View<D, const T> b = p.b.empty() ? View<D, const T>() : p.b.use();
      result.parts.push_back({b, p.lora.scale, p.first_row});
    }
    return result;
  }

  /// h = s x Aᵀ. Each scale is applied to these few columns, so that no product needs one; neighboring projections
  /// with the same scale, as in most adapters, are scaled in one call.
  void reduce(D& dev, View<D, const T> x, View<D, T> h) const {
    kernel::gemm(dev, kernel::Form::nt, x, a_.use(), h);
    for (std::size_t j = 0, end = 0; j < parts_.size(); j = end) {
      const double scale = parts_[j].lora.scale;
      Index count = 0;
      for (; end < parts_.size(); ++end) {
        const LoraRank& lora = parts_[end].lora;
        if (lora.rank > 0 && lora.scale != scale) break;
        count += lora.rank;
      }
      if (count == 0 || scale == 1) continue;
      const View<D, T> columns = h.col_slice(parts_[j].first_row, count);
      kernel::convert(dev, columns, columns, scale);
    }
  }

  /// Scratch of `backward_b`, or of `backward` where `with_a`: the gradients of factors that are frozen.
  static Index backward_footprint(const PassShape& pass, const LoraLinearShape& shape, bool with_a) {
    Index bytes = with_a && !shape.trains_a ? pass.piece<Accum<T>>(shape.rank(), shape.in) : 0;
    for (const auto& p : shape.projections)
      if (p.rank > 0 && !p.trains_b) bytes += pass.piece<Accum<T>>(p.rank, p.out);
    return bytes;
  }

  /// dh = s dy B, and adds the gradients of B in the same pass over dy. h = s x Aᵀ.
  void backward_b(D& dev, View<D, const T> h, View<D, const T> dy, View<D, T> dh) const {
    const Arena::Scope scope(dev.arena());
    kernel::low_rank_backward<D, T>(dev, h, terms_of(dev, dy), dh);
  }
  /// Adds the gradients of A, given dh.
  void backward_a(D& dev, View<D, const T> dh, View<D, const T> x) const {
    kernel::gemm(dev, kernel::Form::tn, dh, x, a_.grad(), 1.0, true);
  }
  /// Adds the gradients of A and B where h was not computed.
  void backward(D& dev, View<D, const T> x, View<D, const T> dy) const {
    const Arena::Scope scope(dev.arena());
    kernel::low_rank_gradients<D, T>(dev, x, a_.use(), gradient_of(dev, a_), terms_of(dev, dy));
  }

  /// out += s_j B_j A_j. Shapes   out (O_j, I)
  void add_to_weight(D& dev, std::size_t j, View<D, Accum<T>> out) const {
    const Part& p = parts_[j];
    if (p.lora.rank > 0)
      kernel::gemm(dev, kernel::Form::tn, p.b.value(), a_.value().row_slice(p.first_row, p.lora.rank), out,
                   p.lora.scale, true);
  }

 private:
  struct Part {
    LoraRank lora{};
    Param<D, T> b{};         // (R, O): Bᵀ, since hᵀ dy is faster in this order
    Index first_row = 0;     // of A
    Index first_column = 0;  // of y
    Index columns = 0;       // of y: O
  };

  // y's gradient and the factors, as the backward kernels take them.
  std::vector<kernel::LowRankTerm<D, T>> terms_of(D& dev, View<D, const T> dy) const {
    std::vector<kernel::LowRankTerm<D, T>> terms;
    for (const Part& p : parts_)
      if (p.lora.rank > 0)
        terms.push_back({dy.col_slice(p.first_column, p.columns), p.b.use(), gradient_of(dev, p.b), p.lora.scale});
    return terms;
  }

  // Where a kernel that computes several gradients in one call adds this one: scratch where the parameter is frozen.
  static View<D, Accum<T>> gradient_of(D& dev, const Param<D, T>& param) {
    if (param.trains()) return param.grad();
    const View<D, Accum<T>> unused = scratch<Accum<T>>(dev, param.value().rows(), param.value().cols());
    kernel::fill(dev, unused, 0.0);
    return unused;
  }

  Param<D, T> a_;            // (ΣR, I)
  std::vector<Part> parts_;  // one per projection
  Index rank_ = 0;
};

}  // namespace lora::nn
