#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/nn/stack.hpp"

namespace lora::model {

/// Of every layer with this window.
inline kernel::AttentionShape attention_shape(const Config& config, Index window) {
  const double squares = config.query_scalar > 0 ? config.query_scalar : static_cast<double>(config.head_dim);
  return {config.num_attention_heads, config.num_key_value_heads, config.head_dim, 1 / std::sqrt(squares), window,
          config.attention_cap};
}

/// Builds the modules of a model from the tensors that a Loader reads, which it asks for in the order of the model.
template <AnyDevice D, class T>
class LayerBuilder {
 public:
  /// All outlive it, and the tables the layers as well; `window_rotary` is that of layers with a window.
  LayerBuilder(Loader<D>& loader, const Config& config, const nn::Rotary<D, T>& rotary,
               const nn::Rotary<D, T>& window_rotary)
      : loader_(loader), config_(config), rotary_(rotary), window_rotary_(window_rotary) {}

  nn::RmsNorm<D, T> norm(const std::string& name) const {
    return {loader_.template vector<Accum<T>>(name), config_.rms_norm_eps, config_.norm_offset};
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
    const Index window = config_.windows[static_cast<std::size_t>(i)];
    attention.shape = attention_shape(config_, window);
    if (config_.rotates[static_cast<std::size_t>(i)]) attention.rotary = window > 0 ? &window_rotary_ : &rotary_;
    attention.layer = i;
    attention.norm = norm(prefix + "input_layernorm.weight");
    if (config_.post_norms) attention.post_norm = nn::PostNorm<D, T>(norm(prefix + "post_attention_layernorm.weight"));
    nn::RmsNorm<D, T> before = norm(concat(prefix, mlp_norm(config_), ".weight"));
    nn::LoraLinear<D, T> gate_up_proj = projections(i, 2), down_proj = projections(i, 3);
    nn::PostNorm<D, T> behind;
    if (config_.post_norms) behind = nn::PostNorm<D, T>(norm(prefix + "post_feedforward_layernorm.weight"));
    nn::Mlp<D, T> mlp(std::move(before), std::move(gate_up_proj), std::move(down_proj), config_.gate,
                      std::move(behind));
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
  const nn::Rotary<D, T>& window_rotary_;
};

}  // namespace lora::model
