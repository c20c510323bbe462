#pragma once

#include <cmath>
#include <cstddef>

#include "lora/core/config.hpp"
#include "lora/nn/work.hpp"

namespace lora::nn {

namespace detail {

inline double number(Index n) { return static_cast<double>(n); }

/// Σ R_j O_j
inline double rank_columns(const LoraLinearShape& shape) {
  double sum = 0;
  for (const auto& p : shape.projections) sum += number(p.rank) * number(p.out);
  return sum;
}

/// Columns of the projections that have an adapter.
inline double adapted_columns(const LoraLinearShape& shape) {
  double sum = 0;
  for (const auto& p : shape.projections) sum += p.rank > 0 ? number(p.out) : 0;
  return sum;
}

/// Of one product with the weights.
inline double decoded_numbers(const LoraLinearShape& shape) {
  double sum = 0;
  for (const auto& p : shape.projections)
    if (p.decodes) sum += number(p.out) * number(shape.in);
  return sum;
}

/// Whether updates join the weights that are decoded (UpdatePlace::weight).
inline bool folds(const WorkPass& pass, const LoraLinearShape& shape) {
  if (shape.rank() == 0 || shape.drops || pass.narrow() || !shape.decodes()) return false;
  for (const auto& p : shape.projections)
    if (!pass.tiling.folds_update(pass.rows, shape.in, p.out)) return false;
  return true;
}

// h = s drop(x) Aᵀ
inline Work reduce_work(const WorkPass& pass, const LoraLinearShape& shape) {
  Work work;
  if (shape.rank() == 0 || folds(pass, shape)) return work;
  work.products = pass.product(number(shape.in) * number(shape.rank()));
  work.thin = pass.bytes(shape.in + shape.rank());
  work.moved = 2 * pass.bytes(shape.rank()) + (shape.drops ? 2 * pass.bytes(shape.in) : 0);
  return work;
}

// Norm, and q, k, v, normed and rotated.
inline Work project_work(const WorkPass& pass, const SelfAttentionShape& shape) {
  Work work = nn::forward_work(pass, shape.qkv_proj);
  work.moved += 3 * pass.bytes(shape.width) + (shape.qk_norm ? 4 : 2) * pass.bytes(shape.qk_columns());
  return work;
}

inline Work attention_work(const WorkPass& pass, const SelfAttentionShape& shape, int products) {
  Work work;
  work.attention = 2 * products * number(shape.heads) * number(shape.head_dim) * pass.pairs_in(shape.window);
  return work;
}

// Of a norm behind projections, whose output is added.
inline Work post_norm_work(const WorkPass& pass, Index width, bool exists) {
  Work work;
  if (exists) work.moved = 5 * pass.bytes(width);
  return work;
}
inline Work post_norm_backward_work(const WorkPass& pass, Index width, bool exists, bool trains) {
  Work work;
  if (exists) work.moved = (trains ? 5 : 3) * pass.bytes(width);
  return work;
}

inline Work forward_work(const WorkPass& pass, const SelfAttentionShape& shape) {
  return project_work(pass, shape) + attention_work(pass, shape, 2) +
         nn::forward_work(pass.wanted_part(), shape.o_proj) +
         post_norm_work(pass.wanted_part(), shape.width, shape.post_norm);
}

// Of a norm before projections, whose output's gradient becomes its output again.
inline double residual_norm_bytes(const WorkPass& pass, Index width, bool with_dx, bool trains) {
  return (with_dx ? 5 : 2) * pass.bytes(width) + (trains ? 2 * pass.bytes(width) : 0);
}

inline Work backward_work(const WorkPass& pass, const SelfAttentionShape& shape, bool with_dx) {
  const bool further = with_dx || shape.trains_before_heads();
  Work work = nn::backward_work(pass.wanted_part(), shape.o_proj, further) +
              post_norm_backward_work(pass.wanted_part(), shape.width, shape.post_norm, shape.post_norm_trains);
  if (!further) return work;
  work += attention_work(pass, shape, 5);
  // With norms they and the rotation are computed again, and then their gradients.
  work.moved += (shape.qk_norm ? 9 : 2) * pass.bytes(shape.qk_columns());
  if (shape.norms_train && !shape.norm_trains) work.moved += 2 * pass.bytes(shape.qk_columns());
  work += nn::backward_work(pass, shape.qkv_proj, with_dx || shape.norm_trains);
  work.moved += residual_norm_bytes(pass, shape.width, with_dx, shape.norm_trains);
  return work;
}

// Norm, gate and up.
inline Work project_work(const WorkPass& pass, const MlpShape& shape) {
  Work work = nn::forward_work(pass, shape.gate_up_proj);
  work.moved += 3 * pass.bytes(shape.width);
  return work;
}

inline Work forward_work(const WorkPass& pass, const MlpShape& shape) {
  Work work = project_work(pass, shape) + nn::forward_work(pass, shape.down_proj) +
              post_norm_work(pass, shape.width, shape.post_norm);
  work.moved += 3 * pass.bytes(shape.down_proj.in);
  return work;
}

inline Work backward_work(const WorkPass& pass, const MlpShape& shape, bool with_dx) {
  const bool further = with_dx || shape.gate_up_proj.trains() || shape.norm_trains;
  Work work = nn::backward_work(pass, shape.down_proj, further) +
              post_norm_backward_work(pass, shape.width, shape.post_norm, shape.post_norm_trains);
  work.moved += (further ? 6 : 3) * pass.bytes(shape.down_proj.in);
  if (!further) return work;
  work += nn::backward_work(pass, shape.gate_up_proj, with_dx || shape.norm_trains);
  work.moved += residual_norm_bytes(pass, shape.width, with_dx, shape.norm_trains);
  return work;
}

// What gradient checkpointing computes again: all but attention itself and the last product.
inline Work recompute_work(const WorkPass& pass, const BlockShape& shape) {
  const WorkPass wanted = pass.wanted_part();
  Work work = project_work(pass, shape.attention) + nn::forward_work(wanted, shape.attention.o_proj) +
              post_norm_work(wanted, shape.attention.width, shape.attention.post_norm) +
              project_work(wanted, shape.mlp);
  work.moved -= wanted.bytes(shape.mlp.width);  // no copy for the second residual sum
  const LoraLinearShape& down = shape.mlp.down_proj;
  if (shape.mlp.post_norm) {  // its input is down_proj's output; nothing is added to
    work += nn::forward_work(wanted, down);
    work.moved += 3 * wanted.bytes(down.in) + 2 * wanted.bytes(shape.mlp.width);
    return work;
  }
  if (down.rank() > 0 && !folds(wanted, down)) {
    work += reduce_work(wanted, down);
    work.moved += 3 * wanted.bytes(down.in);
  }
  return work;
}

}  // namespace detail

LORA_INLINE Work forward_work(const WorkPass& pass, const LoraLinearShape& shape) {
  Work work = detail::reduce_work(pass, shape);
  work.products += pass.product(detail::number(shape.in) * detail::number(shape.out()));
  work.decoded = detail::decoded_numbers(shape);
  for (const auto& p : shape.projections)
    if (p.bias && !pass.narrow()) work.moved += 2 * pass.bytes(p.out);  // else the products add it
  if (shape.rank() == 0 || detail::folds(pass, shape)) return work;
  work.products += pass.product(detail::rank_columns(shape));
  if (!pass.narrow()) work.thin += 2 * pass.bytes(detail::adapted_columns(shape));  // else one kernel sums both
  return work;
}

LORA_INLINE Work backward_work(const WorkPass& pass, const LoraLinearShape& shape, bool with_dx) {
  const double in = detail::number(shape.in), rank = detail::number(shape.rank());
  const bool folded = detail::folds(pass, shape), updates = rank > 0 && !folded;
  Work work;
  if (with_dx) {
    work.products = pass.product(in * (detail::number(shape.out()) + (updates ? rank : 0)));
    work.decoded = detail::decoded_numbers(shape);
    if (updates && !pass.narrow()) work.thin += 2 * pass.bytes(in);
    if (shape.drops && rank > 0)  // dh A is dropped before it is added, and the sum is rounded
      work.moved += (3 * pass.sum + (pass.narrow() ? pass.sum + pass.element : 0)) / pass.element * pass.bytes(in);
  }
  for (const auto& p : shape.projections) {
    if (p.trains_weight) work.products += pass.product(in * detail::number(p.out));
    if (p.trains_bias) work.moved += pass.bytes(p.out);
  }
  const bool trains = shape.adapter_trains();
  if ((updates && (with_dx || trains)) || (folded && trains)) {  // dh and the gradients of B
    work.products += 2 * pass.product(detail::rank_columns(shape));
    work.thin += pass.bytes(detail::adapted_columns(shape));
  }
  if (folded && trains) work.products += 2 * pass.product(in * rank);  // h, and the gradient of A
  if (updates && shape.trains_a) {
    work.products += pass.product(in * rank);
    work.thin += pass.bytes(in);
    if (shape.drops) work.moved += 2 * pass.bytes(in);
  }
  return work;
}

LORA_INLINE Work forward_work(const WorkPass& pass, const BlockShape& shape) {
  return detail::forward_work(pass, shape.attention) + detail::forward_work(pass.wanted_part(), shape.mlp);
}

LORA_INLINE Work backward_work(const WorkPass& pass, const BlockShape& shape, bool with_dx) {
  const bool further = with_dx || shape.attention.trains();
  Work work = detail::backward_work(pass.wanted_part(), shape.mlp, further);
  if (further) work += detail::backward_work(pass, shape.attention, with_dx);
  if (shape.recomputes) work += detail::recompute_work(pass, shape);
  return work;
}

LORA_INLINE Work training_work(const WorkPass& pass, const StackShape& shape, bool wants_dx) {
  const Index first = wants_dx ? 0 : shape.first_trained();
  Work work;
  // The embedding's rows, where they train their gradient, and their copy where layers begin to keep their input.
  work.moved = (wants_dx ? 7 : 4) * pass.bytes(shape.width);
  for (Index i = 0; i < shape.size(); ++i) {
    const BlockShape& layer = shape.layers[static_cast<std::size_t>(i)];
    WorkPass own = pass;
    if (i + 1 == shape.size() && leaves_rows_out(pass.rows, pass.labeled, layer.drops())) own.wanted = pass.labeled;
    work += forward_work(own, layer);
    if (i >= first) work += backward_work(own, layer, i > first || wants_dx);
  }
  return work;
}

LORA_INLINE Work training_work(const WorkPass& pass, const HeadShape& shape) {
  const double n = detail::number(pass.labeled), logits = n * detail::number(shape.vocabulary);
  const double width = detail::number(shape.width), passes = std::ceil(n / detail::number(pass.tiling.head_rows));
  const bool again = shape.trains && !pass.whole_rows;  // logits, for the gradient of the weight
  Work work;
  work.products = 2 * logits * width * (shape.trains ? again ? 4 : 3 : 2);
  work.moved = logits * (pass.sum + pass.element + (shape.caps ? 2 * pass.sum : 0)) * (again ? 2 : 1);
  // Rows are gathered, normed, scattered, their labels' weights gathered, and the gradient formed from sums.
  work.moved += n * width * (11 * pass.element + pass.sum) + pass.bytes(shape.width);
  if (shape.decodes) work.decoded = detail::number(shape.vocabulary) * width * passes * (again ? 2 : 1);
  return work;
}

LORA_INLINE Work update_work(double numbers, double element, double sum) {
  Work work;
  work.moved = numbers * (9 * sum + (element < sum ? sum + element : 0));  // cleared, normed, stepped, copied
  return work;
}

}  // namespace lora::nn
