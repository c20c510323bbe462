#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/model/config.hpp"

namespace lora::model {

/// The projections of a layer in their order, which are those that an adapter can target.
constexpr std::array<std::string_view, 7> projection_names = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                              "gate_proj", "up_proj", "down_proj"};

/// Where a projection of a layer stands in the model: "model.layers.3.self_attn.q_proj".
inline std::string module_path(Index layer, std::string_view projection) {
  const bool attention =
      projection == "q_proj" || projection == "k_proj" || projection == "v_proj" || projection == "o_proj";
  return concat("model.layers.", layer, attention ? ".self_attn." : ".mlp.", projection);
}

/// One tensor of a model.
struct TensorInfo {
  enum class Kind { embedding, norm, projection, bias, head };

  std::string name;  ///< Hugging Face's, as in model.safetensors
  std::string gguf_name;
  Shape shape;  ///< (O, I), or (n) of a norm or bias
  Kind kind;
  Index layer = -1;               ///< or -1 outside of the layers
  std::string_view projection{};  ///< of projection_names, for projections and their biases
  std::string_view norm{};        ///< of a layer's norm: "input_layernorm", "self_attn.q_norm", …
  /// GGUF's llama files hold each q and k head's rows as (pair, half) instead of (half, pair): the number of heads to
  /// put back in order there, 0 where rows are in order.
  Index gguf_heads = 0;
};

/// Every tensor of a model, each storage once (a tied head is the embedding), in the order of the model. Loading,
/// merging, saving, forecasts and names of GGUF files follow this one list.
std::vector<TensorInfo> tensors_of(const Config& config);

/// Numbers of the model, in all of its tensors.
inline Index parameters_of(const Config& config) {
  Index count = 0;
  for (const TensorInfo& tensor : tensors_of(config)) count += tensor.shape.count();
  return count;
}

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/tensors.ipp"
#endif
