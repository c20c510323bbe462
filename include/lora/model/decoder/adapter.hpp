#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "lora/model/description/adapter_config.hpp"
#include "lora/model/description/config.hpp"
#include "lora/model/description/tensors.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::model {

namespace detail {

constexpr std::string_view adapter_prefix = "base_model.model.";
constexpr std::string_view tied_head = "lm_head.weight";

}  // namespace detail

/// An adapter folder: its settings, and its tensors still in the mapped file.
struct AdapterFiles {
  AdapterConfig config;
  io::Safetensors tensors;
  io::Path folder;
};

/// Opens adapter_config.json and adapter_model.safetensors. What regular expressions choose as modules is taken from
/// what the tensors show.
AdapterFiles open_adapter(const io::Path& folder);

namespace detail {

/// One element of an adapter's tensor.
double element_of(const io::StoredTensor& tensor, std::size_t i, const std::string& where);

/// The tensors of an adapter's file that are none of these.
std::vector<std::string> others_than(const std::set<std::string>& known, const AdapterFiles& files);

/// `known`: all that its file should have. Throws   FormatError with `missing` of them, and what the file has instead
void expect_none_missing(const AdapterFiles& files, const std::vector<std::string>& missing,
                         const std::set<std::string>& known);

}  // namespace detail

/// Whether an adapter has other numbers for the head of a tied model than for its embedding: in modules_to_save stands
/// one of the two alone, or both and the file has different tensors for them. PEFT trains and merges them apart then;
/// here `Source::part_head` makes a model for such an adapter.
bool parts_head(const AdapterFiles& files, const Config& config);

/// Compares an adapter's tensors with what its settings ask for in such a model. To be called before `attach`, which
/// makes room for what the settings say. Throws   FormatError for a tensor that is missing or has another shape, or
/// where nothing is targeted, or nothing by one of target_modules
void check_adapter(const AdapterFiles& files, const Config& config);

/// f(ParamRef) for every factor of an attached adapter: not for tensors of the model that train beside it.
template <class Model, class F>
void for_each_factor(Model& model, F&& f) {
  model.params().for_each([&](const auto& param) {
    if (param.name.ends_with(".lora_A") || param.name.ends_with(".lora_B")) f(param);
  });
}

namespace detail {

/// f(param, name in an adapter's file, shape there) for the factors and for what trains whole beside them. A tied head
/// has its embedding's numbers under both names, as PEFT needs them.
template <class Model, class F>
void for_each_saved(Model& model, F&& f) {
  std::map<std::string, TensorInfo> whole;
  for (const TensorInfo& info : tensors_of(model.config())) {
    if (model.adapter().trains_whole(info)) whole.emplace(info.name, info);
  }
  for_each_factor(model, [&](const auto& param) {
    const Index rows = param.value.rows(), cols = param.value.cols();
    f(param, concat(adapter_prefix, param.name, ".weight"), param.transposed ? Shape{cols, rows} : Shape{rows, cols});
  });
  model.params().for_each([&](const auto& param) {
    const auto info = whole.find(param.name);
    if (info == whole.end()) return;
    f(param, concat(adapter_prefix, param.name), info->second.shape);
    if (model.config().tie_word_embeddings && info->second.kind == TensorInfo::Kind::embedding)
      f(param, concat(adapter_prefix, tied_head), info->second.shape);
  });
}

}  // namespace detail

/// Writes adapter_config.json and adapter_model.safetensors (float32) into a folder that exists. `model` is a Decoder
/// with an adapter attached.
/// Throws   NonFiniteError, before anything is written, for an adapter that a step has spoiled
template <class D, class Model>
void save_adapter(D& dev, Model& model, const io::Path& folder) {
  using Accumulated = typename Model::Accumulated;
  static_assert(std::same_as<Accumulated, float>, "adapters are saved as float32");
  struct Item {
    io::TensorDeclaration declaration;
    std::vector<float> values;
  };
  std::vector<Item> items;
  detail::for_each_saved(model, [&](const auto& param, const std::string& name, const Shape& shape) {
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
    items.push_back({{name, DType::f32, shape}, std::move(values)});
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
  detail::for_each_saved(model, [&](const auto& param, const std::string& name, const Shape& expected) {
    const auto* tensor = files.tensors.find(name);
    used.insert(name);
    if (tensor == nullptr) {
      missing.push_back(name);
      return;
    }
    const Index rows = param.value.rows(), cols = param.value.cols();
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
  detail::expect_none_missing(files, missing, used);
  const std::vector<std::string> extra = detail::others_than(used, files);
  if (!extra.empty()) fail<FormatError>(where, ": tensors that the config does not target: ", listed(extra));
  std::size_t next = 0;
  detail::for_each_saved(model, [&](const auto& param, const std::string&, const Shape&) {
    copy_from_host<D, Accumulated>(dev, staged[next++], param.value);
  });
  model.params().refresh(dev);
  dev.synchronize();
}

/// Starts an attached adapter as PEFT does: A uniform in ±1/√I, B zero. Each tensor's numbers depend on the seed and
/// its name only.
template <class D, class Model>
void init_adapter(D& dev, Model& model, std::uint64_t seed) {
  using Accumulated = typename Model::Accumulated;
  std::vector<std::vector<Accumulated>> staged;  // until the device is waited for
  for_each_factor(model, [&](const auto& param) {
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

#ifndef LORA_COMPILED
#  include "lora/model/decoder/adapter.ipp"
#endif
