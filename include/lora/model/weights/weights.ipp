#pragma once

#include <cstdint>
#include <system_error>

#include "lora/core/config.hpp"
#include "lora/model/weights/weights.hpp"

namespace lora::model {

LORA_INLINE Source Source::open(const io::Path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const auto file = path / "config.json";
    if (!io::is_there(file))
      if (const std::string held = io::weights_by_other_names(path); !held.empty())
        fail<IoError>("no config.json in ", path.native(), held);
    io::Json json = io::read_json(file);
    Config config = parse_config(json, file.native());
    Source source(path, io::Safetensors::open(path), std::move(json), std::move(config));
    source.has_no_prefix_ = !source.find(detail::table_name) && source.find(detail::table_name.substr(prefix.size()));
    if (source.has_no_prefix_) source.config_json_["architectures"] = {std::string(class_of(source.config_))};
    source.take_own_head();
    return source;
  }
  if (path.extension() == ".gguf") {
    auto file = io::Gguf::open(path);
    Config config = read_config(file);
    return Source(path, std::move(file), std::move(config));
  }
  if (!std::filesystem::exists(path, ignored)) fail<IoError>(path.native(), ": no such model folder or .gguf file");
  fail<FormatError>(path.native(), ": expected a model folder or a .gguf file");
}

LORA_INLINE Source Source::initial(const io::Path& path, io::Json json, std::uint64_t seed) {
  Config config = parse_config(json, (path / "config.json").native());
  return Source(path, std::move(json), std::move(config), seed);
}

LORA_INLINE const std::vector<io::StoredTensor>& Source::tensors() const {
  static const std::vector<io::StoredTensor> none;
  return gguf_ ? gguf_->tensors() : safetensors_ ? safetensors_->tensors() : none;
}

LORA_INLINE void Source::part_head() {
  head_was_tied_ = head_was_tied_ || config_.tie_word_embeddings;
  config_.tie_word_embeddings = false;
}

LORA_INLINE const io::StoredTensor& Source::at(const TensorInfo& info) const {
  const std::string stored_name = file_name_of(info);
  const auto* tensor = find(stored_name);
  if (const auto tied_to = name_tied_to(info); tensor == nullptr && !tied_to.empty()) tensor = find(tied_to);
  if (tensor == nullptr) {
    std::string other;
    for (const io::StoredTensor& one : tensors())
      if (one.name.ends_with("." + stored_name) ||
          one.name == concat(prefix, "language_model.", std::string_view(stored_name).substr(prefix.size())))
        other = concat("; there is ", one.name, ", with a prefix of its own");
    if (has_no_prefix_ && info.kind == TensorInfo::Kind::head) other = ": the model was saved without its head";
    fail<FormatError>(path_.native(), ": the tensor ", stored_name, " is missing", other);
  }
  if (tensor->shape != info.shape)
    fail<FormatError>(path_.native(), ": the tensor ", stored_name, " is ", to_string(tensor->shape),
                      "; the config expects ", to_string(info.shape));
  switch (tensor->dtype) {
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
      fail<FormatError>(path_.native(), ": the tensor ", stored_name, " is ", lora::name_of(tensor->dtype),
                        "; expected a floating point or GGUF block type");
    default:
      return *tensor;
  }
}

LORA_INLINE ProvidedTensor Source::provide(const TensorInfo& info) const {
  if (random_) return random_->provide(info);
  const io::StoredTensor& tensor = at(info);
  if (!gguf_ || info.kind != TensorInfo::Kind::norm || config_.norm_offset == 0)
    return {tensor.dtype, tensor.bytes, tensor.file, gguf_ ? info.gguf_heads : 0};
  if (tensor.dtype != DType::f32)
    fail<FormatError>(path_.native(), ": the tensor ", tensor.name, " is ", lora::name_of(tensor.dtype),
                      "; expected F32, as norms have");
  const auto weights = std::make_shared<std::vector<float>>(static_cast<std::size_t>(info.shape.count()));
  std::memcpy(weights->data(), tensor.bytes.data(), tensor.bytes.size());
  move_weights(*weights, -config_.norm_offset);
  return {DType::f32, std::as_bytes(std::span(*weights)), weights, 0};
}

LORA_INLINE void Source::finish() const {
  std::set<std::string> known;
  for (const TensorInfo& info : tensors_of(config_)) known.insert(file_name_of(info));
  std::string extra;
  const bool longrope = config_.rope.scaling == nn::RopeConfig::Scaling::longrope;
  for (const auto& tensor : tensors()) {
    // What old versions of transformers saved of a rotary embedding follows from config.json.
    const bool rotary = tensor.name.find(".rotary_emb.") != tensor.name.npos || tensor.name == "rope_freqs.weight" ||
                        (longrope && tensor.name.starts_with("rope_factors_"));
    if (rotary || known.count(tensor.name) != 0) continue;
    if (config_.tie_word_embeddings && tensor.name == "lm_head.weight") continue;  // the embedding once more
    extra += (extra.empty() ? "" : ", ") + tensor.name;
    if (extra.size() > 300) {
      extra += ", …";
      break;
    }
  }
  if (!extra.empty())
    fail<FormatError>(path_.native(), ": tensors that a ", config_.model_type,
                      " model of this config does not have: ", extra);
}

LORA_INLINE DType Source::stored_dtype() const {
  std::optional<DType> dtype;
  for (const TensorInfo& info : tensors_of(config_)) {
    if (!dtype && info.projection == "down_proj" && info.kind == TensorInfo::Kind::projection) dtype = dtype_of(info);
  }
  return *dtype;
}

LORA_INLINE Source::Source(io::Path path, io::Safetensors file, io::Json json, Config config)
    : path_(std::move(path)),
      config_(std::move(config)),
      config_json_(std::move(json)),
      safetensors_(std::move(file)) {}

LORA_INLINE Source::Source(io::Path path, io::Json json, Config config, std::uint64_t seed)
    : path_(std::move(path)),
      config_(std::move(config)),
      config_json_(std::move(json)),
      random_(std::in_place, config_, seed) {}

LORA_INLINE const io::StoredTensor* Source::find(std::string_view name) const {
  return gguf_ ? gguf_->find(name) : safetensors_ ? safetensors_->find(name) : nullptr;
}

LORA_INLINE std::string_view Source::name_tied_to(const TensorInfo& info) const {
  if (info.kind == TensorInfo::Kind::embedding && config_.tie_word_embeddings) return "lm_head.weight";
  if (info.kind != TensorInfo::Kind::head || !head_was_tied_) return {};
  return gguf_ ? "token_embd.weight" : name_in_folder(detail::table_name);
}

LORA_INLINE void Source::take_own_head() {
  const auto *head = find("lm_head.weight"), *table = find(name_in_folder(detail::table_name));
  if (!config_.tie_word_embeddings || head == nullptr || table == nullptr || is_same(*head, *table)) return;
  config_.tie_word_embeddings = false;
  config_json_["tie_word_embeddings"] = false;
  log::warn(path_.native(), ": lm_head.weight is used, which differs from the embedding, although config.json has ",
            "tie_word_embeddings true; what is written of this model says false");
}

LORA_INLINE std::string_view config_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail<ConfigError>("a model folder can't hold weights as ", name_of(dtype),
                        "; expected float32, bfloat16 or float16");
  }
}

LORA_INLINE io::Json config_json_of(const Source& source) {
  const std::string where = source.path().native();
  if (source.gguf() != nullptr)
    return to_json(source.config(), config_dtype_name(folder_dtype(source.stored_dtype())), where);
  io::Json json = source.config_json();
  write_rotary(json, source.config(), where);
  return json;
}

LORA_INLINE bool rotary_changed(const Source& source) {
  const std::string where = source.path().native();
  const Config own = source.gguf() != nullptr ? read_config(*source.gguf()) : parse_config(source.config_json(), where);
  return own.rope.theta != source.config().rope.theta || own.rotates != source.config().rotates;
}

}  // namespace lora::model
