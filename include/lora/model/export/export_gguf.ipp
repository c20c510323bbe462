#pragma once

#include "lora/core/config.hpp"
#include "lora/model/export/export_gguf.hpp"

namespace lora::model::detail {

/// A matrix's dtype in a file: blocks only where its rows are whole ones, as llama.cpp's converter falls back.
LORA_INLINE DType gguf_matrix_dtype(DType dtype, Index cols) {
  return cols % block_elements(dtype) == 0 ? dtype : DType::f16;
}

/// The number of general.file_type. Source   llama.h, llama_ftype
LORA_INLINE std::uint32_t gguf_file_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q8_0:
      return 7;
    default:
      return 32;  // bf16
  }
}

/// Of the formats of quantized blocks. Source   ggml.h, GGML_QNT_VERSION
inline constexpr std::uint32_t gguf_quantization_version = 2;

/// What yarn multiplies cos and sin by where nothing else is said. Source   Peng et al. 2023
LORA_INLINE double plain_yarn_magnitude(const nn::RopeConfig& rope) {
  nn::RopeConfig plain = rope;
  plain.attention_factor = plain.mscale = plain.mscale_all_dim = 0;
  return nn::rotary_magnitude(plain);
}

LORA_INLINE void add_rope(io::GgufMetadata& metadata, const std::string& arch, const Config& config) {
  const nn::RopeConfig& rope = config.rope;
  const auto number = [&](std::string_view name, double value) {
    metadata.add(concat(arch, ".rope.", name), static_cast<float>(value));
  };
  metadata.add(arch + ".rope.dimension_count", static_cast<std::uint32_t>(config.head_dim));
  number("freq_base", rope.theta);
  if (config.window_rope) number("freq_base_swa", config.window_rope->theta);
  using Scaling = nn::RopeConfig::Scaling;
  if (rope.scaling == Scaling::longrope) {
    metadata.add(arch + ".rope.scaling.original_context_length",
                 static_cast<std::uint32_t>(rope.original_max_position_embeddings));
    number("scaling.attn_factor", nn::rotary_magnitude(rope));
  }
  if (rope.scaling != Scaling::linear && rope.scaling != Scaling::yarn) return;
  metadata.add(arch + ".rope.scaling.type", rope.scaling == Scaling::linear ? "linear" : "yarn");
  number("scaling.factor", rope.factor);
  if (rope.scaling == Scaling::linear) return;
  metadata.add(arch + ".rope.scaling.original_context_length",
               static_cast<std::uint32_t>(rope.original_max_position_embeddings));
  number("scaling.yarn_beta_fast", rope.beta_fast);
  number("scaling.yarn_beta_slow", rope.beta_slow);
  if (const double factor = nn::rotary_magnitude(rope) / plain_yarn_magnitude(rope); factor != 1)
    number("scaling.attn_factor", factor);
}

LORA_INLINE std::vector<std::pair<std::string, std::vector<float>>> gguf_rope_tensors(const Config& config) {
  const nn::RopeConfig& rope = config.rope;
  if (rope.scaling == nn::RopeConfig::Scaling::longrope)
    return {{"rope_factors_long.weight", rope.long_factors}, {"rope_factors_short.weight", rope.short_factors}};
  constexpr const char* name = "rope_freqs.weight";
  if (!rope.frequency_factors.empty()) return {{name, rope.frequency_factors}};
  if (rope.scaling != nn::RopeConfig::Scaling::llama3) return {};
  nn::RopeConfig plain;
  plain.theta = rope.theta;
  std::vector<float> factors = nn::inverse_frequencies(plain, config.head_dim);
  const std::vector<float> scaled = nn::inverse_frequencies(rope, config.head_dim);
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
  return {{name, std::move(factors)}};
}

LORA_INLINE std::vector<float> permuted(std::vector<float> values, Index rows, Index heads) {
  std::vector<float> result(values.size());
  const auto cols = values.size() / static_cast<std::size_t>(rows);
  for (Index row = 0; row < rows; ++row) {
    const auto from = static_cast<std::size_t>(row), to = static_cast<std::size_t>(permuted_row(row, rows, heads));
    std::copy_n(values.data() + from * cols, cols, result.data() + to * cols);
  }
  return result;
}

LORA_INLINE Index gguf_rows_at_once(const TensorInfo& info, Index rows, Index cols, Index numbers) {
  const Index some = std::max<Index>(numbers / cols, 1);
  if (info.gguf_heads == 0 || info.shape.rank() == 1) return some;
  const Index width = rows / info.gguf_heads;
  return (some + width - 1) / width * width;
}

/// What llama.cpp takes for granted of gemma2 and gemma3.
template <class Refuse>
void check_gemma(const Config& config, const ModelType& type, Index window, const Refuse& refuse) {
  if (window == 0 || config.windows != windows_in_gguf(type, config.num_hidden_layers, window))
    refuse("other layers have a sliding window", concat("all but each of ", type.window_interval));
  if (const double scalar = gguf_query_scalar(config); config.query_scalar != scalar)
    refuse(concat("query_pre_attn_scalar is ", config.query_scalar), concat(scalar));
  for (const auto& [name, cap, expected] :
       {std::tuple("attn_logit_softcapping", config.attention_cap, type.attention_cap),
        std::tuple("final_logit_softcapping", config.logit_cap, type.logit_cap)})
    if ((cap > 0) != (expected > 0))
      refuse(concat(name, cap > 0 ? " is there" : " is not there"), expected > 0 ? "one" : "none");
  if (type.logit_cap > 0 && !config.tie_word_embeddings) refuse("the head is not the embedding's", "it to be");
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE std::optional<DType> gguf_dtype(std::string_view outtype) {
  if (outtype == "f32") return DType::f32;
  if (outtype == "f16") return DType::f16;
  if (outtype == "bf16") return DType::bf16;
  if (outtype == "q8_0") return DType::q8_0;
  return std::nullopt;
}

LORA_INLINE DType gguf_dtype_of(const Source& source) {
  return folder_dtype(source.stored_dtype()) == DType::bf16 ? DType::bf16 : DType::f16;
}

LORA_INLINE void check_gguf(const Config& config, const std::string& where) {
  const std::string_view arch = gguf_architecture(config);
  const auto refuse = [&](std::string_view what, std::string_view expected) {
    fail<FormatError>(where, ": ", what, ", which llama.cpp's ", arch, " has no place for; expected ", expected);
  };
  const ModelType& type = type_of(config);
  const auto rotates = rotates_in_gguf(type, config.num_hidden_layers);
  for (std::size_t i = 0; i < rotates.size(); ++i)
    if (config.rotates[i] != rotates[i])
      refuse(concat("layer ", i, " runs ", config.rotates[i] ? "with" : "without", " rotary embedding"),
             type.no_rope_interval > 0 ? concat("each of ", type.no_rope_interval, " without, and the others with it")
                                       : "all with it: export a smollm3 or use transformers");
  const Index window = narrowest_window(config);
  const bool llama = arch == "llama";
  if (type.gemma) {
    detail::check_gemma(config, type, window, refuse);
  } else if (window > 0 && !type.gguf_windows) {
    refuse(concat("attention has a sliding window of ", window, " tokens"), "none");
  }
  const bool longrope = config.rope.scaling == nn::RopeConfig::Scaling::longrope;
  if (!detail::gguf_rope_tensors(config).empty() && !llama && !longrope)
    refuse("rope_scaling is Llama 3.1's", "none, linear or yarn");
  if (config.rope.scaling == nn::RopeConfig::Scaling::yarn && !config.rope.truncate)
    refuse("rope_scaling has \"truncate\" false", "true");
  if (config.qkv_bias && !llama && !type.qkv_bias) refuse("q, k and v have biases", "none");
  if (!config.qkv_bias && type.qkv_bias) refuse("q, k and v have no biases", "them");
  if (config.o_bias && !llama) refuse("o_proj has a bias", "none");
  if (config.mlp_bias && !llama) refuse("the projections of the MLP have biases", "none");
  if ((type.qkv_bias || type.fused) && config.num_attention_heads * config.head_dim != config.hidden_size)
    refuse(concat(config.num_attention_heads, " heads of ", config.head_dim, " columns"),
           concat("as many columns in all as the model, ", config.hidden_size));
}

LORA_INLINE io::GgufMetadata gguf_metadata(const Config& config, DType dtype, const std::string& name) {
  const std::string arch(gguf_architecture(config));
  io::GgufMetadata metadata;
  metadata.add("general.architecture", arch);
  metadata.add("general.type", "model");
  metadata.add("general.name", name);
  const auto count = [&](std::string_view key, Index value) {
    metadata.add(concat(arch, ".", key), static_cast<std::uint32_t>(value));
  };
  count("block_count", config.num_hidden_layers);
  if (config.max_position_embeddings > 0) count("context_length", config.max_position_embeddings);
  count("embedding_length", config.hidden_size);
  count("feed_forward_length", config.intermediate_size);
  count("attention.head_count", config.num_attention_heads);
  count("attention.head_count_kv", config.num_key_value_heads);
  count("attention.key_length", config.head_dim);
  count("attention.value_length", config.head_dim);
  metadata.add(arch + ".attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_norm_eps));
  // Of phi3 also where there is none: llama.cpp had another default.
  if (type_of(config).gguf_windows) count("attention.sliding_window", narrowest_window(config));
  if (config.attention_cap > 0)
    metadata.add(arch + ".attn_logit_softcapping", static_cast<float>(config.attention_cap));
  if (config.logit_cap > 0) metadata.add(arch + ".final_logit_softcapping", static_cast<float>(config.logit_cap));
  count("vocab_size", config.vocab_size);
  detail::add_rope(metadata, arch, config);
  metadata.add("general.file_type", detail::gguf_file_type(dtype));
  metadata.add("general.quantization_version", detail::gguf_quantization_version);
  return metadata;
}

LORA_INLINE std::vector<io::TensorDeclaration> gguf_tensors(const Config& config, DType dtype) {
  std::vector<io::TensorDeclaration> tensors;
  for (const auto& [name, factors] : detail::gguf_rope_tensors(config))
    tensors.push_back({name, DType::f32, {std::ssize(factors)}});
  for (const TensorInfo& info : tensors_of(config)) {
    const bool is_vector = info.shape.rank() == 1;
    tensors.push_back(
        {info.gguf_name, is_vector ? DType::f32 : detail::gguf_matrix_dtype(dtype, info.shape[1]), info.shape});
  }
  return tensors;
}

LORA_INLINE GgufAdapter::GgufAdapter(AdapterFiles files, const Config& config, std::optional<DType> dtype)
    : files_(std::move(files)), architecture_(gguf_architecture(config)) {
  check_adapter(files_, config);
  const AdapterConfig& adapter = files_.config;
  if (!adapter.whole_modules.empty())
    fail<FormatError>((files_.folder / "adapter_config.json").native(), ": \"modules_to_save\" has ",
                      io::shown(io::json_array(adapter.whole_modules)),
                      ", which an adapter's GGUF file can't hold; expected none: export the merged model, without ",
                      "adapter_only");
  const auto stored = [&](const TensorInfo& info, std::string_view factor) {
    return files_.tensors.find(
        concat(detail::adapter_prefix, module_path(info.layer, info.projection), factor, ".weight"));
  };
  std::optional<DType> found;
  for (const TensorInfo& info : tensors_of(config)) {
    if (info.kind != TensorInfo::Kind::projection) continue;
    const nn::LoraRank rank = adapter.rank_of(info.layer, info.projection);
    if (rank.rank == 0) continue;
    // llama.cpp scales by alpha over the rank, with one alpha for all: what differs goes into B.
    const double alpha = rank.scale * static_cast<double>(rank.rank);
    if (alpha == 0)
      fail<FormatError>((files_.folder / "adapter_config.json").native(), ": lora_alpha of ", info.name,
                        " is 0, which llama.cpp takes for a scale of 1; expected another");
    if (alpha_ == 0) alpha_ = alpha;
    factors_.push_back({stored(info, ".lora_A"), 0, 1});
    factors_.push_back({stored(info, ".lora_B"), info.gguf_heads, alpha / alpha_});
    if (!found) found = factors_[0].stored->dtype;
    dtype_ = dtype.value_or(*found == DType::f64 ? DType::f32 : *found);
    for (const auto& [end, factor] : {std::pair(".lora_a", factors_.end()[-2]), std::pair(".lora_b", factors_.back())})
      tensors_.push_back(
          {info.gguf_name + end, detail::gguf_matrix_dtype(dtype_, factor.stored->shape[1]), factor.stored->shape});
  }
}

LORA_INLINE io::GgufMetadata GgufAdapter::metadata(const std::string& name) const {
  io::GgufMetadata metadata;
  metadata.add("general.architecture", architecture_);
  metadata.add("general.type", "adapter");
  metadata.add("adapter.type", "lora");
  metadata.add("general.name", name);
  metadata.add("adapter.lora.alpha", static_cast<float>(alpha_));
  metadata.add("general.quantization_version", detail::gguf_quantization_version);
  return metadata;
}

LORA_INLINE void GgufAdapter::write(io::GgufWriter& writer) const {
  const std::string where = (files_.folder / "adapter_model.safetensors").native();
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    const Factor& factor = factors_[i];
    std::vector<float> values(static_cast<std::size_t>(factor.stored->shape.count()));
    for (std::size_t j = 0; j < values.size(); ++j)
      values[j] = static_cast<float>(factor.scale * detail::element_of(*factor.stored, j, where));
    if (factor.heads > 0) values = detail::permuted(std::move(values), factor.stored->shape[0], factor.heads);
    writer.add(tensors_[i].name, encoded(values, tensors_[i].dtype, factor.stored->name));
  }
}

}  // namespace lora::model
