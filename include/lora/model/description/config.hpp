#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/json_view.hpp"
#include "lora/kernel/activation.hpp"
#include "lora/model/description/model_type.hpp"
#include "lora/nn/rotary.hpp"

namespace lora::model {

/// A decoder's architecture, from a Hugging Face config.json or GGUF metadata.
struct Config {
  std::string model_type;         ///< of model_types
  Index hidden_size = 0;          // E
  Index intermediate_size = 0;    // F
  Index num_hidden_layers = 0;    // L
  Index num_attention_heads = 0;  // H
  Index num_key_value_heads = 0;  // G
  Index head_dim = 0;             // C
  Index vocab_size = 0;           // V
  Index max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double norm_offset = 0;   ///< added to the weights of norms
  bool post_norms = false;  ///< norms behind attention and the MLP as well
  kernel::Gate gate = kernel::Gate::silu;
  double embedding_scale = 1;
  double query_scalar = 0;   ///< attention's scores are scaled by its −½th power; 0: head_dim
  double attention_cap = 0;  ///< soft cap of attention's scores; 0: none
  double logit_cap = 0;      ///< of the logits
  nn::RopeConfig rope;
  std::optional<nn::RopeConfig> window_rope{};  ///< of layers with a window, where they have their own
  std::vector<bool> rotates;                    ///< per layer: false is a layer without rotary embedding
  std::vector<Index> windows;  ///< per layer: keys that a query sees at most, its own with them; 0: all before it
  bool fused = false;          ///< q, k and v are one projection, gate and up another
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tie_word_embeddings = false;
  std::string dtype;  ///< as stored; "" if not given
  std::vector<std::int32_t> eos_token_ids{};
  std::optional<std::int32_t> bos_token_id{};
  std::optional<std::int32_t> pad_token_id{};  ///< negative: counted from the end of the vocabulary
  double initializer_range = 0.02;             ///< standard deviation of weights that nothing has trained
};

/// A config's type; one without a name where it is none of model_types.
inline const ModelType& type_of(const Config& config) {
  static constexpr ModelType none{};
  const ModelType* const type = find_model_type(config.model_type);
  return type != nullptr ? *type : none;
}

/// The narrowest window of any layer; 0 if none has one.
Index narrowest_window(const Config& config);

/// The longest sequence that a model supports, including rope scaling; 0 if unknown.
Index longest_sequence(const Config& config);

namespace detail {

void check_extent(std::string_view name, Index value, const std::string& where, Index limit = Index{1} << 24);

/// `theta`: its field.
void check_rope(const nn::RopeConfig& rope, Index head_dim, const std::string& where,
                std::string_view theta = "rope_theta");

}  // namespace detail

void check_ids(std::string_view name, const std::vector<std::int32_t>& ids, const std::string& where);

namespace detail {

/// Checks that apply to both sources.
void check(const Config& config, const std::string& where);

/// What rope_parameters calls layers without a window, where there are settings per type of layer.
inline constexpr const char* full_layers = "full_attention";
/// And those with one.
inline constexpr const char* window_layers = "sliding_attention";

/// The object with the rotary settings: rope_scaling, which unless empty replaces rope_parameters like in transformers,
/// or rope_parameters, of gemma3_text those for full_layers; nothing if there is none.
/// Throws   FormatError for settings per type of layer of other types, and of gemma3_text for others
std::optional<io::JsonView> rope_settings(const io::JsonView& json);

}  // namespace detail

/// rope_theta, which newer files keep in rope_parameters and older ones next to rope_scaling. Of gemma3_text that in
/// rope_parameters counts, with rope_scaling beside them too, as in transformers.
double theta_of(const io::JsonView& json, double otherwise);

/// Which layers use rotary embedding: all except by no_rope_layers (1 = uses RoPE), or where that is left out each of
/// no_rope_layer_interval, which is `interval` where that is left out too; 0: all.
std::vector<bool> rotates_of(const io::JsonView& json, Index layers, Index interval);

/// The window of each layer by the type's rule, as transformers has it.
/// Throws   FormatError for one that a type without windows would use, or types of layers that go with no window
std::vector<Index> windows_of(const io::JsonView& json, Index layers, const ModelType& type);

/// The ids of a field with one id or an array; none if it is absent.
std::vector<std::int32_t> ids_of(const io::JsonView& json, std::string_view key);

/// Reads the content of config.json. Unsupported fields that would change the computation are errors.
/// Throws   FormatError naming field and value
Config parse_config(const io::Json& content, const std::string& where);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/config.ipp"
#endif
