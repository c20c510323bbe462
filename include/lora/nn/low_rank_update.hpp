#pragma once

#include <concepts>
#include <optional>
#include <vector>

#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/gemm.hpp"
#include "lora/kernel/row_product.hpp"
#include "lora/nn/weight.hpp"

namespace lora::nn {

/// Where an adapter's update joins the frozen product.
enum class UpdatePlace {
  none,    ///< there is no adapter
  output,  ///< y_j += h_j B_jᵀ and dx += dh A
  weight,  ///< W_j + s_j B_j A_j is formed while W_j is decoded, so that the frozen product includes the update
};

/// What an adapter adds to the frozen products of one call.
template <AnyDevice D, class T>
struct LowRankUpdate {
  struct Part {
    View<D, const T> b;   // (R_j, O_j): B_jᵀ; empty where R_j = 0
    double scale = 1;     // s_j
    Index first_row = 0;  // of A
  };

  UpdatePlace place = UpdatePlace::none;
  View<D, const T> a{};                          // (ΣR, I)
  std::vector<Part> parts{};                     // one per projection
  std::optional<kernel::DropoutMask<D>> mask{};  // dropout of x

  bool adds_to_output() const { return place == UpdatePlace::output; }
  bool adds_to_output(std::size_t j) const { return adds_to_output() && !parts[j].b.empty(); }

  /// h_j and B_jᵀ, whose product is projection j's update of y.
  kernel::ProductTerm<D, T> output_term(std::size_t j, View<D, const T> h) const {
    return {kernel::Form::nn, h.col_slice(parts[j].first_row, parts[j].b.rows()), parts[j].b};
  }

  /// Adds h_j B_jᵀ to y_j. Shapes   h (n, ΣR) · y (n, O_j)
  void add_to_output(D& dev, std::size_t j, View<D, const T> h, View<D, T> y) const {
    const ProfileScope span(dev, Profile::Kind::part, "low-rank");
    const auto term = output_term(j, h);
    kernel::gemm(dev, term.form, term.a, term.b, y, 1.0, true);
  }

  /// What all parts add to rows of a decoding step, given h without its scales and where the frozen products are.
  std::vector<kernel::RowUpdateTerm<D, Accum<T>>> row_terms(View<D, const Accum<T>> h,
                                                            kernel::RowProductTerms<D, Accum<T>> products) const {
    std::vector<kernel::RowUpdateTerm<D, Accum<T>>> terms;
    for (std::size_t j = 0; j < parts.size(); ++j) {
      const auto& [b, scale, first_row] = parts[j];
      if (b.empty()) continue;
      terms.push_back({h.col_slice(first_row, b.rows()), static_cast<Accum<T>>(scale),
                       StoredView<D>(b.data(), dtype_of<T>, b.rows(), b.cols()), products[j].y});
    }
    return terms;
  }

  /// Adds drop'(dh A) to dx, the rows from `begin` on. Shapes   dh (n, ΣR) · dx (n, I)
  void add_to_input(D& dev, View<D, const T> dh, Index begin, View<D, Accum<T>> dx) const {
    const ProfileScope span(dev, Profile::Kind::part, "low-rank");
    if (!mask) return kernel::gemm(dev, kernel::Form::nn, dh, a, dx, 1.0, true);
    const View<D, Accum<T>> dropped = scratch<Accum<T>>(dev, dx.rows(), dx.cols());
    kernel::gemm(dev, kernel::Form::nn, dh, a, dropped);
    kernel::dropout<D, Accum<T>>(dev, mask->row_slice(begin, dx.rows()), dropped, dx, true);
  }

  /// W_j in T, with the update where it joins the weight. Shapes   w, wide (O_j, I)
  void decode(D& dev, std::size_t j, const StoredView<D>& w, View<D, T> wide) const {
    if constexpr (std::same_as<T, Accum<T>>) {
      if (place == UpdatePlace::weight && !parts[j].b.empty()) {
        const Part& part = parts[j];
        const Arena::Scope scope(dev.arena());
        const View<D, T> b = scratch<T>(dev, part.b.rows(), w.rows());
        kernel::convert(dev, part.b, b, part.scale);
        kernel::decode_with_update<D, T>(dev, w, b, a.row_slice(part.first_row, part.b.rows()), wide);
        return;
      }
    }
    kernel::decode(dev, w, wide);
  }
};

}  // namespace lora::nn
