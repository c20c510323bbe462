#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/formats/safetensors.hpp"
#include "lora/model/weights/tensor_provider.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::model {

/// Whether all of a model's own tensors are parameters.
template <class Model>
bool trains_whole(Model& model) {
  std::set<std::string> names;
  for (const auto& entry : model.params().entries()) names.insert(entry.name);
  bool whole = true;
  for (const TensorInfo& info : tensors_of(model.config())) whole = whole && names.count(info.name) != 0;
  return whole;
}

/// Saves those of the model's own tensors that are parameters as one file, in float32 as they are trained, one after
/// the other. `model` is a Decoder. Ranks that share them out gather each: all call this, and one gives a path.
/// Throws   NonFiniteError for a tensor that a step has spoiled; the file then does not appear
template <class D, class Model>
void save_trained(D& dev, Model& model, const std::optional<io::Path>& path) {
  static_assert(std::same_as<typename Model::Accumulated, float>, "weights are saved as they are trained, in float32");
  std::map<std::string, Shape> shapes;
  for (const TensorInfo& info : tensors_of(model.config())) shapes.emplace(info.name, info.shape);
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& entry : model.params().entries())
    if (shapes.count(entry.name) != 0) declarations.push_back({entry.name, DType::f32, shapes.at(entry.name)});
  std::optional<io::SafetensorsWriter> writer;
  if (path) writer.emplace(*path, std::move(declarations));
  for (const auto& entry : model.params().entries()) {
    if (shapes.count(entry.name) == 0) continue;
    const Arena::Scope scope(dev.arena());
    const auto whole = model.params().whole(dev, entry);
    if (!writer) continue;
    with_host_values(dev, whole, [&](std::span<const float> values) {
      for (const float value : values)
        if (!std::isfinite(value))
          fail<NonFiniteError>("the weights are not saved: the tensor ", entry.name, " holds ", value,
                               "; if the base has no such number, a smaller learning_rate may help");
      writer->add(entry.name, std::as_bytes(values));
    });
  }
  if (writer) writer->commit();
}

/// A model with some tensors as `save_trained` left them, and the rest from another provider, which outlives this.
class TrainedWeights : public TensorProvider {
 public:
  TrainedWeights(const TensorProvider& base, const io::Path& path)
      : base_(base), path_(path), file_(io::Safetensors::open(path)) {}

  const Config& config() const override { return base_.config(); }

  ProvidedTensor provide(const TensorInfo& info) const override {
    const io::StoredTensor* const tensor = file_.find(info.name);
    if (tensor == nullptr) return base_.provide(info);
    if (tensor->shape != info.shape || tensor->dtype != DType::f32)
      fail<FormatError>(path_.native(), ": the tensor ", info.name, " is ", name_of(tensor->dtype), " ",
                        to_string(tensor->shape), "; expected f32 ", to_string(info.shape));
    return {tensor->dtype, tensor->bytes, tensor->file, 0};
  }

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  void finish() const override {
    base_.finish();
    std::set<std::string> names;
    for (const TensorInfo& info : tensors_of(config())) names.insert(info.name);
    for (const io::StoredTensor& tensor : file_.tensors())
      if (names.count(tensor.name) == 0)
        fail<FormatError>(path_.native(), ": the tensor ", tensor.name, " belongs to no part of such a model");
  }

 private:
  const TensorProvider& base_;
  io::Path path_;
  io::Safetensors file_;
};

/// Gives those of the model's own tensors that are parameters the numbers that `save_trained` left of them.
/// Each of several ranks takes its part of what they share out, and gathers nothing.
/// Throws   FormatError for a file of other tensors, or of numbers that are not finite, before any is taken
template <class D, class Model>
void load_trained(D& dev, Model& model, const TensorProvider& base, const io::Path& path) {
  const TrainedWeights trained(base, path);
  std::map<std::string, TensorInfo> infos;
  for (const TensorInfo& info : tensors_of(model.config())) infos.emplace(info.name, info);
  const auto for_each_bytes = [&](const auto& f) {
    for (const auto& entry : model.params().entries()) {
      const auto info = infos.find(entry.name);
      if (info == infos.end()) continue;
      if (!trained.has(entry.name)) fail<FormatError>(path.native(), ": the tensor ", entry.name, " is missing");
      f(entry, trained.provide(info->second).bytes);
    }
  };
  for_each_bytes([&](const auto& entry, std::span<const std::byte> bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(sizeof(float))) {
      float value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      if (!std::isfinite(value))
        fail<FormatError>(path.native(), ": the tensor ", entry.name, " holds ", value, "; expected finite numbers");
    }
  });
  trained.finish();
  for_each_bytes([&](const auto& entry, std::span<const std::byte> bytes) {
    model.params().own_values(dev, entry, [&](Index begin, View<D, float> to) {
      std::vector<float> values(static_cast<std::size_t>(to.size()));
      std::memcpy(values.data(), bytes.data() + static_cast<std::size_t>(begin) * sizeof(float),
                  values.size() * sizeof(float));
      copy_from_host<D, float>(dev, values, to);
      dev.synchronize();  // the values go away
    });
  });
  model.params().refresh(dev);
  dev.synchronize();
}

}  // namespace lora::model
