#pragma once

#include <algorithm>
#include <utility>

#include "lora/kernel/elementwise.hpp"
#include "lora/nn/module.hpp"
#include "lora/nn/rms_norm.hpp"

namespace lora::nn {

/// How a half of a layer ends: y += norm(branch), or, without a norm, y += branch, which the branch's last projection
/// adds itself.
/// Shapes   y, branch (N, E)
/// Saves    branch, with a norm
/// Source   Gemma Team 2024, Gemma 2: norms before and behind each half
template <AnyDevice D, class T>
class PostNorm {
 public:
  struct Saved {
    View<D, T> branch;         // (N, E), with a norm
    View<D, Accum<T>> rstd{};  // (N, 1), with a norm
  };

  /// Around a projection that takes this. `keep`: as in forward.
  static Footprint footprint(const PassShape& pass, Index width, bool exists, Keep keep, const Footprint& projection) {
    if (!exists) return projection;
    const bool all = keep == Keep::all;
    const Index branch = pass.rows_of<T>(width), kept = all ? branch + pass.rows_of<Accum<T>>(1) : 0;
    return {projection.saved + kept, projection.low + kept,
            all ? std::max(branch, projection.scratch) : branch + projection.scratch};
  }
  /// What the branch's gradient takes while the projection's backward reads it.
  static Index backward_footprint(const PassShape& pass, Index width, bool exists) {
    return exists ? pass.rows_of<T>(width) : 0;
  }

  PostNorm() = default;
  explicit PostNorm(RmsNorm<D, T> norm) : norm_(std::move(norm)) {}

  bool exists() const { return !norm_.empty(); }
  bool trains() const { return norm_.trains(); }
  RmsNorm<D, T>& norm() { return norm_; }

  /// `project(to, adds)` writes the branch (N, E) to `to`, or adds it. An empty y gets nothing, and backward what it
  /// needs.
  template <class Project>
  void forward(D& dev, Index rows, Index width, View<D, T> y, Saved& saved, Keep keep, const Project& project) const {
    if (!exists()) return project(y, true);
    const Arena::Scope scope(dev.arena());
    const bool all = keep == Keep::all;
    saved.rstd = save_if<Accum<T>>(dev, all, rows, 1);
    saved.branch = save_or_scratch<T>(dev, all, rows, width);
    {
      const Arena::Scope inner(dev.arena());
      project(saved.branch, false);
    }
    const View<D, T> normed = all ? scratch<T>(dev, rows, width) : saved.branch;
    norm_.forward(dev, View<D, const T>(saved.branch), normed, saved.rstd);
    if (!y.empty()) kernel::convert(dev, View<D, const T>(normed), y, 1, true);
  }

  /// The gradient of the branch, in scratch of the enclosing scope where there is a norm, else dy.
  View<D, const T> backward(D& dev, const Saved& saved, View<D, const T> dy) const {
    if (!exists()) return dy;
    const View<D, T> d_branch = scratch<T>(dev, dy.rows(), dy.cols());
    norm_.backward(dev, View<D, const T>(saved.branch), View<D, const Accum<T>>(saved.rstd), dy, d_branch);
    return d_branch;
  }

 private:
  RmsNorm<D, T> norm_;
};

}  // namespace lora::nn
