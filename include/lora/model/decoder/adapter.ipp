#pragma once

#include <system_error>

#include "lora/core/config.hpp"
#include "lora/model/decoder/adapter.hpp"

namespace lora::model {

LORA_INLINE AdapterFiles open_adapter(const io::Path& folder) {
  const auto config_file = folder / "adapter_config.json";
  AdapterConfig config = parse_adapter_config(io::read_json(config_file), config_file.native());
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "adapter_model.safetensors", ignored) &&
      std::filesystem::exists(folder / "adapter_model.bin", ignored))
    fail<FormatError>((folder / "adapter_model.bin").native(),
                      ": a pickle, which is not read; expected adapter_model.safetensors (save_pretrained with ",
                      "safe_serialization=True)");
  auto tensors = io::Safetensors::open(folder / "adapter_model.safetensors");
  if (config.modules) {
    for (const auto& tensor : tensors.tensors()) {
      std::string_view name = tensor.name;
      if (!name.starts_with(detail::adapter_prefix) || !name.ends_with(".lora_A.weight")) continue;
      name.remove_prefix(detail::adapter_prefix.size());
      name.remove_suffix(std::string_view(".lora_A.weight").size());
      config.modules->insert(std::string(name));
    }
  }
  return {std::move(config), std::move(tensors), folder};
}

}  // namespace lora::model

namespace lora::model::detail {

LORA_INLINE double element_of(const io::StoredTensor& tensor, std::size_t i, const std::string& where) {
  const auto read = [&]<class S>(S) {
    S value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(S), sizeof(S));
    return value;
  };
  switch (tensor.dtype) {
    case DType::f32:
      return static_cast<double>(read(float{}));
    case DType::bf16:
      return static_cast<double>(static_cast<float>(read(bf16{})));
    case DType::f16:
      return static_cast<double>(static_cast<float>(read(f16{})));
    case DType::f64:
      return read(double{});
    default:
      fail<FormatError>(where, ": the tensor ", tensor.name, " is ", name_of(tensor.dtype),
                        "; expected F32, BF16 or F16");
  }
}

/// Throws   FormatError if target_modules has an expression, or a name in full, that fits no module of such a model
LORA_INLINE void check_targets(const AdapterConfig& adapter, const Config& config, const std::string& where) {
  const std::vector<std::string> names = projection_names_of(config);
  const auto expect_some = [&](const std::string& target, auto&& fits) {
    for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const auto& projection : names)
        if (fits(module_path(layer, projection))) return;
    fail<FormatError>(where, ": \"target_modules\" has \"", target,
                      "\", which fits no module of this model; its modules ", "are ", module_path(0, names.front()),
                      ", ", module_path(0, groups_of(config)[2].projections.front().name), " and so on up to ",
                      module_path(config.num_hidden_layers - 1, "down_proj"));
  };
  if (adapter.target_expression.empty())
    for (const std::string& target : adapter.targets)
      expect_some(target, [&](const std::string& path) { return AdapterConfig::ends_path(path, target); });
  const ModulePattern pattern(adapter.target_expression);
  if (!adapter.target_expression.empty() && pattern.known())
    expect_some(adapter.target_expression, [&](const std::string& path) { return pattern.matches(path); });
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE bool parts_head(const AdapterFiles& files, const Config& config) {
  if (!config.tie_word_embeddings) return false;
  const auto has = [&](std::string_view name, TensorInfo::Kind kind) {
    return files.config.trains_whole({std::string(name), {}, {}, kind});
  };
  const bool embedding = has(detail::table_name, TensorInfo::Kind::embedding);
  if (embedding != has(detail::tied_head, TensorInfo::Kind::head)) return true;
  const auto* const table = files.tensors.find(concat(detail::adapter_prefix, detail::table_name));
  const auto* const head = files.tensors.find(concat(detail::adapter_prefix, detail::tied_head));
  return embedding && table != nullptr && head != nullptr && !is_same(*table, *head);
}

}  // namespace lora::model

namespace lora::model::detail {

/// Throws   FormatError for a name of modules_to_save that no module has, or for a head that the model ties to the
///          embedding and the adapter doesn't
LORA_INLINE void check_whole_modules(const AdapterFiles& files, const Config& config) {
  const std::string where = (files.folder / "adapter_config.json").native();
  for (const std::string& name : files.config.whole_modules) {
    AdapterConfig one;
    one.whole_modules = {name};
    bool any = one.trains_whole({std::string(tied_head), {}, {}, TensorInfo::Kind::head});
    for (const TensorInfo& info : tensors_of(config)) any = any || one.trains_whole(info);
    if (!any)
      fail<FormatError>(where, ": \"modules_to_save\" has ", io::shown(name), ", which is no module of this model");
  }
  if (parts_head(files, config))
    fail<FormatError>(where, ": \"modules_to_save\" parts the head from the embedding, to which this model ties it; ",
                      "expected a model whose head was parted, or embed_tokens and lm_head with the same numbers");
}

/// Whether an extent that the model decides, which are all but `rank_axis`, is another one.
LORA_INLINE bool is_of_another_base(const Shape& found, const Shape& expected, int rank_axis) {
  if (found.rank() != expected.rank()) return false;  // of no model: the file is damaged
  for (int axis = 0; axis < found.rank(); ++axis)
    if (axis != rank_axis && found[axis] != expected[axis]) return true;
  return false;
}

LORA_INLINE std::string another_base(const AdapterConfig& config) {
  const std::string& base = config.base_model;
  return concat("; the adapter belongs to another base model",
                base.empty() ? "" : concat(": its \"base_model_name_or_path\" is ", io::shown(base)));
}

LORA_INLINE std::vector<std::string> others_than(const std::set<std::string>& known, const AdapterFiles& files) {
  std::vector<std::string> others;
  for (const io::StoredTensor& tensor : files.tensors.tensors())
    if (known.count(tensor.name) == 0) others.push_back(tensor.name);
  return others;
}

LORA_INLINE void expect_none_missing(const AdapterFiles& files, const std::vector<std::string>& missing,
                                     const std::set<std::string>& known) {
  if (missing.empty()) return;
  const std::vector<std::string> found = others_than(known, files);
  fail<FormatError>((files.folder / "adapter_model.safetensors").native(), ": missing tensors: ", listed(missing),
                    found.empty() ? "" : "; instead it has ", listed(found));
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE void check_adapter(const AdapterFiles& files, const Config& config) {
  const std::string where = (files.folder / "adapter_model.safetensors").native();
  detail::check_targets(files.config, config, (files.folder / "adapter_config.json").native());
  detail::check_whole_modules(files, config);
  std::vector<std::string> missing;
  std::set<std::string> known;
  bool any = false;
  // `rank_axis`: the extent that the adapter's settings say; the others are the model's.
  const auto expect = [&](std::string_view own_name, const Shape& shape, int rank_axis) {
    const std::string name = concat(detail::adapter_prefix, own_name);
    const auto* tensor = files.tensors.find(name);
    known.insert(name);
    if (tensor == nullptr) {
      missing.push_back(name);
    } else if (tensor->shape != shape) {
      const bool of_another = detail::is_of_another_base(tensor->shape, shape, rank_axis);
      fail<FormatError>(where, ": the tensor ", name, " is ", to_string(tensor->shape), "; the config expects ",
                        to_string(shape), of_another ? detail::another_base(files.config) : "");
    }
  };
  for (const TensorInfo& info : tensors_of(config)) {
    if (files.config.trains_whole(info)) expect(info.name, info.shape, -1);
    if (info.kind != TensorInfo::Kind::projection) continue;
    const Index rank = files.config.rank_of(info.layer, info.projection).rank;
    if (rank == 0) continue;
    any = true;
    const std::string path = module_path(info.layer, info.projection);
    expect(path + ".lora_A.weight", {rank, info.shape[1]}, 0);
    expect(path + ".lora_B.weight", {info.shape[0], rank}, 1);
  }
  if (!any)
    fail<FormatError>((files.folder / "adapter_config.json").native(), ": it targets no projection of this model");
  detail::expect_none_missing(files, missing, known);
}

}  // namespace lora::model
