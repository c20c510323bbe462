#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/nn/param.hpp"

namespace lora::optim {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// AdamW over the parameters that a model enumerates. It keeps m and v of each, laid out as its parameter; the
/// parameters' memory must stay where it is.
template <AnyDevice D, class T>
class AdamW {
 public:
  AdamW(D& dev, std::vector<nn::ParamRef<D, T>> params, AdamWSettings settings)
      : params_(std::move(params)), settings_(settings) {
    for (const auto& param : params_) {
      auto& state = moments_.emplace_back();
      state.m = zeros(dev, param);
      state.v = zeros(dev, param);
    }
  }

  const std::vector<nn::ParamRef<D, T>>& params() const { return params_; }

  /// Updates that were made; a step that was left out makes none.
  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }

  /// Writes   every parameter's value; the copies in T are refreshed by the caller
  void step(D& dev, double learning_rate, double gradient_scale) {
    ++updates_;
    const kernel::AdamWStep step{learning_rate,          settings_.beta1, settings_.beta2, settings_.epsilon,
                                 settings_.weight_decay, gradient_scale,  updates_};
    for (std::size_t i = 0; i < params_.size(); ++i)
      kernel::adamw<T>(dev, step, params_[i].grad, params_[i].value, moments_[i].m.view(), moments_[i].v.view());
  }

  /// f(name, view) for every tensor of the state, in a fixed order: what a checkpoint holds besides the parameters.
  template <class F>
  void for_each_state(F&& f) {
    for (std::size_t i = 0; i < params_.size(); ++i) {
      f(params_[i].name + ".exp_avg", moments_[i].m.view());
      f(params_[i].name + ".exp_avg_sq", moments_[i].v.view());
    }
  }

 private:
  struct Moments {
    Tensor<D, Accum<T>> m;
    Tensor<D, Accum<T>> v;
  };

  static Tensor<D, Accum<T>> zeros(D& dev, const nn::ParamRef<D, T>& param) {
    Tensor<D, Accum<T>> tensor(dev, param.value.rows(), param.value.cols());
    kernel::fill(dev, tensor.view(), 0.0);
    return tensor;
  }

  std::vector<nn::ParamRef<D, T>> params_;
  std::vector<Moments> moments_;
  AdamWSettings settings_;
  Index updates_ = 0;
};

}  // namespace lora::optim
