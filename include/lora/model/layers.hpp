#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/model/weights.hpp"
#include "lora/nn/stack.hpp"

namespace lora::model {

/// Of every layer with this window.
inline kernel::AttentionShape attention_shape(const Config& config, Index window) {
  return {config.num_attention_heads, config.num_key_value_heads, config.head_dim,
          1 / std::sqrt(static_cast<double>(config.head_dim)), window};
}

/// Builds the modules of a model from the tensors that a Loader reads, which it asks for in the order of the model.
template <AnyDevice D, class T>
class LayerBuilder {
 public:
  /// All outlive it, and `rotary` the layers as well.
  LayerBuilder(Loader<D>& loader, const Config& config, const nn::Rotary<D, T>& rotary)
      : loader_(loader), config_(config), rotary_(rotary) {}

  nn::RmsNorm<D, T> norm(const std::string& name) const {
    return {loader_.template vector<Accum<T>>(name), config_.rms_norm_eps};
  }

  typename nn::Stack<D, T>::Layer layer(Index i) const {
    const std::string prefix = concat("model.layers.", i, ".");
    typename nn::Attention<D, T>::Parts attention;
    attention.qkv_proj = projections(i, 0);
    attention.o_proj = projections(i, 1);
    if (config_.qk_norm) {
      attention.q_norm = norm(prefix + "self_attn.q_norm.weight");
      attention.k_norm = norm(prefix + "self_attn.k_norm.weight");
    }
    attention.shape = attention_shape(config_, config_.windows[static_cast<std::size_t>(i)]);
    attention.rotary = config_.rotates[static_cast<std::size_t>(i)] ? &rotary_ : nullptr;
    attention.layer = i;
    attention.norm = norm(prefix + "input_layernorm.weight");
    nn::Mlp<D, T> mlp(norm(prefix + "post_attention_layernorm.weight"), projections(i, 2), projections(i, 3));
    return typename nn::Stack<D, T>::Layer(nn::Block<D, T>(nn::Attention<D, T>(std::move(attention)), std::move(mlp)));
  }

 private:
  // Those of a group of the layout. Its number tells its dropout from that of the layer's others.
  nn::LoraLinear<D, T> projections(Index layer, std::size_t number) const {
    const ProjectionGroup& group = groups_of(config_)[number];
    const std::string prefix = group_path(layer, group);
    std::vector<std::pair<std::string, nn::Linear<D, T>>> linears;
    std::vector<std::string> weights;
    for (const Projection& p : group.projections) weights.push_back(prefix + std::string(p.name) + ".weight");
    loader_.join(weights);
    for (const Projection& p : group.projections) {
      const std::string path = prefix + std::string(p.name);
      nn::Linear<D, T> linear{nn::OwnMatrix<D, T>(loader_.template weight<T>(path + ".weight"))};
      if (loader_.has(path + ".bias")) linear.bias = loader_.template vector<Accum<T>>(path + ".bias");
      linears.emplace_back(std::string(p.name), std::move(linear));
    }
    return nn::LoraLinear<D, T>(std::move(linears), mix_key(static_cast<std::uint64_t>(layer), std::uint64_t{number}));
  }

  Loader<D>& loader_;
  const Config& config_;
  const nn::Rotary<D, T>& rotary_;
};

}  // namespace lora::model
