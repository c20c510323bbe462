#pragma once

#include <string_view>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/doctor/element_checks.hpp"
#include "lora/doctor/product_checks.hpp"
#include "lora/doctor/row_checks.hpp"
#include "lora/doctor/streams.hpp"
#include "lora/doctor/trial.hpp"

namespace lora::doctor {

/// A check of kernels: what it launches on a device in T, and the same on the processors in double.
template <AnyDevice D, class T>
struct Case {
  std::string_view family, kernel;
  void (*on_device)(Trial<D, T>&);
  void (*reference)(Trial<cpu::Device, double>&);
  bool timed = false;  ///< one of those whose time tells most
};

/// Every kernel family, with each result that training uses.
template <AnyDevice D, class T>
std::vector<Case<D, T>> cases() {
  using namespace detail;
  using kernel::Form, kernel::Gate, kernel::Rotation;
  constexpr bool timed = true;
  return {
      {"products", "c = a bᵀ", product<Form::nt, false, false>, product<Form::nt, false, false>, timed},
      {"products", "c = a b", product<Form::nn, false, false>, product<Form::nn, false, false>, timed},
      {"products", "c = aᵀ b", product<Form::tn, false, false>, product<Form::tn, false, false>},
      {"products", "c += a bᵀ / 2", product<Form::nt, false, true>, product<Form::nt, false, true>},
      {"products", "c += a b / 2", product<Form::nn, false, true>, product<Form::nn, false, true>},
      {"products", "c += aᵀ b / 2", product<Form::tn, false, true>, product<Form::tn, false, true>},
      {"products", "c = a bᵀ in float32", product<Form::nt, true, false>, product<Form::nt, true, false>, timed},
      {"products", "c = a b in float32", product<Form::nn, true, false>, product<Form::nn, true, false>},
      {"products", "c = aᵀ b in float32", product<Form::tn, true, false>, product<Form::tn, true, false>},
      {"products", "c += a bᵀ / 2 in float32", product<Form::nt, true, true>, product<Form::nt, true, true>},
      {"products", "c += a b / 2 in float32", product<Form::nn, true, true>, product<Form::nn, true, true>},
      {"products", "c += aᵀ b / 2 in float32", product<Form::tn, true, true>, product<Form::tn, true, true>, timed},
      {"products", "y = x Wᵀ + h B + bias", sum_of_products<false>, sum_of_products<false>, timed},
      {"products", "y += x Wᵀ + h B + bias", sum_of_products<true>, sum_of_products<true>},
      {"low rank", "backward", low_rank_backward, low_rank_backward, timed},
      {"low rank", "gradients", low_rank_gradients, low_rank_gradients, timed},
      {"norm", "rms_norm", rms_norm<false>, rms_norm<false>, timed},
      {"norm", "rms_norm of heads", rms_norm<true>, rms_norm<true>},
      {"norm", "backward", rms_norm_backward<false>, rms_norm_backward<false>, timed},
      {"norm", "backward of heads", rms_norm_backward<true>, rms_norm_backward<true>},
      {"norm", "weight gradient", rms_norm_weight_gradient, rms_norm_weight_gradient, timed},
      {"rope", "forward", rope<Rotation::forward>, rope<Rotation::forward>, timed},
      {"rope", "inverse", rope<Rotation::inverse>, rope<Rotation::inverse>},
      {"attention", "heads of 64", attention<false, false>, attention<false, false>},
      {"attention", "heads of 64, backward", attention<false, true>, attention<false, true>},
      {"attention", "heads of 64, a tree", attention<false, false, true>, attention<false, false, true>},
      {"attention", "heads of 64, a tree, backward", attention<false, true, true>, attention<false, true, true>},
      {"attention", "heads of 128", attention<true, false>, attention<true, false>, timed},
      {"attention", "heads of 128, backward", attention<true, true>, attention<true, true>, timed},
      {"attention", "decoding", attention_decoding, attention_decoding, timed},
      {"activation", "swiglu", gated_unit<Gate::silu>, gated_unit<Gate::silu>, timed},
      {"activation", "swiglu, backward", gated_unit_backward<Gate::silu>, gated_unit_backward<Gate::silu>, timed},
      {"activation", "geglu", gated_unit<Gate::gelu_tanh>, gated_unit<Gate::gelu_tanh>},
      {"activation", "geglu, backward", gated_unit_backward<Gate::gelu_tanh>, gated_unit_backward<Gate::gelu_tanh>},
      {"embedding", "embedding", embedding, embedding, timed},
      {"embedding", "backward", embedding_backward, embedding_backward, timed},
      {"embedding", "noise", embedding_noise, embedding_noise},
      {"loss", "cross entropy", cross_entropy, cross_entropy, timed},
      {"optimizer", "AdamW, three steps", adamw, adamw, timed},
      {"elementwise", "fill", fill, fill},
      {"elementwise", "to float32", widen, widen, timed},
      {"elementwise", "from float32", narrow, narrow, timed},
      {"elementwise", "scale", rescale, rescale},
      {"elementwise", "halves to even", ties, ties},
      {"elementwise", "add_bias", add_bias, add_bias},
      {"elementwise", "gather_rows", gather_rows, gather_rows},
      {"elementwise", "scatter_rows", scatter_rows, scatter_rows},
      {"elementwise", "dropout", dropout<false>, dropout<false>, timed},
      {"elementwise", "dropout, added", dropout<true>, dropout<true>},
      {"reduce", "column_sums", column_sums, column_sums, timed},
      {"reduce", "sums of squares", sums_of_squares, sums_of_squares, timed},
      {"quantize", "decode", decode, decode},
      {"quantize", "decode Q8_0", decode_blocks, decode_blocks, timed},
      {"quantize", "decode with update", decode_with_update, decode_with_update},
      {"non-finite", "products", non_finite_products, non_finite_products},
      {"non-finite", "numbers", non_finite_numbers, non_finite_numbers},
      {"streams", "copies and kernels that wait for each other", copies_and_kernels, copies_and_kernels},
  };
}

}  // namespace lora::doctor
