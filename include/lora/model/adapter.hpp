#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"
#include "lora/io/safetensors.hpp"
#include "lora/model/config.hpp"
#include "lora/model/module_pattern.hpp"
#include "lora/model/tensors.hpp"
#include "lora/nn/lora_linear.hpp"

namespace lora::model {

/// LoRA settings in PEFT's terms.
struct AdapterConfig {
  Index rank = 8;
  double alpha = 16;
  double dropout = 0;
  bool rslora = false;
  std::vector<std::string> targets{projection_names.begin(), projection_names.end()};
  std::vector<std::pair<std::string, Index>>
      rank_pattern{};  ///< module name or its end → rank; the first that fits holds
  std::vector<std::pair<std::string, double>> alpha_pattern{};  ///< module name or its end → alpha; likewise
  std::vector<Index> layers{};                                  ///< layers_to_transform; empty: all
  std::vector<std::string> excluded{};                          ///< exclude_modules: module name or its end
  std::optional<std::set<std::string>> modules{};  ///< exactly these, where PEFT's own choice was a regular expression
  std::string target_expression{};                 ///< that expression, kept for saving
  std::string exclude_expression{};                ///< exclude_modules as a regular expression, kept likewise
  std::string base_model{};                        ///< base_model_name_or_path

  bool targets_module(Index layer, std::string_view projection) const {
    const std::string path = module_path(layer, projection);
    const auto fits = [&](const std::vector<std::string>& ends) {
      return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) { return ends_path(path, end); });
    };
    if (modules) return modules->count(path) != 0;
    if (fits(excluded)) return false;
    if (std::find(targets.begin(), targets.end(), path) != targets.end()) return true;  // named in full: in any layer
    return (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end()) && fits(targets);
  }

  /// Rank 0 where the projection stays frozen.
  nn::LoraRank rank_of(Index layer, std::string_view projection) const {
    if (!targets_module(layer, projection)) return {};
    const std::string path = module_path(layer, projection);
    const auto pattern = [&](const auto& entries, auto otherwise) {
      for (const auto& [key, value] : entries)
        if (ends_path(path, key)) return value;
      return otherwise;
    };
    const Index r = pattern(rank_pattern, rank);
    const double a = pattern(alpha_pattern, alpha);
    return {r, a / (rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r))};
  }

  static bool ends_path(std::string_view path, std::string_view end) {
    return path == end || (path.ends_with(end) && path[path.size() - end.size() - 1] == '.');
  }
};

namespace detail {

constexpr std::string_view adapter_prefix = "base_model.model.";
constexpr Index max_rank = 1 << 16;

/// Refuses what would compute something else: every field of adapter_config.json that is not known to be read or to say
/// nothing about the numbers, and is not off.
inline void refuse_variants(const io::JsonView& json) {
  constexpr std::string_view read[] = {"peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules",
                                       "exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern",
                                       "alpha_pattern", "base_model_name_or_path",
                                       // with some of their values
                                       "bias", "init_lora_weights"};
  constexpr std::string_view silent[] = {"task_type", "auto_mapping", "revision", "inference_mode", "peft_version",
                                         // of an initialisation, which init_lora_weights names
                                         "loftq_config", "eva_config",
                                         // of variants, which fields of their own switch on
                                         "megatron_core", "qalora_group_size"};
  const auto has = [](const auto& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  const auto refuse = [&](const std::string& field, const io::Json& value, std::string_view why = {}) {
    json.fail("\"", field, "\" is ", io::shown(value), ", which is not supported", why);
  };
  if (const auto bias = json.find("bias"); bias && !io::json_is(bias->json(), "none")) refuse("bias", bias->json());
  constexpr std::string_view unchanged_base[] = {"gaussian", "eva", "mica", "orthogonal"};
  if (const auto* start = io::json_find(json.json(), "init_lora_weights");
      start != nullptr && !start->is_boolean() &&
      !(start->is_string() && has(unchanged_base, start->get_ref<const std::string&>())))
    refuse("init_lora_weights", *start,
           ", for it changes the base's weights; PEFT converts such an adapter when it saves it with "
           "path_initial_model_for_weight_conversion");
  for (const auto& [field, value] : io::json_fields(json.json())) {
    const bool off = value.is_boolean() && !value.get<bool>();
    const bool empty = ((value.is_array() || value.is_object()) && value.empty()) || io::json_is(value, "");
    if (!has(read, field) && !has(silent, field) && !value.is_null() && !off && !empty) refuse(field, value);
  }
}

/// One element of an adapter's tensor.
inline double element_of(const io::StoredTensor& tensor, std::size_t i, const std::string& where) {
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

}  // namespace detail

/// Reads adapter_config.json's content.
/// Throws   FormatError naming the field, for another PEFT type or a variant that is not supported
inline AdapterConfig parse_adapter_config(const io::Json& content, const std::string& where) {
  const auto json = io::JsonView::of_object(content, where);
  const auto type = json.at<std::string>("peft_type");
  if (type != "LORA") json.fail("\"peft_type\" is \"", type, "\"; expected \"LORA\"");
  detail::refuse_variants(json);
  AdapterConfig config;
  config.rank = json.at<Index>("r");
  config.alpha = json.at<double>("lora_alpha");
  config.dropout = json.get<double>("lora_dropout").value_or(0);
  config.rslora = json.get<bool>("use_rslora").value_or(false);
  config.base_model = json.get<std::string>("base_model_name_or_path").value_or("");
  const auto check_rank = [&](std::string_view name, Index rank) {
    if (rank < 1 || rank > detail::max_rank)
      fail<FormatError>(where, ": \"", name, "\" is ", rank, "; expected 1 to ", detail::max_rank);
  };
  check_rank("r", config.rank);
  const auto check_alpha = [&](std::string_view name, double alpha) {
    if (!std::isfinite(static_cast<float>(alpha)))
      fail<FormatError>(where, ": \"", name, "\" is ", alpha, ", which is no finite number in float32");
  };
  check_alpha("lora_alpha", config.alpha);
  if (!(config.dropout >= 0 && config.dropout < 1))
    fail<FormatError>(where, ": \"lora_dropout\" is ", config.dropout, "; expected at least 0 and below 1");

  const auto targets = json.find("target_modules");
  if (!targets) fail<FormatError>(where, ": \"target_modules\" is missing");
  config.targets.clear();
  if (targets->json().is_string()) {
    config.target_expression = targets->as<std::string>();
    config.modules.emplace();  // filled from the tensors that the adapter has
    if (config.target_expression.find_first_of("\\^$*+?()[]{}|") == std::string::npos &&
        config.target_expression.find('.') == std::string::npos && config.target_expression != "all-linear")
      fail<FormatError>(where, ": \"target_modules\" is the expression \"", config.target_expression,
                        "\", which is no module's whole name; expected a list of names, a regular expression, or ",
                        "\"all-linear\"");
    if (config.target_expression == "all-linear") {
      config.targets.assign(projection_names.begin(), projection_names.end());
      config.modules.reset();
      config.target_expression.clear();
    }
  } else {
    config.targets = targets->as<std::vector<std::string>>();
    for (const auto& target : config.targets) {
      const auto last = std::string_view(target).substr(target.rfind('.') + 1);
      if (std::find(projection_names.begin(), projection_names.end(), last) == projection_names.end())
        fail<FormatError>(where, ": \"target_modules\" has \"", target,
                          "\", which is not supported; expected q_proj, k_proj, v_proj, o_proj, ",
                          "gate_proj, up_proj or down_proj");
    }
  }
  if (const auto excluded = json.find("exclude_modules"); excluded && !excluded->json().empty()) {
    if (excluded->json().is_string()) {
      config.exclude_expression = excluded->as<std::string>();
      config.modules.emplace();
    } else {
      config.excluded = excluded->as<std::vector<std::string>>();
    }
  }
  if (const auto layers = json.find("layers_to_transform"))
    config.layers = layers->json().is_array() ? layers->as<std::vector<Index>>() : std::vector{layers->as<Index>()};
  if (const auto pattern = json.find("layers_pattern"); pattern && !pattern->json().empty()) {
    const io::Json& value = pattern->json();
    if (!io::json_is(value.is_array() && value.size() == 1 ? value.front() : value, "layers"))
      json.fail("\"layers_pattern\" is ", io::shown(value), ", which is not supported; expected \"layers\"");
  }
  const auto check_key = [&](std::string_view field, const std::string& key) {
    if (key.find_first_of("\\^$*+?()[]{}|") != std::string::npos)
      fail<FormatError>(where, ": \"", field, "\" has the regular expression \"", key,
                        "\", which is not supported; expected a module's name or its end");
  };
  const auto read_pattern = [&]<class V>(std::string_view field, std::vector<std::pair<std::string, V>>& entries,
                                         const auto& check_value) {
    const auto pattern = json.find(field);
    if (!pattern) return;
    if (!pattern->json().is_object())
      json.fail("\"", field, "\" is ", io::shown(pattern->json()), "; expected an object");
    pattern->for_each_field([&](const std::string& key, const io::JsonView& value) {
      check_key(field, key);
      entries.emplace_back(key, value.as<V>());
      check_value(key, entries.back().second);
    });
  };
  read_pattern("rank_pattern", config.rank_pattern, check_rank);
  read_pattern("alpha_pattern", config.alpha_pattern, check_alpha);
  return config;
}

/// An adapter folder: its settings, and its tensors still in the mapped file.
struct AdapterFiles {
  AdapterConfig config;
  io::Safetensors tensors;
  std::filesystem::path folder;
};

/// Opens adapter_config.json and adapter_model.safetensors. What regular expressions choose as modules is taken from
/// what the tensors show.
inline AdapterFiles open_adapter(const std::filesystem::path& folder) {
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

namespace detail {

/// Throws   FormatError if target_modules has an expression, or a name in full, that fits no module of such a model
inline void check_targets(const AdapterConfig& adapter, const Config& config, const std::string& where) {
  const auto expect_some = [&](const std::string& target, auto&& fits) {
    for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const auto projection : projection_names)
        if (fits(module_path(layer, projection))) return;
    fail<FormatError>(where, ": \"target_modules\" has \"", target,
                      "\", which fits no module of this model; its modules ", "are ", module_path(0, "q_proj"), ", ",
                      module_path(0, "gate_proj"), " and so on up to ",
                      module_path(config.num_hidden_layers - 1, "down_proj"));
  };
  if (adapter.target_expression.empty())
    for (const std::string& target : adapter.targets)
      expect_some(target, [&](const std::string& path) { return AdapterConfig::ends_path(path, target); });
  const ModulePattern pattern(adapter.target_expression);
  if (!adapter.target_expression.empty() && pattern.known())
    expect_some(adapter.target_expression, [&](const std::string& path) { return pattern.matches(path); });
}

}  // namespace detail

/// Compares an adapter's tensors with what its settings ask for in such a model. To be called before `attach`, which
/// makes room for what the settings say. Throws   FormatError for a tensor that is missing or has another shape, or
/// where nothing is targeted, or nothing by one of target_modules
inline void check_adapter(const AdapterFiles& files, const Config& config) {
  const std::string where = (files.folder / "adapter_model.safetensors").native();
  detail::check_targets(files.config, config, (files.folder / "adapter_config.json").native());
  std::vector<std::string> missing;
  bool any = false;
  for_each_tensor(config, [&](const TensorInfo& info) {
    if (info.kind != TensorInfo::Kind::projection) return;
    const Index rank = files.config.rank_of(info.layer, info.projection).rank;
    if (rank == 0) return;
    any = true;
    const auto expect = [&](std::string_view side, const Shape& shape) {
      const std::string name =
          concat(detail::adapter_prefix, module_path(info.layer, info.projection), ".lora_", side, ".weight");
      const auto* tensor = files.tensors.find(name);
      if (tensor == nullptr) {
        missing.push_back(name);
      } else if (tensor->shape != shape) {
        fail<FormatError>(where, ": the tensor ", name, " is ", to_string(tensor->shape), "; the config expects ",
                          to_string(shape));
      }
    };
    expect("A", {rank, info.shape[1]});
    expect("B", {info.shape[0], rank});
  });
  if (!any)
    fail<FormatError>((files.folder / "adapter_config.json").native(), ": it targets no projection of this model");
  if (!missing.empty()) fail<FormatError>(where, ": missing tensors: ", io::listed(missing));
}

/// adapter_config.json as PEFT reads it.
inline io::Json to_json(const AdapterConfig& config) {
  const bool whole = config.alpha == std::floor(config.alpha) && std::abs(config.alpha) < 1e15;
  const auto patterns = [](const auto& entries) {
    io::Json json = io::Json::object();
    for (const auto& [key, value] : entries) json[key] = value;
    return json;
  };
  return io::json_object(
      {{"peft_type", "LORA"},
       {"task_type", "CAUSAL_LM"},
       {"auto_mapping", nullptr},
       {"base_model_name_or_path", config.base_model.empty() ? io::Json() : io::Json(config.base_model)},
       {"revision", nullptr},
       {"inference_mode", true},
       {"r", config.rank},
       {"lora_alpha", whole ? io::Json(static_cast<Index>(config.alpha)) : io::Json(config.alpha)},
       {"lora_dropout", config.dropout},
       {"use_rslora", config.rslora},
       {"use_dora", false},
       {"target_modules",
        config.target_expression.empty() ? io::json_array(config.targets) : io::Json(config.target_expression)},
       {"exclude_modules", !config.exclude_expression.empty() ? io::Json(config.exclude_expression)
                           : !config.excluded.empty()         ? io::json_array(config.excluded)
                                                              : io::Json()},
       {"bias", "none"},
       {"fan_in_fan_out", false},
       {"init_lora_weights", true},
       {"rank_pattern", patterns(config.rank_pattern)},
       {"alpha_pattern", patterns(config.alpha_pattern)},
       {"layers_to_transform", config.layers.empty() ? io::Json() : io::json_array(config.layers)},
       {"layers_pattern", nullptr},
       {"modules_to_save", nullptr}});
}

/// Writes adapter_config.json and adapter_model.safetensors (float32) into a folder that exists. `model` is a Decoder
/// with an adapter attached.
/// Throws   NonFiniteError, before anything is written, for an adapter that a step has spoilt
template <class D, class Model>
void save_adapter(D& dev, Model& model, const std::filesystem::path& folder) {
  using Accumulated = typename Model::Accumulated;
  static_assert(std::same_as<Accumulated, float>, "adapters are saved as float32");
  struct Item {
    io::TensorDeclaration declaration;
    std::vector<float> values;
  };
  std::vector<Item> items;
  model.params().for_each([&](const auto& param) {
    std::vector<float> values = to_host(dev, param.value);
    for (const float value : values)
      if (!std::isfinite(value))
        fail<NonFiniteError>("the adapter is not saved: its tensor ", param.name, " holds ", value,
                             "; a smaller learning_rate may help");
    const Index rows = param.value.rows(), cols = param.value.cols();
    if (param.transposed) {
      std::vector<float> turned(values.size());
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < cols; ++j)
          turned[static_cast<std::size_t>(j * rows + i)] = values[static_cast<std::size_t>(i * cols + j)];
      values = std::move(turned);
    }
    items.push_back({{concat(detail::adapter_prefix, param.name, ".weight"), DType::f32,
                      param.transposed ? Shape{cols, rows} : Shape{rows, cols}},
                     std::move(values)});
  });
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.declaration.name < b.declaration.name; });
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& item : items) declarations.push_back(item.declaration);
  io::SafetensorsWriter writer(folder / "adapter_model.safetensors", declarations);
  for (const auto& item : items) writer.add(item.declaration.name, std::as_bytes(std::span(item.values)));
  writer.commit();
  io::write_file(folder / "adapter_config.json", io::to_text(to_json(model.adapter())) + "\n");
}

/// Fills an attached adapter from an adapter folder.
/// Throws   FormatError listing what is missing, has another shape, or belongs to nothing
template <class D, class Model>
void load_adapter(D& dev, Model& model, const AdapterFiles& files) {
  const std::string where = (files.folder / "adapter_model.safetensors").native();
  std::set<std::string> used;
  std::vector<std::string> missing;
  using Accumulated = typename Model::Accumulated;
  std::vector<std::vector<Accumulated>> staged;  // the parameters' values, until the device is waited for
  model.params().for_each([&](const auto& param) {
    const std::string name = concat(detail::adapter_prefix, param.name, ".weight");
    const auto* tensor = files.tensors.find(name);
    used.insert(name);
    if (tensor == nullptr) {
      missing.push_back(name);
      return;
    }
    const Index rows = param.value.rows(), cols = param.value.cols();
    const Shape expected = param.transposed ? Shape{cols, rows} : Shape{rows, cols};
    if (tensor->shape != expected)
      fail<FormatError>(where, ": the tensor ", name, " is ", to_string(tensor->shape), "; the config expects ",
                        to_string(expected));
    std::vector<Accumulated>& values = staged.emplace_back(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto place = param.transposed ? i % static_cast<std::size_t>(cols) * static_cast<std::size_t>(rows) +
                                                i / static_cast<std::size_t>(cols)
                                          : i;
      const double value = detail::element_of(*tensor, place, where);
      if (!std::isfinite(static_cast<float>(value)))
        fail<FormatError>(where, ": the tensor ", name, " holds ", value, "; expected finite numbers of float32");
      values[i] = static_cast<Accumulated>(value);
    }
  });
  if (!missing.empty()) fail<FormatError>(where, ": missing tensors: ", io::listed(missing));
  std::vector<std::string> extra;
  for (const auto& tensor : files.tensors.tensors())
    if (used.count(tensor.name) == 0) extra.push_back(tensor.name);
  if (!extra.empty()) fail<FormatError>(where, ": tensors that the config does not target: ", io::listed(extra));
  std::size_t next = 0;
  model.params().for_each([&](const auto& param) { copy_from_host<D, Accumulated>(dev, staged[next++], param.value); });
  model.params().refresh(dev);
  dev.synchronize();
}

/// Starts an attached adapter as PEFT does: A uniform in ±1/√I, B zero. Each tensor's numbers depend on the seed and
/// its name only.
template <class D, class Model>
void init_adapter(D& dev, Model& model, std::uint64_t seed) {
  using Accumulated = typename Model::Accumulated;
  std::vector<std::vector<Accumulated>> staged;  // until the device is waited for
  model.params().for_each([&](const auto& param) {
    std::vector<Accumulated>& values = staged.emplace_back(static_cast<std::size_t>(param.value.size()));
    if (!param.transposed) {
      Random random(mix_key(seed, text_hash(param.name)));
      const double bound = 1 / std::sqrt(static_cast<double>(param.value.cols()));
      for (auto& value : values)
        value = static_cast<Accumulated>((2.0 * static_cast<double>(random.uniform()) - 1.0) * bound);
    }
    copy_from_host<D, Accumulated>(dev, values, param.value);
  });
  model.params().refresh(dev);
  dev.synchronize();
}

}  // namespace lora::model
