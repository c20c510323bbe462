#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/model/description/config.hpp"

// Which projections a layer has, which of them read one input, and how wide they are: said here and nowhere else.

namespace lora::model {

/// One projection of a layer. Its widths are functions of the model's shape.
struct Projection {
  std::string_view name;  ///< as Hugging Face and PEFT have it
  std::string_view gguf_name;
  Index (*out)(const Config&);
  Index (*in)(const Config&);
  bool Config::*has_bias;
  /// Of llama and smollm3, GGUF has the rows of its heads in another order, see TensorInfo: so many; null where it has
  /// none.
  Index Config::*gguf_heads = nullptr;
};

/// Projections that read one input: one module of a layer, an nn::LoraLinear.
struct ProjectionGroup {
  std::string_view half;  ///< of the layer, in which it stands: "self_attn" or "mlp"
  std::span<const Projection> projections;

  Index in(const Config& config) const { return projections.front().in(config); }
};

namespace detail {

constexpr Index model_width(const Config& c) { return c.hidden_size; }
constexpr Index hidden_width(const Config& c) { return c.intermediate_size; }
constexpr Index query_width(const Config& c) { return c.num_attention_heads * c.head_dim; }
constexpr Index key_width(const Config& c) { return c.num_key_value_heads * c.head_dim; }
constexpr Index qkv_width(const Config& c) { return query_width(c) + 2 * key_width(c); }
constexpr Index gate_up_width(const Config& c) { return 2 * c.intermediate_size; }

}  // namespace detail

/// The projections of a layer in their order. All of them are what an adapter can target.
/// fused_projections: where those of one input are one matrix, with rows of q, k and v, or of gate and up, one below
/// the other.
inline constexpr std::array<Projection, 7> projections = {{
    {"q_proj", "attn_q", detail::query_width, detail::model_width, &Config::qkv_bias, &Config::num_attention_heads},
    {"k_proj", "attn_k", detail::key_width, detail::model_width, &Config::qkv_bias, &Config::num_key_value_heads},
    {"v_proj", "attn_v", detail::key_width, detail::model_width, &Config::qkv_bias},
    {"o_proj", "attn_output", detail::model_width, detail::query_width, &Config::o_bias},
    {"gate_proj", "ffn_gate", detail::hidden_width, detail::model_width, &Config::mlp_bias},
    {"up_proj", "ffn_up", detail::hidden_width, detail::model_width, &Config::mlp_bias},
    {"down_proj", "ffn_down", detail::model_width, detail::hidden_width, &Config::mlp_bias},
}};

inline constexpr std::array<Projection, 4> fused_projections = {{
    {"qkv_proj", "attn_qkv", detail::qkv_width, detail::model_width, &Config::qkv_bias},
    {"o_proj", "attn_output", detail::model_width, detail::query_width, &Config::o_bias},
    {"gate_up_proj", "ffn_up", detail::gate_up_width, detail::model_width, &Config::mlp_bias},
    {"down_proj", "ffn_down", detail::model_width, detail::hidden_width, &Config::mlp_bias},
}};

/// The groups of a layer, of which nn::Block::groups has the modules in the same order.
inline constexpr std::array<ProjectionGroup, 4> projection_groups = {{
    {"self_attn", std::span(projections).subspan(0, 3)},
    {"self_attn", std::span(projections).subspan(3, 1)},
    {"mlp", std::span(projections).subspan(4, 2)},
    {"mlp", std::span(projections).subspan(6, 1)},
}};

inline constexpr std::array<ProjectionGroup, 4> fused_groups = {{
    {"self_attn", std::span(fused_projections).subspan(0, 1)},
    {"self_attn", std::span(fused_projections).subspan(1, 1)},
    {"mlp", std::span(fused_projections).subspan(2, 1)},
    {"mlp", std::span(fused_projections).subspan(3, 1)},
}};

/// Those of a model.
inline const std::array<ProjectionGroup, 4>& groups_of(const Config& config) {
  return config.fused ? fused_groups : projection_groups;
}

/// The names of a model's projections.
inline std::vector<std::string> projection_names_of(const Config& config) {
  std::vector<std::string> names;
  for (const ProjectionGroup& group : groups_of(config))
    for (const Projection& p : group.projections) names.emplace_back(p.name);
  return names;
}

/// The same in a message: "qkv_proj, o_proj, gate_up_proj, down_proj".
inline std::string projection_list(std::span<const Projection> of) {
  std::string text;
  for (const Projection& p : of) text += (text.empty() ? "" : ", ") + std::string(p.name);
  return text;
}
inline std::string projection_list(const Config& config) {
  return config.fused ? projection_list(fused_projections) : projection_list(projections);
}

/// The norm before the MLP, which has another name where there are norms behind.
inline std::string_view mlp_norm(const Config& config) {
  return config.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
}

/// A norm of a model, by the last part of its name, and what says that a model has it; null: each has.
struct NormModule {
  std::string_view name;
  bool Config::*exists = nullptr;
};

inline constexpr std::array<NormModule, 7> norm_modules = {{{"input_layernorm"},
                                                            {"post_attention_layernorm"},
                                                            {"norm"},
                                                            {"pre_feedforward_layernorm", &Config::post_norms},
                                                            {"post_feedforward_layernorm", &Config::post_norms},
                                                            {"q_norm", &Config::qk_norm},
                                                            {"k_norm", &Config::qk_norm}}};

/// Where the modules of a group stand in the model, with a dot behind: "model.layers.3.self_attn.".
inline std::string group_path(Index layer, const ProjectionGroup& group) {
  return concat("model.layers.", layer, ".", group.half, ".");
}

/// Where a projection of a layer stands in the model: "model.layers.3.self_attn.q_proj".
inline std::string module_path(Index layer, std::string_view projection) {
  const ProjectionGroup* found = &projection_groups.back();
  for (const auto* groups : {&projection_groups, &fused_groups})
    for (const ProjectionGroup& group : *groups)
      if (std::any_of(group.projections.begin(), group.projections.end(),
                      [&](const Projection& p) { return p.name == projection; }))
        found = &group;
  return group_path(layer, *found) + std::string(projection);
}

}  // namespace lora::model
