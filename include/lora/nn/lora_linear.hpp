#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/nn/low_rank_adapter.hpp"
#include "lora/nn/module.hpp"

namespace lora::nn {

/// One or more projections of the same x (q, k, v; gate, up; a single one), frozen or not, each plus a trainable
/// low-rank update.
///   y_j = x W_jᵀ + b_j + s_j drop(x) A_jᵀ B_jᵀ
/// Shapes   x (N, I) · W_j (O_j, I) · A (ΣR, I), the projections' rows stacked · B_jᵀ (R_j, O_j) → y (N, ΣO)
/// Types    W may be stored as any dtype; y and dx are summed in Accum<T> and rounded to T once, but on an NPU after
///          each part of the sum (kernel::sum_of_products); gradients of A and B
///          in Accum<T>
/// Writes   y overwritten, or added to if `accumulate`; gradients of A, B, and of W and b where these train, added to
/// Saves    h = s drop(x) Aᵀ (N, ΣR), unless the update joins the decoded weights; the mask of drop, where the device
///          draws it ahead
/// Differs  from PEFT, which draws one dropout mask per projection: here the projections of one x share theirs
/// Source   Hu et al. 2021, eq. 3; Kalajdzievski 2023 for rsLoRA
template <AnyDevice D, class T>
class LoraLinear {
 public:
  struct Saved {
    UpdatePlace place = UpdatePlace::none;         ///< decided once, by forward
    View<D, T> h{};                                // (N, ΣR), where the update joins the output
    View<D, T> dh{};                               // (N, ΣR), computed by the first half of backward
    std::optional<kernel::DropoutMask<D>> mask{};  // of x, where it is dropped
  };

  static Footprint footprint(const PassShape& pass, const LoraLinearShape& shape, Keep keep) {
    const UpdatePlace place = place_for(pass, shape);
    Footprint result{.scratch = LinearGroup<D, T>::footprint(pass, shape, place)};
    if (place != UpdatePlace::output) return result;
    const Footprint reduced = recompute_footprint(pass, shape);
    result.scratch = std::max(result.scratch, reduced.scratch);
    if (keep == Keep::all) {
      result.saved = result.low = reduced.saved;
    } else {
      result.scratch += reduced.saved;
    }
    return result;
  }
  static Footprint recompute_footprint(const PassShape& pass, const LoraLinearShape& shape) {
    if (place_for(pass, shape) != UpdatePlace::output) return {};
    const Index kept = pass.rows_of<T>(shape.rank()) + mask_bytes(pass, shape);
    return {kept, kept, dropped_bytes(pass, shape)};
  }
  /// Scratch of both halves, or of the second where dx is not needed.
  static Index backward_footprint(const PassShape& pass, const LoraLinearShape& shape, bool with_dx) {
    using Factors = LowRankAdapter<D, T>;
    const UpdatePlace place = place_for(pass, shape);
    const bool output = place == UpdatePlace::output;
    const Index dh = output ? pass.rows_of<T>(shape.rank()) : 0;
    const Index formed = output ? Factors::backward_footprint(pass, shape, false) : 0;
    Index params = 0;
    if (output && shape.trains_a) params = dropped_bytes(pass, shape);
    if (place == UpdatePlace::weight) params = Factors::backward_footprint(pass, shape, true);
    if (!shape.adapter_trains()) params = 0;
    if (!with_dx) return shape.adapter_trains() ? dh + std::max(formed, params) : 0;
    const Index input = LinearGroup<D, T>::backward_footprint(pass, shape, place, masks(pass, shape));
    return dh + std::max({formed, input, params});
  }

  LoraLinear() = default;
  /// `module` tells this dropout's random numbers from other modules'.
  LoraLinear(std::vector<std::pair<std::string, Linear<D, T>>> projections, std::uint64_t module)
      : base_(std::move(projections)), module_(module) {
    for (const auto& p : base_.projections()) label_ += label_.empty() ? p.name : ", " + p.name;
  }

  Index in_features() const { return base_.in_features(); }
  Index out_features() const { return base_.out_features(); }
  /// ΣR; 0 where there is no adapter.
  Index rank() const { return adapter_.rank(); }
  bool trains() const { return adapter_.trains() || base_.trains(); }
  bool drops() const { return dropout_ > 0; }
  const std::vector<typename LinearGroup<D, T>::Projection>& projections() const { return base_.projections(); }
  /// Weight and bias of projection j.
  Linear<D, T>& linear(std::size_t j) { return base_.linear(j); }

  /// Gives each projection its rank, and its A and B to the store under `prefix` + "q_proj.lora_A" and the like; once
  /// the store is built, the caller initializes or loads them.
  void attach(ParamStore<D, T>& params, const std::string& prefix, std::span<const LoraRank> ranks, double dropout) {
    adapter_ = LowRankAdapter<D, T>(params, prefix, base_, ranks);
    dropout_ = dropout;
  }
  void detach() { adapter_ = {}; }

  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep,
               bool accumulate = false) const {
    if (x.rows() == 0) return;
    expect_shape("lora_linear", "x", x, x.rows(), in_features());
    expect_shape("lora_linear", "y", y, x.rows(), out_features());
    const ProfileScope part(dev, Profile::Kind::part, label_);
    const Arena::Scope scope(dev.arena());
    saved = {place_for(dev, pass, x.rows())};
    if constexpr (kernel::HasRowProduct<D, T>)
      if (pass.decodes()) return base_.forward_rows(dev, x, update(saved), y, accumulate);
    if (saved.place == UpdatePlace::output) reduce(dev, pass, x, saved, keep);  // h = s drop(x) Aᵀ
    base_.forward(dev, x, update(saved), saved.h, y, accumulate);               // y = x Wᵀ + b + h Bᵀ
  }

  /// Fills in what forward did not save under Keep::attention.
  void recompute(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved) const {
    if (saved.place != UpdatePlace::output) return;
    const ProfileScope part(dev, Profile::Kind::part, label_);
    reduce(dev, pass, x, saved, Keep::all);
  }

  /// First half of backward. It does not read x, so the caller may recompute x after it, even in the memory of dx. Puts
  /// dh into scratch of the enclosing scope for the second half.
  void backward_input(D& dev, Saved& saved, View<D, const T> dy, View<D, T> dx) {
    if (dy.rows() == 0) return;
    expect_shape("lora_linear_backward", "dy", dy, dy.rows(), out_features());
    expect_shape("lora_linear_backward", "dx", dx, dy.rows(), in_features());
    const ProfileScope part(dev, Profile::Kind::part, label_);
    form_dh(dev, saved, dy);
    base_.backward_input(dev, dy, update(saved), saved.dh, dx);
  }

  /// Second half, in the same scope. The only one where dx is not needed.
  void backward_params(D& dev, View<D, const T> x, Saved& saved, View<D, const T> dy) {
    if (dy.rows() == 0 || !trains()) return;
    expect_shape("lora_linear_backward", "dy", dy, dy.rows(), out_features());
    const ProfileScope part(dev, Profile::Kind::part, label_);
    const Arena::Scope scope(dev.arena());
    base_.backward_params(dev, x, dy);
    if (!adapter_.trains()) return;
    form_dh(dev, saved, dy);
    const ProfileScope low_rank = update_span(dev);
    if (saved.place == UpdatePlace::weight) return adapter_.backward(dev, x, dy);
    if (adapter_.trains_a()) adapter_.backward_a(dev, saved.dh, dropped(dev, saved, x));
  }

  /// Both halves, where x is at hand.
  void backward(D& dev, const Pass<D, T>&, View<D, const T> x, Saved& saved, View<D, const T> dy, View<D, T> dx) {
    const Arena::Scope scope(dev.arena());
    if (!dx.empty()) backward_input(dev, saved, dy, dx);
    backward_params(dev, x, saved, dy);
  }

  /// W_j + s_j B_j A_j in Accum<T>, for merging.
  View<D, Accum<T>> merged(D& dev, std::size_t j) {
    const OwnMatrix<D, T>& weight = projections()[j].linear.weight;
    const View<D, Accum<T>> out = scratch<Accum<T>>(dev, weight.rows(), weight.cols());
    weight.copy_to(dev, out);
    if (rank() > 0) adapter_.add_to_weight(dev, j, out);
    return out;
  }

 private:
  // What the adapter costs beyond the frozen product.
  static ProfileScope<D> update_span(D& dev) { return ProfileScope(dev, Profile::Kind::part, "low-rank"); }

  static bool masks(const PassShape& pass, const LoraLinearShape& shape) {
    return pass.random && shape.drops && shape.rank() > 0;
  }
  static UpdatePlace place_for(const PassShape& pass, const LoraLinearShape& shape) {
    if (shape.rank() == 0) return UpdatePlace::none;
    const bool folds = !masks(pass, shape) && LinearGroup<D, T>::folds_update(pass, shape);
    return folds ? UpdatePlace::weight : UpdatePlace::output;
  }
  static Index mask_bytes(const PassShape& pass, const LoraLinearShape& shape) {
    const double kept = kernel::Elementwise<D>::template dropout_bytes<T>().kept;
    if (kept == 0 || !masks(pass, shape)) return 0;
    return pass.piece<std::byte>(1, static_cast<Index>(static_cast<double>(pass.rows * shape.in) * kept));
  }
  static Index dropped_bytes(const PassShape& pass, const LoraLinearShape& shape) {
    return masks(pass, shape) ? pass.rows_of<T>(shape.in) : 0;
  }

  bool drops(const Pass<D, T>& pass) const { return drops() && pass.random_key() != 0 && rank() > 0; }
  View<D, const T> dropped(D& dev, const Saved& saved, View<D, const T> x) const {
    if (!saved.mask) return x;
    const View<D, T> out = scratch<T>(dev, x.rows(), x.cols());
    kernel::dropout(dev, *saved.mask, x, out);
    return out;
  }

  UpdatePlace place_for(D& dev, const Pass<D, T>& pass, Index n) const {
    if (rank() == 0) return UpdatePlace::none;
    const bool folds = !drops(pass) && !pass.decodes() && base_.folds_update(dev.tiling(), n);
    return folds ? UpdatePlace::weight : UpdatePlace::output;
  }
  LowRankUpdate<D, T> update(const Saved& saved) const {
    LowRankUpdate<D, T> result = adapter_.update(saved.place);
    result.mask = saved.mask;
    return result;
  }

  // h = s drop(x) Aᵀ, and the mask of drop, which all projections share, and backward.
  void reduce(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved, Keep keep) const {
    const bool keeps = keep == Keep::all;
    saved.h = save_or_scratch<T>(dev, keeps, x.rows(), rank());
    if (drops(pass)) {
      if (pass.shares())
        fail<ConfigError>(
            "[lora_linear] dropout of rows that several sequences have in common; its random numbers are ",
            "a sequence's");
      const kernel::Dropout rule{dropout_, mix_key(pass.random_key(), module_)};
      saved.mask = kernel::draw_dropout(dev, rule, pass.sequence_index(), pass.positions(), x.cols(), keeps);
    }
    const ProfileScope low_rank = update_span(dev);
    const Arena::Scope scope(dev.arena());
    adapter_.reduce(dev, dropped(dev, saved, x), saved.h);
  }

  // dh = s dy B and, in the same pass over dy, B's gradients; once for both halves of backward.
  void form_dh(D& dev, Saved& saved, View<D, const T> dy) {
    if (saved.place != UpdatePlace::output || !saved.dh.empty()) return;
    const ProfileScope low_rank = update_span(dev);
    saved.dh = scratch<T>(dev, dy.rows(), rank());
    adapter_.backward_b(dev, saved.h, dy, saved.dh);
  }

  LinearGroup<D, T> base_;
  LowRankAdapter<D, T> adapter_;
  std::string label_;  // the projections' names, for profiles
  double dropout_ = 0;
  std::uint64_t module_ = 0;
};

}  // namespace lora::nn
